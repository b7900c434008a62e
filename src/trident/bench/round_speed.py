"""Speed of training rounds: steps per second, where the time goes, and how near the arithmetic comes to the machine's.

The parts of a round are found from outside, so that no algorithm needs to know of its being measured: the rollout is
called alone; the critics are `update` asked for nothing but its critics, from which the compiler removes the rest;
what remains of a round is the policy update (with the logging of metrics and the checks for finite numbers).
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trident import replay as replays
from trident.bench.flops import count_flops
from trident.bench.timing import compile_, interleave
from trident.fields import change
from trident.simulation.rollout import rollout
from trident.training.loop import annotated, policy_of, program
from trident.training.registry import default_config, make_algorithm
from trident.types import Algorithm, Data, Env

SGEMM = (4096, 512, 512)


class Learner(NamedTuple):
    """An algorithm of the registry as it is measured."""

    name: str
    tiny: dict[str, Any]
    """What makes it small."""
    critics: Callable[[Any], Any]
    """Its state -> its critics, the part that is learned apart from the policies."""

    def build(self, env: Env, size: str, **changes: Any) -> Algorithm:
        changes = (self.tiny if size == "tiny" else {}) | changes
        return make_algorithm(self.name, env, config=change(default_config(self.name, env), changes))


SIZES = ("tiny", "default")
_SMALL = {"envs": 16, "steps": 16, "hidden": (32, 32), "critic_hidden": (32, 32)}
_SMALL_TRIDENT = {
    "envs": 16,
    "steps": 16,
    "hidden": (32, 32),
    "reward_hidden": (32, 32),
    "cost_hidden": (32, 32),
    "batch": 64,
    "policy_batch": 128,
    "fisher_batch": 64,
    "replay": 2560,
}
LEARNERS: dict[str, Learner] = {
    "mappo": Learner("mappo", _SMALL, lambda s: s.critic),
    "happo": Learner("happo", _SMALL, lambda s: s.critic),
    "trident": Learner("trident", _SMALL_TRIDENT, lambda s: s.critic),
    "trident-large": Learner("trident-large", _SMALL_TRIDENT, lambda s: s.critic),
}


class Round(NamedTuple):
    """What an algorithm's rollout and update receive."""

    algo: Any
    actors: Any
    data: Data


def round_shapes(env: Env, algorithm: Algorithm) -> Round:
    state = jax.eval_shape(program(env, algorithm, 100).init, jax.random.key(0))
    roll = jax.eval_shape(collector(env, algorithm), state.algo, state.actors, jax.random.key(0))[1]
    return Round(state.algo, state.actors, Data(roll, state.replay))


def collector(env: Env, algorithm: Algorithm) -> Callable[..., Any]:
    return lambda algo, actors, key: rollout(env, policy_of(env, algorithm, algo), key, actors, algorithm.plan.steps)


def learning_of(algorithm: Algorithm, part: Callable[[Any], Any] = lambda state: state) -> Callable[..., Any]:
    """What a round does with its rollout in mid-run, with a key of its own: `part` of what is learned, and the extras
    that are noted for later rounds."""

    def learn(algo: Any, data: Data) -> tuple[Any, Any]:
        roll = annotated(algorithm, data.rollout)
        state, _ = algorithm.update(algo, Data(roll, data.replay), jax.random.key(1), jnp.float32(0.5))
        return part(state), roll.extras

    return learn


def update_flops(env: Env, algorithm: Algorithm, critics: Callable[[Any], Any]) -> dict[str, float]:
    """Operations of the critics' and the policies' learning in one round; a line search counts as one trial."""
    shapes = round_shapes(env, algorithm)
    whole = count_flops(learning_of(algorithm), shapes.algo, shapes.data)
    part = count_flops(learning_of(algorithm, critics), shapes.algo, shapes.data)
    return {"critics": part, "policies": whole - part, "update": whole}


