"""What a round leaves in the record."""

import numpy as np
from support import tiny

from trident.training.record import make_record


def test_a_ratio_without_a_weight_is_missing_not_huge():
    """Metrics per ended episode have no value in the rounds before the first episode ends."""
    start = {"round": 0, "env_steps": 0, "diverged": {}, "values": {}}
    metrics = {
        "reward": np.zeros(2),
        "cost": np.zeros((2, 2)),
        "metric/moved": np.array([3.0, 3.0]),
        "metric/weight": np.array([0.0, 2.0]),
    }
    values = make_record(tiny.SPEC, (0, 1), metrics, 16, 1.0, start)["values"]
    np.testing.assert_array_equal(values["metric/moved"], [np.nan, 1.5])


def test_an_episodes_reward_and_costs_are_per_step_and_missing_where_none_ended():
    start = {"round": 0, "env_steps": 0, "diverged": {}, "values": {}}
    metrics = {
        "reward": np.zeros(2),
        "cost": np.zeros((2, 2)),
        "episode_steps": np.array([0.0, 16.0]),
        "episode_reward": np.array([0.0, 8.0]),
        "episode_cost": np.array([[0.0, 0.0], [4.0, 32.0]]),
    }
    values = make_record(tiny.SPEC, (0, 1), metrics, 16, 1.0, start)["values"]
    np.testing.assert_array_equal(values["episode_reward"], [np.nan, 0.5])
    np.testing.assert_array_equal(values["episode_cost/use"], [np.nan, 0.25])
    np.testing.assert_array_equal(values["episode_cost/noise"], [np.nan, 2.0])
    assert "episode_steps" not in values
