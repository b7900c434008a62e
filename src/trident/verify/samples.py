"""Theorem 3: does a closed form that explains R2 of the value save samples by 1 / (1 - R2)?

A linear-quadratic system of two agents, whose optimal Q is known in closed form. The closed form is dialled in two
ways: Q_phys = mean + (1 - sqrt(1 - R2)) (Q* - mean), so that R2 is exactly what it says and the residual keeps its
shape; and as the sum of some of the monomials of Q*, which a learner may then leave out.
Critics see n transitions with the target r + gamma V*(s'), whose noise is the system's own, and are judged on fresh
inputs. Learners: least squares on all quadratic monomials (Q* is in the class) or on those that the closed form leaves,
and the project's residual critic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trident.algos.common.central_critic import critic_of_vector, vector_input
from trident.algos.trident import critics as pirc
from trident.physics_value import PhysicsFit
from trident.report.stats import Estimate
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say, exact
from trident.verify.fits import fit_power, mean_interval
from trident.verify.plots import COLOURS, panels

R2 = (0.0, 0.5, 0.8)
NOISES = {"without noise": 0.0, "with noise": 0.7}
SIZES = (32, 64, 128, 256, 512, 1024)
SEEDS = 3
STEPS, BATCH, HIDDEN = 1200, 64, (32, 32)
KNOWN = (2, 4, 6)
"""Terms of Q* that a partial closed form has."""
DISCOUNT = 0.9
TEST = 1024


class System(NamedTuple):
    """x' = A x + B u + noise w, reward -(x'x + u'u / 2)."""

    a: np.ndarray
    b: np.ndarray
    value: np.ndarray  # V* = -x'Px - constant


def system() -> System:
    a = np.array([[0.95, 0.2], [-0.1, 0.9]])
    b = np.array([[0.4, 0.1], [0.0, 0.5]])
    p = np.eye(2)
    for _ in range(500):  # Riccati
        gain = np.linalg.solve(0.5 * np.eye(2) + DISCOUNT * b.T @ p @ b, DISCOUNT * b.T @ p @ a)
        p = np.eye(2) + 0.5 * gain.T @ gain + DISCOUNT * (a - b @ gain).T @ p @ (a - b @ gain)
    return System(a, b, p)


class Sample(NamedTuple):
    z: np.ndarray  # (x, u)
    target: np.ndarray
    q: np.ndarray  # Q*, up to the constant that noise adds everywhere


def draw_sample(lq: System, rng: np.random.Generator, count: int, noise: float) -> Sample:
    x, u, w = (rng.normal(size=(count, 2)) for _ in range(3))
    mean = x @ lq.a.T + u @ lq.b.T
    after = mean + noise * w
    reward = -np.sum(x**2, axis=-1) - 0.5 * np.sum(u**2, axis=-1)

    def worth(s):
        return -np.einsum("ni,ij,nj->n", s, lq.value, s)

    spread = DISCOUNT * noise**2 * np.trace(lq.value)  # E[worth(after)] is this much below worth(mean)
    return Sample(
        np.concatenate([x, u], axis=-1), reward + DISCOUNT * worth(after) + spread, reward + DISCOUNT * worth(mean)
    )


def closed_form(q: np.ndarray, r2: float, centre: float) -> np.ndarray:
    return centre + (1.0 - np.sqrt(1.0 - r2)) * (q - centre)


def measure(seed: int, say: Say) -> Data:
    lq, rng = system(), np.random.default_rng([seed, 5])
    test = draw_sample(lq, rng, TEST, 0.0)
    centre, variance = float(test.q.mean()), float(test.q.var())
    say("least squares")
    squares = _least_squares(lq, rng, test, centre, variance)
    say("least squares without the features that are known")
    partial = _left_out(lq, rng, test, variance)
    say("the residual critic, at all sizes of data at once")
    learned = _networks(lq, seed, test, centre, variance)
    one_step = -np.sum(test.z[:, :2] ** 2, axis=-1) - 0.5 * np.sum(test.z[:, 2:] ** 2, axis=-1)
    return {
        "r2": list(R2),
        "sizes": list(SIZES),
        "least_squares": squares,
        "left_out": partial,
        "network": learned,
        "definitions": definitions(test.q, one_step),
    }


