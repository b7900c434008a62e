"""Theorem 3 on UAV-MEC: how many transitions TRIDENT's critic needs with its closed form and without.

A fixed policy (each agent does what is nominal, or with some probability anything) flies `uav-mec`; critics are
TRIDENT's own (`physics_value`, `critics.td_step`), fitted by TD to the transitions of the first few environments, with
the closed form's weights from the same transitions. They are judged in states of other flights: from the same state and
joint action two independent continuations give returns G1, G2, and E[(G1 - Q)(G2 - Q)] is the critic's squared error
without the returns' own noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trident import physics_value
from trident.algos.common import inputs
from trident.algos.common.central_critic import critic_of_vector, vector_input
from trident.algos.trident import critics as pirc
from trident.envs.uav_mec.env import UavMec
from trident.simulation.rollout import NEVER, Actors, rollout, start
from trident.types import HybridAction, Physics, Transition
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say
from trident.verify.fits import mean_interval
from trident.verify.plots import COLOURS, panels
from trident.verify.samples import samples_to

STEPS, ENVS = 64, 64
PARTS = ((1, 16), (1, 64), (4, 64), (16, 64), (64, 64))
"""(environments, steps) of which the critics see the transitions."""
SEEDS = 3
RANDOM = 0.3
"""Share of actions that are drawn at random."""
BURN, SNAPSHOTS, TESTS, TAIL = 16, 4, 64, 80
"""Held-out states: at 4 times of 64 flights; a tail of 80 steps holds 98 % of a return."""
DISCOUNT = 0.95
TD_STEPS, BATCH, HIDDEN, RATE, FOLLOW = 800, 64, (64, 64), 1e-3, 0.1


class Rows(NamedTuple):
    """What the critics learn from, [E, T, ...]; of one signal, the reward."""

    x: Any
    next_x: Any
    parts: physics_value.Parts
    next_parts: physics_value.Parts
    signals: Any
    use: Any  # not the last step of an episode


class Held(NamedTuple):
    x: Any
    parts: physics_value.Parts
    returns: Any  # [2, B]


class Found(NamedTuple):
    error: Any  # squared, of every size, / variance of the value
    r2: Any  # of the closed form alone


def measure(seed: int, say: Say) -> Data:
    env = UavMec()
    flown = jax.jit(lambda key: (_fly(env, key), _continue(env, jax.random.fold_in(key, 1))))
    learn = {
        "with physics": jax.jit(lambda data, key: _learn(*_views(env, env.physics, *data), key)),
        "without": jax.jit(lambda data, key: _learn(*_views(env, None, *data), key)),
    }
    found: dict[str, list[Found]] = {name: [] for name in learn}
    for i in range(SEEDS):
        say(f"flight {i + 1} of {SEEDS}")
        key = jax.random.fold_in(jax.random.key(seed), 100 + i)
        data = flown(key)
        for name, of in learn.items():
            say(f"flight {i + 1} of {SEEDS}, critics {name}")
            found[name].append(jax.tree.map(np.asarray, of(data, jax.random.fold_in(key, 7))))
    return {
        "sizes": [envs * steps for envs, steps in PARTS],
        "error": {name: np.array([f.error for f in rows]) for name, rows in found.items()},
        "r2_phys": np.array([f.r2 for f in found["with physics"]]),
    }


def _fly(env: UavMec, key: Any) -> Transition:
    begin, fly = jax.random.split(key)
    roll = rollout(env, _policy(env), fly, start(env, begin, ENVS, stagger=False), STEPS + 1)[1]
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), roll._replace(metrics={}, extras={}))


def _policy(env: UavMec) -> Any:
    nominal, anything = env.scripted["nominal"], env.scripted["random"]

    def act(key: Any, env_state: Any, _: Any) -> tuple[HybridAction, dict[str, Any]]:
        first, second, coin = jax.random.split(key, 3)
        calm, wild = nominal(first, env_state), anything(second, env_state)
        leap = jax.random.bernoulli(coin, RANDOM, calm.mode.shape)

        def pick(a, b):
            return jnp.where(leap.reshape(leap.shape + (1,) * (a.ndim - leap.ndim)), b, a)

        return jax.tree.map(pick, calm, wild), {}

    return act


def _continue(env: UavMec, key: Any) -> Any:
    """(states, observations, joint actions, two returns [2, B]) at several times of other flights."""
    policy = _policy(env)

    def later(actors: Actors, key: Any) -> Any:
        fly_key, act_key, *keys = jax.random.split(key, 6)
        actors, _ = rollout(env, policy, fly_key, actors, BURN)
        choose = jax.vmap(lambda k, s, last: policy(k, s, last)[0])
        action = choose(jax.random.split(act_key, TESTS), actors.env_state, actors.last)

        def tail(keys: Any) -> Any:
            first, then = keys
            state, last = jax.vmap(env.step)(jax.random.split(first, TESTS), actors.env_state, action)
            _, roll = rollout(env, policy, then, Actors(state, last, jnp.full(TESTS, NEVER)), TAIL)
            return last.reward + jnp.sum(DISCOUNT ** (1.0 + jnp.arange(TAIL))[:, None] * roll.reward, axis=0)

        returns = jax.lax.map(tail, jnp.stack(keys).reshape(2, 2))
        return actors, (actors.last.state, actors.last.obs, action, returns)

    begin, *keys = jax.random.split(key, 1 + SNAPSHOTS)
    _, (state, obs, action, returns) = jax.lax.scan(later, start(env, begin, TESTS, stagger=False), jnp.stack(keys))

    def flat(x):
        return x.reshape(-1, *x.shape[2:])

    return *jax.tree.map(flat, (state, obs, action)), jnp.swapaxes(returns, 0, 1).reshape(2, -1)


def _views(env: UavMec, physics: Physics | None, roll: Transition, held: Any) -> tuple[Rows, Held]:
    """Transitions with the action that was taken next: what is learned is the policy's own value."""
    now, after = (jax.tree.map(lambda x, s=s: x[:, s], roll) for s in (slice(0, STEPS), slice(1, STEPS + 1)))
    x, parts = _view(env, physics, now.state, now.obs, now.executed)
    next_x, next_parts = _view(env, physics, now.next_state, now.next_obs, after.executed)
    rows = Rows(x, next_x, parts, next_parts, now.reward[..., None], ~(now.terminated | now.truncated))
    return rows, Held(*_view(env, physics, *held[:3]), held[3])


