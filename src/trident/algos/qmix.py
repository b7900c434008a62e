"""QMIX on hybrid actions on one page (Rashid et al. 2018): a grid of actions and a monotonic mixture of utilities.

    Q_tot(s, o, g) = mix_s( Q_1(o_1, g_1), ..., Q_N(o_N, g_N) ),    d mix / d Q_i >= 0
    y = r + discount (1 - terminated) Q'_tot(s', o', argmax_g Q_i(o'_i, g))           ' marks target networks

g_i is a cell of agent i's grid: every mode with every combination of `levels` evenly spaced values of the parameters it
reads (heads.make_grid). Utilities are maximised one by one, which maximises their mixture; the networks choose the next
cells and their targets value them (double Q-learning). Exploration is epsilon-greedy over the allowed cells, epsilon
falling linearly over the first part of the run. Targets are regressed as (Q - level) / unit, level and unit being the
mean and spread of the first round's returns. Costs are not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from trident import replay as replays
from trident.algos.common.action_heads import grid_action, grid_mask, make_grid
from trident.algos.common.kinds import Kinds, actor_input, input_size, kinds_of, per_agent
from trident.allowed import Count, Discount, Passes, Positive, Rate, Rows, Share, Width, Widths
from trident.maths.returns import explained_variance, return_scale
from trident.nets import mixer_apply, mixer_init, mlp_apply, mlp_init
from trident.types import Algorithm, Data, DataPlan, EnvSpec, Metrics, Physics, Transition

CELL = "cell"


@dataclass(frozen=True)
class QMIXConfig:
    levels: Count = 3
    """Values per parameter of the grid: the ends and the middle of each box."""
    envs: Count = 64
    """Parallel environments."""
    steps: Count = 50
    """Steps of each environment per round."""
    replay: Rows = 64_000
    """Transitions kept for replay."""
    updates: Passes = 64
    """Minibatches per round."""
    batch: Count = 256
    """Rows of a minibatch."""
    hidden: Widths = (128, 128)
    """Hidden layers of each utility network."""
    share_actors: bool = True
    """Agents of a kind share one utility network; otherwise each has its own."""
    agent_id: bool = False
    """Utility networks see which agent they are asked for."""
    mixer_embed: Width = 32
    """Width of the mixer."""
    mixer_hidden: Width = 64
    """Hidden layer of its hypernetworks."""
    discount: Discount = 0.95
    """Discount of future rewards."""
    lr: Rate = 5e-4
    """Learning rate (Adam)."""
    target_rate: Share = 0.01
    """Rate at which target networks follow, once per minibatch."""
    max_grad: Positive = 10.0
    """Gradient-norm clip."""
    epsilon: Share = 1.0
    """Share of random cells in the first round."""
    epsilon_final: Share = 0.05
    """Share of random cells after annealing."""
    anneal: Share = 0.4
    """Share of the run over which epsilon falls; 0: at once, after the first round."""


class Nets(NamedTuple):
    utility: Any  # stacked over kinds of agents: [O] -> [G]
    mixer: Any


class QMIXState(NamedTuple):
    nets: Nets
    target: Nets
    opt: Any
    level: Any
    unit: Any
    epsilon: Any
    rounds: Any


def make(config: QMIXConfig, spec: EnvSpec, physics: Physics | None = None) -> Algorithm:
    """`physics` is ignored: this is a vanilla baseline."""
    grid, kinds = make_grid(spec.action, config.levels), kinds_of(spec, config.share_actors, config.agent_id)
    adam = optax.chain(optax.clip_by_global_norm(config.max_grad), optax.adam(config.lr))

    def init(key: Any) -> QMIXState:
        utility_key, mixer_key = jax.random.split(key)
        sizes = [input_size(kinds, spec.obs_dim), *config.hidden, grid.mode.shape[1]]
        utility = jax.vmap(lambda k: mlp_init(k, sizes, out_scale=0.01))(jax.random.split(utility_key, kinds.count))
        mixer = mixer_init(mixer_key, spec.state_dim, spec.num_agents, config.mixer_embed, config.mixer_hidden)
        nets = Nets(utility, mixer)
        scale = jnp.zeros(()), jnp.ones(())
        return QMIXState(nets, nets, adam.init(nets), *scale, jnp.array(config.epsilon), jnp.int32(0))

    def act(state: QMIXState, view: Any, key: Any, deterministic: bool) -> Any:
        allowed = grid_mask(grid, view.mode_mask)
        cell = best_cell(utilities(kinds, state.nets, view.obs), allowed)
        if not deterministic:
            coin_key, cell_key = jax.random.split(key)
            lost = jax.random.bernoulli(coin_key, state.epsilon, cell.shape)
            any_cell = jax.random.categorical(cell_key, jnp.where(allowed, 0.0, -jnp.inf))
            cell = jnp.where(lost, any_cell, cell)
        return grid_action(spec.action, grid, cell), {CELL: cell}

    def update(state: QMIXState, data: Data, key: Any, fraction: Any) -> tuple[QMIXState, Metrics]:
        level, unit = return_scale(data.rollout, config.discount)
        first = state.rounds == 0
        level, unit = jnp.where(first, level, state.level), jnp.where(first, unit, state.unit)

        def step(carry: Any, row_key: Any) -> Any:
            nets, target, opt = carry
            rows = replays.sample(data.replay, row_key, config.batch)
            allowed = grid_mask(grid, rows.next_mode_mask)
            goal = (td_target(config, kinds, nets, target, rows, allowed, level, unit) - level) / unit
            grads, metrics = jax.grad(lambda n: td_loss(kinds, n, rows, goal), has_aux=True)(nets)
            changes, opt = adam.update(grads, opt, nets)
            nets = optax.apply_updates(nets, changes)
            return (nets, optax.incremental_update(nets, target, config.target_rate), opt), metrics

        start = (state.nets, state.target, state.opt)
        (nets, target, opt), metrics = jax.lax.scan(step, start, jax.random.split(key, config.updates))
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics |= {"value": level + unit * metrics.pop("q"), "epsilon": state.epsilon}
        return QMIXState(nets, target, opt, level, unit, epsilon(config, fraction), state.rounds + 1), metrics

    return Algorithm(
        name="qmix",
        plan=DataPlan(config.envs, config.steps, config.replay, (CELL,)),
        init=init,
        act=act,
        update=update,
        config=config,
    )


def epsilon(config: QMIXConfig, fraction: Any) -> Any:
    share = jnp.minimum(fraction / config.anneal, 1.0) if config.anneal > 0 else jnp.ones_like(fraction)
    return config.epsilon + (config.epsilon_final - config.epsilon) * share


def utilities(kinds: Kinds, nets: Nets, obs: Any) -> Any:
    """[..., N, O] -> Q_i of every cell, [..., N, G]."""
    return per_agent(kinds, mlp_apply, nets.utility, actor_input(kinds, obs), axis=obs.ndim - 2)


def best_cell(values: Any, allowed: Any) -> Any:
    return jnp.argmax(jnp.where(allowed, values, -jnp.inf), axis=-1)


def total(kinds: Kinds, nets: Nets, state: Any, obs: Any, cell: Any, alive: Any) -> Any:
    """(Q_tot - level) / unit of the chosen cells; the dead add nothing."""
    chosen = jnp.take_along_axis(utilities(kinds, nets, obs), cell[..., None], axis=-1)[..., 0]
    return mixer_apply(nets.mixer, state, chosen * alive)


def td_target(
    config: QMIXConfig, kinds: Kinds, nets: Nets, target: Nets, rows: Transition, allowed: Any, level: Any, unit: Any
) -> Any:
    cell = best_cell(utilities(kinds, nets, rows.next_obs), allowed)
    following = level + unit * total(kinds, target, rows.next_state, rows.next_obs, cell, rows.next_alive)
    return jax.lax.stop_gradient(rows.reward + config.discount * jnp.where(rows.terminated, 0.0, following))


def td_loss(kinds: Kinds, nets: Nets, rows: Transition, goal: Any) -> tuple[Any, Metrics]:
    q = total(kinds, nets, rows.state, rows.obs, rows.extras[CELL], rows.alive)
    loss = jnp.mean((q - goal) ** 2)
    return loss, {"critic_loss": loss, "q": jnp.mean(q), "explained_variance": explained_variance(q, goal)}
