"""What cooperative coverage is made of: every number with its unit, checked when it is built."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from trident.errors import TridentError


@dataclass(frozen=True)
class CoverageConfig:
    """Everything the scenario is. Lengths in m, times in s, speeds in m/s, accelerations in m/s^2."""

    num_uavs: int = 6
    area: float = 0.0
    """Side of the square region. 0: 600 m x sqrt(num_uavs / 6)."""
    points: int = 12
    """The region is looked at in points x points places."""
    sectors: int = 3
    """Sectors along a side; each has a minimum of coverage."""
    horizon: int = 120
    """Slots per episode."""
    slot: float = 1.0
    grace: int = 30
    """Slots for deployment in which the sectors' minimum is not charged."""

    num_hotspots: int = 3
    hotspot_share: float = 0.75
    """Of the importance; the rest is even over the region."""
    hotspot_spread: float = 80.0
    """Standard deviation of a hotspot's importance, per axis."""
    hotspot_speed: float = 2.0
    """Root mean square of a hotspot's drift."""
    hotspot_memory: float = 0.98
    """Gauss-Markov memory of the drift from slot to slot."""

    max_speed: float = 20.0
    accel: float = 4.0
    separation: float = 30.0
    """Least distance between two UAVs."""
    num_obstacles: int = 0
    """Tall buildings, which are flown around."""
    obstacle_radius: float = 35.0
    rotor: str = "light"
    radius: tuple[float, float] = (80.0, 240.0)
    """Sensing radius, smallest and largest."""
    sensing_power: float = 30.0
    """Of a sensing radius of 100 m, W; it grows with the square of the radius."""
    energy_weight: float = 2e-3
    """Reward lost per W that a UAV takes on average. 0: energy does not count."""
    sector_min: float = 0.12
    """Least mean detection in a sector."""
    sector_limit: float = 0.03
    """Limit on the share of sectors below their minimum."""
    separation_limit: float = 2e-3
    """Limit on the share of UAVs too near another or an obstacle."""
    sight: float = 220.0
    """How far a UAV sees the importance of places, and others twice as far."""
    seen_uavs: int = 3
    """Nearest others in the observation."""

    def __post_init__(self) -> None:
        if not self.area:
            object.__setattr__(self, "area", 600.0 * (self.num_uavs / 6.0) ** 0.5)
        check(self)

    @property
    def places(self) -> Float[np.ndarray, "Q 2"]:
        """Middles of the places that are looked at, column by column."""
        middle = self.area * (np.arange(self.points) + 0.5) / self.points
        return np.stack(np.meshgrid(middle, middle, indexing="ij"), -1).reshape(-1, 2).astype(np.float32)

    @property
    def sector_of(self) -> Float[np.ndarray, "Q K"]:
        """Share of each place in the mean of its sector, by sector."""
        index = np.minimum(np.arange(self.points) * self.sectors // self.points, self.sectors - 1)
        number = (index[:, None] * self.sectors + index[None]).ravel()
        member = (number[:, None] == np.arange(self.sectors**2)).astype(np.float32)
        return member / member.sum(0)

    @property
    def sector_middles(self) -> Float[np.ndarray, "K 2"]:
        return self.sector_of.T @ self.places

    @property
    def start_side(self) -> int:
        """UAVs along a side of the square formation in which they start."""
        return int(np.ceil(self.num_uavs**0.5))

    @property
    def start_gap(self) -> float:
        return 1.5 * self.separation


def check(config: CoverageConfig) -> None:
    """Raise one clear line for a value that cannot be meant."""
    c = config
    low, high = c.radius
    positive = ("area", "slot", "hotspot_spread", "max_speed", "accel", "separation", "obstacle_radius", "sight")
    built = (2.0 * c.obstacle_radius + c.separation) ** 2
    need = (c.start_side + 1) * c.start_gap
    rules = {
        f"{', '.join(positive)} must be positive": min(getattr(c, name) for name in positive) > 0,
        "num_uavs and num_hotspots must be at least 1": min(c.num_uavs, c.num_hotspots) >= 1,
        "horizon must be at least 1 and grace not negative": c.horizon >= 1 and c.grace >= 0,
        "points must be a multiple of sectors": c.sectors >= 1 and c.points >= 2 and c.points % c.sectors == 0,
        f"{c.num_uavs} UAVs with {c.separation:g} m between them do not fit into {c.area:g} m: take fewer, or an area "
        f"of at least {need:g} m": need <= c.area,
        "radius must be ordered and positive": 0 < low <= high,
        "hotspot_share must lie in [0, 1]": 0.0 <= c.hotspot_share <= 1.0,
        "hotspot_memory must lie in [0, 1)": 0.0 <= c.hotspot_memory < 1.0,
        "sector_min must lie in [0, 1)": 0.0 <= c.sector_min < 1.0,
        "energy_weight, sensing_power and hotspot_speed must not be negative":
            min(c.energy_weight, c.sensing_power, c.hotspot_speed) >= 0,
        "rotor must be light or zeng": c.rotor in ("light", "zeng"),
        f"num_obstacles must be between 0 and 8, and leave half of the area free, not {c.num_obstacles}":
            0 <= c.num_obstacles <= 8 and c.num_obstacles * built < 0.5 * c.area**2,
        "seen_uavs must be at least 1": c.seen_uavs >= 1,
    }  # fmt: skip
    for complaint, fine in rules.items():
        if not fine:
            raise TridentError(f"uav-coverage: {complaint}")
