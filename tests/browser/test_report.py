"""The report in Chromium: it opens, says what the record says, sorts, zooms, and lets no name do anything."""

from __future__ import annotations

import time

import pytest
from support.browser import until
from support.records import write_run

from trident.report.page.content import page_content
from trident.report.page.document import write_page

pytestmark = pytest.mark.browser
NASTY = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


def report(tmp_path, *folders, **more):
    return write_page(tmp_path / "report.html", page_content(list(folders), **more))


def shown_points(page, name):
    """[x, mean] of the first line, as the chart library holds them."""
    return page.evaluate(
        """name => {
            const chart = [...T.charts].find(c => c.spec && c.spec.name === name);
            if (!chart.uplot) chart.draw();
            return [chart.uplot.data[0], chart.uplot.data[chart.main[0]]];
        }""",
        name,
    )


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_the_page_opens_from_disk_and_fits_the_screen(open_page, tmp_path, width, scheme):
    page = open_page(report(tmp_path, write_run(tmp_path / "run")), width=width, scheme=scheme)
    assert page.locator("h1").inner_text() == "trident on uav-mec"
    assert page.locator(".verdict strong").inner_text() == "Within both limits"
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert len(open_page.asked) == 1  # the file itself


def test_curves_have_the_records_points(open_page, tmp_path):
    page = open_page(report(tmp_path, write_run(tmp_path / "run", seeds=1)))
    x, reward = shown_points(page, "reward")
    assert x == [3200.0 * r for r in range(1, 21)]
    assert reward == pytest.approx([-5.0 - 4.0 / r for r in range(1, 21)], abs=1e-4)
    _, cost = shown_points(page, "cost/energy")
    assert cost == pytest.approx([0.004 * (1 + 3.0 / r) for r in range(1, 21)], rel=1e-4)


def test_the_numbers_of_the_verdict_are_readable(open_page, tmp_path):
    page = open_page(report(tmp_path, write_run(tmp_path / "run", costs=(0.4, 0.02))))
    card = page.locator("[data-cost=energy]").inner_text()
    assert "44 %" in card
    assert "limit 1 %" in page.locator("[data-cost=energy] .limit").get_attribute("data-label")
    assert "44 times what its limit allows" in card
    assert page.locator(".verdict strong").inner_text() == "Over its limit: energy"


def test_zoom_by_drag_and_by_keys_and_back(open_page, tmp_path):
    page = open_page(report(tmp_path, write_run(tmp_path / "run")))
    chart = page.locator('[data-chart="reward"]')
    chart.scroll_into_view_if_needed()
    over = chart.locator(".u-over")
    box = over.bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 60, steps=5)
    page.mouse.up()
    reward = "[...T.charts].find(c => c.spec && c.spec.name === 'reward').uplot.scales.x"
    scale = lambda: page.evaluate(f"() => {{ const x = {reward}; return x.max - x.min; }}")  # noqa: E731
    whole = 3200 * 19
    assert scale() == pytest.approx(whole / 4, rel=0.1)
    chart.locator(".plot").press("0")
    assert scale() == pytest.approx(whole)
    chart.locator(".plot").press("+")
    assert scale() == pytest.approx(0.6 * whole, rel=0.01)
    chart.get_by_role("button", name="all").click()
    assert scale() == pytest.approx(whole)


def test_tables_sort_by_number_both_ways_and_follow_to_a_run(open_page, tmp_path):
    costs = {"b": 0.003, "a": 0.05, "c": 0.0007}
    folders = [write_run(tmp_path / name, costs=(cost, 0.02)) for name, cost in costs.items()]
    page = open_page(report(tmp_path, *folders))
    table = page.locator("[data-table=uav-mec]")
    order = lambda: table.locator("tbody td:first-child").all_inner_texts()  # noqa: E731
    table.get_by_role("button", name="energy (limit 1 %)").click()
    assert order() == ["c", "b", "a"]
    table.get_by_role("button", name="energy (limit 1 %)").click()
    assert order() == ["a", "b", "c"]
    table.get_by_role("button", name="run", exact=True).click()
    assert order() == ["a", "b", "c"]
    table.get_by_role("link", name="c").click()
    assert page.locator("#chooser").evaluate("s => s.options[s.selectedIndex].text") == "c"


def test_many_runs_are_counted_by_verdict(open_page, tmp_path):
    costs = {"b": 0.003, "a": 0.05, "c": 0.0007}
    page = open_page(report(tmp_path, *(write_run(tmp_path / n, costs=(c, 0.02)) for n, c in costs.items())))
    assert page.locator("#tally").inner_text().split() == ["2", "✓", "within", "1", "✕", "over"]