def measure_training(env: Env, algorithm: Algorithm, critics: Callable[[Any], Any], repeats: int) -> dict[str, Any]:
    """One seed's rounds, one after another, in turn with the rollout and the critics alone and a matrix product."""
    run, collect = program(env, algorithm, 100), collector(env, algorithm)
    shapes = round_shapes(env, algorithm)
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.jit(run.init)(jax.random.key(0))
    compiled = {
        "round": compile_(run.round, state, jax.ShapeDtypeStruct((), jnp.int32), donate=(0,)),
        "rollout": compile_(collect, shapes.algo, shapes.actors, key),
        "critics": compile_(learning_of(algorithm, critics), shapes.algo, shapes.data),
    }
    live = {"state": state, "index": 0, "roll": None}

    def one_round() -> Any:
        live["state"], metrics = compiled["round"].call(live["state"], jnp.int32(live["index"]))
        live["index"] += 1
        return metrics

    def collect_only() -> Any:
        live["roll"] = compiled["rollout"].call(live["state"].algo, live["state"].actors, jax.random.key(2))[1]
        return live["roll"].reward

    def critics_only() -> Any:
        return compiled["critics"].call(live["state"].algo, Data(live["roll"], live["state"].replay))

    calls = {"round": one_round, "rollout": collect_only, "critics": critics_only, "sgemm": sgemm()}
    seconds = interleave(calls, repeats)
    return _summary(algorithm, seconds, compiled, update_flops(env, algorithm, critics))


def _summary(
    algorithm: Algorithm, seconds: dict[str, float], compiled: dict[str, Any], flops: dict[str, float]
) -> dict[str, Any]:
    steps = algorithm.plan.envs * algorithm.plan.steps
    whole, rolled, critics = seconds["round"], seconds["rollout"], seconds["critics"]
    of_round = compiled["round"]
    memory = of_round.call.memory_analysis()
    achieved = flops["update"] / max(whole - rolled, 1e-9) / 1e9
    peak = machine_gflops(seconds["sgemm"])
    return {
        "env_steps_per_round": steps,
        "steps_per_second": steps / whole,
        "round_seconds": whole,
        "share": {"rollout": rolled / whole, "critics": critics / whole, "policies": 1.0 - (rolled + critics) / whole},
        "compile": {
            name: {"wall": c.lower_seconds + c.compile_seconds, "cpu": c.cpu_seconds} for name, c in compiled.items()
        },
        "program_mib": {
            "arguments": memory.argument_size_in_bytes / 2**20,
            "temporary": memory.temp_size_in_bytes / 2**20,
        },
        "peak_rss_mib": peak_rss_mib(),
        "flops": flops,
        "gflops": achieved,
        "sgemm_gflops": peak,
        "of_sgemm": achieved / peak,
    }


def sgemm() -> Callable[[], Any]:
    rows, inner, columns = SGEMM
    a, b = jnp.ones((rows, inner)), jnp.ones((inner, columns))
    product = jax.jit(jnp.matmul)
    return lambda: product(a, b)


def machine_gflops(seconds: float) -> float:
    rows, inner, columns = SGEMM
    return 2.0 * rows * inner * columns / seconds / 1e9


def peak_rss_mib() -> float:
    """Of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def sample_data(env: Env, algorithm: Algorithm) -> Round:
    """A fresh algorithm's state and one round of its data, in the replay buffer too if it keeps one."""
    state = jax.jit(program(env, algorithm, 100).init)(jax.random.key(0))
    roll = jax.jit(collector(env, algorithm))(state.algo, state.actors, jax.random.key(1))[1]
    replay = state.replay
    if replay is not None:
        block = jax.jit(lambda roll: replays.block_of(annotated(algorithm, roll), algorithm.plan.remember))(roll)
        replay = jax.jit(replays.insert)(replay, block, jnp.int32(0))
    return Round(state.algo, state.actors, Data(roll, replay))
