"""Theorem 2 on tabular games, over many rounds: cumulative violation and sub-optimality against their number.

Everything is exact but the update rule: values and gradients by dynamic programming, the optimum by linear programming.
TRIDENT, its ablations and MACPO play every game, with a constant trust region and with one that depends on the number K
of rounds, as the theorem has it. Intervals are over games. What physics and STGC do to errors of critics and gradients
has no place here, where both are exact; `coupling` injects such errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.maths.trust_region import RECOVERY, REJECTED
from trident.report.stats import Estimate
from trident.report.tables import markdown
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say, exact
from trident.verify.fits import Power, fit_power, fit_powers, mean_interval, median_interval
from trident.verify.plots import COLOURS, panels, slope_guide
from trident.verify.tabular_game import Game, nash_gap, playable_games, stack
from trident.verify.tabular_update import PLAYERS, Player, Rule, Style, by_rule, no_injection, play, side_by_side

AGENTS, STATES, MODES = 2, 5, 3
GAMES = 32
ROUNDS = 1024
HORIZONS = (64, 128, 256, 512, 1024)
"""K of the schedules, whose trust region is the same in all rounds of a run but depends on K."""
DELTA = 0.01
SCHEDULES = {"1/sqrt(K)": lambda k: DELTA * (64.0 / k) ** 0.5, "1/K": lambda k: DELTA * 64.0 / k}
PROOF = ("as analysed", "trident")
"""Who plays the schedule of the proof, 1/K, as well."""
POINTS = tuple(round(2 ** (i / 2)) for i in range(4, 21))
FLOOR = 1e-3
"""Added to sums whose growth is fitted: a violation may be zero. Limits are about 5."""
STEEP = 0.6
"""An exponent up to this passes for a square root."""


def measure(seed: int, say: Say) -> Data:
    with jax.enable_x64(True):
        say("optimum of every game by linear programming")
        found = playable_games(GAMES, first=1000 * seed, states=STATES, agents=AGENTS, modes=MODES)
        games, best = stack([g for g, _ in found]), np.array([o.value for _, o in found])
        cases = [(name, "constant", ROUNDS, DELTA) for name in PLAYERS]
        cases += [
            (name, schedule, k, of(k))
            for schedule, of in SCHEDULES.items()
            for name in (PLAYERS if schedule != "1/K" else PROOF)
            for k in HORIZONS
        ]
        say(f"{len(cases)} runs of every game")
        final, total, kind = _play(games, [PLAYERS[c[0]] for c in cases], np.array([c[-1] for c in cases]))
        over = np.maximum(total[..., 1] - np.asarray(games.limits), 0.0)
        out: Data = {
            "points": list(POINTS),
            "horizons": list(HORIZONS),
            "constant": {},
            "schedules": {},
            "nash_gap": {},
        }
        for i, name in enumerate(PLAYERS):
            out["constant"][name] = _curves(total[i, :, :, 0], over[i], best, kind[i])
        for schedule in SCHEDULES:
            rows = {n: [i for i, c in enumerate(cases) if c[:2] == (n, schedule)] for n in PLAYERS}
            out["schedules"][schedule] = {n: _by_horizon(total[r], over[r], best) for n, r in rows.items() if r}
        say("gaps to constrained Nash equilibria")
        for name in ("as analysed", "trident", "macpo"):
            out["nash_gap"][name] = _nash(games, final[list(PLAYERS).index(name)])
        return out


def _play(games: Game, players: Sequence[Player], deltas: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(final policies [C, G, N, S, M], true values of every round [C, G, T, J], kinds of update [C, G, T, N])."""
    wrong, start = no_injection(AGENTS, STATES, MODES), jnp.zeros((AGENTS, STATES, MODES))

    def one(rule: Rule, style: Style, delta: Any, game: Game) -> Any:
        final, trace = play(rule, game, style, start, jnp.full(ROUNDS, delta), wrong)
        return jax.nn.softmax(final, axis=-1), trace.total, trace.kind

    found: list[Any] = [None] * len(players)
    for rule, rows in by_rule(players).items():
        run = jax.jit(jax.vmap(jax.vmap(lambda s, d, g, rule=rule: one(rule, s, d, g), (None, None, 0)), (0, 0, None)))
        parts = run(side_by_side([players[i].style for i in rows]), jnp.asarray(deltas[rows]), games)
        for j, i in enumerate(rows):
            found[i] = [np.asarray(x[j]) for x in parts]
    final, total, kind = (np.stack(x) for x in zip(*found, strict=True))
    return final, total, kind


