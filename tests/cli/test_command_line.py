"""The command line: every mistake is one clear line with exit code 2, and the whole way from train to report works."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from support import tiny

from trident.cli import COMMANDS, main
from trident.cli.train import _full_name
from trident.errors import TridentError
from trident.report.progress import PlainProgress
from trident.training import preflight, session
from trident.training.registry import ALGORITHMS, ENVS, default_config, make_env
from trident.training.settings import Settings, parse_seeds, read_run

SMALL = ["--algo", "tiny", "--episodes", "20", "--seeds", "2", "--eval-episodes", "4"]


@pytest.fixture(scope="module", autouse=True)
def _shared():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "build", tiny.share_builds())
        patch.setattr(preflight, "check", lambda setup, progress: None)  # has tests of its own
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
        ("train tiny --algo tiny --limit use=1 --limit noise=1", "--limit stands twice: give it once"),
        ("train tiny --algo tiny --limit us=1", "unknown constraint 'us' of tiny: did you mean 'use'?"),
        ("train tiny --algo tiny --limit use", "--limit wants NAME=VALUE"),
        (
            "train tiny --algo tiny --limit use=nan",
            "--limit must be names with values a finite number at least 0 and at most 1e+09, not {'use': nan}",
        ),
        ("train tiny --algo tiny --warm-start rando", "unknown scripted policy 'rando' of tiny: did you mean"),
        ("train tiny --algo tiny --shielded", "tiny has no shield: leave out --shielded"),
        ("train tiny --algo shielded", "tiny has no shield: shielded needs one"),
        ("train uav-mec --algo qmix --algo.levels 99", "qmix cannot be built for uav-mec: 99 levels of up to 4 param"),
        (
            "train uav-mec --algo maddpg --algo.levels 0",
            "--algo.levels must be at least 1",
        ),
        ("train tiny --algo tiny --algo.replay 1000000000000", "lower --algo.replay or --seeds"),
        ("train tiny --algo happo --algo.envs 0", "--algo.envs must be at least 1 and at most 1,048,576, not 0"),
        (
            "train tiny --algo trident --algo.estimator exakt",
            "invalid choice 'exakt'",
        ),
        ("train tiny --algo trident --algo.violation-fraction 1", "--algo.step.violation-fraction must be at least 0"),
        ("train tiny --algo trident --algo.damping 0", "--algo.step.damping must be above 0"),
        ("train tiny --algo trident --algo.backtracks 0", "--algo.step.backtracks must be at least 1"),
        ("train tiny --algo tiny --trackers comet", "invalid choice 'comet'"),
        ("report nowhere --trackers wandb", "nowhere is not a run directory"),
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
        ("list tinny", "there is no environment or algorithm 'tinny': did you mean 'tiny'?"),
        ("list tiny happo", "takes one name at most"),
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


def said_by(capsys, *words: str) -> str:
    with contextlib.suppress(SystemExit):
        assert main(list(words)) == 0
    return capsys.readouterr().out


def test_help_all_of_train_shows_the_options_of_the_algorithm(capsys):
    said = said_by(capsys, "train", "tiny", "--algo", "tiny", "--help-all")
    assert "--algo.lr FLOAT" in said
    assert "Step size." in said
    assert "--limit NAME=VALUE" in said
    assert "--eval-episodes" in said
    assert "--references, --no-references" in said, "a switch that is on shows both of its names, and reads forwards"


@pytest.mark.parametrize(
    "words",
    [
        *COMMANDS,
        "bench speed",
        "bench table1",
        "bench table3",
        "bench table5",
        "bench table6",
        "bench fingerprint",
        "bench paper",
    ],
)
def test_help_fits_on_a_screen(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = said_by(capsys, *words.split(), "--help").splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 45


def test_help_of_train_names_options_that_exist_and_values_that_are_true(capsys):
    said = said_by(capsys, "train", "tiny", "--algo", "tiny", "--help")
    options = set(re.findall(r"--[a-z][a-z-]*(?=[ \n])", said)) - {"--help-all"}
    everything = said_by(capsys, "train", "tiny", "--algo", "tiny", "--help-all")
    assert len(options) >= 12
    assert all(re.search(rf"{name}[ ,\n]", everything) for name in options), options
    whole = Settings()
    for text in (
        f"each seed ({whole.episodes})",
        f"which ones ({whole.seeds})",
        f"evaluate on ({whole.eval_episodes})",
    ):
        assert text in said
    assert "use=0.4, noise=2" in said
    assert "--algo.lr 0.1" in said


def test_settings_of_a_group_may_be_named_without_it():
    config = default_config("trident", make_env("tiny"))
    for word, full in (
        ("--algo.damping", "--algo.step.damping"),
        ("--algo.damping=1", "--algo.step.damping=1"),
        ("--algo.no-conditional", "--algo.actor.no-conditional"),
        ("--algo.critic.lr", "--algo.critic.lr"),
        ("--algo.nothing", "--algo.nothing"),
        ("--algo", "--algo"),
        ("--episodes", "--episodes"),
    ):
        assert _full_name(word, config, "trident") == full
    with pytest.warns(FutureWarning, match="attention is now called violation_fraction"):
        assert _full_name("--algo.attention", config, "trident") == "--algo.step.violation-fraction"


@pytest.mark.filterwarnings("always::FutureWarning")
@pytest.mark.parametrize(
    ("words", "today"),
    [
        (["--algo", "trident-no-reflex"], "trident-scratch"),
        (["--algo=mappo-lag-reflex"], "mappo-lag-residual"),
        (["--algo", "reflex"], "base-policy"),
    ],
)
def test_algorithms_by_their_names_of_old_say_the_new_one(words, today, capsys):
    """All the way to the setup, whose mistake ends the command: options depend on the name, too."""
    assert main(["train", "uav-mec", *words, "--episodes", "0"]) == 2
    said = capsys.readouterr().err
    assert f" is now called {today}\n" in said
    assert "--episodes must be at least 1" in said


def test_a_quick_trial_is_short_keeps_the_learner_and_says_what_it_left_out(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "tiny", "--algo", "tiny", "--quick", "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    assert "quick trial: 20 of 2,000 episodes, 2 of 3 seeds, 20 of 200 evaluation episodes," in said
    assert "no scripted policies to compare with and no video" in said
    assert "round 10/10" in said
    (run,) = (tmp_path / "runs").iterdir()
    info = read_run(run)
    assert info["config"] == read_run_config("tiny")
    assert not (run / "figures" / "episode.gif").exists()


def read_run_config(algo: str) -> dict:
    return json.loads(json.dumps(dataclasses.asdict(default_config(algo, make_env("tiny")))))


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


def test_list_fits_the_terminal_and_tells_more_of_a_name(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = said_by(capsys, "list").splitlines()
    assert max(map(len, lines)) <= 80
    for name in (*ENVS, *ALGORITHMS):
        card = said_by(capsys, "list", name) if name in ("tiny", "uav-mec", "trident", "smac-MMM2-safe") else name
        assert max(map(len, card.splitlines())) <= 80
        assert card.startswith(name)
    card = " ".join(said_by(capsys, "list", "tiny").split())
    assert "scripted random" in card
    assert "use <= 0.4 rate, noise <= 2 rate" in card


def test_check_passes_a_good_environment(capsys):
    assert main(["check", "tiny"]) == 0
    assert capsys.readouterr().out == "tiny: 0 faults, 0 doubts\n"


def test_train_prints_plan_progress_table_and_place(training):
    out, said = training
    assert "tiny on tiny (version 1, 2 agents): 2 seeds x 10 rounds x 16 env steps = 320 env steps" in said
    assert "compiling" in said
    assert "round 10/10" in said
    assert "cost use <= 0.4 rate" in said
    assert f"everything is in {out}\n" in said
    assert said.rstrip().endswith(f"to look at it, open {out / 'report.html'}")
    assert '"replay"' in (out / "report.html").read_text() or "application/gzip" in (out / "report.html").read_text()
    assert (out / "records.jsonl").read_text().count("\n") == 10


def test_a_report_is_one_page_of_runs_or_of_a_folder_of_them(trained, tmp_path, capsys):
    page = tmp_path / "new" / "report.html"
    assert main(["report", str(trained), "--html", str(page)]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    text = page.read_text(encoding="utf-8")
    assert "trident train tiny --algo tiny --episodes 20 --seeds 2 --limit use=0.4 noise=2.0" in text
    assert main(["report", str(trained.parent), "--html", str(page)]) == 0
    assert main(["report", str(tmp_path / "new"), "--html", str(page)]) == 2
    assert "there is no run in" in capsys.readouterr().err
    assert main(["report"]) == 2


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
    words = [
        "train",
        "tiny-doomed",
        "--no-check-env",
        "--algo",
        "tiny",
        "--episodes",
        "20",
        "--seeds",
        "2,6,8",
        "--out",
    ]
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
