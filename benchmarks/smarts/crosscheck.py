"""The same vehicle, start and controls in our model and in SMARTS for 5 s; and the constants between them, measured.

python benchmarks/smarts/crosscheck.py          # about 2 minutes; needs the extra `smarts`

Controls are an acceleration and a steering angle, open loop. Errors are distances between the two rear axles.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.smarts.bridge import BRAKE, DRAG, DRIVE, STEER, wheel_and_pedals
from trident.envs.intersection.smarts.env import SmartsRoad
from trident.envs.intersection.smarts.road_map import middle
from trident.physics import vehicle

HERE = Path(__file__).parent
CONFIG = IntersectionConfig(num_vehicles=1)
STEPS = 50
TIME = CONFIG.step * np.arange(STEPS)
RIGHT, LEFT = (float(np.arctan(CONFIG.wheelbase / r)) for r in (9.6, 16.0))
PLACES = {"south": (4.8, -100.0, 0.5 * np.pi), "middle": (0.0, -10.0, 0.5 * np.pi)}


def manoeuvres() -> dict[str, tuple[str, float, np.ndarray, np.ndarray]]:
    """name -> (where it starts, speed, acceleration [T], steering angle [T])"""
    still, dice = np.zeros(STEPS), np.random.default_rng(0)
    hold = lambda value: np.full(STEPS, value)  # noqa: E731
    steps = np.repeat(dice.uniform(-1.0, 1.0, (10, 2)), 5, axis=0)
    pushed = np.where(steps[:, 0] > 0, 3.0, 6.0) * steps[:, 0]
    return {
        "hold 10 m/s": ("south", 10.0, still, still),
        "accelerate 3 from 0": ("south", 0.0, hold(3.0), still),
        "accelerate 1 from 8": ("south", 8.0, hold(1.0), still),
        "brake 6 from 13": ("south", 13.0, hold(-6.0), still),
        "brake 2 from 10": ("south", 10.0, hold(-2.0), still),
        "right turn at 8.2": ("middle", 8.2, still, np.where(TIME < 1.8, -RIGHT, 0.0)),
        "left turn at 10.6": ("middle", 10.6, still, np.where(TIME < 2.4, LEFT, 0.0)),
        "slalom at 10": ("south", 10.0, still, 0.05 * np.sin(2.0 * np.pi * TIME / 2.5)),
        "random pedals": ("south", 9.0, pushed, still),
        "random pedals and wheel": (
            "south",
            9.0,
            np.where(steps[:, 0] > 0, 3.0, 6.0) * steps[:, 0],
            0.02 * steps[:, 1],
        ),
    }


def ours(start: tuple[float, float, float], speed: float, accel: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """(x, y, heading, speed) of the rear axle after every step, [T, 4]."""
    x, y, heading = start
    pose = vehicle.Pose(*(jnp.float32(v) for v in (x, y, heading, np.cos(heading), np.sin(heading))))

    def step(carry, command):
        pose, speed, steer = carry
        a, asked = command
        steer = steer + jnp.clip(asked - steer, -CONFIG.steer_rate * CONFIG.step, CONFIG.steer_rate * CONFIG.step)
        after, distance = vehicle.travel(speed, a, CONFIG.step, CONFIG.top_speed)
        curvature = vehicle.within_grip(vehicle.curvature_of(steer, CONFIG.wheelbase), speed, CONFIG.grip)
        pose = vehicle.advance(pose, curvature, distance)
        return (pose, after, steer), jnp.stack([pose.x, pose.y, pose.heading, after])

    commands = (jnp.asarray(accel, jnp.float32), jnp.asarray(angle, jnp.float32))
    return np.asarray(jax.lax.scan(step, (pose, jnp.float32(speed), jnp.float32(0.0)), commands)[1])


def theirs(
    road: SmartsRoad, start: tuple[float, float, float], speed: float, accel: np.ndarray, angle: np.ndarray
) -> np.ndarray:
    """The same in SMARTS, with the angle limited in rate as ours is."""
    enter(road, start, speed)
    rows, steer, most = [], 0.0, CONFIG.steer_rate * CONFIG.step
    for a, asked in zip(accel, angle, strict=True):
        steer += float(np.clip(asked - steer, -most, most))
        pedals = np.asarray(wheel_and_pedals(CONFIG, *(jnp.array([v], jnp.float32) for v in (speed, a, steer))))[0]
        rows.append(look(road, tuple(map(float, pedals))))
        speed = rows[-1][3]
    road.leave(0)
    return np.array(rows)


def enter(road: SmartsRoad, start: tuple[float, float, float], speed: float) -> None:
    x, y, heading = start
    ahead, at = 0.5 * CONFIG.wheelbase, middle(CONFIG)
    road.restart()
    place = (x + ahead * np.cos(heading) + at, y + ahead * np.sin(heading) + at)
    road.enter(0, *map(float, place), float(heading - 0.5 * np.pi), speed)


def look(road: SmartsRoad, pedals: tuple[float, ...]) -> list[float]:
    seen = road.advance({0: pedals})  # pyright: ignore[reportArgumentType]
    heading, at = float(seen.heading[0]) + 0.5 * np.pi, middle(CONFIG)
    axle = -0.5 * CONFIG.wheelbase
    x, y = seen.x[0] - at + axle * np.cos(heading), seen.y[0] - at + axle * np.sin(heading)
    return [float(x), float(y), heading, float(seen.speed[0])]


def constants(road: SmartsRoad) -> dict[str, float]:
    """Slopes of the speed with the feet off, full throttle and full brake; curvature against the bicycle's."""

    def slope(pedals: tuple[float, float, float], speed: float) -> float:
        enter(road, PLACES["south"], speed)
        speeds = [look(road, pedals)[3] for _ in range(11)]
        road.leave(0)
        return (speeds[10] - speeds[2]) / (8 * CONFIG.step)

    drag = -slope((0.0, 0.0, 0.0), 10.0)
    drive, brake = slope((1.0, 0.0, 0.0), 3.0) + drag, -slope((0.0, 1.0, 0.0), 12.0) - drag
    ratios = []
    for angle, speed in ((0.05, 12.0), (0.1, 8.0), (LEFT, 10.0), (RIGHT, 8.0)):
        rows = theirs(road, PLACES["middle"], speed, np.zeros(STEPS), np.full(STEPS, angle))[8:20]
        turned = rows[-1, 2] - rows[0, 2]
        way = np.hypot(*np.diff(rows[:, :2], axis=0).T).sum()
        ratios.append(turned / way / (np.tan(angle) / CONFIG.wheelbase))
    return {"drag": drag, "drive": drive, "brake": brake, "curvature_ratio": float(np.mean(ratios))}


