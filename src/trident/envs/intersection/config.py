"""What the intersection is made of: every number with its unit, checked when it is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from trident.errors import TridentError

ARMS = 4
LANES = 2


@dataclass(frozen=True)
class IntersectionConfig:
    """Everything the scenario is. Lengths in m, times in s, speeds in m/s, accelerations in m/s^2."""

    num_vehicles: int = 8
    """Vehicle i comes from arm i mod 4."""
    horizon: int = 0
    """Steps per episode. 0: 200 + 12.5 per vehicle."""
    step: float = 0.1
    """Length of a step."""

    lane_width: float = 3.2
    box: float = 28.8
    """Side of the junction; its corners are rounded with radius box/2 - 2 lane_width."""
    approach: float = 100.0
    """From the start of an arm to the junction."""
    exit: float = 40.0
    """From the junction to where a vehicle has reached its goal."""
    lock: float = 60.0
    """Lanes may be changed until this far before the junction."""
    solid: float = 15.0
    """A lane change must be over this far before the junction."""
    stop_gap: float = 0.5
    """Who waits leaves this much between the front bumper and the junction."""

    length: float = 3.68
    width: float = 1.47
    wheelbase: float = 3.0
    top_speed: float = 13.0
    accel: float = 3.0
    brake: float = 6.0
    steer_limit: float = 0.6
    """rad"""
    steer_rate: float = 2.0
    """rad/s"""
    correction: float = 0.12
    """Largest steering correction on top of the lane tracker, rad."""
    grip: float = 9.0
    """Lateral acceleration the tyres hold."""
    turn_accel: float = 7.0
    """Lateral acceleration that sets the speed of a turn: 8.2 to the right, 10.6 to the left."""
    steering: Literal["lane", "raw"] = "lane"
    """lane: a correction on top of a tracker of the chosen lane; raw: the steering angle itself."""

    headway: float = 3.0
    """Mean time between two arrivals on one arm: the k-th comes at a uniform time in [k, k + 1] headways."""
    entry_speed: tuple[float, float] = (8.0, 12.0)
    turns: tuple[float, float, float] = (0.3, 0.4, 0.3)
    """Shares of left, straight, right."""

    progress_weight: float = 0.1
    """Reward per m."""
    time_weight: float = 0.1
    """Reward lost per s on the road or waiting to enter it."""
    goal_reward: float = 30.0
    crash_penalty: float = 10.0
    """Also for leaving the road."""
    collision_limit: float = 1e-4
    """Limit on the share of vehicles that crash in a step: 2 per 100 vehicle-episodes of 200 steps."""
    lane_limit: float = 0.01
    """Limit on the share of vehicles off their lane in a step."""

    tube: float = 0.35
    """The shield keeps the rear axle this near to the middle of its lane."""
    follow_gap: float = 1.5
    """The shield's gap between two bumpers when both have braked to a stop."""
    seen: int = 5
    """Nearest vehicles in the observation."""

    errors: ClassVar[dict[str, Any]] = {}
    """What a simulator that is wrong has otherwise (`trident.envs.randomised`)."""

    def __post_init__(self) -> None:
        if not self.horizon:
            object.__setattr__(self, "horizon", int(200 + 12.5 * self.num_vehicles))
        check(self)

    @property
    def half_box(self) -> float:
        return 0.5 * self.box

    @property
    def front(self) -> float:
        """From the rear axle to the front bumper; the axles are placed symmetrically."""
        return 0.5 * (self.wheelbase + self.length)

    @property
    def stop(self) -> float:
        """Where the rear axle of a waiting vehicle stands (the junction begins at 0)."""
        return -self.front - self.stop_gap

    @property
    def spacing(self) -> float:
        """Least distance between two vehicles of a lane, axle to axle, that the shield keeps."""
        return self.length + self.follow_gap


def check(config: IntersectionConfig) -> None:
    """Raise one clear line for a value that cannot be meant."""
    c = config
    positive = ("step", "lane_width", "approach", "exit", "length", "width", "wheelbase", "top_speed", "accel", "brake")
    rules = {
        "num_vehicles must be between 1 and 64": 1 <= c.num_vehicles <= 64,
        "horizon must be at least 1": c.horizon >= 1,
        f"{', '.join(positive)} must be positive": min(getattr(c, name) for name in positive) > 0,
        "box must be wider than the four lanes": c.box > 2 * LANES * c.lane_width,
        "width must fit into a lane with room to spare": c.width + 2.0 * c.tube < c.lane_width,
        "lock must lie between solid and approach": c.solid < c.lock < c.approach,
        "a lane change needs 40 m between lock and solid": c.lock - c.solid >= 40.0,
        "solid must leave room to stop before the junction": c.solid > c.front + c.stop_gap,
        "turn_accel must stay below grip": 0 < c.turn_accel < c.grip,
        "entry_speed must be ordered and at most top_speed": 0 < c.entry_speed[0] <= c.entry_speed[1] <= c.top_speed,
        "turns must be three shares that sum to 1": min(c.turns) >= 0 and abs(sum(c.turns) - 1.0) < 1e-6,
        f"steering={c.steering!r} is not one of lane, raw": c.steering in ("lane", "raw"),
        "seen must be at least 1": c.seen >= 1,
        "headway must be positive": c.headway > 0,
    }
    for complaint, fine in rules.items():
        if not fine:
            raise TridentError(f"intersection: {complaint}")
