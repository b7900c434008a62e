"""The paper's remarks on Gumbel-Softmax: its variance, that of STGC, and the sum of squared temperatures.

Variances are exact, by the quadrature of `bias`: the second moment of each estimator's own gradient, two modes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trident.maths.discrete_gradient import relaxations
from trident.report.stats import Estimate
from trident.verify import bias
from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say, exact
from trident.verify.fits import limit_order
from trident.verify.plots import COLOURS, panels, slope_guide, temperature_axis
from trident.verify.stgc import ESTIMATORS, LABELS, TAUS

AT = bias.LOGITS.index(0.7)
BETA, TAU_START, TAU_MIN = 0.9995, 1.0, 0.1
ROUNDS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


def measure(seed: int, say: Say) -> Data:
    say("variance by quadrature")
    variance = {}
    for name in ESTIMATORS[:-1]:
        lines = [bias.on_the_line(relaxations, name, tau) for tau in TAUS]
        variance[name] = {
            h: [float(line.second_moment[AT, i] - (line.bias[AT, i] + _slope(h)) ** 2) for line in lines]
            for i, h in enumerate(("linear", "square", "cube"))
        }
    sums = {str(floor): [squares(k, floor) for k in ROUNDS] for floor in (0.0, TAU_MIN)}
    return {"taus": list(TAUS), "variance": variance, "rounds": list(ROUNDS), "squares": sums}


def _slope(objective: str) -> float:
    """d/dl E[h(hard sample)], the same for every power."""
    p = 1.0 / (1.0 + np.exp(-bias.LOGITS[AT]))
    return p * (1.0 - p)


def squares(rounds: int, floor: float) -> float:
    """sum_{t < rounds} max(floor, tau_start beta^t)^2, in closed form."""
    above = rounds if floor == 0 else min(rounds, int(np.ceil(np.log(floor / TAU_START) / np.log(BETA))))
    falling = TAU_START**2 * (1.0 - BETA ** (2 * above)) / (1.0 - BETA**2)
    return float(falling + (rounds - above) * floor**2)


# --- judging --------------------------------------------------------------------------------------


def exponent(data: Data, name: str, objective: str = "linear") -> Estimate:
    return limit_order(data["taus"], data["variance"][name][objective])


def _judge_gs(data: Data) -> Evidence:
    found = [Check(f"exponent of tau, {h}", exponent(data, "gs", h), -1.1, -0.9) for h in ("linear", "cube")]
    return Evidence((Check("exponent of tau", exponent(data, "gs"), -2.2, -1.8),), tuple(found))


def _judge_stgc(data: Data) -> Evidence:
    rows = data["variance"]
    ratio = [rows["stgc"][h][-1] / rows["gs"][h][-1] for h in ("linear", "square", "cube")]
    return Evidence(
        (Check("exponent of tau, as printed", exponent(data, "stgc-paper"), -0.2, 0.2),),
        (
            Check("exponent of tau, ratio-locked", exponent(data, "stgc"), -1.1, -0.9),
            Check("variance over plain GS, linear to cube", Estimate(max(ratio), min(ratio), max(ratio)), 0.0, 4.0),
        ),
    )


def _judge_annealing(data: Data) -> Evidence:
    def growth(floor):
        return limit_order(data["rounds"], data["squares"][str(floor)])

    return Evidence(
        (Check("growth exponent with the floor of 0.1", growth(TAU_MIN), -0.05, 0.05),),
        (
            Check("growth exponent without a floor", growth(0.0), -0.05, 0.05),
            Check("sum without a floor", exact(data["squares"]["0.0"][-1]), 0.0, 1.0 / (1.0 - BETA**2) + 1e-6),
        ),
    )


def draw(data: Data, path: Path) -> None:
    taus = np.array(data["taus"])

    def variance(objective: str) -> Any:
        def panel(ax: Any) -> None:
            for name, colour in zip(ESTIMATORS[:-1], COLOURS, strict=False):
                style = "o--" if name == "st" else "o-"
                ax.loglog(taus, data["variance"][name][objective], style, ms=4, color=colour, label=LABELS[name])
            slope_guide(ax, taus, -1.0, 0.02)
            slope_guide(ax, taus, -2.0, 0.02)
            temperature_axis(ax, taus)
            ax.set(title=f"variance, {objective} objective", ylabel="variance of the gradient")

        return panel

    def annealing(ax: Any) -> None:
        for floor, colour in (("0.0", COLOURS[0]), (str(TAU_MIN), COLOURS[5])):
            ax.loglog(data["rounds"], data["squares"][floor], "o-", ms=4, color=colour, label=f"tau_min = {floor}")
        ax.set(title="sum of tau(t)^2", xlabel="rounds")
        ax.legend(loc="upper left")

    panels(path, "Gumbel-Softmax: variance and annealing", [variance("linear"), variance("cube"), annealing], legend=0)


CLAIMS = (
    Claim(
        "gs-variance",
        "section 5.1, appendix C",
        "the variance of the Gumbel-Softmax gradient grows as 1 / tau^2",
        _judge_gs,
        "it grows as 1 / tau",
    ),
    Claim(
        "stgc-variance",
        "appendix C, note on variance",
        "STGC's variance is that at tau0, not exploded by annealing",
        _judge_stgc,
        "it grows as 1 / tau as well, by a bounded factor more than plain Gumbel-Softmax",
    ),
    Claim(
        "annealing",
        "section 5.1, appendices D and E",
        "sum over rounds of tau^2 = O(1) for the printed schedule",
        _judge_annealing,
        "only without the floor tau_min; with it the sum grows linearly",
    ),
)

EXPERIMENT = Experiment("gumbel", "variance of the estimators, and the annealing sum", measure, CLAIMS, draw)
