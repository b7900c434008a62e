"""Sweeps: what a file asks for, and every mistake in it as one line before anything starts."""

from pathlib import Path

import pytest
from support import tiny  # noqa: F401  (registers tiny)

from trident.bench import table_runner
from trident.bench.sweep import plan_sweep, summary
from trident.cli import main
from trident.errors import TridentError
from trident.launch.job import words

HEAD = 'envs = ["tiny", "probe-constrained"]\nalgos = ["tiny", "mappo"]\nepisodes = 8\nseeds = [0, 4]\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


def test_a_grid_and_single_runs_on_every_environment(tmp_path):
    text = 'envs = ["probe-constrained"]\nalgos = ["mappo", "trident-scratch"]\nsteps = 1000\n'
    text += "[settings]\neval_episodes = 5\n[grid]\nseed = [1, 2]\nlimit.use = [0.5, 0.25]\n[[runs]]\nseed = 9\n"
    jobs = plan_sweep(write(tmp_path, text), tmp_path / "out")
    assert summary(jobs) == "10 runs: 1 environment x 2 algorithms x 5 settings, 3 seeds each"
    first, last = jobs[0], jobs[-1]
    assert first.folder == tmp_path / "out/probe-constrained/mappo,seed=1,use=0.5"
    assert first.settings == {"eval_episodes": 5, "seed": 1, "limit": {"use": 0.5}}
    assert first.name == "mappo on probe-constrained, seed=1,use=0.5"
    assert first.episodes == -(-1000 // table_runner.make_env("probe-constrained").spec.horizon)
    assert last.settings == {"eval_episodes": 5, "seed": 9}
    assert "--limit use=0.5" in " ".join(words(first))


def test_settings_of_the_algorithm_and_lists(tmp_path):
    text = 'envs = ["probe-value"]\nalgos = ["mappo"]\nepisodes = 8\n[[runs]]\nalgo.lr = 1e-3\n'
    text += "[[runs]]\nalgo.hidden = [8, 8]\nalgo.critic_hidden = [16, 16]\nalgo.minibatches = 2\n"
    one, other = plan_sweep(write(tmp_path, text), tmp_path)
    assert one.config == {"lr": 1e-3}
    assert one.folder.name == "mappo,lr=0.001"
    assert other.folder.name == "mappo-2", "too long for a name that tables show"
    assert "--algo.hidden 8 8 --algo.critic-hidden 16 16" in " ".join(words(other))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("envs = [", "is not TOML"),
        ('envs = []\nalgos = ["mappo"]', "envs must name at least one"),
        ('envs = "tiny"\nalgos = ["mappo"]', "envs must be"),
        ('envs = ["tiny"]\nalgos = ["tiny"]', "say either episodes or steps"),
        (HEAD + "steps = 5", "say either episodes or steps"),
        (HEAD.replace("8", "0"), "episodes must be"),
        (HEAD.replace("[0, 4]", "[0, 0]"), "--seeds must be different"),
        (HEAD.replace('"mappo"', '"mapo"'), "unknown algorithm 'mapo': did you mean 'mappo'?"),
        (HEAD.replace('"tiny", "probe', '"tinny", "probe'), "unknown environment 'tinny'"),
        (HEAD + "[gird]\nseed = [1]", "unknown key 'gird' of"),
        (HEAD + "[grid]\nsede = [1]", "unknown setting 'sede' of a sweep: did you mean 'seed'?"),
        (HEAD + "[grid]\nepisodes = [1]", "unknown setting 'episodes'"),
        (HEAD + "[grid]\nalgo.lrr = [1]", "unknown config field 'lrr' of tiny"),
        (HEAD + "[grid]\nalgo.lr = 1", "algo.lr must be a list of values"),
        (HEAD + "[grid]\nalgo.lr = ['much']", "--algo.lr must be a finite number"),
        (HEAD + "[grid]\nseed = [1, 1]", "two runs have the same settings"),
        (HEAD + "[grid]\nseed = [-1]", "--seed must be"),
        (HEAD + "[grid]\nlimit.nix = [1]", "unknown constraint 'nix'"),
        (HEAD + f"[grid]\nseed = {list(range(200))}\nlimit.use = {list(range(200))}", "40,000 combinations"),
        (HEAD + "runs = 3", "runs must be"),
    ],
)
def test_mistakes_are_one_line_before_anything_starts(tmp_path, text, message):
    with pytest.raises(TridentError) as caught:
        plan_sweep(write(tmp_path, text), tmp_path / "out")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_the_plan_is_shown_without_running(tmp_path, capsys):
    path = write(tmp_path, 'envs = ["probe-value"]\nalgos = ["mappo"]\nepisodes = 8\n')
    assert main(["sweep", str(path), "--plan", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1 run: 1 environment x 1 algorithm x 1 setting, 3 seeds each\n")
    assert f"mappo on probe-value: 8 episodes, {tmp_path}/out/probe-value/mappo" in said
    assert not (tmp_path / "out").exists()
    assert main(["sweep", str(tmp_path / "none.toml")]) == 2
    assert "cannot read" in capsys.readouterr().err