def test_an_axis_of_powers_has_numbers_on_it(open_page, tmp_path):
    page = open_page(report(tmp_path, write_run(tmp_path / "run")))
    assert page.evaluate("T.powers(0, 264000, 1200)") == [0, 1000, 10_000, 100_000]
    assert page.evaluate("T.powers(0, 0.9, 0.001)") == [0, 0.001, 0.01, 0.1]
    assert len(page.evaluate("T.powers(2, 8, 1)")) >= 2


def test_a_name_in_a_command_is_one_word(open_page, tmp_path):
    page = open_page(report(tmp_path, write_run(tmp_path / "run")))
    assert page.evaluate("T.quoted('runs/a-1')") == "runs/a-1"
    assert page.evaluate("""T.quoted("it's $(x)")""") == "'it'\"'\"'s $(x)'"


def test_a_table_can_be_copied(open_page, tmp_path):
    folders = [write_run(tmp_path / name) for name in "ab"]
    page = open_page(report(tmp_path, *folders), permissions=["clipboard-read", "clipboard-write"])
    page.locator("[data-table=uav-mec]").get_by_role("button", name="Copy as Markdown").click()
    page.get_by_role("button", name="copied").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.splitlines()[0].startswith("| run | algorithm | verdict | reward |")
    assert len(text.splitlines()) == 4


def test_names_are_text_whatever_they_say(open_page, tmp_path):
    folders = [write_run(tmp_path / name) for name in (NASTY.replace("/", "\\"), "two")]
    content = page_content(folders)
    assert content["runs"][0]["name"].startswith("<script>")
    for run in content["runs"]:
        run |= {"title": f"{NASTY} on {NASTY}", "env": NASTY, "algo": NASTY, "problems": [NASTY]}
    content["groups"][0]["table"]["rows"][0][0] = NASTY
    page = open_page(write_page(tmp_path / "report.html", content))
    assert page.evaluate("window.hacked") is None
    assert page.locator("#heading h1").inner_text() == f"{NASTY} on {NASTY}"
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "2 runs"


def test_the_policy_of_the_page_stops_scripts_that_get_in(open_page, tmp_path):
    path = report(tmp_path, write_run(tmp_path / "run"))
    path.write_text(path.read_text().replace("</body>", "<script>window.hacked=1</script></body>"))
    page = open_page(path)
    assert page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in text for text in open_page.complaints)
    open_page.complaints.clear()


def test_damage_is_said_in_the_page(open_page, tmp_path):
    folder = write_run(tmp_path / "run")
    lines = (folder / "records.jsonl").read_text().splitlines()
    (folder / "records.jsonl").write_text("\n".join([*lines[:5], "{broken", *lines[6:]]))
    other = write_run(tmp_path / "other")
    (other / "run.json").write_text("{")
    page = open_page(report(tmp_path, folder, other))
    assert "damaged at line 6" in page.get_by_role("alert").first.inner_text()
    page.locator("#chooser").select_option(label="other")
    assert "is not JSON" in page.get_by_role("alert").first.inner_text()


def test_a_page_whose_data_are_torn_says_so(open_page, tmp_path):
    path = report(tmp_path, write_run(tmp_path / "run"))
    path.write_text(path.read_text().replace('"runs":[', '"runs":[[', 1))
    page = open_page(path)
    assert "cannot be shown" in page.get_by_role("alert").inner_text()
    open_page.complaints.clear()


def test_light_and_dark_are_a_button_apart_and_keys_reach_everything(open_page, tmp_path):
    page = open_page(report(tmp_path, write_run(tmp_path / "run")))
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.className + document.activeElement.tagName"))
    assert {"plotDIV", "BUTTON"} <= seen


def test_a_hundred_runs_and_a_million_lines_stay_responsive(open_page, tmp_path):
    """One run's records are repeated to a million lines: what is read is bounded, and so is the page."""
    folders = [write_run(tmp_path / f"run{i:02}", rounds=100, finished=i % 2 == 0) for i in range(100)]
    line = (folders[0] / "records.jsonl").read_text().splitlines()
    with (folders[0] / "records.jsonl").open("w") as file:
        for k in range(10_000):
            file.write("\n".join(text.replace('"round": ', f'"round": {k}', 1) for text in line) + "\n")
    began = time.monotonic()
    path = report(tmp_path, *folders)
    made = time.monotonic() - began
    assert path.stat().st_size < 5_000_000
    began = time.monotonic()
    page = open_page(path)
    assert time.monotonic() - began < 10
    assert page.locator("[data-table=uav-mec] tbody tr").count() == 100
    began = time.monotonic()
    page.locator("[data-table=uav-mec]").get_by_role("button", name="reward").click()
    page.locator("#chooser").select_option(index=50)
    until(page, "document.querySelector('#heading').textContent.includes('run50')")
    assert time.monotonic() - began < 5
    print(f"read and written in {made:.1f} s")
