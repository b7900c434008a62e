"""The command line: every mistake is one clear line with exit code 2, and the whole way from train to report works."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys

import pytest
from support import tiny

from trident.cli import COMMANDS, main
from trident.errors import TridentError
from trident.report.progress import PlainProgress
from trident.training import session
from trident.training.registry import ALGORITHMS, ENVS
from trident.training.settings import parse_seeds

SMALL = ["--algo", "tiny", "--episodes", "20", "--seeds", "2", "--eval-episodes", "4"]


@pytest.fixture(scope="module", autouse=True)
def _shared():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "build", tiny.share_builds())
        yield


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """(run directory, what was printed)"""
    out, said = tmp_path_factory.mktemp("cli") / "run", io.StringIO()
    options = ["--out", str(out), "--algo.lr", "0.1", "--limit", "use=0.4", "noise=2"]
    with contextlib.redirect_stdout(said):
        assert main(["train", "tiny", *SMALL, *options]) == 0
    return out, said.getvalue()


@pytest.fixture(scope="module")
def trained(training):
    return training[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian tiny", "unknown command 'trian': did you mean 'train'?"),
        ("train tinny", "unknown environment 'tinny': did you mean 'tiny'?"),
        ("train tiny --algo tini", "unknown algorithm 'tini': did you mean 'tiny'?"),
        ("train tiny --algo tiny --sedes 3", "unknown option --sedes: did you mean --seeds?"),
        ("train tiny --algo tiny --algo.lrr 3", "unknown option --algo.lrr: did you mean --algo.lr?"),
        ("train tiny --algo tiny --algo.lr much", "Error parsing --algo.lr: could not convert string to float: 'much'"),
        ("train tiny --algo tiny --episodes 1.5", "Error parsing --episodes: invalid literal for int()"),
        ("train tiny --algo tiny --episodes 0", "--episodes must be at least 1"),
        ("train tiny --algo tiny --seeds two", "--seeds wants a number of seeds or a list like 4,7, not 'two'"),
        ("train tiny --algo tiny --limit us=1", "unknown constraint 'us' of tiny: did you mean 'use'?"),
        ("train tiny --algo tiny --limit use", "--limit wants NAME=VALUE"),
        ("train tiny --algo tiny --limit use=nan", "--limit wants NAME=VALUE with a finite value"),
        ("train tiny --algo tiny --warm-start rando", "unknown scripted policy 'rando' of tiny: did you mean"),
        ("train tiny --algo tiny --shielded", "tiny has no shield: leave out --shielded"),
        ("train tiny --algo shielded", "tiny has no shield: shielded needs one"),
        ("train uav-mec --algo qmix --algo.levels 99", "qmix cannot be built for uav-mec: 99 levels of up to 3 param"),
        (
            "train uav-mec --algo maddpg --algo.levels 0",
            "maddpg cannot be built for uav-mec: a grid needs",
        ),
        ("train tiny --algo tiny --algo.replay 1000000000000", "lower --algo.replay or --seeds"),
        ("train tiny --algo happo --algo.envs 0", "--algo.envs and --algo.steps must be at least 1"),
        ("train tiny --algo trident --algo.estimator exakt", "unknown estimator 'exakt': there are auto, "),
        ("train tiny --algo trident --algo.attention 1", "--algo.attention is a share"),
        ("train tiny --algo trident --algo.damping 0", "--algo.damping must be above 0"),
        ("train tiny --algo trident --algo.backtracks 0", "--algo.backtracks must be at least 1"),
        ("eval nowhere --episodes 0", "--episodes must be at least 1"),
        ("render tiny --env tiny", "--env shows a run elsewhere, and tiny is none"),
        ("train --algo tiny", "which environment?"),
        ("train tiny tiny --algo tiny", "tiny"),
        ("resume nowhere", "nowhere is not a run directory"),
        ("eval nowhere", "nowhere is not a run directory"),
        ("eval", "RUN"),
        ("report nowhere", "nowhere is not a run directory"),
        ("render nowhere", "unknown environment 'nowhere'"),
        ("render tiny --policy rand", "unknown scripted policy 'rand' of tiny: did you mean 'random'?"),
        ("check tinny", "unknown environment 'tinny'"),
        ("list all", "takes no arguments"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_way_out(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.startswith("trident: ")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert list(tmp_path.iterdir()) == [], "nothing may be left behind"


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("TRIDENT_DEBUG", "1")
    with pytest.raises(TridentError):
        main(["check", "tinny"])


@pytest.mark.parametrize("command", list(COMMANDS))
def test_help_of_every_command_teaches(command, capsys):
    try:
        code = main([command, "--help"])
    except SystemExit as exit_:
        code = exit_.code
    assert code in (0, None)
    said = capsys.readouterr().out
    assert f"trident {command}" in said
    if command not in ("list", "bench"):  # nothing to choose, or only sub-commands
        assert f"  trident {command} " in said, "at least one example"


def test_help_of_train_shows_the_options_of_the_algorithm(capsys):
    with pytest.raises(SystemExit):
        main(["train", "tiny", "--algo", "tiny", "--help"])
    said = capsys.readouterr().out
    assert "--algo.lr FLOAT" in said
    assert "Step size." in said
    assert "--limit NAME=VALUE" in said
    assert "--eval-episodes" in said


def test_general_help_and_version(capsys):
    assert main([]) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("trident ")


def test_list_has_a_line_for_everything(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in (*ENVS, *ALGORITHMS):
        assert sum(line.split()[:1] == [name] for line in lines) >= 1, name
    assert "[scripted: random]" in next(line for line in lines if line.split()[:1] == ["tiny"])


def test_check_passes_a_good_environment(capsys):
    assert main(["check", "tiny"]) == 0
    assert capsys.readouterr().out == "tiny: 0 faults, 0 doubts\n"


def test_train_prints_plan_progress_table_and_place(training):
    out, said = training
    assert "tiny on tiny (version 1, 2 agents): 2 seeds x 10 rounds x 16 env steps = 320 env steps" in said
    assert "compiling" in said
    assert "round 10/10" in said
    assert "cost use <= 0.4 rate" in said
    assert said.rstrip().endswith(f"everything is in {out}")
    assert (out / "records.jsonl").read_text().count("\n") == 10


def test_eval_repeats_the_table_and_report_draws_it_again(trained, capsys):
    assert main(["report", str(trained)]) == 0
    report = capsys.readouterr().out
    assert str(trained / "figures" / "learning.png") in report
    assert main(["eval", str(trained), "--episodes", "4"]) == 0
    table = capsys.readouterr().out
    assert table.strip() in report
    assert main(["eval", str(trained), "--episodes", "4", "--env", "tiny-doomed"]) == 0
    assert capsys.readouterr().out != table
    assert main(["eval", str(trained), "--env", "probe-mode"]) == 2
    assert "probe-mode does not fit" in capsys.readouterr().err
    assert main(["report", str(trained), "--markdown"]) == 0
    assert "| --- | ---: | ---: |" in capsys.readouterr().out


def test_render_shows_a_run_or_a_scripted_policy(trained, capsys, tmp_path):
    assert main(["render", str(trained), "--out", str(tmp_path / "a"), "--steps", "3"]) == 0
    assert (tmp_path / "a" / "episode.gif").stat().st_size > 1000
    assert main(["render", "tiny", "--policy", "random", "--out", str(tmp_path / "b"), "--steps", "3"]) == 0
    assert str(tmp_path / "b" / "episode.png") in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_one_line(trained, capsys, tmp_path):
    assert main(["compare", str(trained), "--figure", str(tmp_path / "nowhere" / "x.png")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_a_run_is_not_trained_twice_in_one_place(trained, capsys):
    assert main(["train", "tiny", *SMALL, "--out", str(trained)]) == 2
    assert f"`trident resume {trained}` goes on with it" in capsys.readouterr().err


def test_ctrl_c_saves_says_how_to_go_on_and_exits_with_130(tmp_path, capsys, monkeypatch):
    out, update = tmp_path / "run", PlainProgress.update

    def interrupt(self, record):
        update(self, record)
        if record["round"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(PlainProgress, "update", interrupt)
    assert main(["train", "tiny", *SMALL[:-1], "0", "--out", str(out)]) == 130
    said = capsys.readouterr().out
    assert f"stopped after round 3 of 10; to go on: trident resume {out}" in said
    monkeypatch.undo()
    assert main(["resume", str(out)]) == 0
    said = capsys.readouterr().out
    assert "going on after round 3 of 10" in said
    assert "round 10/10" in said


def test_divergence_of_all_seeds_exits_with_2(tmp_path, capsys):
    words = ["train", "tiny-doomed", "--algo", "tiny", "--episodes", "20", "--seeds", "2,6,8", "--out"]
    assert main([*words, str(tmp_path / "run")]) == 2
    said = capsys.readouterr()
    assert "reward is not finite" in said.err
    assert said.err.count("\n") == 1
    assert "frozen at its last good state" in said.out


def test_python_m_trident_is_the_command_line():
    child = subprocess.run([sys.executable, "-m", "trident", "lst"], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout) == (2, "")
    assert child.stderr == "trident: unknown command 'lst': did you mean 'list'?\n"


def test_seeds_are_a_number_or_a_list():
    assert parse_seeds(["3"]) == 3
    assert parse_seeds(["4,7"]) == (4, 7)
    assert parse_seeds(["4,"]) == (4,), "one seed by its number"
