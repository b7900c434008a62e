# pyright: reportMissingImports=false
"""The multi-agent velocity tasks of Safety-Gymnasium (Ji et al., NeurIPS 2023): the joints of one robot are shared out
to agents, who run for speed and may not run too fast. MuJoCo through gymnasium-robotics, whose tasks are version 5 of
Gymnasium's; Safety-Gymnasium 1.0 is built on version 4, so that its printed rewards cannot be laid beside ours.

    safe_velocity:ant-2x4               two agents with four joints each
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from trident.errors import TridentError
from trident.fields import check_name

LIMIT = 25 / 1000
"""Mean cost per step: 25 in an episode of 1,000."""
HORIZON = 1000


class Task(NamedTuple):
    scenario: str
    parts: str
    """How the robot is shared out, as gymnasium-robotics names it."""
    threshold: float
    """Metres per second, as published with the tasks (`safe_mujoco_multi.py` of Safety-Gymnasium 1.0)."""
    agents: int


TASKS = {
    "ant-2x4": Task("Ant", "2x4", 2.522, 2),
    "ant-4x2": Task("Ant", "4x2", 2.418, 4),
    "halfcheetah-6x1": Task("HalfCheetah", "6x1", 2.932, 6),
    "halfcheetah-2x3": Task("HalfCheetah", "2x3", 3.227, 2),
    "hopper-3x1": Task("Hopper", "3x1", 0.9613, 3),
    "humanoid-9-8": Task("Humanoid", "9|8", 0.58, 2),
    "swimmer-2x1": Task("Swimmer", "2x1", 0.04891, 2),
    "walker2d-2x3": Task("Walker2d", "2x3", 1.641, 2),
}


def speed(task: Task, info: dict[str, Any]) -> float:
    """What the threshold is on: in the plane where the robot turns, along x for the swimmer."""
    x, y = float(info["x_velocity"]), float(info.get("y_velocity", 0.0))
    return x if task.scenario == "Swimmer" else (x**2 + y**2) ** 0.5


def too_fast(task: Task, obs: Any, action: Any, info: dict[str, Any]) -> float:
    return float(speed(task, info) > task.threshold)


def room(task: Task, obs: Any, action: Any, info: dict[str, Any]) -> float:
    return 1.0 - speed(task, info) / task.threshold


def velocity(task: Task, obs: Any, action: Any, info: dict[str, Any]) -> float:
    return speed(task, info)


def make(name: str) -> Any:
    """One of TASKS, called `safe_velocity:NAME`."""
    check_name("task", name, TASKS, "safe_velocity")
    task, whole = TASKS[name], f"safe_velocity:{name}"
    try:
        from gymnasium_robotics import mamujoco_v1

        from trident.adapters.inward import adapt_pettingzoo
    except ImportError as error:
        raise TridentError(f"{whole} needs an extra: pip install 'trident-marl[suites]' ({error})") from error
    return adapt_pettingzoo(
        mamujoco_v1.parallel_env(task.scenario, task.parts),
        name=whole,
        version=1,
        horizon=HORIZON,
        costs={"speed": partial(too_fast, task)},
        limits={"speed": LIMIT},
        margins={"speed": partial(room, task)},
        cost_over_agents="max",  # it is the same for all
        metrics={"velocity": partial(velocity, task)},
        kinds=range(task.agents),  # a front leg is no hind leg, whatever their spaces
    )