def _view(
    env: UavMec, physics: Physics | None, state: Any, obs: Any, action: HybridAction
) -> tuple[Any, physics_value.Parts]:
    """The critics' input, and the closed form's parts of the reward, in rows of any number of axes."""
    lead = state.shape[:-1]
    size = int(np.prod(lead))
    state, obs, action = jax.tree.map(lambda x: x.reshape(size, *x.shape[len(lead) :]), (state, obs, action))
    parts = physics_value.physics_parts(physics, 1 + env.spec.num_constraints, state, action)
    x = inputs.q_input(state, obs, inputs.encode_action(env.spec.action, *action))
    reward = jax.tree.map(lambda y: y[:, :1], parts)
    return jax.tree.map(lambda y: y.reshape(*lead, y.shape[-1]), (x, reward))


def _learn(rows: Rows, held: Held, key: Any) -> Found:
    """TD on the first environments, for all sizes side by side."""
    gamma = jnp.array([DISCOUNT])
    fit = jax.tree.map(lambda *x: jnp.stack(x), *[_fit(rows, *part) for part in PARTS])
    phys = jax.vmap(lambda f, parts: physics_value.q_phys(f, parts, gamma), (0, None))
    count = ENVS * STEPS
    seen = [np.add.outer(np.arange(ENVS) >= e, np.arange(STEPS) >= t).reshape(count) == 0 for e, t in PARTS]

    def flat(x):
        return x.reshape(count, x.shape[-1])

    now, then = (phys(fit, jax.tree.map(flat, p)) for p in (rows.parts, rows.next_parts))
    x, next_x, signals, use = flat(rows.x), flat(rows.next_x), flat(rows.signals), rows.use.reshape(count)
    adam = optax.adam(RATE)
    one = critic_of_vector(x.shape[-1], HIDDEN)  # of everything side by side
    bodies = pirc.Bodies(one, one)

    def train(f: Any, q: Any, next_q: Any, mine: Any) -> Any:
        first, other = jax.random.split(key)
        nets = pirc.init(first, bodies, 0)
        chance = jnp.where(use & mine, 0.0, -jnp.inf)
        picked = jax.random.categorical(other, chance, shape=(TD_STEPS, BATCH))

        def step(carry: Any, at: Any) -> Any:
            nets, target, opt = carry
            now, then = vector_input(x[at]), vector_input(next_x[at])
            batch = pirc.CriticBatch(now, q[at], signals[at], then, next_q[at], jnp.zeros(BATCH, bool))
            nets, target, opt, _ = pirc.td_step(bodies, nets, target, opt, adam, f, batch, gamma, FOLLOW)
            return (nets, target, opt), None

        (nets, _, _), _ = jax.lax.scan(step, (nets, nets, adam.init(nets)), picked)
        return f.unit * pirc.residual(bodies, nets, vector_input(held.x))[:, 0]

    rest = jax.vmap(train)(fit, now, then, jnp.array(seen))
    known = phys(fit, held.parts)[..., 0]

    def both(gap):
        return jnp.mean(gap[0] * gap[1], axis=-1)

    def centred(y):
        return y - y.mean(axis=(0, -1), keepdims=True)

    variance = both(centred(held.returns))
    left = held.returns[:, None] - known
    return Found(both(left - rest) / variance, 1.0 - both(centred(left)) / variance)


