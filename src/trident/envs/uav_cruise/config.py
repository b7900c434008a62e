"""What heterogeneous cruise is made of: every number with its unit, checked when it is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from trident.errors import TridentError
from trident.physics import propulsion


class Kind(NamedTuple):
    """What sets one kind of UAV apart."""

    max_speed: float
    """m/s"""
    sensor: float
    """A point within this distance is seen, m."""
    radio: float
    """Two radios reach as far as the mean of theirs, m."""
    payload: int
    """Deliveries before it must return."""
    battery: float
    """kJ"""
    rotor: str


KINDS = {
    "relay": Kind(14.0, 50.0, 360.0, 0, 36.0, "zeng"),
    "scout": Kind(22.0, 110.0, 220.0, 0, 24.0, "light"),
    "carrier": Kind(16.0, 60.0, 220.0, 4, 30.0, "zeng"),
}
NAMES = tuple(KINDS)


@dataclass(frozen=True)
class CruiseConfig:
    """Everything the scenario is. Lengths in m, times in s, speeds in m/s, accelerations in m/s^2."""

    fleet: tuple[str, ...] = ("relay", "relay", "scout", "scout", "carrier", "carrier")
    """The kind of each UAV."""
    area: float = 800.0
    """Side of the square area."""
    base: tuple[float, float] = (0.5, 0.1)
    """Where the base lies, in shares of the side."""
    base_radio: float = 300.0
    pad_gap: float = 40.0
    """Between the landing pads, which lie in a row."""
    pad_radius: float = 15.0
    """Who returns and is this near to its pad is charged and loaded."""
    num_points: int = 10
    horizon: int = 200
    """Slots per episode."""
    slot: float = 1.0

    accel: float = 4.0
    separation: float = 25.0
    """Least distance between two UAVs."""
    drop_radius: float = 45.0
    """A carrier on patrol delivers to a point within this distance."""
    relay_gain: float = 1.3
    """What the role relay does to a radio's reach."""
    relay_near: float = 160.0
    """From the base to where a relay may stand: nearer, it would be in the way of who starts and lands."""
    relay_aside: float = 150.0
    """How far beside the line to its clients a relay may stand."""
    across: float = 6.0
    """Largest speed across the route on patrol."""
    charging: float = 1.5
    """kJ per s on the pad."""
    reserve: float = 0.08
    """Of the battery, that must be left after the way back."""
    need_rate: float = 0.02
    """Chance per slot that a point comes to need a delivery."""
    fresh_time: float = 40.0
    """Information loses its worth as exp(-age / fresh_time)."""
    oldest: float = 200.0
    """Ages are not counted beyond this."""

    fresh_weight: float = 1.0
    """Reward for points that are all fresh."""
    delivery_reward: float = 1.0
    link_weight: float = 0.2
    """Reward for a fleet that is all connected."""
    energy_weight: float = 1e-3
    """Reward lost per W that a UAV takes on average."""
    separation_limit: float = 2e-3
    """Limit on the share of UAVs too near another."""
    battery_limit: float = 5e-3
    """Limit on the share of UAVs whose battery does not last for the way back and the reserve."""
    link_limit: float = 0.05
    """Limit on the share of UAVs without a link to the base, over others or not."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def num_uavs(self) -> int:
        return len(self.fleet)

    @property
    def kind(self) -> np.ndarray:
        """Number of each UAV's kind."""
        return np.array([NAMES.index(name) for name in self.fleet])

    def of_kind(self, trait: str) -> Float[np.ndarray, "N"]:
        """A trait of every UAV."""
        return np.array([getattr(KINDS[name], trait) for name in self.fleet], np.float32)

    @property
    def base_place(self) -> Float[np.ndarray, "2"]:
        return np.array(self.base, np.float32) * self.area

    @property
    def pads(self) -> Float[np.ndarray, "N 2"]:
        """A landing pad for every UAV."""
        along = self.pad_gap * (np.arange(self.num_uavs) - 0.5 * (self.num_uavs - 1))
        return (self.base_place + np.stack([along, 0.0 * along], 1)).astype(np.float32)

    def rotor(self, name: str) -> Float[np.ndarray, "N"]:
        """A constant of every UAV's rotor."""
        return np.array([getattr(propulsion.ROTORS[KINDS[k].rotor], name) for k in self.fleet], np.float32)


def check(config: CruiseConfig) -> None:
    """Raise one clear line for a value that cannot be meant."""
    c = config
    unknown = [name for name in c.fleet if name not in KINDS]
    positive = ("area", "base_radio", "slot", "accel", "separation", "drop_radius", "charging", "fresh_time", "oldest")
    row = 0.5 * (c.num_uavs - 1) * c.pad_gap
    rules = {
        f"unknown kind {unknown[0] if unknown else ''!r}: there are {', '.join(KINDS)}": not unknown,
        "fleet must have at least two UAVs": c.num_uavs >= 2,
        f"{', '.join(positive)} must be positive": min(getattr(c, name) for name in positive) > 0,
        "num_points and horizon must be at least 1": min(c.num_points, c.horizon) >= 1,
        "pad_gap must be above separation": c.pad_gap > c.separation,
        "base must lie in [0, 1]^2": 0 <= min(c.base) <= max(c.base) <= 1,
        f"{c.num_uavs} landing pads {c.pad_gap:g} m apart do not fit into {c.area:g} m: take fewer UAVs":
            row <= c.base[0] * c.area and row <= (1 - c.base[0]) * c.area,
        "reserve must lie in [0, 0.5]": 0.0 <= c.reserve <= 0.5,
        "need_rate must lie in [0, 1]": 0.0 <= c.need_rate <= 1.0,
        "relay_gain must be at least 1": c.relay_gain >= 1.0,
    }  # fmt: skip
    for complaint, fine in rules.items():
        if not fine:
            raise TridentError(f"uav-cruise: {complaint}")