def _curves(value: np.ndarray, over: np.ndarray, best: np.ndarray, kind: np.ndarray) -> Data:
    """Per game at the points: cumulative violation, mean gap to the optimum and to the value the run ends at."""
    at = np.array(POINTS) - 1
    mean = np.cumsum(value, axis=-1)[:, at] / np.array(POINTS)
    return {
        "violation": np.cumsum(over, axis=-1)[:, at] + FLOOR,
        "gap": best[:, None] - mean,
        "gap_to_own_end": np.abs(value[:, -1:] - mean),
        "last_gap": best - value[:, -1],
        "rejected": float(np.mean(kind == REJECTED)),
        "recovered": float(np.mean(kind == RECOVERY)),
    }


def _by_horizon(total: np.ndarray, over: np.ndarray, best: np.ndarray) -> Data:
    """Per game and K, of a run of K rounds: as above. Where it ends is known from playing on."""
    mean = np.stack([t[:, :k, 0].mean(axis=-1) for t, k in zip(total, HORIZONS, strict=True)], axis=1)
    return {
        "violation": np.stack([o[:, :k].sum(axis=-1) for o, k in zip(over, HORIZONS, strict=True)], axis=1) + FLOOR,
        "gap": best[:, None] - mean,
        "gap_to_own_end": np.abs(total[:, :, -1, 0].T - mean),
    }


def _nash(games: Game, pis: np.ndarray) -> list[float]:
    each = [Game(*(x[i] for x in games)) for i in range(len(pis))]
    return [nash_gap(g, p) for g, p in zip(each, pis, strict=True)]


# --- judging --------------------------------------------------------------------------------------


def fit(data: Data, schedule: str, name: str, what: str, since: int = 64) -> Power:
    """y ~ K^exponent: within the run for a constant trust region, over runs of K rounds for a schedule."""
    x, rows = _rows(data, schedule, name, what, since)
    return fit_powers(x, rows)


def _rows(data: Data, schedule: str, name: str, what: str, since: int = 64) -> tuple[np.ndarray, np.ndarray]:
    constant = schedule == "constant"
    x = np.array(data["points" if constant else "horizons"])
    rows = np.array((data if constant else data["schedules"])[schedule][name][what])
    rows = rows[:, x >= since]
    return x[x >= since], rows[np.all(rows > 1e-9, axis=1)]  # who earns more than V* by violating has no such gap


def square_roots(data: Data, schedule: str, name: str) -> tuple[int, int]:
    """(games whose violation grows no faster than a square root, all games)"""
    x, rows = _rows(data, schedule, name, "violation")
    exponents = [fit_power(x, row).exponent.value for row in rows]
    return int(np.sum(np.array(exponents) <= STEEP)), len(exponents)


def _judge_violation(data: Data) -> Evidence:
    def of(name: str) -> tuple[Check, ...]:
        checks = []
        for schedule in (*SCHEDULES, "constant"):
            label = f"{name}, {schedule if schedule == 'constant' else 'delta ~ ' + schedule}"
            checks.append(Check(f"{label}: mean exponent", fit(data, schedule, name, "violation").exponent, high=STEEP))
            hits, all_ = square_roots(data, schedule, name)
            checks.append(Check(f"games of {all_} with at most {STEEP}", exact(hits), all_))
        return tuple(checks)

    return Evidence(of("as analysed"), of("trident"))


def farther(data: Data, name: str) -> Estimate:
    """Gap to a constrained Nash equilibrium after 1,024 rounds, less that of the update as analysed."""
    return mean_interval(np.array(data["nash_gap"][name]) - data["nash_gap"]["as analysed"])


def _judge_baselines(data: Data) -> Evidence:
    def times(name: str) -> Estimate:
        """Geometric mean over games of the violation of 1,024 rounds over LCPO's."""
        last = [np.log(np.array(data["constant"][k]["violation"])[:, -1]) for k in (name, "as analysed")]
        return Estimate(*np.exp(mean_interval(last[0] - last[1])))

    lagrangian = Check("Lagrangian / LCPO", times("lagrangian"), low=2.0)
    return Evidence(
        (lagrangian, Check("MACPO's rule / LCPO", times("macpo"), low=2.0)),
        (
            lagrangian,
            Check("MACPO's rule / LCPO", times("macpo"), high=1.0),
            Check("its gap to an equilibrium less LCPO's", farther(data, "macpo"), low=0.01),
        ),
    )


def _judge_optimum(data: Data) -> Evidence:
    """Print and correction by the same two numbers."""

    def rate(what):
        return fit(data, "1/sqrt(K)", "as analysed", what).exponent

    last = median_interval(data["constant"]["as analysed"]["last_gap"])
    reached = median_interval(data["nash_gap"]["as analysed"])
    return Evidence(
        (
            Check("to the optimum: exponent of K of the mean gap", rate("gap"), high=-0.4),
            Check("median gap after 1,024 rounds", last, -0.01, 0.01),
        ),
        (
            Check("to where it ends: exponent of K of the mean gap", rate("gap_to_own_end"), high=-0.4),
            Check("median gap after 1,024 rounds to a constrained Nash equilibrium", reached, -0.01, 0.01),
        ),
    )


