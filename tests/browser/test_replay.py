"""The replay in Chromium: it plays to the end, stands where the record stands, and answers when an agent is clicked."""

from __future__ import annotations

import numpy as np
import pytest
from support.browser import until
from support.records import write_run

from trident.report.page.content import page_content
from trident.report.page.document import write_page
from trident.simulation import watching

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(played, tmp_path_factory):
    env, name, episodes = played
    spec, folder = env.spec, tmp_path_factory.mktemp("replay")
    tracks = [watching.track(env, spec, who, e) for who, e in zip((name, "other"), episodes, strict=True)]
    tracks[0]["cost"][11] = [1.0] * spec.num_constraints  # a limit broken in step 12
    replay = watching.about(env, spec) | {"played": 2, "shielded": False, "left_out": []}
    replay["episodes"] = [{"rank": "worst", "number": 1, "tracks": tracks}]
    run = write_run(folder / "run", env="navigation")
    return write_page(folder / "report.html", page_content([run], replays={run: replay}))


@pytest.fixture
def page(open_page, report):
    opened = open_page(report)
    opened.locator("#replay").scroll_into_view_if_needed()
    return opened


def step(page):
    return int(page.locator(".player").get_attribute("data-step"))


def test_it_plays_to_the_last_step_and_stops(page, played):
    length = len(played[2][0].steps.reward)
    page.locator("[aria-label=speed]").select_option("8")
    page.locator("#play").click()
    until(page, f"document.querySelector('.player').dataset.step === '{length}'")
    until(page, "document.querySelector('#play').textContent === '▶'")
    assert f"{length} / {length}" in page.locator(".player .clock").inner_text()


def test_agents_stand_where_the_record_says(page, played):
    """A click on the place that the record gives finds the agent, at any step, and the page has the same numbers."""
    env, _, (episode, _) = played
    half = float(env.scene(episode.states).map.view_at(0)[2])
    canvas = page.locator("canvas.map").first
    for t in (0, 17, 30):
        page.locator(".timeline input").evaluate("(i, t) => { i.value = t; i.dispatchEvent(new Event('input')); }", t)
        box = canvas.bounding_box()
        for agent in (0, env.spec.num_agents - 1):
            x, y = np.asarray(episode.states.pos)[t, agent].tolist()
            page.mouse.click(
                box["x"] + box["width"] * (x + half) / (2 * half), box["y"] + box["height"] * (half - y) / (2 * half)
            )
            assert page.locator(".player aside h3").inner_text().startswith(f"Agent {agent + 1},")
    shown = page.evaluate("T.start.shown.content.runs[0].replay.episodes[0].tracks[0].scene.agents[17]")
    np.testing.assert_allclose(shown, np.asarray(episode.states.pos)[17], atol=2 * half / 4000)


def test_scrubbing_steps_keys_and_marks(page):
    page.locator(".player").focus()
    for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 30), ("Home", 0)):
        page.keyboard.press(key)
        assert step(page) == expected
    page.get_by_role("button", name="one step on").click()
    assert step(page) == 1
    events = page.locator(".timeline canvas")
    box = events.bounding_box()
    at = 7 + (box["width"] - 14) * 12 / 30
    red, blank = events.evaluate(
        """(c, at) => [at, at + 20].map(a => c.getContext("2d", {willReadFrequently: true})
            .getImageData(Math.round(a * c.width / c.clientWidth), 3, 1, 1).data[3])""",
        at,
    )
    assert red > 0
    assert blank == 0


def test_an_agent_tells_what_it_did_and_saw(page, played):
    env, _, (episode, _) = played
    page.locator(".player").focus()
    page.keyboard.press("ArrowRight")
    page.locator(".player .chips button").nth(1).click()
    text = page.locator(".player aside").inner_text()
    assert "Agent 2," in text
    assert "Step 1: what it did" in text
    assert f"What it saw before: {env.spec.obs_dim} numbers" in text
    assert "This step, expected and come true" in text
    page.locator(".player aside summary").click()
    numbers = page.locator(".player aside code").inner_text().replace("−", "-").split()
    np.testing.assert_allclose(np.array(numbers, float), episode.first.obs[1], rtol=0.02, atol=1e-3)


def test_an_agent_chosen_by_key_keeps_the_keys(page):
    chip = page.locator(".player .chips button").nth(1)
    chip.focus()
    page.keyboard.press("Enter")
    assert chip.get_attribute("aria-pressed") == "true"
    page.keyboard.press("ArrowRight")
    assert step(page) == 1
    assert page.evaluate("document.activeElement.textContent") == "2"


def test_two_policies_side_by_side_or_one(page):
    assert page.locator("canvas.map").count() == 2
    page.get_by_role("button", name="beside other").click()
    assert page.locator("canvas.map").count() == 1
    assert page.locator("canvas.map").first.evaluate(
        "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size > 20"
    )


def test_the_map_is_painted_anew_when_the_theme_changes(page):
    before = page.locator("canvas.map").first.evaluate("c => c.toDataURL()")
    page.locator("#theme").click()
    assert page.locator("canvas.map").first.evaluate("c => c.toDataURL()") != before
