"""The paper's tables: which methods on which environments, and the numbers it prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Campaign:
    """Methods x environments with one budget, beside the printed numbers. METHOD+POLICY is a method that is
    warm-started on a scripted policy."""

    envs: tuple[str, ...]
    methods: tuple[str, ...]
    columns: tuple[str, ...]
    """Evaluated quantities, or train/NAME: that metric over the whole training."""
    paper: dict[str, dict[str, tuple[float, ...]]] = field(default_factory=dict)
    """environment -> method -> the printed numbers of the first columns"""
    headline: str | None = None
    """With several environments: the quantity of the table of methods x environments."""
    averages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Its average columns: name -> environments"""
    prefix: str = ""
    """Of the environments' names, which --maps leaves out."""
    full_steps: int | None = None
    """The paper's environment steps per seed; a shorter run is marked as unconverged."""

    own: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """More columns, of one environment each."""
    blocks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Methods that are compared with each other alone: title -> some of them, a table each; one of all if empty."""

    def block_of(self, methods: Sequence[str]) -> dict[str, list[str]]:
        """title -> those of the methods that belong to it; what belongs to none stands by itself."""
        blocks = {title: [m for m in methods if m in block] for title, block in self.blocks.items()}
        rest = [m for m in methods if not any(m in block for block in blocks.values())]
        return {title: block for title, block in ({**blocks, "others": rest}).items() if block}

    def columns_of(self, env: str) -> tuple[str, ...]:
        return (*self.columns, *self.own.get(env, ()))

    @property
    def about(self) -> str:
        return self.envs[0] if len(self.envs) == 1 else f"{len(self.envs)} environments, {self.envs[0]} first"


UAV_COLUMNS = ("reward", "metric/exec", "metric/energy", "metric/throughput", "metric/ev", "metric/cv")
UAV = {
    "random": (-10.39, 8.52, 95.1, 12.1, 0.423, 0.681),
    "greedy": (-7.21, 6.18, 78.2, 18.3, 0.312, 0.224),
    "maddpg": (-5.41, 4.92, 64.8, 24.1, 0.187, 0.123),
    "matd3": (-5.18, 4.78, 62.1, 25.8, 0.164, 0.108),
    "facmac": (-5.07, 4.71, 61.3, 26.2, 0.151, 0.097),
    "mappo": (-5.24, 4.82, 63.5, 25.3, 0.172, 0.115),
    "happo": (-5.13, 4.74, 61.8, 26.0, 0.147, 0.094),
    "mappo-lag": (-5.82, 5.21, 60.4, 22.7, 0.058, 0.042),
    "macpo": (-5.61, 5.08, 59.1, 23.4, 0.031, 0.028),
    "madac": (-5.46, 4.62, 59.9, 26.8, 0.034, 0.029),
    "trident": (-4.68, 4.31, 55.8, 28.2, 0.008, 0.006),
}
PRINTED = {method: (*numbers, numbers[4] + numbers[5]) for method, numbers in UAV.items()}
SCRATCH = (
    "maddpg",
    "matd3",
    "facmac",
    "qmix",
    "mappo",
    "happo",
    "mappo-lag",
    "macpo",
    "madac",
    "trident-scratch",
)
PRIOR = (
    "shielded",
    "mappo-residual",
    "mappo-lag-residual",
    "macpo-residual",
    "mappo-lag+planner",
    "macpo+planner",
    "trident-scratch+planner",
    "trident",
)
TABLE1 = Campaign(
    envs=("uav-mec",),
    methods=(*SCRATCH, *PRIOR),
    columns=(*UAV_COLUMNS, "total"),
    paper={"uav-mec": PRINTED | {"trident-scratch": PRINTED["trident"]}},
    blocks={"From scratch": SCRATCH, "With prior knowledge: a base policy, a shield or a warm start": PRIOR},
)
"""The paper's actors learn from scratch: its numbers for TRIDENT stand beside both of ours."""

