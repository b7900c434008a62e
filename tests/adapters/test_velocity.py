"""The velocity tasks: costs as Safety-Gymnasium's own code gave them for the same states, and the simulator itself."""

import json
from pathlib import Path

import numpy as np
import pytest

from trident.adapters.velocity import LIMIT, TASKS, room, too_fast
from trident.errors import TridentError
from trident.training.registry import make_env
from trident.types import HybridAction

RECORDED = json.loads(Path(__file__).with_name("velocity_costs.json").read_text())
"""[x velocity, y velocity, cost] of robots thrown forward at speeds around the threshold and then moved at random:
`SafeMAEnv.step` of safety-gymnasium 1.0.0 on gymnasium-robotics 1.4.2, beside ours on the same simulator (in all of
8 x 200 steps costs and rewards were equal)."""
FIRST, *REST = TASKS


@pytest.mark.parametrize("name", TASKS)
def test_costs_are_the_originals(name):
    task, rows = TASKS[name], RECORDED[name]
    assert {cost for *_, cost in rows} == {0.0, 1.0}
    for x, y, cost in rows:
        info = {"x_velocity": x, "y_velocity": y}
        assert too_fast(task, None, None, info) == cost
        assert (room(task, None, None, info) < 0.0) == (cost > 0.0)


def test_without_the_extra_it_is_one_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gymnasium_robotics", None)
    with pytest.raises(
        TridentError, match=r"safe_velocity:ant-2x4 needs an extra: pip install 'trident-marl\[suites\]'"
    ):
        make_env("safe_velocity:ant-2x4")
    with pytest.raises(TridentError, match="unknown task 'ant-2x5' of safe_velocity: did you mean 'ant-2x4'"):
        make_env("safe_velocity:ant-2x5")


@pytest.mark.adapters
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [FIRST, *(pytest.param(n, marks=pytest.mark.slow) for n in REST)])
def test_the_robot_is_shared_out(name):
    pytest.importorskip("gymnasium_robotics", reason="make test-adapters")
    task, env = TASKS[name], make_env(f"safe_velocity:{name}")
    spec = env.spec
    assert (spec.name, spec.num_agents) == (f"safe_velocity:{name}", task.agents)
    assert (spec.horizon, spec.kinds) == (1000, tuple(range(task.agents)))
    assert [(c.name, c.limit) for c in spec.constraints] == [("speed", LIMIT)]
    out = env.reset(0)
    simulator = env.env.unwrapped.single_agent_env.unwrapped
    for throw in (0.5, 2.0):
        velocities = simulator.data.qvel.copy()
        velocities[0] = throw * task.threshold
        simulator.set_state(simulator.data.qpos.copy(), velocities)
        out = env.step(HybridAction(np.zeros(task.agents, int), np.zeros(spec.action.low.shape[::2], np.float32)))
        speed = float(out.metrics["velocity"])
        assert (out.cost[0] == 1.0) == (speed > task.threshold) == (out.margin[0] < 0.0)
        assert out.margin[0] == pytest.approx(1.0 - speed / task.threshold, abs=1e-5)
    assert out.cost[0] == 1.0
    assert out.state.shape == (spec.state_dim,)
