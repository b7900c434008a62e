"""Gradient error inside the real actor-critic: the estimators with TRIDENT's critics as objective, against enumeration.

Critics (closed form and residual networks) are fitted to a random policy's flight on `uav-mec` by TRIDENT's functions.
In a batch of its states one agent's gradient with respect to its logits is averaged over many Gumbel draws and compared
with the exact marginal sum. Squared biases are corrected for the sampling error, so that they may come out negative.
This is done for several flights with critics of their own, and intervals are over these: all estimators see the same
critics and draws, so they are compared pair by pair.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trident import physics_value
from trident.algos.common.actor import actors_apply, actors_init
from trident.algos.common.central_critic import central_critic
from trident.algos.trident import critics as pirc
from trident.algos.trident.surrogate import Choice, Joint, PolicyBatch, act_with_noise, through_critics
from trident.envs.random_policy import random_action
from trident.envs.uav_mec.env import UavMec
from trident.maths.discrete_gradient import relaxations
from trident.report.stats import Estimate
from trident.simulation.rollout import rollout, start
from trident.types import EnvSpec
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say
from trident.verify.fits import mean_interval, t_quantile
from trident.verify.plots import COLOURS, panels, temperature_axis
from trident.verify.stgc import LABELS

NAMES = ("gs", "st", "stgc-paper", "stgc", "romberg")
TAUS = (0.4, 0.2, 0.1)
FLIGHTS, STATES, GROUPS = 6, 24, 3
DRAWS, FIBONACCI = 610, 377
ENVS, STEPS = 32, 24
AGENT = 0


class Setting(NamedTuple):
    """Critics of one flight, and some of its states in which agent 0 is to choose."""

    critics: pirc.Critics
    fit: physics_value.PhysicsFit
    scene: PolicyBatch
    joint: Joint
    logits: Any
    unit: Any  # parameters of every mode


def measure(seed: int, say: Say) -> Data:
    env = UavMec()
    say("fitting critics to flights")
    make = jax.jit(lambda key: _setting(env, key))
    settings = [make(key) for key in jax.random.split(jax.random.key(seed), FLIGHTS)]
    shape = settings[0].logits.shape
    noise = [jnp.asarray(even_gumbels([seed, i], *shape), jnp.float32) for i in range(FLIGHTS)]
    truth = jax.jit(lambda s: jax.grad(lambda l: _value(env, s, "exact", l, jnp.zeros_like(l), 0.1))(s.logits))
    true = [np.asarray(truth(s), np.float64) for s in settings]
    out: Data = {"taus": list(TAUS), "squared": {}, "spread": {}}
    for name in NAMES:
        say(f"gradients by {name}")
        run = jax.jit(lambda setting, gumbels, tau, name=name: _groups(env, name, setting, gumbels, tau))
        rows = [[run(s, g, jnp.float32(tau)) for tau in TAUS] for s, g in zip(settings, noise, strict=True)]
        pairs = [
            [(squared_bias(np.asarray(m, np.float64), t), _relative_spread(m, q, t)) for m, q in row]
            for row, t in zip(rows, true, strict=True)
        ]
        out["squared"][name], out["spread"][name] = np.moveaxis(np.array(pairs), -1, 0)  # [flights, temperatures]
    return out


def _value(env: UavMec, setting: Setting, name: str, l: Any, gumbel: Any, tau: Any) -> Any:
    """Of agent 0's relaxed choice, summed over states."""
    spec, mask = env.spec, setting.scene.mode_mask[:, AGENT]
    view = through_critics(
        critic_bodies(spec),
        setting.critics,
        setting.fit,
        env.physics,
        spec.action,
        _discount(env),
        setting.scene,
        setting.joint,
        jnp.int32(AGENT),
        1 + spec.num_constraints,
    )
    relax = jax.vmap(lambda a, m, g: relaxations(name, a, m, g, tau, tau0=1.0))
    return jnp.sum(view.value(Choice(*relax(l, mask, gumbel), setting.unit))[:, 0])


