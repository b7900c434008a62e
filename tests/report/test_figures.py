"""Figures show what the records say."""

from __future__ import annotations

import io
import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from trident.errors import TridentError
from trident.report import figures, video
from trident.report.progress import PlainProgress, plan_line

RUN = {
    "algo": "a",
    "env": "e",
    "env_version": 1,
    "agents": 2,
    "rounds": 300,
    "steps_per_round": 10,
    "settings": {"seeds": [0, 1]},
    "host": {"device": "cpu", "cores": 2},
    "modes": ["stay", "go"],
    "constraints": [{"name": "energy", "limit": 0.5, "unit": "rate"}],
    "metrics": [
        {"name": "speed", "unit": "m/s", "better": "higher", "per": None},
        {"name": "weight", "unit": "", "better": "neither", "per": None},
        {"name": "share", "unit": "", "better": "neither", "per": "weight"},
    ],
}


def rows(count: int) -> list[dict]:
    """Seed 1 diverges at half time."""
    out = []
    for t in range(1, count + 1):
        both = lambda x, t=t: [x, x + 0.1 if t < count / 2 else None]  # noqa: E731
        values = {"reward": both(float(t)), "cost/energy": both(1.0 / t), "cumulative_violation/energy": [1.0, 2.0]}
        values |= {"mode/stay": both(0.25), "mode/go": both(0.75), "metric/speed": both(3.0), "kl": both(0.01)}
        values |= {"metric/weight": both(1.0), "explained_variance/reward": both(0.5), "unknown": both(1.0)}
        out.append({"round": t, "env_steps": 10 * t, "values": values, "diverged": {}})
    return out


@pytest.mark.parametrize("count", [1, 300])
def test_every_figure_is_drawn_from_records_alone(tmp_path, count):
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows(count)))
    paths = figures.draw_figures(tmp_path)
    assert [p.name for p in paths] == ["learning.png", "metrics.png", "modes.png", "diagnostics.png"]
    for path in paths:
        with Image.open(path) as image:
            assert image.width > 600
            assert len(np.unique(np.asarray(image.convert("L")))) > 20, "an empty picture"


def test_a_cost_is_drawn_against_its_dashed_limit_with_thin_seeds_and_a_thick_mean():
    _, ax = plt.subplots()
    figures.learning_panels(RUN, rows(30))[1](ax)
    limit = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in limit] == [0.5]
    solid = [line for line in ax.lines if line.get_linestyle() == "-"]
    widths = sorted(line.get_linewidth() for line in solid)
    assert len(solid) == 3
    assert widths[-1] > 2 * widths[-2]
    mean = max(solid, key=lambda line: line.get_linewidth()).get_ydata()
    assert np.allclose(mean[:14], [1.0 / t + 0.05 for t in range(1, 15)])
    assert np.allclose(mean[15:], [1.0 / t for t in range(16, 31)])
    plt.close("all")


def test_costs_so_far_are_drawn_against_what_the_limit_allows():
    _, ax = plt.subplots()
    figures.learning_panels(RUN, rows(30))[2](ax)
    (budget,) = (line for line in ax.lines if line.get_linestyle() == "--")
    steps = 10.0 * np.arange(1, 31)
    np.testing.assert_allclose(budget.get_xydata(), np.stack([steps, 0.5 * steps], axis=1))
    mean = max((line for line in ax.lines if line.get_linestyle() == "-"), key=lambda line: line.get_linewidth())
    np.testing.assert_allclose(mean.get_ydata()[:3], 10.0 * np.cumsum([1.05, 0.55, 1 / 3 + 0.05]))
    plt.close("all")


def test_compared_sums_of_costs_have_the_budget_line(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "_draw", lambda path, title, panels: drawn.extend(panels))
    figures.draw_comparison([("a", RUN, rows(30)), ("b", RUN, rows(20))], tmp_path / "curves.png")
    _, ax = plt.subplots()
    drawn[2](ax)
    budget = next(line for line in ax.lines if line.get_label() == "budget")
    assert budget.get_linestyle() == "--"
    steps = 10.0 * np.arange(1, 31)  # of the longest run
    np.testing.assert_allclose(budget.get_xydata(), np.stack([steps, 0.5 * steps], axis=1))
    plt.close("all")


