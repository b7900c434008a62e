"""What the paper concludes from its own tables, calculated again."""

from __future__ import annotations

from trident.verify.claim import Check, Claim, Data, Evidence, Experiment, Say, exact
from trident.verify.fits import fit_power

REWARD = {"MADDPG": -5.41, "MATD3": -5.18, "FACMAC": -5.07, "MAPPO": -5.24, "HAPPO": -5.13, "TRIDENT": -4.68}
"""Table 1, the unconstrained learners and TRIDENT."""
TOTAL = {"MADDPG": 31.0, "MACPO": 5.9, "TRIDENT": 1.4}
AGENTS, SCALED = (4, 8, 16, 32), (1.4, 2.7, 5.9, 12.4)
"""The scalability table: total violations of TRIDENT."""
R2_PHYS, SPEED_WITHOUT_PHYSICS = 0.7, 0.62
"""Appendix F, and the ablation table's convergence speed without the residual critic."""


def measure(seed: int, say: Say) -> Data:
    def better(name):
        return 100.0 * (1.0 - REWARD["TRIDENT"] / REWARD[name])

    def fewer(name):
        return 100.0 * (1.0 - TOTAL["TRIDENT"] / TOTAL[name])

    strongest = max((n for n in REWARD if n != "TRIDENT"), key=lambda n: REWARD[n])
    growth = fit_power(AGENTS, SCALED).exponent
    return {
        "strongest": strongest,
        "over_strongest": better(strongest),
        "over_maddpg": better("MADDPG"),
        "fewer_than_maddpg": fewer("MADDPG"),
        "fewer_than_macpo": fewer("MACPO"),
        "growth": growth.value,
        "saving": 1.0 / (1.0 - R2_PHYS),
        "speed": 1.0 / SPEED_WITHOUT_PHYSICS,
    }


def _judge_reward(data: Data) -> Evidence:
    return Evidence(
        (Check(f"% over {data['strongest']}, the strongest", exact(data["over_strongest"]), 13.4, 13.6),),
        (Check("% over MADDPG", exact(data["over_maddpg"]), 13.4, 13.6),),
    )


def _judge_violations(data: Data) -> Evidence:
    return Evidence(
        (
            Check("% fewer than MADDPG", exact(data["fewer_than_maddpg"]), 95.4, 95.6),
            Check("% fewer than MACPO", exact(data["fewer_than_macpo"]), 76.2, 76.4),
        )
    )


def _judge_scaling(data: Data) -> Evidence:
    return Evidence((Check("least-squares exponent", exact(data["growth"]), 1.04, 1.06),))


def _judge_saving(data: Data) -> Evidence:
    return Evidence((Check("1 / 0.62 over 1 / (1 - 0.7)", exact(data["speed"] / data["saving"]), 0.8, 1.25),))


CLAIMS = (
    Claim(
        "table-reward",
        "abstract, table 1",
        "13.5 % more reward than the strongest unconstrained baseline",
        _judge_reward,
        "than MADDPG; the strongest is FACMAC",
    ),
    Claim(
        "table-violations",
        "abstract, table 1",
        "95.5 % fewer violations than MADDPG, 76.3 % fewer than MACPO",
        _judge_violations,
    ),
    Claim("table-scaling", "section 6, table 3", "violations grow as N^1.05", _judge_scaling),
    Claim(
        "table-saving",
        "appendix F",
        "R2 = 0.7 saves 3.3 times the samples, seen as 0.62 times the speed without",
        _judge_saving,
    ),
)

EXPERIMENT = Experiment("arithmetic", "the paper's conclusions from its own tables", measure, CLAIMS)