def _judge_proof_schedule(data: Data) -> Evidence:
    own = fit(data, "1/K", "as analysed", "gap_to_own_end").exponent
    return Evidence((Check("to where it ends: exponent of K of the mean gap", own, high=-0.4),))


def _judge_line_search(data: Data) -> Evidence:
    """Against the linearised costs, which let it get there: see `suboptimality`."""
    return Evidence((Check("gap to an equilibrium less that without it", farther(data, "trident"), -0.01, 0.01),))


# --- showing --------------------------------------------------------------------------------------


def exponents(data: Data) -> str:
    """Of everyone, with a constant trust region and with delta ~ 1/sqrt(K)."""
    header = [
        "update",
        "delta",
        "violation: exponent of K",
        "R2",
        f"games with at most {STEEP}",
        "gap to V\\*: exponent",
        "R2",
        "gap to its own end: exponent",
        "R2",
    ]
    table = []
    for schedule in ("constant", *data["schedules"]):
        for name in data["constant"] if schedule == "constant" else data["schedules"][schedule]:
            cells = []
            for what in ("violation", "gap", "gap_to_own_end"):
                power = fit(data, schedule, name, what)
                value, low, high = power.exponent
                cells += [f"{value:.2f} [{low:.2f}, {high:.2f}]", f"{power.r2:.2f}"]
            hits, all_ = square_roots(data, schedule, name)
            cells.insert(2, f"{hits} of {all_}")
            table.append([name, schedule, *cells])
    return markdown(header, table)


def draw(data: Data, path: Path) -> None:
    points = np.array(data["points"])

    def violation(ax: Any) -> None:
        for i, (name, row) in enumerate(data["constant"].items()):
            style = "-" if i < len(COLOURS) else "--"
            ax.loglog(
                points, np.mean(row["violation"], axis=0), style, color=COLOURS[i % len(COLOURS)], lw=1.8, label=name
            )
        slope_guide(ax, points, 1.0, 60.0)
        slope_guide(ax, points, 0.5, 60.0)
        ax.set(title="constant delta: cumulative violation", xlabel="rounds K", ylim=(0.1, 3e5))
        ax.legend(ncols=2, fontsize=8, loc="upper left")

    def every_game(name: str) -> Any:
        def panel(ax: Any) -> None:
            for row in data["schedules"]["1/sqrt(K)"][name]["violation"]:
                ax.loglog(data["horizons"], row, color=COLOURS[0], lw=0.8, alpha=0.6)
            slope_guide(ax, np.array(data["horizons"]), 0.5, 60.0)
            ax.set(
                title=f"{name}, 1/sqrt(K): each game",
                xlabel="rounds K",
                ylim=(5e-4, 1e2),
                ylabel="cumulative violation",
            )
            ax.set_xticks(data["horizons"], [str(h) for h in data["horizons"]])
            ax.minorticks_off()

        return panel

    def gap(ax: Any) -> None:
        row = data["constant"]["as analysed"]
        for key, colour, label in (
            ("gap", COLOURS[5], "to the team optimum"),
            ("gap_to_own_end", COLOURS[0], "to where it ends"),
        ):
            ax.loglog(points, np.mean(np.abs(row[key]), axis=0), color=colour, lw=1.8, label=label)
        slope_guide(ax, points, -0.5, 0.03)
        ax.set(title="as analysed: mean sub-optimality", xlabel="rounds K")
        ax.legend(loc="lower left")

    draws = [violation, gap, every_game("as analysed"), every_game("trident")]
    panels(path, "Theorem 2 on tabular games: many rounds", draws, columns=2)


CLAIMS = (
    Claim(
        "violation-rate",
        "Theorem 2, appendix E",
        "cumulative violation is O(sqrt K)",
        _judge_violation,
        "with the line search on the true costs in every game; with linearised costs on average, not in every one",
    ),
    Claim(
        "baselines",
        "section 5.2, tables 1 and 2",
        "a Lagrangian and MACPO violate 5.9 and 4.2 times as much",
        _judge_baselines,
        "the Lagrangian does; with exact gradients MACPO's rule violates less, and stalls",
    ),
    Claim(
        "suboptimality",
        "Theorem 2, appendix D",
        "the mean gap to the optimal V* falls as 1 / sqrt K",
        _judge_optimum,
        "the gap to the constrained Nash equilibrium reached does; the optimum may be missed",
    ),
    Claim(
        "proof-schedule",
        "appendix D, step 3",
        "with delta ~ 1/K too the mean gap falls as 1 / sqrt K",
        _judge_proof_schedule,
    ),
    Claim(
        "line-search",
        "beyond the paper",
        "TRIDENT's line search on the true costs lets it reach the equilibrium",
        _judge_line_search,
    ),
)

EXPERIMENT = Experiment("safety", "Theorem 2 on tabular games with a known optimum", measure, CLAIMS, draw, exponents)
