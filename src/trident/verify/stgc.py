"""Theorem 1: how fast the bias of each discrete-gradient estimator vanishes with the temperature.

For every estimator and objective the largest bias over the logits of a grid, as the theorem is uniform in them, against
the temperature. Two modes by quadrature through the estimators' own code, also beside forbidden modes; three to eight
modes by the identities of `bias`; and the code against the identities, by sampling.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.maths.discrete_gradient import relaxations
from trident.report.stats import Estimate
from trident.verify import bias
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say, exact
from trident.verify.fits import limit_order, span, worst
from trident.verify.plots import COLOURS, panels, slope_guide, temperature_axis

TAUS = (0.2, 0.1, 0.05, 0.025, 0.0125)
TAUS_MANY = (0.05, 0.025, 0.0125, 0.00625, 0.003125)
"""For more modes, where the integrals know no steepness: with random logits the leading term comes late."""
PROBE = 0.25
"""Temperature at which the code is sampled: mild enough for a small variance, low enough for a bias."""
SMALL = 3
"""Orders are read off this many smallest temperatures."""
ESTIMATORS = ("gs", "st", "stgc-paper", "stgc", "romberg", "exact")
POWERS = ("linear", "square", "cube")
MODES = (3, 4, 5, 6, 7, 8)
REFERENCES = (0.1, 0.2, 0.4)
"""tau0, at tau = 0.0125"""
LABELS = {
    "gs": "plain Gumbel-Softmax",
    "st": "straight-through",
    "stgc-paper": "STGC as printed",
    "stgc": "STGC, ratio-locked",
    "romberg": "Romberg, 3 temperatures",
    "exact": "sum over modes",
}


def measure(seed: int, say: Say, relax: bias.Relax = relaxations, modes: tuple[int, ...] = MODES) -> Data:
    say("two modes, by quadrature")
    two = {name: line_sup(relax, name, TAUS) for name in ESTIMATORS}
    say("two modes beside forbidden ones")
    masked = {name: change_beside_forbidden(relax, name, two[name]) for name in ESTIMATORS}
    reference = [line_sup(relax, "stgc-paper", (0.0125,), tau0=t)["linear"][0] for t in REFERENCES]
    remainder = float(reference[0] / (0.0125 * REFERENCES[0] * _laplacian_gradient()))
    say("three to eight modes")
    with jax.enable_x64(True):
        many = {str(m): _many(seed, m) for m in modes}
        say("the estimators' code against the identities")
        agreement = [z for m in (modes[0], modes[-1]) for z in agreement_scores(relax, seed, m)]
        summed = max(_sum_over_modes(relax, seed, m) for m in modes)
        forbidden = max(_forbidden(relax, name) for name in ESTIMATORS)
    return {
        "taus": list(TAUS),
        "taus_many": list(TAUS_MANY),
        "two": two,
        "masked": masked,
        "many": many,
        "agreement": agreement,
        "forbidden": forbidden,
        "summed": summed,
        "reference": {"tau0": list(REFERENCES), "bias": reference, "over_predicted": remainder},
    }


def line_sup(relax: bias.Relax, name: str, taus: tuple[float, ...], **where: Any) -> dict[str, list[float]]:
    """objective -> largest |bias| over the logits, per temperature."""
    lines = [np.abs(bias.on_the_line(relax, name, tau, **where).bias).max(axis=0) for tau in taus]
    return {h: [float(row[i]) for row in lines] for i, h in enumerate(bias.OBJECTIVES)}


def change_beside_forbidden(relax: bias.Relax, name: str, alone: dict[str, list[float]]) -> float:
    """Largest change of the bias, at the smallest temperatures, when two forbidden modes stand beside the two."""
    beside = line_sup(relax, name, TAUS[-SMALL:], masked=2)
    return float(max(np.abs(np.array(beside[h]) - alone[h][-SMALL:]).max() for h in bias.OBJECTIVES))


def _laplacian_gradient() -> float:
    """Largest |J_2| over the logits: J_2 = pi^2 / 12 d/dl (p_11 + p_22) = pi^2 / 6 d^3 p / dl^3 for two modes."""
    p = 1.0 / (1.0 + np.exp(-np.array(bias.LOGITS)))
    third = p * (1.0 - p) * (1.0 - 6.0 * p + 6.0 * p**2)
    return float(np.pi**2 / 6.0 * np.abs(third).max())


def _cases(seed: int, modes: int) -> list[tuple[jax.Array, jax.Array]]:
    """(logits, mask): three sets of logits, the last with one mode forbidden, or two where three are left."""
    rng = np.random.default_rng([seed, modes, 1])
    everything = np.ones(modes, bool)
    some = everything.copy()
    some[2] = False
    some[modes - 1] = modes == 4
    return [(jnp.asarray(rng.normal(size=modes)), jnp.asarray(mask)) for mask in (everything, everything, some)]


def _many(seed: int, modes: int, count: int = 20_000) -> dict[str, Any]:
    """estimator -> objective -> largest |bias| per temperature, and the largest standard error relative to it."""
    noise, cases, out = jnp.asarray(bias.gumbels(seed, count, modes)), _cases(seed, modes), {}
    for name in ESTIMATORS[:-1]:
        out[name] = {}
        for power, objective in enumerate(POWERS, start=1):
            sizes, errors = [], []
            for tau in TAUS_MANY:
                found = [bias.mean_gradient(bias.recipe(name, tau), power, *case, noise) for case in cases]
                gaps = np.abs([f[0] for f in found])
                at = np.unravel_index(gaps.argmax(), gaps.shape)
                sizes.append(float(gaps[at]))
                errors.append(float(np.array([f[1] for f in found])[at]))
            out[name][objective] = {"bias": sizes, "error": errors}
    return out


def agreement_scores(relax: bias.Relax, seed: int, modes: int, count: int = 40_000) -> list[float]:
    """(sampled mean of the code's gradient - identity) / its standard error, over estimators, powers and modes."""
    scores = []
    noise = jnp.asarray(bias.gumbels(seed, 20_000, modes))
    logits, mask = _cases(seed, modes)[-1]
    p = np.asarray(bias.mode_probs(logits, mask))
    true = p[0] * (np.eye(modes)[0] - p)
    for name in ESTIMATORS[:-1]:
        means, errors = bias.sampled_gradient(relax, name, (1, 3), logits, mask, PROBE, seed, count)
        for power, mean, error in zip((1, 3), means, errors, strict=True):
            gap, own = bias.mean_gradient(bias.recipe(name, PROBE), power, logits, mask, noise)
            allowed = np.asarray(mask)
            scores += list((mean - true - gap)[allowed] / np.hypot(error, own)[allowed])
    return [float(s) for s in scores]


def _sum_over_modes(relax: bias.Relax, seed: int, modes: int) -> float:
    """Largest |bias| of the sum over modes, whose gradient no noise enters."""
    found = []
    for logits, mask in _cases(seed, modes):
        p = np.asarray(bias.mode_probs(logits, mask))
        mean, _ = bias.sampled_gradient(relax, "exact", (1, 2, 3), logits, mask, PROBE, seed, 2)
        found.append(np.abs(mean - p[0] * (np.eye(modes)[0] - p)).max())
    return float(max(found))


def _forbidden(relax: bias.Relax, name: str) -> float:
    """Largest |d surrogate / d logit| of forbidden modes."""
    logits, mask = jnp.array([0.3, 4.0, -0.5, 4.0]), jnp.array([True, False, True, False])

    def surrogate(l: jax.Array, gumbel: jax.Array) -> jax.Array:
        weights, samples = relax(name, l, mask, gumbel, 0.1, tau0=1.0)
        return jnp.sum(weights * jnp.sin(samples @ jnp.arange(1.0, 5.0)))

    noise = jax.random.gumbel(jax.random.key(0), (256, 4), logits.dtype)
    gradients = jax.vmap(jax.grad(surrogate), (None, 0))(logits, noise)
    return float(np.abs(np.asarray(gradients)[:, ~np.asarray(mask)]).max())


# --- judging --------------------------------------------------------------------------------------


def order(data: Data, name: str, objective: str) -> Estimate:
    """Exponent of the bias in the temperature, two modes, on the smallest temperatures."""
    return limit_order(data["taus"][-SMALL:], data["two"][name][objective][-SMALL:])


def order_many(data: Data, name: str, objective: str) -> Estimate:
    """Over all numbers of modes, from the two smallest temperatures; to each the interval of the integration: the two
    biases share their draws, so their errors are taken as opposite only in part."""
    found = []
    for sizes in data["many"].values():
        rows = sizes[name][objective]
        value = float(np.log2(rows["bias"][-2] / rows["bias"][-1]))
        half = 2.0 * abs(rows["error"][-1] / rows["bias"][-1]) / np.log(2.0)
        found.append(Estimate(value, value - half, value + half))
    return span(found)


def _beside_forbidden(data: Data, name: str) -> Check:
    return Check("change beside forbidden modes", exact(data["masked"][name]), 0.0, 1e-12)


def _judge_gs(data: Data) -> Evidence:
    return Evidence(
        (Check("order of the Jacobian's bias", order(data, "gs", "linear"), 0.8, 1.2),),
        (
            Check("order, linear objective", order(data, "gs", "linear"), 1.9, 2.1),
            Check("order, square", order(data, "gs", "square"), 0.85, 1.15),
            Check("order, cube", order(data, "gs", "cube"), 0.85, 1.15),
            Check("3-8 modes: order, linear", order_many(data, "gs", "linear"), 1.8, 2.2),
            Check("3-8 modes: order, cube", order_many(data, "gs", "cube"), 0.8, 1.2),
            _beside_forbidden(data, "gs"),
        ),
    )


def _judge_st(data: Data) -> Evidence:
    p = 1.0 / (1.0 + np.exp(-np.array(bias.LOGITS)))
    half = 0.5 * float((p * (1.0 - p)).max())
    return Evidence(
        (Check("order of the Jacobian's bias", order(data, "st", "linear"), -0.1, 0.1),),
        (
            Check("order, linear objective", order(data, "st", "linear"), 1.9, 2.1),
            Check("order, cube", order(data, "st", "cube"), -0.1, 0.1),
            Check("limit on a cube / (J0 / 2)", exact(data["two"]["st"]["cube"][-1] / half), 0.95, 1.05),
            Check("3-8 modes: order, linear", order_many(data, "st", "linear"), 1.8, 2.2),
            Check("3-8 modes: order, cube", order_many(data, "st", "cube"), -0.1, 0.1),
            _beside_forbidden(data, "st"),
        ),
    )


def _judge_stgc(data: Data) -> Evidence:
    locked = [order(data, "stgc", h) for h in bias.OBJECTIVES]
    many = [order_many(data, "stgc", h) for h in POWERS]
    scores = np.abs(data["agreement"])
    return Evidence(
        (
            Check("order as printed, Jacobian", order(data, "stgc-paper", "linear"), 1.8),
            Check("3-8 modes: order as printed", order_many(data, "stgc-paper", "linear"), 1.8),
            _beside_forbidden(data, "stgc-paper"),
        ),
        (
            Check("ratio-locked: smallest order", worst(locked), 1.8),
            Check("3-8 modes: order", span(many), 1.8),
            _beside_forbidden(data, "stgc"),
            Check("gradient of forbidden modes", exact(data["forbidden"]), 0.0, 0.0),
            Check(f"largest |z| of code against identity, {scores.size} numbers", exact(scores.max()), 0.0, 4.5),
        ),
    )


def _judge_paper_bound(data: Data) -> Evidence:
    """C tau^2 / tau0 falls with tau0; the proof's own remainder tau tau0 J2 rises with it."""
    rows = data["reference"]
    return Evidence(
        (Check("exponent of tau0 in the bias", limit_order(rows["tau0"][::-1], rows["bias"][::-1]), -1.4, -0.6),),
        (Check("bias / (tau tau0 J2) at tau0 = 0.1", exact(rows["over_predicted"]), 0.9, 1.2),),
    )


def _judge_objective(data: Data) -> Evidence:
    return Evidence(
        (Check("STGC as printed, order on a cube", order(data, "stgc-paper", "cube"), 1.8),),
        (Check("applied to the objective: order on a cube", order(data, "stgc", "cube"), 1.8),),
    )


def _judge_romberg(data: Data) -> Evidence:
    orders = [order(data, "romberg", h) for h in ("square", "cube", "sine")]
    many = [order_many(data, "romberg", h) for h in POWERS]
    summed = max(map(max, data["two"]["exact"].values()))
    return Evidence(
        (
            Check("smallest order of three temperatures", worst(orders), 2.5),
            Check("3-8 modes: order", span(many), 2.5),
            _beside_forbidden(data, "romberg"),
            Check("largest bias of the sum over modes", exact(summed), 0.0, 1e-12),
            _beside_forbidden(data, "exact"),
            Check("3-8 modes: the same", exact(data["summed"]), 0.0, 1e-12),
        )
    )


# --- drawing --------------------------------------------------------------------------------------


def draw(data: Data, path: Path) -> None:
    taus = np.array(data["taus"])

    def two(objective: str, title: str) -> Any:
        def panel(ax: Any) -> None:
            for name, colour in zip(ESTIMATORS[:-1], COLOURS, strict=False):
                style = "o--" if name == "st" else "o-"  # it may lie on another one
                ax.loglog(taus, data["two"][name][objective], style, ms=4, color=colour, label=LABELS[name])
            for exponent in (1.0, 2.0, 3.0):
                slope_guide(ax, taus, exponent, 0.6)
            temperature_axis(ax, taus)
            ax.set(title=title, ylabel="largest bias over logits", ylim=(2e-7, 1.0))

        return panel

    def modes(ax: Any) -> None:
        sizes = list(data["many"])
        for name, colour in zip(ESTIMATORS[:-1], COLOURS, strict=False):
            found = [
                np.log2(data["many"][m][name]["cube"]["bias"][-2] / data["many"][m][name]["cube"]["bias"][-1])
                for m in sizes
            ]
            ax.plot(sizes, found, "o--" if name == "st" else "o-", ms=5, color=colour)
        ax.set(title="cube: order against the number of modes", xlabel="modes", ylabel="order", ylim=(-0.4, 3.6))
        ax.set_yticks([0, 1, 2, 3])

    panels(
        path,
        "Theorem 1: bias of the gradient through a discrete choice",
        [two("linear", "linear objective"), two("square", "square"), two("cube", "cube"), modes],
        legend=0,
        columns=2,
    )


CLAIMS = (
    Claim(
        "gs-order",
        "Theorem 1, section 5.1",
        "the Gumbel-Softmax Jacobian has bias O(tau)",
        _judge_gs,
        "J1 = 0: O(tau^2) for linear objectives; O(tau) for non-linear ones",
    ),
    Claim(
        "st-order",
        "Theorem 1, section 5.1",
        "straight-through has bias O(1)",
        _judge_st,
        "O(1) for non-linear objectives beyond a square (J0 / 2 on a cube); O(tau^2) for linear ones",
    ),
    Claim(
        "stgc-order",
        "Theorem 1",
        "STGC has bias O(tau^2)",
        _judge_stgc,
        "as printed O(tau); O(tau^2) with the temperatures in a fixed ratio",
    ),
    Claim(
        "stgc-bound",
        "Theorem 1, appendix C",
        "the bias is at most C tau^2 / tau0",
        _judge_paper_bound,
        "the remainder is -tau tau0 J2: it grows with tau0",
    ),
    Claim(
        "stgc-objective",
        "Eq. (2), section 5.1",
        "correcting the Jacobian alone suffices",
        _judge_objective,
        "the objective itself must be evaluated at both soft samples",
    ),
    Claim("romberg", "beyond the paper", "three temperatures: O(tau^3); the sum over modes: no bias", _judge_romberg),
)

EXPERIMENT = Experiment("stgc", "bias of every discrete-gradient estimator against temperature", measure, CLAIMS, draw)
