"""Two carts with drag and a motor each: constants of their closed form are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from trident.types import ActionSpec, Constraint, EnvSpec, HybridAction, Physics, TimeStep

STEP = 0.1
SPEED = 0.6


class CartState(NamedTuple):
    x: Any  # [2 carts, place and speed]
    t: Any


class Carts:
    """Stay near the middle, slowly."""

    scripted: dict[str, Any] = {}  # noqa: RUF012
    shield = None
    constants = {"drag": 0.5, "push": 1.0}  # noqa: RUF012 (as a user would guess; in truth 0.25 and 3)
    box = np.array([[[0.0], [-1.0]]] * 2, np.float32)
    spec = EnvSpec(
        name="carts", version=1, num_agents=2, obs_dim=2, state_dim=4, horizon=20,
        action=ActionSpec(box, -box, np.array([[[False], [True]]] * 2), ("coast", "push"), ("force",)),
        constraints=(Constraint("speed", 0.2),),
    )  # fmt: skip

    @property
    def physics(self) -> Physics:
        return self.physics_of(self.constants)

    def physics_of(self, constants: Any) -> Physics:
        def predict(state, action):
            return _after(state.reshape(2, 2), _force(action), constants["drag"], constants["push"]).reshape(-1)

        def signals(state, action):
            x = predict(state, action).reshape(2, 2)
            return jnp.stack([-jnp.mean(x[:, 0] ** 2), jnp.mean(1 / (1 + jnp.exp((SPEED - jnp.abs(x[:, 1])) / 0.1)))])

        return Physics(signals, predict, lambda state: _brake(state.reshape(2, 2)))

    def reset(self, key):
        import jax

        s = CartState(jax.random.uniform(key, (2, 2), minval=-1.0), jnp.int32(0))
        return s, self._look(s, jnp.float32(0.0), jnp.zeros(1))

    def step(self, key, s, action):
        import jax

        x = _after(s.x, _force(action), 0.25, 3.0) + 0.01 * jax.random.normal(key, (2, 2))
        s = CartState(x, s.t + 1)
        return s, self._look(s, -jnp.mean(x[:, 0] ** 2), jnp.mean(jnp.abs(x[:, 1:]) > SPEED, axis=0, dtype=jnp.float32))

    def _look(self, s, reward, cost):
        every, alive = jnp.ones((2, 2), bool), jnp.ones(2, bool)
        room = (SPEED - jnp.max(jnp.abs(s.x[:, 1])))[None]
        return TimeStep(s.x, s.x.reshape(-1), every, alive, reward, cost, room, jnp.bool_(False), s.t >= 20, {})


def _force(action):
    return jnp.where(action.mode == 1, action.params[:, 0], 0.0)


def _after(x, force, drag, push):
    speed = (1.0 - drag) * x[:, 1] + STEP * push * force
    return jnp.stack([x[:, 0] + STEP * x[:, 1], speed], axis=1)


def _brake(x):
    force = jnp.clip(-x[:, 0] - x[:, 1], -1.0, 1.0)
    return HybridAction(jnp.ones(2, jnp.int32), force[:, None])
