"""What the no-fly scenario is made of: every number with its unit, checked when it is built."""

from __future__ import annotations

from dataclasses import dataclass

from trident.errors import TridentError

Polygon = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class NoFlyConfig:
    """Everything the scenario is. Lengths in m, times in s, speeds in m/s, accelerations in m/s^2."""

    area: float = 400.0
    """Side of the square area; the UAV crosses it from west to east."""
    cell: float = 12.5
    """Side of a waypoint cell; a whole number of them makes the area."""
    horizon: int = 150
    """Steps per episode."""
    step: float = 0.5

    num_maps: int = 256
    map_seed: int = 0
    """Maps of different seeds have nothing in common: one seed to train on, another to evaluate on."""
    num_zones: int = 7
    corners: int = 9
    """Most corners of a zone."""
    zone_radius: tuple[float, float] = (28.0, 52.0)
    """Of the disc around a zone, smallest and largest."""
    passage: float = 24.0
    """Least width of every way between two zones, and between a zone and the border."""
    strip: float = 50.0
    """West and east strips without zones, where the flight begins and ends."""
    zones: tuple[Polygon, ...] = ()
    """A map by hand, in place of all drawn ones: polygons by their corners in order."""

    max_speed: float = 18.0
    """Of the commanded velocity towards the waypoint."""
    max_across: float = 6.0
    """Of the commanded velocity to the left and right of it."""
    accel: float = 5.0
    """Acceleration limit, braking included."""
    entry_speed: float = 9.0
    """At the start, eastwards."""
    tube: float = 2.0
    """The autopilot keeps the UAV this near to its reference, whatever the wind."""
    wind: float = 4.0
    """Largest mean wind of an episode."""
    gust: float = 1.0
    """Standard deviation of the wind around its mean, per axis."""
    max_wind: float = 7.0
    wind_memory: float = 0.9
    """Of the gusts, from step to step."""
    offset_memory: float = 0.6
    """Of the UAV's offset from its reference, from step to step."""
    offset_lag: float = 0.8
    """Offset that a change of the wind leaves, s."""
    rotor: str = "light"
    max_power: float = 132.0
    """Electric power above which a step counts as one of too much energy, W."""

    goal_radius: float = 15.0
    progress_weight: float = 0.02
    """Reward per m that the shortest way to the goal becomes shorter."""
    time_weight: float = 0.1
    """Reward lost per step."""
    energy_weight: float = 5e-4
    """Reward lost per J."""
    goal_reward: float = 5.0
    penetration_limit: float = 1e-3
    """Limit on the share of steps that touch a zone."""
    energy_limit: float = 0.05
    """Limit on the share of steps above `max_power`."""
    sight: float = 80.0
    """Reach of the range finder."""
    rays: int = 16
    """Directions of the range finder, a multiple of 8."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def grid(self) -> int:
        """Cells along a side."""
        return round(self.area / self.cell)


def check(config: NoFlyConfig) -> None:
    """Raise one clear line for a value that cannot be meant."""
    c = config
    low, high = c.zone_radius
    positive = ("area", "cell", "step", "passage", "strip", "max_speed", "accel", "max_power", "goal_radius", "sight")
    rules = {
        f"{', '.join(positive)} must be positive": min(getattr(c, name) for name in positive) > 0,
        "horizon must be at least 1": c.horizon >= 1,
        f"area must be a whole number of cells, not {c.area / c.cell:g}": abs(c.area / c.cell - c.grid) < 1e-6,
        "num_maps must be between 1 and 4096": 1 <= c.num_maps <= 4096,
        "num_zones must be at least 1": c.num_zones >= 1,
        "corners must be at least 6": c.corners >= 6,
        "zone_radius must be ordered and positive": 0 < low <= high,
        "strip must be wider than two passages' halves and leave room for zones": c.passage < c.strip < 0.4 * c.area,
        "tube must be positive and less than a quarter of passage": 0 < c.tube < 0.25 * c.passage,
        f"cell must be at most {(c.passage - 2 * c.tube) / 2**0.5:.3g} for a way of {c.passage:g} m to be found":
            c.cell * 2**0.5 <= c.passage - 2.0 * c.tube,
        "entry_speed must lie between 0 and max_speed": 0 <= c.entry_speed <= c.max_speed,
        "wind must lie between 0 and max_wind": 0 <= c.wind <= c.max_wind,
        "max_across, gust, offset_lag must not be negative": min(c.max_across, c.gust, c.offset_lag) >= 0,
        "wind_memory and offset_memory must lie in [0, 1)": max(c.wind_memory, c.offset_memory) < 1
        and min(c.wind_memory, c.offset_memory) >= 0,
        "rotor must be light or zeng": c.rotor in ("light", "zeng"),
        "rays must be a multiple of 8": c.rays >= 8 and c.rays % 8 == 0,
        f"every zone needs 3 to {c.corners} corners": all(3 <= len(zone) <= c.corners for zone in c.zones),
    }  # fmt: skip
    for complaint, fine in rules.items():
        if not fine:
            raise TridentError(f"uav-nofly: {complaint}")
