"""What TRIDENT's parts cost on top of a plain learner of the same size: STGC over Gumbel-Softmax, physics over none.

Variants of a pair have networks of one size and learn from the same rollout with the same random numbers, in turn,
beginning from a fresh state; their line searches try one step each, for how often a step is shortened depends on its
luck. The overhead is stated as a share of a round: rollout and learning with the plain variant.

Two programs of a second are not told apart to a hundredth on a machine with other work to do. What the closed form is
asked for in a round is therefore timed alone as well: a little too much, for in a round it shares the cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trident.algos.trident.critics import annotate
from trident.algos.trident.problem import Problem
from trident.algos.trident.surrogate import physics_gradients, physics_of_modes
from trident.bench.round_speed import LEARNERS, Round, collector, learning_of, round_shapes, sample_data, update_flops
from trident.bench.timing import Say, compile_, interleave
from trident.physics_value import PhysicsFit, physics_parts
from trident.training.presets import LARGE
from trident.training.session import enable_compilation_cache
from trident.types import Algorithm, Env

PRINTED = {
    "hidden": LARGE.actor.hidden,
    "reward_hidden": LARGE.critic.reward_hidden,
    "cost_hidden": LARGE.critic.cost_hidden,
}
"""The networks of the paper, whose overheads are of rounds with those."""
VARIANTS: dict[str, dict[str, Any]] = {
    "gs": {"estimator": "gs"},
    "stgc": {"estimator": "stgc"},
    "exact": {"estimator": "exact"},
    "exact, no physics": {"estimator": "exact", "physics": "none"},
    "exact, the paper's networks": {"estimator": "exact", **PRINTED},
    "exact, the paper's networks, no physics": {"estimator": "exact", "physics": "none", **PRINTED},
    "exact, the paper's networks and physics": {
        "estimator": "exact",
        "horizon": "one-step",
        "cost_physics": False,
        **PRINTED,
    },
}
"""By name: fields of TridentConfig."""

LARGE_PHYSICS = "physics, the paper's networks"
PRINTED_PHYSICS = "the paper's physics, the paper's networks"
ROLLOUT, LARGE_ROLLOUT = "rollout", "rollout, the paper's networks"
PAIRS = {
    "stgc over gs": ("stgc", "gs", ROLLOUT),
    "exact over gs": ("exact", "gs", ROLLOUT),
    "physics": ("exact", "exact, no physics", ROLLOUT),
    LARGE_PHYSICS: ("exact, the paper's networks", "exact, the paper's networks, no physics", LARGE_ROLLOUT),
    PRINTED_PHYSICS: (
        "exact, the paper's networks and physics",
        "exact, the paper's networks, no physics",
        LARGE_ROLLOUT,
    ),
}
"""What is compared, by name: the variant with the part, the one without, and the rollout of both."""


ALONE = {"physics, timed alone": "physics", "physics, timed alone, the paper's networks": LARGE_PHYSICS}
"""Against the round of which pair."""


class Variant(NamedTuple):
    algorithm: Algorithm
    shapes: Round
    update: Callable[..., Any]


def variants(env: Env, size: str) -> dict[str, Variant]:
    """Each with the shapes of its own state. All start from scratch: around a base policy the one without physics would
    take
    its direction from elsewhere, and do other work."""
    build = LEARNERS["trident"]._replace(name="trident-scratch").build
    algorithms = {name: build(env, size, backtracks=1, **changes) for name, changes in VARIANTS.items()}
    return {name: Variant(a, round_shapes(env, a), learning_of(a)) for name, a in algorithms.items()}


def measure_overheads(env: Env, size: str, repeats: int, say: Say) -> dict[str, Any]:
    enable_compilation_cache()  # here compiling is not what is measured
    family, flops, calls = variants(env, size), {}, {}
    key = jax.random.key(0)
    for name, (algorithm, shapes, update) in family.items():
        say(f"compiling the update with {name}")
        call = compile_(update, shapes.algo, shapes.data, cached=True).call
        state, data = jax.jit(algorithm.init)(key), sample_data(env, algorithm).data
        calls[name] = lambda call=call, state=state, data=data: call(state, data)
        flops[name] = update_flops(env, algorithm, LEARNERS["trident"].critics)["update"]
    for rollout, name in {rollout: without for _, without, rollout in PAIRS.values()}.items():
        algorithm, shapes, _ = family[name]
        sample = sample_data(env, algorithm)
        roll = compile_(collector(env, algorithm), shapes.algo, shapes.actors, key, cached=True).call
        calls[rollout] = lambda roll=roll, sample=sample: roll(sample.algo, sample.actors, key)
    alone = closed_form_work(env, family["exact"].algorithm)
    say("timing the variants in turn")
    seconds = interleave(calls | alone, repeats)
    return {
        "size": size,
        "seconds": seconds,
        "flops": flops,
        "alone": list(alone),
        "overhead": overheads(seconds, flops, list(alone)),
    }


def closed_form_work(env: Env, algorithm: Algorithm) -> dict[str, Callable[[], Any]]:
    """What the closed form is asked for in a round; in compiled programs of so many times each, as it is in a round."""
    task = Problem(algorithm.config, env.spec, env.physics)
    c, count, physics = task.config, task.num_signals, task.closed_form
    roll = sample_data(env, algorithm).data.rollout

    def rows(batch: int) -> tuple[Any, Any]:
        at = jnp.arange(batch) % roll.reward.size
        return jax.tree.map(lambda x: x.reshape(roll.reward.size, *x.shape[2:])[at], (roll.state, roll.executed))

    ones = jnp.ones(count)
    fit = PhysicsFit(ones, ones, ones, ones)
    unit = jnp.zeros((c.step.policy_batch, env.spec.action.num_modes, env.spec.action.num_params))

    def values(unit: Any, state: Any, action: Any) -> Any:
        return physics_of_modes(physics, fit, env.spec.action, task.discounts, state, action, 0, unit, count)

    def action_grads(unit: Any, state: Any, action: Any) -> Any:
        return physics_gradients(lambda u: values(u, state, action), unit)

    def given(state: Any, action: Any) -> Any:
        return physics_parts(physics, count, state, action, current=False)

    def ready(times: int, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        turned = [jax.tree.map(lambda x, t=t: jnp.roll(x, t, axis=0), arguments) for t in range(times)]
        every = jax.tree.map(lambda *x: jnp.stack(x), *turned)  # no two alike: each is to be worked out
        compiled = jax.jit(lambda every: jax.lax.map(lambda each: function(*each), every))
        return lambda: compiled(every)

    measured = task.source in ("both", "score")
    steps = ((task.source != "score") * c.step.updates + measured) * task.kinds.count
    ends = (
        4 if task.kinds.members.shape[1] > 1 else 2
    )  # of a trial: before and after, among others as they were and are
    advantages = {"both": 4, "score": 2}.get(task.source, 0)
    work = {
        "rollout": (1, partial(annotate, task), roll),
        "advantages": (advantages, given, *rows(roll.reward.size)),
        "next actions": (1, given, *rows(c.critic.minibatches * c.critic.batch)),
        "gradients": (steps, action_grads, unit, *rows(c.step.policy_batch)),
        "line searches": (steps * ends, values, unit, *rows(c.step.policy_batch)),
    }
    return {f"closed form, {name}": ready(*what) for name, what in work.items() if what[0]}


def overheads(
    seconds: dict[str, float], flops: dict[str, float], alone: Sequence[str] = ()
) -> dict[str, dict[str, float]]:
    """Added share of a round's time, of an update's time and of an update's operations."""
    out = {}
    for name, (with_it, without, rollout) in PAIRS.items():
        added = seconds[with_it] - seconds[without]
        out[name] = {
            "of_round": added / (seconds[without] + seconds[rollout]),
            "of_update": added / seconds[without],
            "of_flops": flops[with_it] / flops[without] - 1.0,
        }
    for name, pair in ALONE.items() if alone else ():
        _, without, rollout = PAIRS[pair]
        work = sum(seconds[part] for part in alone)
        out[name] = {
            "of_round": work / (seconds[without] + seconds[rollout]),
            "of_update": work / seconds[without],
            "of_flops": out[pair]["of_flops"],
        }
    return out
