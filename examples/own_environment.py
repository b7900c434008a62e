"""Your own system: three tanks, each with a pump that idles or pumps at a chosen rate; overflowing is limited.

    python examples/own_environment.py

An environment is a class for ONE instance, in pure JAX; it is vmapped over environments and seeds.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import trident
from trident import ActionSpec, Constraint, EnvSpec, HybridAction, Metric, TimeStep

N, FULL, HORIZON = 3, 20.0, 30


class State(NamedTuple):
    level: jax.Array  # [N] litres
    t: jax.Array


class Tanks:
    """N tanks serve a random demand. Pumping costs a little, and what flows over is lost."""

    physics, scripted, shield = None, {}, None  # all optional: see own_physics.py
    spec = EnvSpec(
        name="tanks",
        version=1,
        num_agents=N,
        obs_dim=2,
        state_dim=N + 1,
        horizon=HORIZON,
        action=ActionSpec(  # a box of parameters for every mode of every agent
            low=np.zeros((N, 2, 1), np.float32),
            high=np.full((N, 2, 1), 5.0, np.float32),
            used=np.array([[[False], [True]]] * N),  # idling has no parameter
            mode_names=("idle", "pump"),
            param_names=("rate",),
        ),
        constraints=(Constraint("overflow", limit=0.02, help="share of tanks that flow over"),),
        metrics=(Metric("level", "neither", "l"),),
    )

    def reset(self, key):
        state = State(jax.random.uniform(key, (N,), minval=2.0, maxval=15.0), jnp.int32(0))
        return state, self.look(state, jnp.float32(0.0), jnp.zeros(N, bool))

    def step(self, key, state: State, action: HybridAction):
        inflow = jnp.where(action.mode == 1, action.params[:, 0], 0.0)
        served = jnp.minimum(state.level + inflow, jax.random.uniform(key, (N,), minval=1.0, maxval=4.0))
        level = state.level + inflow - served
        after = State(jnp.minimum(level, FULL), state.t + 1)
        return after, self.look(after, jnp.mean(served - 0.2 * inflow), level > FULL)

    def look(self, state: State, reward, over) -> TimeStep:
        level, time = state.level / FULL, state.t / HORIZON
        return TimeStep(
            obs=jnp.stack([level, jnp.full(N, time)], axis=1),  # what each agent sees
            state=jnp.append(level, time),  # what critics see in training
            mode_mask=jnp.ones((N, 2), bool),  # every mode is allowed
            alive=jnp.ones(N, bool),
            reward=reward,
            cost=jnp.mean(over, keepdims=True, dtype=jnp.float32),
            margin=1.0 - jnp.max(level, keepdims=True),  # above 0 is safe
            terminated=jnp.bool_(False),
            truncated=state.t >= HORIZON,
            metrics={"level": jnp.mean(state.level)},
        )


trident.check_env(Tanks())  # silent, or it says what to fix
config = {"envs": 16, "steps": HORIZON, "hidden": (32, 32), "critic_hidden": (64, 64), "lr": 3e-3}
run = trident.train(Tanks(), "mappo-lag", episodes=400, seeds=1, config=config, eval_episodes=50, out="runs/tanks")
print(run.table())