def _fit(rows: Rows, envs: int, steps: int) -> physics_value.PhysicsFit:
    """Weights of the closed form from what the critics see, and nothing else."""
    gamma = jnp.array([DISCOUNT])

    def of(x):
        return jnp.swapaxes(x[:envs, :steps], 0, 1)

    signals, ended, parts = of(rows.signals), of(~rows.use), jax.tree.map(of, rows.parts)
    unit = physics_value.spread(signals, ended, gamma)
    return physics_value.fit_physics(physics_value.fit_sums(signals, ended, parts, gamma), unit, gamma)


# --- judging --------------------------------------------------------------------------------------


def saving(data: Data) -> list[float]:
    """Of every flight, transitions without physics / with it, to the error that the plain critic has at the largest n.
    Who is there with the smallest n already has saved at least as much as that says."""
    sizes, rows = data["sizes"], {k: np.maximum(np.array(v), 1e-4) for k, v in data["error"].items()}
    found = []
    for plain, informed in zip(rows["without"], rows["with physics"], strict=True):
        reached = informed <= plain[-1]
        if reached[0]:
            found.append(sizes[-1] / sizes[0])
        else:
            found.append(sizes[-1] / samples_to(sizes, informed, plain[-1]) if reached.any() else 1.0)
    return found


def _judge(data: Data) -> Evidence:
    r2 = np.array(data["r2_phys"])[:, -1]
    over = mean_interval(saving(data) * (1.0 - r2))
    error = {k: np.array(v) for k, v in data["error"].items()}
    middle = len(data["sizes"]) // 2  # with a handful of rows both are lost
    ratio = {
        data["sizes"][i]: mean_interval(error["with physics"][:, i] / error["without"][:, i]) for i in (middle, -1)
    }
    most = data["sizes"][-1] / data["sizes"][0]
    return Evidence(
        (Check(f"saving (up to {most:g} can be seen) / (1 / (1 - R2))", over, 0.67, 1.5),),
        (
            Check("the same", over, 1.0),
            *(Check(f"squared error with physics / without, n = {n}", r, high=1.0) for n, r in ratio.items()),
        ),
    )


def draw(data: Data, path: Path) -> None:
    sizes, error = data["sizes"], {k: np.array(v) for k, v in data["error"].items()}
    r2 = np.mean(data["r2_phys"], axis=0)

    def by_size(ax: Any, title: str, label: str) -> None:
        ax.set(title=title, xlabel="transitions", ylabel=label)
        ax.set_xticks(sizes, [str(n) for n in sizes])
        ax.minorticks_off()
        ax.legend()

    def errors(ax: Any) -> None:
        for (name, rows), colour in zip(error.items(), (COLOURS[0], COLOURS[5]), strict=True):
            ax.loglog(sizes, rows.mean(axis=0), "o-", ms=4, color=colour, label=f"critics {name}", lw=2)
            ax.loglog(sizes, rows.T, color=colour, lw=0.7, alpha=0.6)
        by_size(ax, "error of the critic", "squared error / Var[Q]")

    def ratio(ax: Any) -> None:
        found = error["with physics"] / error["without"]
        ax.loglog(
            sizes,
            np.exp(np.log(np.maximum(found, 1e-3)).mean(axis=0)),
            "o-",
            ms=4,
            color=COLOURS[0],
            lw=2,
            label="measured",
        )
        ax.loglog(sizes, found.T, color=COLOURS[0], lw=0.7, alpha=0.6)
        ax.loglog(sizes, 1.0 - r2, "--", color=COLOURS[1], label="1 - R2 of the closed form")
        by_size(ax, "error with physics / without", "")

    panels(path, "Theorem 3 on uav-mec: TRIDENT's critics with the closed form and without", [errors, ratio])


CLAIMS = (
    Claim(
        "uav-samples",
        "Theorem 3 on UAV-MEC",
        "to a given critic error physics saves samples by 1 / (1 - R2)",
        _judge,
        "by more than that; the error at equal n falls less",
    ),
)

EXPERIMENT = Experiment(
    "uav-critic", "critic error against data on UAV-MEC, with physics and without", measure, CLAIMS, draw
)
