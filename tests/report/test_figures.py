"""Figures show what the records say."""

from __future__ import annotations

import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image
from support.run_files import write_files

from trident.errors import TridentError
from trident.report import figures, video
from trident.report.progress import LiveProgress, PlainProgress, Ticking, plan_line
from trident.report.study_figures import draw_cumulative, excess, late_power, root_fit

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

        def both(x, t=t):
            return [x, x + 0.1 if t < count / 2 else None]

        values = {"reward": both(float(t)), "cost/energy": both(1.0 / t), "cumulative_violation/energy": [1.0, 2.0]}
        values |= {"mode/stay": both(0.25), "mode/go": both(0.75), "metric/speed": both(3.0), "kl": both(0.01)}
        values |= {"metric/weight": both(1.0), "explained_variance/reward": both(0.5), "unknown": both(1.0)}
        out.append({"round": t, "env_steps": 10 * t, "values": values, "diverged": {}})
    return out


@pytest.mark.parametrize("count", [1, 300])
def test_every_figure_is_drawn_from_records_alone(tmp_path, count):
    write_files(tmp_path, RUN, None, rows(count))
    paths = figures.draw_figures(tmp_path)
    assert [p.name for p in paths] == ["learning.png", "metrics.png", "modes.png", "diagnostics.png", "margin.png"]
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
    monkeypatch.setattr(figures, "_draw", lambda path, title, panels, note: drawn.extend(panels))
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

    def rated(cost):
        return {"metric/ev": 0.5 * cost, "metric/cv": cost} if rates else {}

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


def seed(reward):
    return [{"reward": reward}]


def test_scripted_policies_are_lines_with_their_names_and_far_ones_do_not_flatten_the_curve():
    _, ax = plt.subplots()
    figures.learning_panels(RUN, rows(30), {"near": seed(20.0), "planner": seed(31.0), "far": seed(-1e4)})[0](ax)
    dotted = [line.get_ydata()[0] for line in ax.lines if line.get_linewidth() == 1.2]
    assert dotted == [20.0, 31.0]
    low, high = ax.get_ylim()
    assert -10 < low < 1 < 31 < high < 40
    texts = {text.get_text(): text.get_position()[1] for text in ax.texts}
    assert list(texts) == ["far -1e+04 \u2193", "near 20", "planner 31"]
    assert all(0 <= place <= 1 for place in texts.values())
    plt.close("all")


def test_reward_and_costs_are_of_whole_episodes_where_records_have_them():
    records = rows(30)
    for t, record in enumerate(records):
        ended = t % 2 == 1  # in every second round
        record["values"] |= {"episode_reward": [7.0 if ended else None] * 2, "episode_cost/energy": [0.25, None]}
    for panel, value, count in ((0, 7.0, 15), (1, 0.25, 30)):
        _, ax = plt.subplots()
        figures.learning_panels(RUN, records)[panel](ax)
        assert "whole episodes" in ax.get_title(loc="left") + ax.get_title()
        mean = max((line for line in ax.lines if line.get_linestyle() == "-"), key=lambda line: line.get_linewidth())
        np.testing.assert_array_equal(mean.get_ydata(), [value] * count)  # no gaps: the line is to be seen
    _, ax = plt.subplots()
    figures.learning_panels(RUN, rows(30))[0](ax)
    assert "steps of the round" in ax.get_title(loc="left") + ax.get_title()
    plt.close("all")


def test_names_at_the_edge_are_kept_apart():
    assert figures.spread([0.1, 0.5, 0.9], 0.1) == [0.1, 0.5, 0.9]
    np.testing.assert_allclose(figures.spread([0.5, 0.5, 1.0, 1.0], 0.1), [0.5, 0.6, 0.9, 1.0])
    np.testing.assert_allclose(figures.spread([0.0, 0.0, 0.0], 0.1), [0.0, 0.1, 0.2])


def test_one_outlier_does_not_flatten_a_diagnostic_and_is_told():
    """Regression: one round with an R2 of -7,000 left nothing else to be seen."""
    records = rows(100)
    for t, record in enumerate(records):
        record["values"] = {"r2_phys/reward": [-7000.0 if t == 50 else 0.5 + 0.001 * t, 0.6], "kl/agent0": [1.0, 2.0]}
        record["values"] |= {"critic_loss/energy": [0.5 + 0.001 * t, 1e6 if t == 3 else 0.6], "kl": [1.0, 1.0]}
    by_title = {}
    for panel in figures.diagnostic_panels(records):
        _, ax = plt.subplots()
        panel(ax)
        by_title[ax.get_title(loc="left") + ax.get_title()] = ax
    physics, loss = (next(ax for title, ax in by_title.items() if word in title) for word in ("physics", "loss"))
    assert physics.get_ylim()[0] > -1.2
    assert [t.get_text() for t in physics.texts] == ["outliers\ndown to -7e+03"]
    assert loss.get_ylim()[1] < 1.0
    assert [t.get_text() for t in loss.texts] == ["outliers\nup to 1e+06"]
    (moves,) = (ax for title, ax in by_title.items() if "moves" in title)
    assert [t.get_text() for t in moves.get_legend().get_texts()] == ["agent 1", "all agents"]
    plt.close("all")


def test_titles_do_not_run_into_each_other(tmp_path, monkeypatch):
    """Regression: the figure's title lay on that of its first panel."""
    records = rows(30)
    for record in records:
        record["values"] |= {f"{name}/energy": [0.1, 0.2] for names in figures.DIAGNOSTICS.values() for name in names}
    monkeypatch.setattr(figures.plt, "close", lambda _: None)
    figures._draw(tmp_path / "a.png", "a on e: diagnostics", figures.diagnostic_panels(records), "a note")
    figure = plt.gcf()
    whole = figure._suptitle.get_window_extent()
    for ax in figure.axes:
        here = ax._left_title.get_window_extent()
        assert not whole.overlaps(here)
        others = [o._left_title.get_window_extent() for o in figure.axes if o is not ax and o.axison]
        assert not ax.axison or not any(here.overlaps(other) for other in others)
    monkeypatch.undo()
    plt.close("all")


