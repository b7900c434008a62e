"""Environments broken in one way or another, handed to `train`: each is refused by name, or is sound."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support import tiny

from fuzz.tally import Tally
from trident.report.progress import Silent
from trident.training import preflight
from trident.training.settings import Settings, make_setup
from trident.types import Constraint, Metric

SPEC, ACTION = tiny.SPEC, tiny.SPEC.action
OTHER: dict[str, tuple[Any, ...]] = {
    "num_agents": (0, -1, 3, "2", None, 2.5, np.nan),
    "obs_dim": (0, 5, "x", None),
    "state_dim": (0, 9, None),
    "horizon": (0, -3, 2.5, None, "8"),
    "name": ("", "../../x", "a\nb", None, 3, "\x1b[2J"),
    "version": (),
    "constraints": (
        (Constraint("a", 0.1),) * 2,
        (Constraint("a/b", 0.1),) * 2,
        (Constraint("use", np.nan), Constraint("n", 1)),
        (Constraint("use", "1"), Constraint("n", 1)),
        (Constraint("use", -1.0), Constraint("n", 1)),
        None,
        3,
        (Constraint("use", 1.0),),
        (Constraint("a=b", 1.0), Constraint("n", 1.0)),
    ),
    "metrics": ((), (Metric("moved"), Metric("moved")), (Metric("x", per="y"),), None, "x"),
    "kinds": ((0, 0, 0), (0,), "ab", (0, None)),
    "action": tuple(
        replace(ACTION, **change)
        for change in (
            {"low": ACTION.low + 2},
            {"high": ACTION.high[0]},
            {"low": ACTION.low.tolist()},
            {"used": ACTION.low},
            {"high": ACTION.high + np.inf},
            {"low": ACTION.low * np.nan},
            {"mode_names": ("a",)},
            {"mode_names": ("a", "a")},
            {"low": None},
            {"low": ACTION.low[:, :0], "high": ACTION.high[:, :0], "used": ACTION.used[:, :0]},
        )
    ),
}
FIELDS: dict[str, tuple[Any, ...]] = {
    "obs": (jnp.zeros(3), jnp.full((2, 3), jnp.nan), jnp.zeros((2, 3), jnp.int32), None, jnp.full((2, 3), 1e20), 0.0),
    "state": (jnp.zeros(2), jnp.full(3, jnp.inf), None),
    "reward": (jnp.nan, jnp.zeros(2), 1e30, "x", None, jnp.int32(1)),
    "cost": (jnp.zeros(3), jnp.float32(0), -jnp.ones(2), jnp.full(2, 1e30), jnp.full(2, jnp.nan), None),
    "margin": (jnp.zeros(1), jnp.full(2, jnp.nan), None),
    "mode_mask": (jnp.zeros((2, 2), bool), jnp.ones((2, 2)), None),
    "alive": (jnp.ones(2), jnp.ones(3, bool), None),
    "terminated": (jnp.float32(0), True, None),
    "truncated": (jnp.bool_(False), jnp.bool_(True), jnp.int32(0), None),
    "metrics": ({}, {"moved": jnp.zeros(2)}, None),
}


class Odd(tiny.TinyEnv):
    """Another value in one field of what `step` or `reset` returns, from some step on."""

    def __init__(self, spec: Any = SPEC, where: str = "", value: Any = None, at: int = 0) -> None:
        super().__init__(spec=spec)
        self.__dict__.update(where=where, value=value, at=at)

    def _look(self, state: Any, *rest: Any) -> Any:
        out = super()._look(state, *rest)
        if not self.where:
            return out
        value, old = self.value, getattr(out, self.where)
        if self.at and hasattr(value, "shape") and getattr(old, "shape", None) == value.shape:
            value = jnp.where(state.t >= self.at, value, old).astype(value.dtype)
        return out._replace(**{self.where: value})


def environments(tally: Tally, count: int, dice: random.Random) -> None:
    """Declarations and what `reset` and `step` return, each broken in one place: refused by name, or nothing is wrong
    with it. Most of them are found by tracing; values that only an episode shows take a program each."""
    while tally.tries < count:
        kind = dice.choices(["declared", "shape", "value"], [4, 5, 1])[0]
        broken: dict[str, Any] = {}
        if kind == "declared":
            name = dice.choice([name for name, values in OTHER.items() if values])
            what = (name, dice.choice(OTHER[name]))
            broken["spec"] = replace(SPEC, **{name: what[1]})
        else:
            name = dice.choice([*FIELDS])
            value = dice.choice(FIELDS[name]) if kind == "value" else other_shape(dice, SHAPES[name])
            what = (name, value, dice.choice([0, 1, 5]) if kind == "value" else 0)
            broken = {"where": name, "value": value, "at": what[2]}
        with tally.attempt(what):
            setup = make_setup(Odd(**broken), "tiny", Settings(episodes=4, seeds=1))
            preflight.check(setup, Silent())
            tally.fail("silent", what)
        if tally.tries % 50 == 0:
            jax.clear_caches()


SHAPES = {"obs": (2, 3), "state": (3,), "reward": (), "cost": (2,), "margin": (2,), "mode_mask": (2, 2), "alive": (2,),
          "terminated": (), "truncated": (), "metrics": ()}  # fmt: skip


def other_shape(dice: random.Random, right: tuple[int, ...]) -> Any:
    """An array of another shape, or of a dtype that no field has."""
    shape = dice.choice(
        [s for s in ((), (0,), (1,), (2,), (3,), (1, 2), (2, 2), (2, 3), (3, 2), (2, 3, 1)) if s != right]
    )
    dtype = dice.choice([np.float32, np.float16, np.int32, np.uint8, bool, np.complex64])
    return np.zeros(right, np.int8) if dice.random() < 0.1 else np.ones(shape, dtype)
