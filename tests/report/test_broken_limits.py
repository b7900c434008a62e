"""A run that ends over a limit says so, with a reason that follows from its records."""

import pytest

from trident.report.broken_limits import broken_limits

RUN = {"constraints": [{"name": "energy", "limit": 0.01}, {"name": "noise", "limit": 0.5}]}
FINE = {"cost/energy": [0.005, 0.009], "cost/noise": [0.4, 0.4], "budget_asked/energy": [0.1, 0.1]}


def rows(**last):
    """Twenty rounds; the last two have other values, the first eighteen are far over the limit."""
    far = FINE | {"cost/energy": [0.9, 0.9]}
    values = [far] * 18 + [FINE | {name.replace("__", "/"): value for name, value in last.items()}] * 2
    return [{"round": i + 1, "env_steps": i, "values": v} for i, v in enumerate(values)]


@pytest.mark.parametrize(
    ("logged", "reason"),
    [
        ({"rejected": [0.9, 0.8]}, "most steps were rejected"),
        ({"explained_variance__energy": [0.0, 0.05]}, "its critic explains nothing"),
        ({"granted_fraction": [0.2, 0.3], "explained_variance__energy": [0.9, 0.9]}, "does any policy keep the limit"),
        (
            {"realised_advantage__energy": [0.0, 0.1], "explained_variance__energy": [0.9, 0.9]},
            "explains nothing of it",
        ),
        ({}, "try more --episodes"),
    ],
)
def test_a_broken_limit_is_told_with_its_likely_reason(logged, reason):
    (line,) = broken_limits(RUN, rows(cost__energy=[0.03, 0.05], **logged))
    assert line.startswith("energy stands at 0.04 in the last 2 rounds, above its limit of 0.01: ")
    assert reason in line


def test_what_is_kept_or_was_never_asked_for_is_not_told():
    assert list(broken_limits(RUN, rows())) == []
    assert list(broken_limits(RUN, rows(cost__noise=[0.9, 0.9]))) == []  # no learner was told of it
    assert list(broken_limits(RUN, [])) == []
