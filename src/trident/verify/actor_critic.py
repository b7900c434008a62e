"""Gradient error inside the real actor-critic: the estimators with TRIDENT's critics as objective, against enumeration.

Critics (closed form and residual networks) are fitted to a random policy's flight on `uav-mec` by TRIDENT's functions.
In a batch of its states one agent's gradient with respect to its logits is averaged over many Gumbel draws and compared
with the exact marginal sum. Squared biases are corrected for the sampling error; intervals come from leaving out groups
of draws.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trident import closed_form
from trident import critics as pirc
from trident.envs.check import random_action
from trident.envs.uav_mec import UavMec
from trident.maths.discrete_gradient import relaxations
from trident.nets import actors_apply, actors_init
from trident.report.stats import Estimate
from trident.rollout import rollout, start
from trident.surrogate import Choice, Scene, act_with_noise, through_critics
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say
from trident.verify.fits import t_quantile
from trident.verify.plots import COLOURS, panels, temperature_axis
from trident.verify.stgc import LABELS

NAMES = ("gs", "st", "stgc-paper", "stgc", "romberg")
TAUS = (0.4, 0.2, 0.1)
STATES, GROUPS, DRAWS = 24, 16, 384
ENVS, STEPS = 32, 24
AGENT = 0


def measure(seed: int, say: Say) -> Data:
    say("fitting the critics to a flight")
    view, logits, mask, unit = _critic_view(seed)

    def value(name: str, l: Any, gumbel: Any, tau: Any) -> Any:
        relax = jax.vmap(lambda a, m, g: relaxations(name, a, m, g, tau, tau0=1.0))
        return jnp.sum(view.value(Choice(*relax(l, mask, gumbel), unit))[:, 0])

    true = np.asarray(jax.jit(jax.grad(lambda l: value("exact", l, jnp.zeros_like(l), 0.1)))(logits))
    out: Data = {"taus": list(TAUS), "bias": {}, "spread": {}}
    for name in NAMES:
        say(f"gradients by {name}")

        def group(key: Any, tau: Any, name: str = name) -> Any:
            noise = jax.random.gumbel(key, (DRAWS, *logits.shape))
            draws = jax.vmap(lambda g: jax.grad(lambda l: value(name, l, g, tau))(logits))(noise)
            return jnp.mean(draws, axis=0), jnp.mean(draws**2, axis=0)

        run = jax.jit(lambda keys, tau, group=group: jax.lax.map(lambda k: group(k, tau), keys))
        keys = jax.random.split(jax.random.key(seed), GROUPS)
        rows = [[np.asarray(x, np.float64) for x in run(keys, jnp.float32(tau))] for tau in TAUS]
        out["bias"][name] = [relative_bias(means, true)._asdict() for means, _ in rows]
        out["spread"][name] = [_relative_spread(means, squares, true) for means, squares in rows]
    return out


def _critic_view(seed: int) -> tuple[Any, Any, Any, Any]:
    """(how agent 0's choice is valued, its logits, mask, parameters of every mode) in a batch of states."""
    env = UavMec()
    spec, size = env.spec, ENVS * STEPS
    keys = jax.random.split(jax.random.key(seed), 8)
    fly = env.scripted["random"]
    policy = lambda key, env_state, _: (fly(key, env_state), {})  # noqa: E731
    begin = jax.jit(lambda k: start(env, k, ENVS))(keys[0])
    roll = jax.jit(lambda k, a: rollout(env, policy, k, a, STEPS)[1])(keys[1], begin)
    discount = jnp.array([0.95, *[0.8] * spec.num_constraints])
    fit, critics = jax.jit(lambda r: _fit(env, r, discount, keys[2], keys[3]))(roll)
    picked = jax.random.choice(keys[4], size, (STATES,), replace=False)
    flat = lambda x: x.reshape(size, *x.shape[2:])[picked]  # noqa: E731
    place, obs, mask, alive = (flat(x) for x in (roll.state, roll.obs, roll.mode_mask, roll.alive))
    gumbel = jax.random.gumbel(keys[5], mask.shape)
    noise = jax.random.normal(keys[6], (*alive.shape, spec.action.num_params))
    scene = Scene(place, obs, mask, alive, jnp.full(STATES, 1.0 / STATES), gumbel, noise)
    actors = actors_init(keys[7], spec.num_agents, spec.obs_dim, (32, 32), *spec.action.low.shape[1:], -0.7)
    dist = actors_apply(actors, obs)
    view = through_critics(
        critics, fit, env.physics, spec.action, discount, scene, act_with_noise(spec.action, dist, scene),
        jnp.int32(AGENT), 1 + spec.num_constraints,
    )  # fmt: skip
    logits = jax.random.normal(keys[7], mask[:, AGENT].shape)  # a policy with opinions, unlike a fresh one
    return view, logits, mask[:, AGENT], jnp.tanh(dist.mean[:, AGENT]) * spec.action.used[AGENT]


def _fit(env: Any, roll: Any, discount: Any, act_key: Any, net_key: Any) -> tuple[closed_form.PhysicsFit, pirc.Critics]:
    """The closed form's weights by least squares, then the residual networks by TD on the flight's own rows."""
    spec, size = env.spec, ENVS * STEPS
    rows = jax.tree.map(lambda x: x.reshape(size, *x.shape[2:]), roll._replace(metrics={}, extras={}))
    choose = lambda k, m: random_action(k, spec.action, m)  # noqa: E731
    following = jax.vmap(choose)(jax.random.split(act_key, size), rows.next_mode_mask)
    parts = closed_form.physics_parts(env.physics, 1 + spec.num_constraints, *pirc.both_ends(rows, following))
    shaped = jax.tree.map(lambda x: x[:size].reshape(STEPS, ENVS, -1), parts)
    ended = roll.terminated | roll.truncated
    unit = closed_form.spread(roll.signals, ended, discount)
    fit = closed_form.fit_physics(closed_form.fit_sums(roll.signals, ended, shaped, discount), unit, discount)
    batch = pirc.batch_of(rows, following, spec.action, parts, fit, discount)
    critics, adam = pirc.init(net_key, batch.x.shape[-1], spec.num_constraints, (64, 64), (32,)), optax.adam(3e-3)

    def step(carry: Any, _: Any) -> Any:
        critics, target, opt = carry
        critics, target, opt, _ = pirc.td_step(critics, target, opt, adam, fit, batch, discount, 0.05)
        return (critics, target, opt), None

    (critics, _, _), _ = jax.lax.scan(step, (critics, critics, adam.init(critics)), None, length=300)
    return fit, critics


def relative_bias(means: np.ndarray, true: np.ndarray) -> Estimate:
    """|E[g] - true| / |true| from group means [groups, ...]: the square of a mean is too large by its variance."""

    def norm(part: np.ndarray) -> float:
        noise = part.var(axis=0, ddof=1).sum() / len(part)
        return float(np.sqrt(max(np.sum((part.mean(axis=0) - true) ** 2) - noise, 0.0)) / np.linalg.norm(true))

    value = norm(means)
    left = np.array([norm(np.delete(means, i, axis=0)) for i in range(len(means))])
    half = t_quantile(len(means) - 1) * np.sqrt((len(means) - 1) * left.var())
    return Estimate(value, max(value - half, 0.0), value + half)


def _relative_spread(means: np.ndarray, squares: np.ndarray, true: np.ndarray) -> float:
    variance = squares.mean(axis=0) - means.mean(axis=0) ** 2
    return float(np.sqrt(variance.sum()) / np.linalg.norm(true))


# --- judging --------------------------------------------------------------------------------------


def _beyond(data: Data, name: str, tau: float) -> Estimate:
    """Relative bias less plain Gumbel-Softmax's, intervals added."""
    at = data["taus"].index(tau)
    ours, plain = (Estimate(**data["bias"][n][at]) for n in (name, "gs"))
    return Estimate(ours.value - plain.value, ours.low - plain.high, ours.high - plain.low)


def _judge(data: Data) -> Evidence:
    return Evidence(
        (Check("relative bias of printed STGC less plain GS's", _beyond(data, "stgc-paper", 0.2), high=0.0),),
        (Check("of ratio-locked STGC less plain GS's", _beyond(data, "stgc", 0.2), high=0.05),),
    )


def draw(data: Data, path: Path) -> None:
    taus = np.array(data["taus"])

    def bias(ax: Any) -> None:
        for name, colour in zip(NAMES, COLOURS, strict=False):
            rows = [Estimate(**row) for row in data["bias"][name]]
            value = np.array([r.value for r in rows])
            error = np.abs(np.array([[r.low, r.high] for r in rows]).T - value)
            ax.errorbar(taus, value, error, fmt="o-", ms=4, color=colour, label=LABELS[name], capsize=2)
        ax.set(title="bias / |exact gradient|", xscale="log", ylim=(0, 0.4))
        temperature_axis(ax, taus)

    def spread(ax: Any) -> None:
        for name, colour in zip(NAMES, COLOURS, strict=False):
            ax.semilogx(taus, data["spread"][name], "o-", ms=4, color=colour)
        ax.set(title="standard deviation / |exact gradient|", ylim=(0, None))
        temperature_axis(ax, taus)

    panels(path, "Gradient error with TRIDENT's critics as objective (uav-mec)", [bias, spread], legend=0)


CLAIMS = (
    Claim("actor-critic", "section 5.1, table 2", "with critics as objective STGC is less biased than plain GS", _judge,
          "the printed form is far more biased; the ratio-locked one no more than plain GS"),
)  # fmt: skip

EXPERIMENT = Experiment("actor-critic", "gradient error inside the real actor-critic", measure, CLAIMS, draw)