def test_the_front_has_nobody_that_another_beats():
    points = [(2.0, 5.0), (1.0, 3.0), (1.0, 4.0), (3.0, 5.0), (4.0, 6.0)]
    assert figures.pareto_front(points) == [(1.0, 4.0), (2.0, 5.0), (4.0, 6.0)]


@pytest.mark.parametrize("rates", [False, True])
def test_the_front_is_a_line_to_the_edges_over_the_tables_total(tmp_path, monkeypatch, rates):
    def seed(reward, cost):
        return {"reward": reward, "cost/energy": cost} | rated(cost)

    rated = lambda cost: {"metric/ev": 0.5 * cost, "metric/cv": cost} if rates else {}  # noqa: E731
    results = [("a", [seed(1.0, 0.2), seed(2.0, 0.4)]), ("b", [seed(3.0, 0.6)]), ("c", [seed(0.0, 0.5)]), ("d", [])]
    monkeypatch.setattr(figures.plt, "close", lambda _: None)
    runs = [(name, RUN | {"algo": name}, {"policies": {name: seeds}}) for name, seeds in results]
    figures.draw_front(runs, tmp_path / "front.png")
    ax = plt.gcf().axes[0]
    (front,) = (line for line in ax.lines if line.get_label() == "Pareto front")
    scale = 150.0 if rates else 100.0
    at = [0.3 * scale, 0.3 * scale, 0.6 * scale, ax.get_xlim()[1]]
    np.testing.assert_allclose(front.get_xydata(), np.stack([at, [ax.get_ylim()[0], 1.5, 3.0, 3.0]], axis=1))
    assert "Pareto front" in [text.get_text() for text in ax.get_legend().get_texts()]
    assert ax.get_xlabel().startswith("total V." if rates else "violations")
    monkeypatch.undo()
    plt.close("all")


def test_smoothing_is_a_trailing_mean_that_ends_with_its_seed():
    values = np.array([1.0, 2.0, 6.0, 1.0, np.nan, np.nan])
    assert np.allclose(figures._smooth(values, 2)[:4], [1.0, 1.5, 4.0, 3.5])
    assert np.isnan(figures._smooth(values, 2)[4:]).all()
    assert np.array_equal(figures._smooth(values[:4], 1), values[:4])


def test_figures_need_a_run_directory(tmp_path):
    with pytest.raises(TridentError, match="not a run directory"):
        figures.draw_figures(tmp_path)


def test_a_video_has_a_frame_per_step_up_to_a_bound(tmp_path):
    seen = []

    def draw(figure, t):
        assert figure.axes == [], "the figure must be empty"
        seen.append(t)
        figure.subplots().plot([0, t], [0, 1])

    video.write_gif(tmp_path / "a.gif", draw, 5)
    assert seen == [0, 1, 2, 3, 4]
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == 5


def test_plain_progress_tells_the_plan_the_limits_and_the_end():
    stream = io.StringIO()
    progress = PlainProgress(stream, every=1e9)
    progress.begin(RUN)
    progress.resume_at({"round": 0})
    for row in rows(300):
        progress.update(row)
    lines = stream.getvalue().splitlines()
    assert lines[0] == plan_line(RUN)
    assert "2 seeds x 300 rounds x 10 env steps = 6,000 env steps" in lines[0]
    assert "energy <= 0.5" in lines[0]
    assert "compiling" in lines[1]
    assert len(lines) == 4, "the first round, the last round, and nothing between when little time has passed"
    assert lines[2].startswith("round 1/300")
    assert "energy 1.05 OVER (limit 0.5)" in lines[2]
    assert "ok (limit 0.5)" in lines[3]
    assert "kl 0.01" in lines[3]