def main() -> None:
    road = SmartsRoad(CONFIG)
    measured = constants(road)
    record = {
        "smarts": version("smarts"), "jax": jax.__version__, "seconds": 5.0,
        "constants": {"measured": measured, "used": {"drag": DRAG, "drive": DRIVE, "brake": BRAKE, "steer": STEER}},
        "manoeuvres": {},
    }  # fmt: skip
    print(measured)
    print("| manoeuvre | way (m) | error after 5 s (m) | largest (m) | sideways (m) | speed (m/s) |")
    for name, (place, speed, accel, angle) in manoeuvres().items():
        a = ours(PLACES[place], speed, accel, angle)
        b = theirs(road, PLACES[place], speed, accel, angle)
        gap = b[:, :2] - a[:, :2]
        distance = np.hypot(*gap.T)
        sideways = np.abs(gap[:, 1] * np.cos(a[:, 2]) - gap[:, 0] * np.sin(a[:, 2]))
        way = float(np.hypot(*np.diff(a[:, :2], axis=0).T).sum())
        row = {"way": way, "final": float(distance[-1]), "largest": float(distance.max())}
        row |= {"sideways": float(sideways.max()), "speed": float(np.abs(b[:, 3] - a[:, 3]).max())}
        record["manoeuvres"][name] = {k: round(v, 3) for k, v in row.items()}
        print(f"| {name} | {' | '.join(f'{v:.2f}' for v in row.values())} |", flush=True)
    road.close()
    (HERE / "crosscheck.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