def definitions(q: np.ndarray, phys: np.ndarray) -> dict[str, float]:
    """Both of the paper's R2 of a one-step closed form: as it is, and scaled as the best linear predictor."""
    slope = np.cov(q, phys)[0, 1] / phys.var(ddof=1)

    def of(p):
        return float(1.0 - np.var(q - p) / np.var(q))

    return {
        "variance": of(phys),
        "correlation": float(np.corrcoef(q, phys)[0, 1] ** 2),
        "variance_scaled": of(slope * phys),
    }


def _monomials(z: np.ndarray) -> np.ndarray:
    one = np.concatenate([np.ones((len(z), 1)), z], axis=-1)
    pairs = [one[:, i] * one[:, j] for i in range(5) for j in range(i, 5)]
    return np.stack(pairs, axis=-1)


def _least_squares(
    lq: System, rng: np.random.Generator, test: Sample, centre: float, variance: float, repeats: int = 200
) -> Data:
    """Mean squared error / Var[Q*], per R2 and size, with noise."""
    features = _monomials(test.z)
    errors = np.zeros((len(R2), len(SIZES), repeats))
    for j, size in enumerate(SIZES):
        for k in range(repeats):
            data = draw_sample(lq, rng, size, NOISES["with noise"])
            inputs = _monomials(data.z)
            for i, r2 in enumerate(R2):
                weights = np.linalg.lstsq(inputs, data.target - closed_form(data.q, r2, centre), rcond=None)[0]
                found = closed_form(test.q, r2, centre) + features @ weights
                errors[i, j, k] = np.mean((found - test.q) ** 2) / variance
    return {"error": errors.mean(axis=-1), "features": features.shape[-1]}


def _left_out(lq: System, rng: np.random.Generator, test: Sample, variance: float, repeats: int = 400) -> Data:
    """Closed forms that know the largest `KNOWN` terms of Q*: mean squared error of least squares at n = 256, over that
    without physics, with all features and with the unknown ones alone."""
    features, size = _monomials(test.z), 256
    weights = np.linalg.lstsq(features, test.q, rcond=None)[0]
    order = np.argsort(-np.abs(weights) * features.std(axis=0))
    count = features.shape[-1]
    errors = np.zeros((repeats, len(KNOWN), 3))
    for k in range(repeats):
        data = draw_sample(lq, rng, size, NOISES["with noise"])
        inputs = _monomials(data.z)
        for i, known in enumerate(KNOWN):
            has, lacks = order[:known], np.sort(order[known:])
            for j, (use, phys) in enumerate(((np.arange(count), 0.0), (np.arange(count), 1.0), (lacks, 1.0))):
                goal = data.target - phys * inputs[:, has] @ weights[has]
                found = np.linalg.lstsq(inputs[:, use], goal, rcond=None)[0]
                left = test.q - phys * features[:, has] @ weights[has] - features[:, use] @ found
                errors[k, i, j] = np.mean(left**2)
    r2 = [1.0 - np.var(test.q - features[:, order[:known]] @ weights[order[:known]]) / variance for known in KNOWN]
    mean = errors.mean(axis=0)
    return {
        "known": list(KNOWN),
        "features": count,
        "r2": r2,
        "kept": mean[:, 1] / mean[:, 0],
        "left_out": mean[:, 2] / mean[:, 0],
    }


