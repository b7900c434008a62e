"""Speed of SMAX (jaxmarl), to be run by a Python that has it; see peers.py.

python peer_smax.py MAP ENVS STEPS      one line of JSON for every line of standard input
"""

from __future__ import annotations

import json
import sys
import time

import jax
import jax.numpy as jnp
from jaxmarl import make
from jaxmarl.environments.smax import map_name_to_scenario


def speed(name: str, envs: int, steps: int) -> None:
    """Random allowed actions against the heuristic enemy; `step` starts a new battle when one is over."""
    env = make("HeuristicEnemySMAX", scenario=map_name_to_scenario(name))

    def one(key, state):
        act, go = jax.random.split(key)
        masks = env.get_avail_actions(state)
        keys = jax.random.split(act, env.num_agents)
        actions = {
            agent: jax.random.categorical(k, jnp.where(masks[agent] > 0, 0.0, -jnp.inf))
            for agent, k in zip(env.agents, keys, strict=True)
        }
        obs, state, reward, done, _ = env.step(go, state, actions)
        return state, (obs, reward, done)

    def run(key, state):
        def advance(state, keys):
            state, seen = jax.vmap(one)(keys, state)
            # All of what a learner reads is computed, none of it is kept.
            return state, sum(jnp.sum(x) for x in jax.tree.leaves(seen))

        return jax.lax.scan(advance, state, jax.random.split(key, (steps, envs)))

    _, state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), envs))
    began = time.process_time()
    call = jax.jit(run).lower(jax.random.key(0), state).compile()
    compiling = time.process_time() - began
    state, _ = jax.block_until_ready(call(jax.random.key(1), state))  # battles are under way
    for k, _ in enumerate(sys.stdin):
        wall, cpu = time.perf_counter(), time.process_time()
        state, _ = jax.block_until_ready(call(jax.random.key(2 + k), state))
        spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps({k: envs * steps / v for k, v in spent.items()} | {"compile_cpu_s": compiling}), flush=True)


if __name__ == "__main__":
    speed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
