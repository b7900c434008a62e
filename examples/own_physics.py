"""Knowledge of a system: its physics in closed form, a base policy to learn corrections to, and a shield.

    python examples/own_physics.py

Three greenhouses heat or open their vents. Plants like it warm, but above 30 degrees they suffer.
"""

import jax
import jax.numpy as jnp
import numpy as np

import trident
from trident import ActionSpec, BaseAction, Constraint, EnvSpec, HybridAction, Physics, TimeStep

N, HORIZON, HEAT, VENT = 3, 24, 0, 1
SHAPE = (N, 2, 1)  # agents, modes, parameters
HOT = Constraint("hot", limit=0.05, immediate=True, help="share of houses above 30 degrees")
ACTION = ActionSpec(np.zeros(SHAPE), np.ones(SHAPE), np.ones(SHAPE, bool), ("heat", "vent"), ("amount",))

# The state is one array, in tens of degrees above 30: [N temperatures, outside, time]. Physics works on such arrays.


def warmth(x, action: HybridAction):
    """Temperatures after a step without sun."""
    inside, outside, amount = x[:N], x[N], action.params[:, 0]
    heat, vent = jnp.where(action.mode == HEAT, amount, 0.0), jnp.where(action.mode == VENT, amount, 0.0)
    return inside + (0.1 + 0.3 * vent) * (outside - inside) + 0.3 * heat


def signals(x, action):
    """Reward and costs of one step, smooth in the parameters and defined for every mode."""
    return jnp.stack([jnp.mean(warmth(x, action)), jnp.mean(jax.nn.sigmoid(40.0 * warmth(x, action)))])


def predict(x, action):  # the mean successor
    return jnp.concatenate([warmth(x, action), x[N : N + 1], x[N + 1 :] + 1.0 / HORIZON])


def base_policy(obs) -> BaseAction:
    """For ONE agent and what it sees, towards 27 degrees: logits of the modes, parameters in [-1, 1] of their boxes."""
    inside, outside = obs
    lack = -0.3 - (inside + 0.1 * (outside - inside))
    amount = jnp.stack([lack / 0.3, -lack / (0.3 * jnp.maximum(inside - outside, 0.1))])
    return BaseAction(10.0 * jnp.stack([lack, -lack]), 2.0 * jnp.clip(amount, 0.0, 1.0)[:, None] - 1.0)


def look(x):  # [N, 2]: what each agent sees
    return jnp.stack([x[:N], jnp.full(N, x[N])], axis=1)


class Greenhouses:
    spec = EnvSpec("greenhouses", 1, N, obs_dim=2, state_dim=N + 2, action=ACTION, constraints=(HOT,), horizon=HORIZON)
    physics = Physics(signals, predict, lambda x: trident.follow(ACTION, base_policy, look(x)), base_policy)
    scripted = property(lambda self: {"base-policy": lambda key, x: self.physics.nominal(x)})

    def shield(self, x, action):
        """The last word before actions are executed: who would get too hot opens the vents. Also: who was changed."""
        hot = warmth(x, action) > 0.0
        return HybridAction(jnp.where(hot, VENT, action.mode), jnp.where(hot[:, None], 1.0, action.params)), hot

    def reset(self, key):
        return self.seen(jnp.append(jax.random.uniform(key, (N + 1,), minval=-1.5, maxval=-0.5), 0.0))

    def step(self, key, x, action):
        return self.seen(predict(x, action).at[:N].add(0.05 * jax.random.normal(key, (N,))))  # the sun, or none

    def seen(self, x):
        warm, every, alive = x[:N], jnp.ones((N, 2), bool), jnp.ones(N, bool)
        cost, margin = jnp.mean(warm > 0.0, keepdims=True), -jnp.max(warm, keepdims=True)
        ends = jnp.bool_(False), x[-1] > 1.0 - 0.5 / HORIZON  # terminated, truncated
        return x, TimeStep(look(x), x, every, alive, jnp.mean(warm), cost, margin, *ends, metrics={})


trident.check_env(Greenhouses())
config = {"envs": 16, "steps": HORIZON, "hidden": (32, 32), "reward_hidden": (64, 64), "cost_hidden": (64, 64)}
config |= {"minibatches": 16, "policy_batch": 128, "trust_region": 0.05, "log_std": -1.5}  # small, and in a hurry
settings = {"episodes": 240, "seeds": 1, "shielded": True, "config": config, "eval_episodes": 50}
run = trident.train(Greenhouses(), "trident", out="runs/greenhouses", **settings)
print(run.table())