def _networks(lq: System, seed: int, test: Sample, centre: float, variance: float) -> Data:
    """Mean squared error / Var[Q*] [R2, sizes, seeds] of the residual critic, per noise."""
    unit, largest = float(np.sqrt(variance)), SIZES[-1]

    def train(key: Any, z: Any, goal: Any, q_phys: Any, size: Any) -> Any:
        """`critics.td_step` on rows drawn from the first `size`; every row ends its episode, so y is the target."""
        fit = PhysicsFit(jnp.zeros(1), jnp.zeros(1), jnp.zeros(1), jnp.full(1, unit))
        first, key = jax.random.split(key)
        one = critic_of_vector(4, HIDDEN)
        bodies = pirc.Bodies(one, one)
        nets, adam = pirc.init(first, bodies, 0), optax.adam(3e-3)

        def step(carry: Any, k: Any) -> Any:
            critics, opt = carry
            rows = jax.random.randint(k, (BATCH,), 0, size)
            seen, physics = vector_input(z[rows]), q_phys[rows, None]
            batch = pirc.CriticBatch(seen, physics, goal[rows, None], seen, physics, jnp.ones(BATCH, bool))
            found = pirc.td_step(bodies, critics, critics, opt, adam, fit, batch, jnp.full(1, DISCOUNT), 1.0)
            critics, _, opt, _ = found
            return (critics, opt), None

        (nets, _), _ = jax.lax.scan(step, (nets, adam.init(nets)), jax.random.split(key, STEPS))
        return unit * pirc.residual(bodies, nets, vector_input(jnp.asarray(test.z, jnp.float32)))[:, 0]

    over_sizes = jax.vmap(train, (None, None, None, None, 0))
    over_r2 = jax.vmap(over_sizes, (None, None, None, 0, None))
    run = jax.jit(jax.vmap(over_r2, (0, 0, 0, 0, None)))
    out = {}
    for name, noise in NOISES.items():
        data = [draw_sample(lq, np.random.default_rng([seed, 6, s]), largest, noise) for s in range(SEEDS)]
        z, goal, q = (np.stack([getattr(d, f) for d in data]) for f in Sample._fields)
        phys = np.stack([closed_form(q, r2, centre) for r2 in R2], axis=1)
        keys = jax.vmap(jax.random.key)(seed * 100 + jnp.arange(SEEDS))
        args = [jnp.asarray(x, jnp.float32) for x in (z, goal, phys)]
        rest = np.asarray(run(keys, *args, jnp.array(SIZES)))  # [seeds, R2, sizes, test]
        known = np.stack([closed_form(test.q, r2, centre) for r2 in R2])[None, :, None]
        out[name] = np.moveaxis(np.mean((known + rest - test.q) ** 2, axis=-1) / variance, 0, -1)
    return out


# --- judging --------------------------------------------------------------------------------------


def samples_to(sizes: Any, errors: Any, goal: float) -> float:
    """How many samples bring the error to `goal`: a power law through the two sizes around it (or the nearest two)."""
    sizes, errors = np.log(np.asarray(sizes, float)), np.log(np.asarray(errors, float))
    after = int(
        np.clip(np.argmax(errors <= np.log(goal)) if np.any(errors <= np.log(goal)) else len(sizes) - 1, 1, None)
    )
    slope = (errors[after] - errors[after - 1]) / (sizes[after] - sizes[after - 1])
    return float(np.exp(sizes[after - 1] + (np.log(goal) - errors[after - 1]) / min(slope, -1e-3)))


def saving(data: Data, errors: Any) -> float:
    """Samples without physics / with R2 = 0.8, to the error that the plain critic reaches at 512."""
    errors = np.asarray(errors, float)
    goal = errors[0, SIZES.index(512)]
    return samples_to(data["sizes"], errors[0], goal) / samples_to(data["sizes"], errors[-1], goal)


def _network_saving(data: Data, noise: str) -> Estimate:
    errors = np.array(data["network"][noise])
    return mean_interval([saving(data, errors[..., s]) for s in range(errors.shape[-1])])


def _judge_ratio(data: Data) -> Evidence:
    predicted = 1.0 / (1.0 - R2[-1])
    quiet, noisy = (_network_saving(data, name) for name in NOISES)
    clean = np.array(data["network"]["without noise"])
    rate = -fit_power(SIZES[1:], clean[0].mean(axis=-1)[1:]).exponent.value
    at = mean_interval(clean[-1, -2] / clean[0, -2] / (1.0 - R2[-1]))
    return Evidence(
        (
            Check("critic, no noise: saving / 5", _scaled(quiet, predicted), 0.67, 1.5),
            Check("critic, noise: saving / 5", _scaled(noisy, predicted), 0.67, 1.5),
            Check(
                "least squares, noise: saving / 5",
                exact(saving(data, data["least_squares"]["error"]) / predicted),
                0.67,
                1.5,
            ),
        ),
        (
            Check("no noise, same n: error ratio / (1 - R2)", at, 0.4, 1.6),
            Check(
                "saving / (1 - R2)^(-1/p), p the curve's exponent", _scaled(quiet, predicted ** (1.0 / rate)), 0.5, 2.0
            ),
            Check("least squares, noise: saving", exact(saving(data, data["least_squares"]["error"])), 0.95, 1.05),
        ),
    )


