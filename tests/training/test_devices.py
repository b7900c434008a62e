"""A run over several devices is the run on one, to rounding; what cannot be spread is said in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import tiny
from support.tiny import TinyEnv

from trident import replay as replays
from trident.bench.communication import Collective, collectives, kernels
from trident.errors import TridentError
from trident.report.progress import Silent
from trident.training import memory, platforms, session
from trident.training.layout import fitting, layout_of
from trident.training.loop import program
from trident.training.settings import Settings, identity, make_setup

SUPPORT = Path(tiny.__file__).parent


def child(script: str, *args: str, devices: int = 4, check: bool = True) -> subprocess.CompletedProcess[str]:
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    path = os.pathsep.join([str(SUPPORT.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, SUPPORT / script, *args], env=env, capture_output=True, text=True, timeout=600, check=check
    )


def spread(pair: str, seeds: int, devices: str) -> dict[str, Any]:
    return json.loads(child("spread.py", pair, str(seeds), devices).stdout.splitlines()[-1])


def test_rounds_over_seeds_and_environments_are_those_of_one_device():
    two, four = (found := spread("tiny/tiny", 2, "2,4"))["2"], found["4"]
    assert max(x["off"] for x in (two, four)) < 1e-5
    assert max(x["metrics"] for x in (two, four)) < 1e-5
    assert two["collectives"] == 0 < four["collectives"]  # seeds have nothing to say to each other
    assert [x["local"] for x in (two, four)] == [x["saved"] for x in (two, four)] == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["probe-mode/mappo", "probe-mode/qmix", "probe-constrained/trident-scratch",
                                  "probe-constrained/macpo", "probe-mode/matd3", "probe-mode/madac"])  # fmt: skip
def test_so_are_those_of_every_kind_of_learner(pair):
    found = spread(pair, 2, "2,4")
    assert max(x["off"] for x in found.values()) < 1e-3
    assert found["2"]["collectives"] == 0


def test_a_run_goes_on_with_fewer_devices_and_says_what_changes(tmp_path):
    out, words = tmp_path / "run", ("--episodes", "20", "--seeds", "2", "--eval-episodes", "0", "--no-check-env")
    child("tiny.py", "train", "tiny", "--algo", "tiny", *words, "--devices", "4", "--out", str(out))
    with pytest.raises(TridentError, match=r"--devices 4, but there is 1 cpu device: .* --devices 1 takes one"):
        session.resume(out, episodes=30)
    told = session.load_state(session.setup_of(out), out)[2]
    assert not told  # to look at a policy one device is enough, and nothing changes
    watch = Told()
    outcome = session.resume(out, episodes=30, progress=watch, devices=1)
    assert outcome.rounds == 15
    change = "the run was started with devices 4 (2 for seeds x 2 for environments), now 1"
    assert any(change in line for line in watch.said)
    assert session.read_run(out)["settings"]["devices"] == 1


class Told(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def setup(**settings: Any) -> Any:
    return make_setup("tiny", "tiny", Settings(episodes=4, **settings))


def test_what_cannot_be_spread_is_one_line():
    assert layout_of(setup()) is None
    with pytest.raises(TridentError, match="on one device: leave out --devices"):
        layout_of(setup(devices=2, seeds_apart=True))
    with pytest.raises(TridentError, match="--devices must be at least 1"):
        setup(devices=0)
    with pytest.raises(TridentError, match="--platform gpu: JAX finds only cpu devices"):
        platforms.check("gpu")


def test_what_a_gpu_has_free_is_asked_of_the_gpu(monkeypatch):
    assert memory.device_bytes() is None  # a CPU has the system's memory
    fake = SimpleNamespace(memory_stats=lambda: {"bytes_limit": 3000, "bytes_in_use": 1000})
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [fake])
    assert memory.device_bytes() == 2000
    with pytest.raises(TridentError, match=r"would need about .*, but only 2\.0 KiB are free"):
        memory.check_state(setup(), session._one_seed(setup()))


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_a_round_can_be_translated_for_other_hardware(platform):
    """There is none here to run it on."""
    one = program(TinyEnv(), setup().algorithm, 4)
    state = jax.eval_shape(one.init, jax.random.key(0))
    lowered = jax.jit(one.round).trace(state, jnp.int32(0)).lower(lowering_platforms=(platform,))
    assert "stablehlo" in lowered.as_text()


def test_devices_go_to_seeds_first():
    assert fitting(seeds=3, envs=4, most=13) == [1, 2, 3, 4, 6, 12]
    assert identity(setup(seeds=6, devices=4))["devices"] == "4 (2 for seeds x 2 for environments)"
    assert identity(setup())["devices"] == "1"


def test_a_spread_replay_draws_the_same_rows():
    """Blocks of 2 steps of 3 environments, in a buffer of 2 blocks."""

    def rollout(index: int) -> Any:
        value = 100.0 * index + jnp.arange(6.0).reshape(2, 3)
        return one._replace(reward=value, obs=value[..., None])

    from trident.types import Transition

    one = Transition(*(None,) * len(Transition._fields))._replace(metrics={}, extras={})  # pyright: ignore[reportArgumentType]
    plain: Any = replays.create(replays.block_of(rollout(0)), 12)
    shared: Any = replays.spread(plain, 2, 3)
    for index in range(3):
        plain, shared = (replays.add(x, rollout(index), (), jnp.int32(index)) for x in (plain, shared))
    whole = replays.gathered(shared)
    assert np.array_equal(whole.data.reward, plain.data.reward)
    assert whole.size == plain.size == 12
    drawn = [replays.sample(x, jax.random.key(0), 5) for x in (plain, shared)]
    weights = jnp.arange(12.0)
    drawn += [replays.sample_by_weight(x, jax.random.key(1), 5, weights)[0] for x in (plain, shared)]
    assert np.array_equal(drawn[0].obs, drawn[1].obs)
    assert np.array_equal(drawn[2].obs, drawn[3].obs)


def test_collectives_are_counted_as_often_as_they_run():
    text = """HloModule m

%body (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %r = f32[4]{0} all-reduce(%p), to_apply=%sum
}

%search (p: f32[4]) -> f32[4] {
  ROOT %g = (f32[2,2]{1,0}, /*index=1*/pred[3]{0}) all-gather(%p)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %w = f32[4]{0} while(%x), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"7"}}
  %v = f32[4]{0} while(%w), condition=%c, body=%search
  ROOT %o = f32[4]{0} all-reduce-start(%v), to_apply=%sum
}
"""
    assert collectives(text) == [
        Collective("all-reduce", 16, 7, False),
        Collective("all-gather", 19, 1, True),
        Collective("all-reduce", 16, 1, False),
    ]
    assert kernels(text) == 7 + 1 + 1
