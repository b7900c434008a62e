"""What the UAV-MEC scenario is made of: every number with its unit, checked when it is built."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args, get_type_hints

import numpy as np
from jaxtyping import Float

from trident.errors import TridentError
from trident.physics import channel


@dataclass(frozen=True)
class UavMecConfig:
    """Everything the scenario is. The numbers left at 0 follow from `num_uavs` at the density of the 4-UAV layout."""

    num_uavs: int = 4
    num_users: int = 0
    """0: five per UAV."""
    num_fogs: int = 0
    """0: one per two UAVs, on a regular lattice."""
    num_hotspots: int = 0
    """0: one per UAV."""
    area: float = 0.0
    """Side of the square area, m. 0: 600 m x sqrt(num_uavs / 4)."""
    horizon: int = 200
    """Slots per episode."""
    slot: float = 0.5
    """Length of a slot, s."""
    altitude: float = 100.0
    """m"""
    max_speed: float = 30.0
    """m/s"""
    flight: Literal["course", "cartesian", "polar"] = "course"
    """course: (speed, east, north), of which the last two give the direction; cartesian, that of version 1: (vx, vy) in
    a square that is mapped onto the disc of speeds; polar: (speed, heading)."""
    start: Literal["uniform", "depot", "grid", "covering"] = "uniform"
    """uniform: anywhere; depot: around the centre; grid: a regular lattice; covering: above the hotspots."""
    grace: int = 20
    """Slots for deployment at the start of an episode in which coverage is not charged."""

    service_radius: float = 260.0
    """Best-effort service: horizontal reach of a UAV, m (path loss 100 dB in an urban area)."""
    coverage_radius: float = 128.0
    """A served user within this horizontal distance of its own UAV counts as covered, m."""
    capacity: int = 6
    """Users a UAV can serve in a slot."""
    association_rounds: int = 2
    """How often a rejected user may ask the next UAV."""

    hotspot_share: float = 0.6
    """Share of the users that belong to a hotspot."""
    hotspot_spread: float = 60.0
    """Standard deviation of a user's place around its hotspot, per axis, m."""
    hotspot_speed: float = 5.0
    """m/s; hotspots drift on straight lines."""
    hotspot_border: float = 80.0
    """Hotspots turn round this far from the border, m."""
    user_speed: float = 1.5
    """Root mean square of a user's own speed, m/s."""
    user_memory: float = 0.9
    """Gauss-Markov memory of that speed from slot to slot."""

    size_low: float = 4.0
    """Smallest task, Mbit."""
    size_high: float = 8.0
    work_low: float = 80.0
    """Easiest task, cycles/bit."""
    work_high: float = 160.0
    deadline: float = 0.70
    """A task counts for the throughput if it is done by then, s."""
    execution: Literal["sequential", "parallel"] = "sequential"
    """Whether the on-board and the fog share of a task run one after the other or at once."""
    overhead: float = 0.03
    """Dispatch and result return per task in a fog mode, s."""

    user_ghz: float = 0.85
    """Processor of a user: an unserved task runs there."""
    uav_ghz: float = 3.5
    """Speed of one on-board core."""
    uav_cores: int = 8
    uav_capacitance: float = 5.2e-28
    """Effective switched capacitance kappa; with 3.5 GHz a busy core draws 22.3 W."""
    fog_ghz: tuple[float, ...] = (16.0, 12.0)
    """Speed of one virtual machine; the fogs take these values in turn."""
    fog_machines: int = 8
    """Virtual machines per fog; more tasks than that share them."""

    channel: str = "urban"
    """suburban, urban, dense-urban, high-rise (Al-Hourani) or uma-av, umi-av, rma-av (TR 36.777)."""
    carrier: float = 2.0
    """GHz"""
    noise_figure: float = 7.0
    """dB"""
    user_power: float = 0.1
    """W"""
    user_bandwidth: float = 10.0
    """MHz per user"""
    uav_power: float = 0.2
    """Backhaul transmitter, W (3GPP power class 3)."""
    uav_bandwidth: float = 45.0
    """MHz per UAV, shared by its tasks"""
    fog_height: float = 10.0
    """m"""

    rotor: Literal["light", "zeng"] = "light"
    energy_max: float = 86.0
    """E_max: energy a UAV may spend in a slot, J."""
    coverage_min: float = 0.5
    """Cov_min: share of the users that must be covered in a slot."""
    separation: bool = False
    """Adds the third constraint: no two UAVs nearer than `separation_min`."""
    separation_min: float = 20.0
    """m"""
    energy_limit: float = 0.01
    """Limit on the share of UAV-slots above E_max."""
    coverage_limit: float = 0.03
    """Limit on the share of slots below Cov_min."""
    separation_limit: float = 0.01
    """Limit on the share of UAV-slots too near another UAV."""

    energy_weight: float = 0.0025
    """Reward per J spent (negative)."""
    coverage_penalty: float = 0.025
    """Reward per UAV lost in a slot whose coverage is too low."""

    sight: float = 260.0
    """Radius in which a UAV sees users; other UAVs are heard at twice that, m."""
    seen_users: int = 8
    """Nearest users in the observation."""
    seen_uavs: int = 3
    """Nearest other UAVs in the observation."""

    errors: ClassVar[dict[str, Any]] = {}
    """What a simulator that is wrong has otherwise (`trident.envs.randomised`)."""

    def __post_init__(self) -> None:
        derived = {
            "num_users": 5 * self.num_uavs,
            "num_fogs": max(1, self.num_uavs // 2),
            "num_hotspots": self.num_uavs,
            "area": 600.0 * (self.num_uavs / 4) ** 0.5,
        }
        for name, value in derived.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        check(self)

    @property
    def members(self) -> int:
        """Users that belong to a hotspot; user u < members belongs to hotspot u mod num_hotspots."""
        return round(self.hotspot_share * self.num_users)

    @property
    def needed(self) -> int:
        """Least number of covered users (the tolerance keeps 0.5 x 20 from becoming 11)."""
        return int(np.ceil(self.coverage_min * self.num_users - 1e-6))

    @property
    def spring(self) -> float:
        """Pull towards the hotspot, 1/s, that makes `hotspot_spread` the stationary spread of the random walk."""
        persistence = 0.5 * self.slot * (1.0 + self.user_memory) / (1.0 - self.user_memory)
        return 0.5 * self.user_speed**2 * persistence / self.hotspot_spread**2

    @property
    def fogs(self) -> Float[np.ndarray, "F 2"]:
        return lattice(self.num_fogs) * self.area

    @property
    def fog_speeds(self) -> Float[np.ndarray, "F"]:
        return np.resize(np.array(self.fog_ghz), self.num_fogs)


def check(config: UavMecConfig) -> None:
    """Raise one clear line for a value that cannot be meant."""
    c = config
    hints = get_type_hints(UavMecConfig)
    for f in fields(c):
        choices = [x for x in get_args(hints[f.name]) if isinstance(x, str)]
        if choices and getattr(c, f.name) not in choices:
            raise TridentError(f"uav-mec: {f.name}={getattr(c, f.name)!r} is not one of {', '.join(choices)}")
    rules = {
        f"channel={c.channel!r} is not one of {', '.join(channel.CHANNELS)}": c.channel in channel.CHANNELS,
        "num_uavs must be at least 1": c.num_uavs >= 1,
        "num_users must be at least 1": c.num_users >= 1,
        "num_fogs and num_hotspots must be at least 1": min(c.num_fogs, c.num_hotspots) >= 1,
        "horizon must be at least 1 and grace not negative": c.horizon >= 1 and c.grace >= 0,
        "capacity must be at least 1": c.capacity >= 1,
        "coverage_radius must be positive and not above service_radius": 0 < c.coverage_radius <= c.service_radius,
        "coverage_min must lie in [0, 1]": 0.0 <= c.coverage_min <= 1.0,
        "hotspot_share must lie in [0, 1]": 0.0 <= c.hotspot_share <= 1.0,
        "user_memory must lie in [0, 1)": 0.0 <= c.user_memory < 1.0,
        "area must be more than twice hotspot_border": c.area > 2.0 * c.hotspot_border,
        "size and work ranges must be positive and ordered": 0 < c.size_low <= c.size_high
        and 0 < c.work_low <= c.work_high,
        "slot, max_speed, altitude, sight must be positive": min(c.slot, c.max_speed, c.altitude, c.sight) > 0,
        "altitude must be above fog_height": c.altitude > c.fog_height,
        "3GPP aerial channels need an altitude in (22.5, 300] m": c.channel[-3:] != "-av" or 22.5 < c.altitude <= 300,
        "processor speeds must be positive": min(c.user_ghz, c.uav_ghz, *c.fog_ghz) > 0,
        "separation needs at least two UAVs": not c.separation or c.num_uavs >= 2,
    }
    for complaint, fine in rules.items():
        if not fine:
            raise TridentError(f"uav-mec: {complaint}")


def lattice(count: int) -> Float[np.ndarray, "count 2"]:
    """`count` well-spread points of the unit square: the rank-1 lattice with the largest least distance.

    Two points are (1/4, 1/4) and (3/4, 3/4).
    """
    k = np.arange(count)

    def points(g: int) -> np.ndarray:
        return np.stack([k + 0.5, (k * g) % count + 0.5], 1) / count

    def least_distance(g: int) -> float:
        gap = points(g)[:, None] - points(g)[None]
        return float(((gap**2).sum(-1) + 9.0 * np.eye(count)).min())

    return points(max(range(1, max(2, count)), key=lambda g: (round(least_distance(g), 9), -g)))
