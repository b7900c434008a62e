"""Theorem 2 on tabular games: cumulative violation, sub-optimality, contraction, drift and the sharing of the budget.

Everything is exact but the update rule: values and gradients by dynamic programming, the optimum by linear programming.
Intervals are over games.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.report.stats import Estimate
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say
from trident.verify.fits import fit_power, fit_powers, mean_interval
from trident.verify.game import Game, nash_gap, playable_games, stack
from trident.verify.play import STYLES, Style, no_injection, play, side_by_side
from trident.verify.plots import COLOURS, panels, slope_guide
from trident.verify.rounds import (
    AGENTS,
    ALPHAS,
    GAMES,
    MODES,
    STATES,
    per_state,
    printed_recovery,
    sharing_of_four,
    single_rounds,
)

ROUNDS = 1024
HORIZONS = (64, 256, 1024)
"""K of the schedules, whose trust region is the same in all rounds of a run but depends on K."""
DELTA = 0.01
SCHEDULES = {"1/sqrt(K)": lambda k: DELTA * (64.0 / k) ** 0.5, "1/K": lambda k: DELTA * 64.0 / k}
POINTS = tuple(round(2 ** (i / 2)) for i in range(4, 21))
FLOOR = 1e-9
"""Added to sums whose growth is fitted: a violation may be exactly zero."""


def measure(seed: int, say: Say) -> Data:
    with jax.enable_x64(True):
        say("optimum of every game by linear programming")
        found = playable_games(GAMES, first=1000 * seed, states=STATES, agents=AGENTS, modes=MODES)
        games, best = stack([g for g, _ in found]), np.array([o.value for _, o in found])
        say("playing all variants")
        rates = _rates(games, best)
        say("contraction and drift of single rounds")
        single = single_rounds([g for g, _ in found])
        single["sharing"] = {str(AGENTS): single["sharing"], "4": sharing_of_four(seed)}
        return rates | single | {"printed_recovery": printed_recovery(games), "per_state": per_state(seed)}


# --- many rounds ----------------------------------------------------------------------------------


def _rates(games: Game, best: np.ndarray) -> Data:
    """Every style with a constant trust region, and TRIDENT with the schedules; all in one program."""
    cases = [(style, DELTA) for style in STYLES.values()]
    cases += [(STYLES["as analysed"], of(k)) for of in SCHEDULES.values() for k in HORIZONS]
    wrong, start = no_injection(AGENTS, STATES, MODES), jnp.zeros((AGENTS, STATES, MODES))

    def one(style: Style, delta: Any, game: Game) -> Any:
        final, trace = play("natural", game, style, start, jnp.full(ROUNDS, delta), wrong)
        return final, trace.total, trace.kind

    run = jax.jit(jax.vmap(jax.vmap(one, (None, None, 0)), (0, 0, None)))
    final, total, kind = run(side_by_side([s for s, _ in cases]), jnp.array([d for _, d in cases]), games)
    total = np.asarray(total)  # [cases, games, rounds, signals]
    over = np.maximum(total[..., 1] - np.asarray(games.limits), 0.0)
    judged = ("as analysed", "trident", "macpo")
    pis = np.asarray(jax.nn.softmax(final, axis=-1))
    nash = {name: _nash(games, pis[list(STYLES).index(name)]) for name in judged}
    out: Data = {
        "points": list(POINTS),
        "styles": {
            name: _curves(total[i, :, :, 0], over[i], best, np.asarray(kind[i])) for i, name in enumerate(STYLES)
        },
        "nash_gap": nash,
        "schedules": {},
    }
    for j, name in enumerate(SCHEDULES):
        rows = range(len(STYLES) + j * len(HORIZONS), len(STYLES) + (j + 1) * len(HORIZONS))
        sums = [over[i, :, :k].sum(axis=-1) for i, k in zip(rows, HORIZONS, strict=True)]
        end = [total[i, :, -1, 0] for i in rows]
        gaps = [np.abs(e - total[i, :, :k, 0].mean(axis=-1)) for i, k, e in zip(rows, HORIZONS, end, strict=True)]
        out["schedules"][name] = {
            "horizons": list(HORIZONS), "violation": np.array(sums).T + FLOOR, "gap_to_own_end": np.array(gaps).T
        }  # fmt: skip
    return out


def _curves(value: np.ndarray, over: np.ndarray, best: np.ndarray, kind: np.ndarray) -> Data:
    """Per game at the points: cumulative violation, mean gap to the optimum and to the value the run ends at."""
    at = np.array(POINTS) - 1
    mean = np.cumsum(value, axis=-1)[:, at] / np.array(POINTS)
    return {
        "violation": np.cumsum(over, axis=-1)[:, at] + FLOOR,
        "gap_to_optimum": best[:, None] - mean,
        "gap_to_own_end": np.abs(value[:, -1:] - mean),
        "last_gap": best - value[:, -1],
        "last_violation": over[:, -1],
        "rejected": float(np.mean(kind == 0)),
        "recovered": float(np.mean(kind == 2)),
    }


def _nash(games: Game, pis: np.ndarray) -> list[float]:
    each = [Game(*(x[i] for x in games)) for i in range(len(pis))]
    return [nash_gap(g, p) for g, p in zip(each, pis, strict=True)]


# --- judging --------------------------------------------------------------------------------------


def growth(data: Data, style: str, since: int = 64) -> Estimate:
    """Exponent of the cumulative violation in the number of rounds."""
    at = [i for i, p in enumerate(data["points"]) if p >= since]
    rows = np.array(data["styles"][style]["violation"])[:, at]
    return fit_powers(np.array(data["points"])[at], rows).exponent


def share(hits: int, of: int) -> Estimate:
    """A proportion with its 95 % Wilson interval."""
    if of == 0:
        return Estimate(float("nan"), float("nan"), float("nan"))
    p, z = hits / of, 1.96
    centre, half = p + z * z / (2 * of), z * np.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return Estimate(p, float((centre - half) / (1 + z * z / of)), float((centre + half) / (1 + z * z / of)))


def _judge_violation(data: Data) -> Evidence:
    checks = []
    for name, row in data["schedules"].items():
        found = fit_powers(row["horizons"], np.array(row["violation"])).exponent
        checks.append(Check(f"exponent of K, delta ~ {name}", found, high=0.6))
    checks += [Check(f"constant delta, {name}", growth(data, name), high=0.6) for name in ("as analysed", "trident")]
    return Evidence(tuple(checks))


def _judge_rivals(data: Data) -> Evidence:
    def times(name: str) -> Estimate:
        """Geometric mean over games of the violation of 1,024 rounds over LCPO's."""
        last = [np.log(np.array(data["styles"][k]["violation"])[:, -1]) for k in (name, "as analysed")]
        return Estimate(*np.exp(mean_interval(last[0] - last[1])))

    lagrangian = Check("Lagrangian / LCPO", times("lagrangian"), low=2.0)
    return Evidence(
        (lagrangian, Check("MACPO's rule / LCPO", times("macpo"), low=2.0)),
        (lagrangian, Check("MACPO's rule / LCPO", times("macpo"), high=1.0)),
    )