ABLATIONS = Campaign(
    envs=("uav-mec",),
    methods=(
        "trident",
        "trident-scratch",
        "trident-no-stgc",
        "trident-stgc",
        "trident-lagrangian",
        "trident-no-recovery",
        "trident-no-physics",
        "trident-additive-physics",
        "trident-no-trust-region",
        "trident-no-hybrid",
        "trident-simultaneous",
        "trident-separate",
        "trident-concatenated",
        "trident-unconstrained",
        "trident-paper",
    ),
    columns=("reward", "total"),
    paper={
        "uav-mec": {
            "trident": (-4.68, 0.014),
            "trident-no-stgc": (-4.95, 0.021),
            "trident-lagrangian": (-4.74, 0.083),
            "trident-no-recovery": (-4.79, 0.039),
            "trident-no-physics": (-5.12, 0.018),
            "trident-no-trust-region": (-5.04, 0.075),
            "trident-no-hybrid": (-5.38, 0.024),
            "trident-simultaneous": (-4.81, 0.037),
            "trident-additive-physics": (-5.03, 0.026),
        }
    },
)
PARTS_ON_SMAC = Campaign(
    envs=("smac-8m-safe",),
    methods=ABLATIONS.methods,
    columns=("metric/win", "metric/losses", "metric/deaths", "metric/crowding"),
)
"""14 modes: too many for a sum over them to be cheap, so that the discrete gradient matters."""
AIM = Campaign(
    envs=("intersection",),
    methods=("maddpg", "mappo", "mappo-lag", "macpo", "madac", "shielded", "trident-scratch", "trident"),
    columns=(
        "train/collisions",
        "metric/return",
        "metric/collisions",
        "metric/throughput",
        "metric/delay",
        "metric/off_lane",
    ),
    paper={
        "intersection": {
            "maddpg": (8.3, 42.7),
            "mappo": (6.4, 46.3),
            "mappo-lag": (2.6, 44.1),
            "macpo": (2.1, 45.6),
            "madac": (1.8, 45.9),
            "shielded": (0.0, 39.8),
            "trident": (0.0, 47.8),
        }
    },
    full_steps=15_000 * 300,
)

HARD = ("smac-3s5z_vs_3s6z", "smac-corridor", "smac-6h_vs_8z", "smac-MMM2", "smac-27m_vs_30m")
EASY = ("smac-3m", "smac-8m", "smac-2s3z")
WINS = {
    "qmix": (0.612, 0.843, 0.094, 0.875, 0.321),
    "mappo": (0.687, 0.916, 0.875, 0.914, 0.803),
    "facmac": (0.634, 0.861, 0.423, 0.897, 0.486),
    "happo": (0.691, 0.904, 0.842, 0.908, 0.776),
    "macpo": (0.668, 0.884, 0.732, 0.901, 0.659),
    "madac": (0.673, 0.891, 0.764, 0.904, 0.687),
    "trident": (0.724, 0.937, 0.896, 0.932, 0.825),
}
"""On the five hard maps."""
SMAC = Campaign(
    envs=(*HARD, *EASY),
    methods=tuple(WINS),
    columns=("metric/win", "metric/losses", "metric/deaths", "metric/crowding", "metric/length"),
    paper={env: {method: (wins[i],) for method, wins in WINS.items()} for i, env in enumerate(HARD)},
    headline="metric/win",
    averages={"hard": HARD, "all": (*HARD, *EASY)},
    prefix="smac-",
    full_steps=5_000_000,
)

SCENARIOS = Campaign(
    envs=("uav-nofly", "uav-cruise", "uav-coverage"),
    methods=("mappo", "mappo-lag", "shielded", "trident-scratch", "trident"),
    columns=("reward",),
    own={
        "uav-nofly": ("metric/arrived", "metric/time", "cost/penetration", "cost/energy"),
        "uav-cruise": ("metric/fresh", "metric/deliveries", "cost/separation", "cost/battery", "cost/link"),
        "uav-coverage": ("metric/detected", "metric/power", "cost/sectors", "cost/separation"),
    },
    headline="reward",
    prefix="uav-",
)
"""The paper's qualitative figures, for which it prints no numbers."""

CAMPAIGNS = {
    "scenarios": SCENARIOS,
    "table1": TABLE1,
    "ablations": ABLATIONS,
    "ablations-smac": PARTS_ON_SMAC,
    "table4-aim": AIM,
    "table6": SMAC,
}
"""The printed numbers of Tables 1, 2, 4 (its left half) and 6; rates as shares."""
