"""A tiny environment and a tiny learner: they compile in about a second, and every part of a run passes through them.

`python tests/support/tiny.py train tiny ...` is the command line with both registered; `... session OUT N` trains or
resumes in OUT and is killed at its N-th fsync. Compiled programs are cached for the length of the test session, child
processes included.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.training import presets, registry
from trident.training import session as sessions
from trident.training.settings import Settings, Setup, make_setup
from trident.types import (
    ActionSpec,
    Algorithm,
    Constraint,
    Data,
    DataPlan,
    EnvSpec,
    HybridAction,
    Metric,
    PerSignal,
    TimeStep,
    Transition,
)

if "TRIDENT_TEST_CACHE" not in os.environ:
    os.environ["TRIDENT_TEST_CACHE"] = os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="trident-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

SPEC = EnvSpec(
    name="tiny",
    version=1,
    num_agents=2,
    obs_dim=3,
    state_dim=3,
    action=ActionSpec(
        low=np.zeros((2, 2, 1), np.float32),
        high=np.ones((2, 2, 1), np.float32),
        used=np.ones((2, 2, 1), bool),
        mode_names=("stay", "go"),
    ),
    constraints=(Constraint("use", 0.4), Constraint("noise", 2.0)),
    horizon=8,
    metrics=(Metric("moved", "higher", "m", per="weight"), Metric("weight")),
)


def draw(key: Any, *shape: int) -> Any:
    """Numbers in [0, 1) straight from the words of a key: poor randomness, but it compiles at once."""
    words = jax.random.key_data(key).astype(jnp.uint32)
    lots = words[0] + words[1] * (1 + 2 * jnp.arange(np.prod(shape), dtype=jnp.uint32))
    return ((lots >> 8).astype(jnp.float32) / 2**24).reshape(shape)


class TinyState(NamedTuple):
    x: Any  # [3]
    t: Any
    doomed: Any  # reward becomes NaN in this episode


@dataclass(frozen=True, eq=False)
class TinyEnv:
    spec: EnvSpec = SPEC
    doomed: float = 0.0
    """Share of episodes with a reward that is not a number."""
    physics: Any = None
    shield: Any = None

    @property
    def scripted(self) -> dict[str, Any]:
        return {"random": lambda key, state: _action(jnp.ones(2, jnp.int32), 0.25 + 0.5 * jnp.abs(state.x[:2]))}

    def reset(self, key: Any) -> tuple[TinyState, TimeStep]:
        draws = draw(key, 4)
        state = TinyState(draws[:3], jnp.int32(0), draws[3] < self.doomed)
        return state, self._look(state, jnp.float32(0), jnp.zeros(2), jnp.float32(0))

    def step(self, key: Any, state: TinyState, action: HybridAction) -> tuple[TinyState, TimeStep]:
        go = jnp.mean(action.mode * action.params[:, 0])
        x = jnp.sin(3.0 * state.x + go) + 0.01 * draw(key, 3)
        after = TinyState(x, state.t + 1, state.doomed)
        reward = go - jnp.sum(x**2) + jnp.where(state.doomed, jnp.nan, 0.0)
        return after, self._look(after, reward, jnp.stack([go, jnp.abs(x[0])]), 2.0 * go)

    def _look(self, state: TinyState, reward: Any, cost: Any, moved: Any) -> TimeStep:
        obs = jnp.stack([state.x, -state.x])
        over = state.t >= self.spec.horizon
        metrics = {"moved": moved, "weight": jnp.float32(4.0)}
        every, alive = jnp.ones((2, 2), bool), jnp.ones(2, bool)
        return TimeStep(obs, state.x, every, alive, reward, cost, 0.5 - cost, jnp.bool_(False), over, metrics)

    def draw(self, figure: Any, states: TinyState, t: int) -> None:
        figure.subplots().plot(states.x[: t + 1, 0], states.x[: t + 1, 1])


def _action(mode: Any, amount: Any) -> HybridAction:
    return HybridAction(mode.astype(jnp.int32), jnp.clip(amount, 0.0, 1.0)[:, None])


@dataclass(frozen=True)
class TinyConfig:
    lr: float = 0.1
    """Step size."""
    envs: int = 4
    """Parallel environments."""
    steps: int = 4
    """Steps of each environment per round."""
    replay: int = 32
    """Transitions kept."""
    sizes: tuple[int, ...] = (1, 2)
    """Nothing."""


class TinyLearner(NamedTuple):
    w: Any  # [N, O]
    rounds: Any
    key: Any  # typed, to see it survive a checkpoint
    old_key: Any  # raw words
    scale: Any  # of a weak type at first, as from jnp.full


def make(config: TinyConfig, spec: EnvSpec, physics: Any) -> Algorithm:
    def init(key: Any) -> TinyLearner:
        w = draw(key, spec.num_agents, spec.obs_dim)
        return TinyLearner(w, jnp.int32(0), key, jax.random.key_data(key), jnp.full(2, 0.5))

    def act(state: TinyLearner, view: Any, key: Any, deterministic: bool) -> Any:
        score = jnp.sum(state.w * view.obs, axis=-1)
        score = score if deterministic else score + 0.1 * draw(key, *score.shape)
        return _action((score > 0) & view.mode_mask[:, 1], jnp.abs(score)), {}

    def update(state: TinyLearner, data: Data, key: Any, fraction: Any) -> Any:
        roll = data.rollout
        push = jnp.mean(roll.obs * roll.reward[..., None, None], axis=(0, 1)) + 0.01 * jnp.mean(data.replay.data.obs)
        w = state.w + config.lr * (1.0 - 0.5 * fraction) * (push + 0.01 * draw(key, *push.shape))
        metrics = {
            "kl": jnp.mean(push**2),
            "recovery": fraction,
            "loss": PerSignal(jnp.stack([push[0, 0], 1.0 + fraction, 3.0])),
        }
        return TinyLearner(w, state.rounds + 1, state.key, state.old_key, jnp.tanh(state.scale + w[0, :2])), metrics

    def prepare(state: TinyLearner, roll: Transition, key: Any) -> Any:
        return state._replace(w=jnp.mean(roll.obs, axis=(0, 1))), {"imitation": jnp.mean(roll.reward)}

    return Algorithm("tiny", DataPlan(config.envs, config.steps, config.replay), init, act, update, prepare, config)


DOOMED = TinyEnv(doomed=0.04)  # a variant under the original's spec


def register() -> None:
    registry.ENVS["tiny"] = registry.EnvEntry("A tiny environment for tests.", TinyEnv)
    registry.ENVS["tiny-doomed"] = registry.EnvEntry("Some episodes are not finite.", lambda: DOOMED)
    registry.ALGORITHMS["tiny"] = presets.Preset("A tiny learner for tests.", make, TinyConfig())


register()


def share_builds() -> Callable[[Setup], sessions.CompiledRun]:
    """A `session.build` under which runs of one kind share a program: tracing is most of a tiny run's time."""
    real, built = sessions.build, {}

    def build(setup: Setup, *say: Any) -> sessions.CompiledRun:
        who = sessions.identity(setup) | {"seeds": len(setup.seeds)}
        kind = json.dumps([who, setup.rounds])
        if kind not in built:
            built[kind] = real(setup, *say)
        return built[kind]

    return build


def die_at_fsync(count: int) -> None:
    """The process is killed when it is about to make its `count`-th file or directory durable."""
    real, calls = os.fsync, []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        real(descriptor)

    os.fsync = fsync


def session(out: Path, settings: Settings) -> None:
    """Train in `out` or go on there, and nothing else."""
    if (out / "run.json").exists():
        sessions.resume(out)
    else:
        sessions.train(make_setup("tiny", "tiny", settings), out)


if __name__ == "__main__":
    if sys.argv[1] == "session":
        die_at_fsync(int(sys.argv[3]))
        session(Path(sys.argv[2]), Settings(episodes=20, seeds=2, checkpoint_every=0))
    else:
        from trident.cli import main

        sys.exit(main())