def _judge_optimum(data: Data) -> Evidence:
    last = np.array(data["styles"]["as analysed"]["last_gap"])
    reached = _median(data["nash_gap"]["as analysed"])
    rows = data["schedules"]["1/sqrt(K)"]
    own = fit_powers(rows["horizons"], np.array(rows["gap_to_own_end"])).exponent
    return Evidence(
        (Check("gap to the optimum after 1,024 rounds", mean_interval(last), -0.01, 0.01),),
        (
            Check("median gap to a constrained Nash equilibrium", reached, -0.01, 0.01),
            Check("exponent of K of the mean gap to it", own, high=-0.5),
        ),
    )


def _judge_proof_schedule(data: Data) -> Evidence:
    rows = data["schedules"]["1/K"]
    own = fit_powers(rows["horizons"], np.array(rows["gap_to_own_end"])).exponent
    return Evidence((Check("exponent of K of the mean gap to the equilibrium", own, high=-0.4),))


def _judge_line_search(data: Data) -> Evidence:
    reached = _median(data["nash_gap"]["trident"])
    return Evidence((Check("median gap to a constrained Nash equilibrium", reached, -0.01, 0.01),))


def _median(sample: list[float]) -> Estimate:
    ordered = np.sort(sample)
    # the order statistics that enclose the median with 95 % for a dozen games
    return Estimate(float(np.median(ordered)), float(ordered[2]), float(ordered[-3]))


def _judge_contraction(data: Data) -> Evidence:
    rows = data["contraction"]
    checks = [
        Check(f"our step: factor / (1 - {a})", mean_interval(np.array(f) / (1.0 - a)), 0.9, 1.05)
        for a, f in zip(rows["alpha"], rows["factor"], strict=True)
    ]
    printed = mean_interval(data["printed_recovery"])
    return Evidence((Check("printed step: factor, alpha = 0.1", printed, 0.0, 0.9),), tuple(checks))


def _judge_drift(data: Data) -> Evidence:
    rows = data["drift"]
    slack, limit = (fit_powers(rows["delta"], np.array(rows[k])).exponent for k in ("slack", "limit"))
    return Evidence(
        (Check("exponent of delta in the drift", slack, 0.85, 1.2),),
        (
            Check("drift with slack: exponent", slack, 0.4, 0.6),
            Check("rise above the limit: exponent", limit, 0.8, 1.3),
        ),
    )


def _judge_sharing(data: Data) -> Evidence:
    used = data["sharing"]
    return Evidence(
        tuple(Check(f"{n} agents: cost spent / budget", mean_interval(used[n]["per agent"]), high=1.1) for n in used),
        tuple(Check(f"{n} agents, shared", mean_interval(used[n]["shared"]), high=1.1) for n in used),
    )


