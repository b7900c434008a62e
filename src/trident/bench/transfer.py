"""Four UAVs' policy flies any number of them, without training.

An actor sees its own UAV, the nearest users and the nearest other UAVs, in whatever fleet: these parts of an
observation are the same for every size. Only fogs are listed one by one, and there are more of them in a larger area.
There an agent is shown the nearest fog of each kind (their speeds take turns), at its distance in metres, and chooses
between them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trident.envs.uav_mec import UavMec, UavMecConfig
from trident.envs.uav_mec.env import observation_names
from trident.errors import TridentError
from trident.simulation.evaluate import evaluate, summarise
from trident.simulation.step import Policy
from trident.training import session
from trident.training.evaluation import evaluation_keys
from trident.training.registry import make_env
from trident.training.settings import setup_of
from trident.types import Algorithm, HybridAction, View


def few_fogs(
    small: UavMecConfig, large: UavMecConfig, obs: Float[Array, "N L"]
) -> tuple[Float[Array, "N S"], Int[Array, "N F"]]:
    """A large fleet's observations as a small one's, and which fogs stand in them."""
    start, fogs, kinds = observation_names(large).index("fog 1 x"), large.num_fogs, small.num_fogs
    traits = obs[:, start : start + 4 * fogs].reshape(-1, 4, fogs)
    distance = jnp.hypot(traits[:, 0], traits[:, 1])[:, None, :]
    of_kind = jnp.arange(fogs)[None, :] % kinds == jnp.arange(kinds)[:, None]
    chosen = jnp.argmin(jnp.where(of_kind, distance, jnp.inf), axis=-1)
    seen = jnp.take_along_axis(traits, chosen[:, None, :], axis=-1)
    seen = seen.at[:, :2].multiply(large.area / small.area)
    return jnp.concatenate([obs[:, :start], seen.reshape(len(obs), -1), obs[:, start + 4 * fogs :]], -1), chosen


def fleet_policy(small: UavMec, large: UavMec, algorithm: Algorithm, state: Any, deterministic: bool) -> Policy:
    """The small fleet's policies, a team of them for every so many UAVs of the large one."""
    team, count = small.spec.num_agents, large.spec.num_agents
    modes = small.spec.action.num_modes

    def policy(key: Any, _: Any, last: Any) -> tuple[HybridAction, dict[str, Any]]:
        obs, chosen = few_fogs(small.config, large.config, last.obs)
        teams = count // team

        def of_team(view: View, k: Any) -> HybridAction:
            return algorithm.act(state, view, k, deterministic)[0]

        views = View(
            obs.reshape(teams, team, -1), jnp.ones((teams, team, modes), bool), last.alive.reshape(teams, team)
        )
        action = jax.vmap(of_team)(views, jax.random.split(key, teams))
        mode = action.mode.reshape(count)
        fog = jnp.take_along_axis(chosen, jnp.maximum(mode - 1, 0)[:, None], axis=-1)[:, 0]
        return HybridAction(jnp.where(mode == 0, 0, 1 + fog), action.params.reshape(count, -1)), {}

    return policy


def carry(folder: Path, env: str, episodes: int) -> list[dict[str, float]]:
    """Evaluations of a run's policies in a larger fleet, one per seed."""
    setup = setup_of(folder)
    small, large, algorithm = setup.env, make_env(env), setup.algorithm
    if not isinstance(small, UavMec) or not isinstance(large, UavMec) or large.spec.num_agents % small.spec.num_agents:
        raise TridentError(f"the policies of {folder} cannot fly in {env}")
    session.enable_compilation_cache()
    state, _, _ = session.load_state(setup, folder)

    @jax.jit
    def play(algo: Any, key: Any) -> Any:
        policy = fleet_policy(small, large, algorithm, algo, not algorithm.sampled)
        return evaluate(large, policy, key, episodes, setup.settings.shielded)

    rows = []
    for i, key in enumerate(evaluation_keys(setup)):
        sums = jax.device_get(play(jax.tree.map(lambda x, i=i: x[i], state.algo), key))
        rows.append(summarise(large.spec, sums))
    return rows
