"""An algorithm of your own: REINFORCE with linear policies on hybrid actions, beside everything that is built in.

    python examples/own_algorithm.py

An algorithm is three pure functions, init, act and update: no loop, no environment, no logger.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

import trident
from trident import Algorithm, Data, DataPlan, EnvSpec, HybridAction, View


@dataclass(frozen=True)
class Config:
    """Its fields are the options --algo.envs, ... once the algorithm is in a package (docs/plugins.md)."""

    envs: int = 32
    steps: int = 12
    lr: float = 0.3
    std: float = 0.3
    discount: float = 0.9


class Policy(NamedTuple):
    modes: jax.Array  # [N, O, M]
    params: jax.Array  # [N, O, M, P]


def make(config: Config, spec: EnvSpec, physics=None) -> Algorithm:
    shape = (spec.num_agents, spec.obs_dim, spec.action.num_modes)

    def distribution(policy: Policy, view: View):
        """Log-probabilities of the modes [..., N, M], means of their parameters in [-1, 1] [..., N, M, P]."""
        logits = jnp.einsum("...no,nom->...nm", view.obs, policy.modes)
        mean = jnp.tanh(jnp.einsum("...no,nomp->...nmp", view.obs, policy.params))
        return jax.nn.log_softmax(jnp.where(view.mode_mask, logits, -1e9)), mean

    def act(policy: Policy, view: View, key, deterministic: bool):
        log_p, mean = distribution(policy, view)
        pick, shake = jax.random.split(key)
        mode = jnp.argmax(log_p, axis=-1) if deterministic else jax.random.categorical(pick, log_p)
        unit = jnp.take_along_axis(mean, mode[:, None, None], axis=1)[:, 0]
        unit += 0.0 if deterministic else config.std * jax.random.normal(shake, unit.shape)
        action = HybridAction(mode, trident.decode_params(spec.action, mode, jnp.clip(unit, -1.0, 1.0)))
        return action, {"unit": unit}  # extras come back with the rollout

    def update(policy: Policy, data: Data, key, fraction):
        roll = data.rollout  # [T, E, ...]
        over = roll.terminated | roll.truncated

        def back(later, now):
            later = now[0] + config.discount * jnp.where(now[1], 0.0, later)
            return later, later

        _, returns = jax.lax.scan(back, jnp.zeros(config.envs), (roll.reward, over), reverse=True)
        advantage = (returns - returns.mean()) / (returns.std() + 1e-6)

        def loss(policy: Policy):
            log_p, mean = distribution(policy, roll.view)
            mode = roll.action.mode[..., None]
            mean = jnp.take_along_axis(mean, mode[..., None], axis=-2)[..., 0, :]
            gauss = -0.5 * jnp.sum(((roll.extras["unit"] - mean) / config.std) ** 2, axis=-1)
            return -jnp.mean(advantage[..., None] * (jnp.take_along_axis(log_p, mode, axis=-1)[..., 0] + gauss))

        value, grad = jax.value_and_grad(loss)(policy)
        return jax.tree.map(lambda w, g: w - config.lr * g, policy, grad), {"loss": value}

    start = Policy(jnp.zeros(shape), jnp.zeros((*shape, spec.action.num_params)))
    return Algorithm("reinforce", DataPlan(config.envs, config.steps), lambda key: start, act, update, config=config)


reinforce = trident.Preset("REINFORCE with linear policies", make, Config(), name="reinforce")
run = trident.train("probe-chain", reinforce, episodes=3200, seeds=3, eval_episodes=50, out="runs/reinforce")
print(run.table())