def _judge_per_state(data: Data) -> Evidence:
    rows = data["per_state"]
    return Evidence(
        (
            Check("feasible, unchanged policies that break it", share(*rows["unchanged"]), 0.0, 0.05),
            Check("policies that keep it but do not contract", share(*rows["misled"]), 0.0, 0.05),
        ),
        tuple(_judge_contraction(data).corrected),
    )


# --- drawing --------------------------------------------------------------------------------------


def draw(data: Data, path: Path) -> None:
    points = np.array(data["points"])

    def violation(ax: Any) -> None:
        for (name, row), colour in zip(data["styles"].items(), COLOURS, strict=False):
            ax.loglog(points, np.mean(row["violation"], axis=0), color=colour, lw=1.8, label=name)
        slope_guide(ax, points, 1.0, 60.0)
        slope_guide(ax, points, 0.5, 60.0)
        ax.set(title="cumulative violation", xlabel="rounds K", ylim=(0.1, 3e5))
        ax.legend(ncols=2, fontsize=8, loc="upper left")

    def gap(ax: Any) -> None:
        row = data["styles"]["as analysed"]
        for key, colour, label in (
            ("gap_to_optimum", COLOURS[5], "to the team optimum"), ("gap_to_own_end", COLOURS[0], "to the equilibrium")
        ):  # fmt: skip
            ax.loglog(points, np.mean(np.abs(row[key]), axis=0), color=colour, lw=1.8, label=label)
        slope_guide(ax, points, -0.5, 0.03)
        ax.set(title="as analysed: mean sub-optimality", xlabel="rounds K")
        ax.legend(loc="lower left")

    def drift(ax: Any) -> None:
        x = np.array(data["drift"]["delta"])
        for key, colour, label in (("slack", COLOURS[1], "with slack"), ("limit", COLOURS[0], "at the limit")):
            mean = np.mean(data["drift"][key], axis=0)
            ax.loglog(x, mean, "o-", ms=4, color=colour, label=label)
            fit = fit_power(x, mean)
            ax.annotate(f"exponent {fit.exponent.value:.2f}", (x[2], mean[2]), xytext=(6, -12), color=colour,
                        textcoords="offset points", fontsize=8.5)  # fmt: skip
        ax.set(title="rise of the cost in one round", xlabel="trust region delta")
        ax.legend(loc="upper left")

    def factor(ax: Any) -> None:
        rows = data["contraction"]
        ax.boxplot(list(np.array(rows["factor"])), positions=range(len(ALPHAS)), widths=0.5)
        ax.plot(range(len(ALPHAS)), [1 - a for a in rows["alpha"]], "_", ms=26, mew=2.5, color=COLOURS[5],
                label="1 - alpha")  # fmt: skip
        ax.axhline(np.mean(data["printed_recovery"]), color=COLOURS[2], ls="--", label="printed recovery")
        ax.set_xticks(range(len(ALPHAS)), [f"alpha {a:g}" for a in rows["alpha"]])
        ax.set(title="excess after a round / before", ylim=(0, 1.1))
        ax.legend(loc="lower left")

    panels(path, "Theorem 2 on tabular games", [violation, gap, drift, factor], columns=2)


CLAIMS = (
    Claim("violation-rate", "Theorem 2, appendix E", "cumulative violation is O(sqrt K)", _judge_violation),
    Claim("rivals", "section 5.2, tables 1 and 2", "a Lagrangian and MACPO violate 5.9 and 4.2 times as much",
          _judge_rivals, "the Lagrangian does; with exact gradients MACPO's rule violates less, and stalls"),
    Claim("suboptimality", "Theorem 2, appendix D", "the mean gap to the optimal V* falls as 1 / sqrt K",
          _judge_optimum, "the gap to the constrained Nash equilibrium reached does; the optimum may be missed"),
    Claim("proof-schedule", "appendix D, step 3", "with delta ~ 1/K too the mean gap falls as 1 / sqrt K",
          _judge_proof_schedule),
    Claim("recovery", "Eq. (5), appendix E", "the recovery step gives the contraction 1 - alpha", _judge_contraction,
          "a natural step sized by the target does; a fixed rate of 1e-4 does not"),
    Claim("line-search", "beyond the paper", "TRIDENT's line search on the true costs lets it reach the equilibrium",
          _judge_line_search),
    Claim("drift", "appendix E, case A", "the cost of a feasible step drifts by O(delta)", _judge_drift,
          "the drift is O(sqrt delta); only the rise above the limit is O(delta)"),
    Claim("budget", "Eq. (4)", "the printed constraint for every agent keeps the team's budget", _judge_sharing,
          "one budget that the agents share does"),
    Claim("per-state", "Eq. (3)", "the per-state drift condition is the contraction of the violation",
          _judge_per_state, "the contraction must be asked of the value"),
)  # fmt: skip

EXPERIMENT = Experiment("safety", "Theorem 2 on tabular games with a known optimum", measure, CLAIMS, draw)