def _scaled(estimate: Estimate, by: float) -> Estimate:
    return Estimate(*(x / by for x in estimate))


def _judge_dimension(data: Data) -> Evidence:
    errors, partial = np.array(data["least_squares"]["error"]), data["left_out"]
    dialled = mean_interval(errors[-1] / errors[0])
    r2, left = np.array(partial["r2"]), 1.0 - np.array(partial["known"]) / partial["features"]
    cells = list(zip(partial["known"], r2, left, partial["left_out"], partial["kept"], strict=True))
    return Evidence(
        (
            Check("least squares: error with R2 = 0.8 / without", dialled, 0.1, 0.3),
            *(
                Check(
                    f"{k} terms known (R2 = {r:.2f}) and left out: ratio / (1 - R2)", exact(out / (1.0 - r)), 0.67, 1.5
                )
                for k, r, _, out, _ in cells
            ),
        ),
        (
            Check("R2 = 0.8: no change", dialled, 0.98, 1.02),
            *(Check(f"{k} terms known, class kept: no change", exact(kept), 0.98, 1.02) for k, *_, kept in cells),
            *(
                Check(f"{k} terms left out: ratio / share of features left", exact(out / part), 0.9, 1.1)
                for k, _, part, out, _ in cells
            ),
        ),
    )


def _judge_definitions(data: Data) -> Evidence:
    rows = data["definitions"]
    return Evidence(
        (Check("difference, one-step closed form", exact(rows["correlation"] - rows["variance"]), -0.01, 0.01),),
        (Check("after the best scaling", exact(rows["correlation"] - rows["variance_scaled"]), -0.01, 0.01),),
    )


def draw(data: Data, path: Path) -> None:
    def curves(title: str, errors: Any) -> Any:
        def panel(ax: Any) -> None:
            for row, r2, colour in zip(errors, data["r2"], COLOURS, strict=False):
                ax.loglog(data["sizes"], row, "o-", ms=4, color=colour, label=f"R2 = {r2:g}")
                if r2:
                    ax.loglog(data["sizes"], (1 - r2) * np.array(errors[0]), ":", lw=1.2, color=colour)
            ax.set(title=title, xlabel="transitions", ylabel="squared error / Var[Q*]")
            ax.set_xticks(data["sizes"], [str(s) for s in data["sizes"]])
            ax.minorticks_off()

        return panel

    network = {k: np.array(v).mean(axis=-1) for k, v in data["network"].items()}
    draws = [curves(f"residual critic, {name}", rows) for name, rows in network.items()]
    draws.append(curves("least squares, with noise", np.array(data["least_squares"]["error"])))
    panels(path, "Theorem 3: error of the critic; dotted: (1 - R2) times the plain critic's", draws)


CLAIMS = (
    Claim(
        "samples",
        "Theorem 3, appendix F",
        "samples needed fall by the factor 1 - R2",
        _judge_ratio,
        "the error left by too few samples falls by 1 - R2, which saves (1 - R2)^(-1/p); noise is not reduced",
    ),
    Claim(
        "dimension",
        "appendix F, proof",
        "the effective dimension falls by 1 - R2",
        _judge_dimension,
        "it falls with the features that are left out, whatever R2; in the same class it does not change",
    ),
    Claim(
        "r2-definitions",
        "appendix F",
        "1 - Var[Q - Q_phys] / Var[Q] equals the squared correlation",
        _judge_definitions,
        "only if Q_phys is scaled as the best linear predictor",
    ),
)

EXPERIMENT = Experiment("samples", "critic error against data, with dialled physics", measure, CLAIMS, draw)