def _groups(env: UavMec, name: str, setting: Setting, gumbels: Any, tau: Any) -> tuple[Any, Any]:
    """Mean and mean square of the gradients of every group of draws."""

    def group(noise: Any) -> Any:
        gradient = jax.grad(lambda l, g: _value(env, setting, name, l, g, tau))
        draws = jax.vmap(lambda g: gradient(setting.logits, g))(noise)
        return jnp.mean(draws, axis=0), jnp.mean(draws**2, axis=0)

    return jax.lax.map(group, gumbels)


def even_gumbels(seed: list[int], states: int, modes: int) -> np.ndarray:
    """[groups, draws, states, modes], up to a constant in each row, which no softmax sees.

    Gumbels are -log of exponentials E, and E / sum(E) is uniform on the simplex: for three modes that is two numbers.
    A Fibonacci lattice fills their square far more evenly than chance does; a random shift in each group and state
    makes the mean over a group unbiased and groups independent.
    """
    if modes != 3:
        raise ValueError(f"a lattice for three modes, not {modes}")
    lattice = np.outer(np.arange(DRAWS), [1, FIBONACCI])[:, None] / DRAWS
    first, second = np.moveaxis(
        (lattice + np.random.default_rng([*seed, 11]).random((GROUPS, 1, states, 2))) % 1, -1, 0
    )
    rest = np.sqrt(first)
    parts = np.stack([1.0 - rest, rest * (1.0 - second), rest * second], axis=-1)
    return -np.log(np.maximum(parts, 1e-300))


def _discount(env: UavMec) -> Any:
    return jnp.array([0.95, *[0.8] * env.spec.num_constraints])


def _setting(env: UavMec, key: Any) -> Setting:
    spec, size = env.spec, ENVS * STEPS
    keys = jax.random.split(key, 8)
    fly = env.scripted["random"]

    def policy(key, env_state, _):
        return (fly(key, env_state), {})

    roll = rollout(env, policy, keys[1], start(env, keys[0], ENVS), STEPS)[1]
    fit, critics = _fit(env, roll, _discount(env), keys[2], keys[3])
    picked = jax.random.choice(keys[4], size, (STATES,), replace=False)

    def flat(x):
        return x.reshape(size, *x.shape[2:])[picked]

    place, obs, mask, alive = (flat(x) for x in (roll.state, roll.obs, roll.mode_mask, roll.alive))
    gumbel = jax.random.gumbel(keys[5], mask.shape)
    noise = jax.random.normal(keys[6], (*alive.shape, spec.action.num_params))
    scene = PolicyBatch(place, obs, mask, alive, jnp.full(STATES, 1.0 / STATES), gumbel, noise)
    actors = actors_init(keys[7], spec.num_agents, spec.obs_dim, (32, 32), *spec.action.low.shape[1:], -0.7)
    dist = actors_apply(actors, obs)
    logits = jax.random.normal(keys[7], mask[:, AGENT].shape)  # a policy with opinions, unlike a fresh one
    unit = jnp.tanh(dist.mean[:, AGENT]) * spec.action.used[AGENT]
    return Setting(critics, fit, scene, act_with_noise(spec.action, dist, scene), logits, unit)


def critic_bodies(spec: EnvSpec) -> pirc.Bodies:
    width = spec.action.num_modes + spec.action.num_params
    return pirc.Bodies(*(central_critic(spec, "concatenated", h, width) for h in ((64, 64), (32,))))


def _fit(
    env: Any, roll: Any, discount: Any, act_key: Any, net_key: Any
) -> tuple[physics_value.PhysicsFit, pirc.Critics]:
    """The closed form's weights by least squares, then the residual networks by TD on the flight's own rows."""
    spec, size = env.spec, ENVS * STEPS
    rows = jax.tree.map(lambda x: x.reshape(size, *x.shape[2:]), roll._replace(metrics={}, extras={}))

    def choose(k, m):
        return random_action(k, spec.action, m)

    following = jax.vmap(choose)(jax.random.split(act_key, size), rows.next_mode_mask)

    def closed(state, action):
        return physics_value.physics_parts(env.physics, 1 + spec.num_constraints, state, action)

    before, after = closed(rows.state, rows.executed), closed(rows.next_state, following)
    shaped = jax.tree.map(lambda x: x.reshape(STEPS, ENVS, -1), before)
    ended = roll.terminated | roll.truncated
    unit = physics_value.spread(roll.signals, ended, discount)
    fit = physics_value.fit_physics(physics_value.fit_sums(roll.signals, ended, shaped, discount), unit, discount)
    batch = pirc.batch_of(rows, following, spec.action, before, after, fit, discount)
    bodies = critic_bodies(spec)
    critics, adam = pirc.init(net_key, bodies, spec.num_constraints), optax.adam(3e-3)

    def step(carry: Any, _: Any) -> Any:
        critics, target, opt = carry
        critics, target, opt, _ = pirc.td_step(bodies, critics, target, opt, adam, fit, batch, discount, 0.05)
        return (critics, target, opt), None

    (critics, _, _), _ = jax.lax.scan(step, (critics, critics, adam.init(critics)), None, length=300)
    return fit, critics