def test_smoothing_is_said(tmp_path, monkeypatch):
    notes = []
    monkeypatch.setattr(figures, "_draw", lambda path, title, panels, note: notes.append(note))
    figures.draw_comparison([("a", RUN, rows(30))], tmp_path / "curves.png")
    assert "mean of the last 5 rounds" in notes[0]
    assert figures.curve_note(rows(300)) == "thick: mean over seeds, thin: each seed; mean of the last 3 rounds"
    assert figures.curve_note(rows(30)) == "thick: mean over seeds, thin: each seed"


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


def test_progress_shows_whole_episodes_keeps_the_last_and_waits_for_the_first():
    stream = io.StringIO()
    progress = PlainProgress(stream, every=0.0)
    progress.begin(RUN)
    progress.resume_at({"round": 0})
    for row, reward in zip(rows(3), (None, 4.0, None), strict=True):
        row["values"] |= {"episode_reward": [reward, reward], "episode_cost/energy": [reward, reward]}
        progress.update(row)
    first, second, third = stream.getvalue().splitlines()[-3:]
    assert "reward -" in first
    assert "energy - (limit 0.5)" in first
    for line in (second, third):
        assert "reward 4  " in line
        assert "energy 4 OVER (limit 0.5)" in line


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_what_is_being_done_ticks_and_goes_while_the_bar_stays(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    now = [100.0]
    ticking = Ticking("compiling")
    now[0] = 112.4
    assert ticking.__rich__().plain == "compiling ... 12 s"
    monkeypatch.undo()
    stream = Terminal()
    progress = LiveProgress(stream)
    progress.begin(RUN)
    progress.resume_at({"round": 0})
    for row in rows(300):
        progress.update(row)
    progress.end()
    bar = len(stream.getvalue())
    assert "300/300" in stream.getvalue()
    progress.doing("evaluating planner 3/5 on the same episodes")
    progress.end()
    after = stream.getvalue()[bar:]
    assert "evaluating planner 3/5 on the same episodes ... 0 s" in after
    assert after.rindex("\x1b[2K") > after.rindex("evaluating"), "its line is wiped"
    assert after.rindex("\x1b[?25h") > after.rindex("\x1b[?25l"), "the cursor is back"


def test_units_in_brackets_reach_the_terminal():
    """Regression: they were taken for markup, and `exec [s]` became `exec`."""
    stream = Terminal()
    LiveProgress(stream).say("exec [s]  ev [rate]")
    assert stream.getvalue() == "exec [s]  ev [rate]\n"


def test_the_margin_shows_what_is_left_of_a_limit_and_when_an_update_recovered():
    records = rows(10)
    for record in records:
        record["values"]["recovery"] = [1.0 if record["round"] in (2, 3) else 0.0] * 2
    axes = plt.figure().subplots()
    figures.margin_panels(RUN, records)[0](axes)
    margin = axes.lines[1].get_ydata()
    cost = np.array([1.0 / t + (0.05 if t < 5 else 0.0) for t in range(1, 11)])
    np.testing.assert_allclose(margin, (0.5 - cost) / 0.5)
    np.testing.assert_allclose(axes.lines[2].get_ydata()[-1], margin.mean())
    marks = axes.collections[-1].get_offsets()
    np.testing.assert_allclose(marks, [(20.0, margin[1]), (30.0, margin[2])])
    assert "recovery step" in [text.get_text() for text in axes.get_legend().get_texts()]
    plt.close("all")


def test_a_figure_for_print_is_vectors_and_pixels(tmp_path):
    def draw(figure):
        video.draw_snapshots(figure, lambda part, t: part.text(0.5, 0.5, f"step {t}"), 8)

    files = video.write_figure(tmp_path / "figure", draw)
    assert [f.suffix for f in files] == [".pdf", ".svg", ".png"]
    assert files[0].read_bytes().startswith(b"%PDF")
    svg = files[1].read_text(encoding="utf-8")
    assert all(f"step {t}</text>" in svg for t in (2, 4, 6, 8))  # letters, not outlines
    with Image.open(files[2]) as image:
        assert image.width > 1500  # whatever margins were cut off


def test_mp4_without_ffmpeg_is_one_line(monkeypatch):
    monkeypatch.setattr(video.shutil, "which", lambda name: None)
    with pytest.raises(TridentError, match="ffmpeg, which is not installed"):
        video.check_ffmpeg()


def test_violations_so_far_are_fitted_by_a_root_and_by_the_steepness_of_their_end(tmp_path):
    rounds = np.arange(1, 201)
    c, r2 = root_fit(rounds, 3.0 * np.sqrt(rounds))
    np.testing.assert_allclose([c, r2, late_power(rounds, 3.0 * np.sqrt(rounds))], [3.0, 1.0, 0.5])
    np.testing.assert_allclose(late_power(rounds, 0.2 * rounds), 1.0)
    run = {"env": "e", "algo": "mappo", "constraints": [{"name": "a", "limit": 0.1}, {"name": "b", "limit": 0.0}]}
    rows = [{"round": i, "env_steps": i, "values": {"cost/a": [0.3, 0.05], "cost/b": [0.0, 0.5]}} for i in range(1, 4)]
    np.testing.assert_allclose(excess(run, rows)[1], [[0.2, 0.5], [0.4, 1.0], [0.6, 1.5]])
    assert draw_cumulative([("mappo", run, rows)], tmp_path / "c.png").stat().st_size > 10_000