def squared_bias(part: np.ndarray, true: np.ndarray) -> float:
    """|E[g] - true|^2 / |true|^2 from group means [groups, ...]: the square of a mean is too large by its variance."""
    noise = part.var(axis=0, ddof=1).sum() / len(part)
    return float((np.sum((part.mean(axis=0) - true) ** 2) - noise) / np.sum(true**2))


def _relative_spread(means: Any, squares: Any, true: np.ndarray) -> float:
    variance = np.asarray(squares).mean(axis=0) - np.asarray(means).mean(axis=0) ** 2
    return float(np.sqrt(variance.sum()) / np.linalg.norm(true))


# --- judging --------------------------------------------------------------------------------------


def over_plain(data: Data, name: str, tau: float) -> Estimate:
    """Root of the ratio of mean squared biases, with a jackknife interval over flights."""
    at = data["taus"].index(tau)
    ours, plain = (np.array(data["squared"][n])[:, at] for n in (name, "gs"))

    def ratio(rows):
        return np.sqrt(max(ours[rows].mean() / plain[rows].mean(), 0.0))

    every = np.arange(len(ours))
    value, left = ratio(every), np.array([ratio(np.delete(every, i)) for i in every])
    half = t_quantile(len(every) - 1) * float(np.sqrt((len(every) - 1) * left.var()))
    return Estimate(float(value), float(value - half), float(value + half))


def _judge(data: Data) -> Evidence:
    def over(name: str, label: str, most: float) -> tuple[Check, ...]:
        """At 0.1 the bias of plain Gumbel-Softmax itself is hardly known."""
        return tuple(
            Check(f"bias of {label} / plain GS's, tau = {tau:g}", over_plain(data, name, tau), high=most)
            for tau in data["taus"]
            if tau > 0.1
        )

    return Evidence(over("stgc-paper", "printed STGC", 1.0), over("stgc", "ratio-locked STGC", 1.25))


def draw(data: Data, path: Path) -> None:
    taus = np.array(data["taus"])

    def bias(ax: Any) -> None:
        for name, colour in zip(NAMES, COLOURS, strict=False):
            found = [mean_interval(column) for column in np.array(data["squared"][name]).T]
            value, low, high = np.sqrt(np.maximum(np.array(found).T, 0.0))
            ax.errorbar(
                taus, value, [value - low, high - value], fmt="o-", ms=4, color=colour, label=LABELS[name], capsize=2
            )
        ax.set(title="bias / |exact gradient|", xscale="log", ylim=(0, 0.4))
        temperature_axis(ax, taus)

    def spread(ax: Any) -> None:
        for name, colour in zip(NAMES, COLOURS, strict=False):
            ax.semilogx(taus, np.mean(data["spread"][name], axis=0), "o-", ms=4, color=colour)
        ax.set(title="standard deviation / |exact gradient|", ylim=(0, None))
        temperature_axis(ax, taus)

    panels(path, "Gradient error with TRIDENT's critics as objective (uav-mec)", [bias, spread], legend=0)


CLAIMS = (
    Claim(
        "actor-critic",
        "section 5.1, table 2",
        "with critics as objective STGC is less biased than plain GS",
        _judge,
        "the printed form is far more biased; the ratio-locked one about as much as plain GS",
    ),
)

EXPERIMENT = Experiment("actor-critic", "gradient error inside the real actor-critic", measure, CLAIMS, draw)
