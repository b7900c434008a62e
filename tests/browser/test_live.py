"""The live page in Chromium: it grows while a run does, and its button stops a training as Ctrl-C would."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import pytest
from support.browser import until
from support.records import record, write_run

from trident.report.page.content import page_content
from trident.report.page.document import write_page
from trident.report.page.server import serving
from trident.run_directory import read_run
from trident.simulation import watching

pytestmark = pytest.mark.browser


@pytest.fixture
def address(tmp_path):
    with serving([tmp_path]) as (server, address):
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield address
        server.shutdown()


def points(page):
    return page.evaluate("[...T.charts].find(c => c.spec && c.spec.name === 'reward').uplot.data[0].length")


def test_the_page_grows_with_the_run_and_keeps_what_one_looks_at(address, open_page, tmp_path):
    folder = write_run(tmp_path / "run", rounds=50, done=12, finished=False)
    page = open_page(address)
    page.locator('[data-chart="reward"]').scroll_into_view_if_needed()
    until(page, "[...T.charts].some(c => c.spec && c.spec.name === 'reward' && c.uplot)")
    assert points(page) == 12
    page.evaluate("document.querySelector('[data-chart=reward]').marked = true")
    with (folder / "records.jsonl").open("a") as file:
        for round_ in (13, 14):
            file.write(json.dumps(record(round_, (0.4, 0.02), 3)) + "\n")
    until(page, "document.querySelector('#status').textContent.includes('round 14 of 50')")
    assert points(page) == 14
    assert page.evaluate("document.querySelector('[data-chart=reward]').marked") is True  # not built anew
    assert "Over its limit: energy" in page.locator(".verdict").inner_text()


def test_new_runs_join_the_list(address, open_page, tmp_path):
    write_run(tmp_path / "a", finished=False, done=3)
    page = open_page(address)
    write_run(tmp_path / "b")
    until(page, "document.querySelectorAll('[data-table] tbody tr').length === 2")
    assert page.locator("h1").first.inner_text() == "2 runs"


def test_the_stop_button_waits_for_its_second_click_while_news_come(address, open_page, tmp_path):
    folder = write_run(tmp_path / "run", rounds=50, done=3, finished=False)
    page = open_page(address)
    page.locator("#stop").click()
    with (folder / "records.jsonl").open("a") as file:
        file.write(json.dumps(record(4, (0.004, 0.02), 3)) + "\n")
    page.evaluate("T.start.shown.live.ask()")
    until(page, "document.querySelector('#status').textContent.includes('round 4 of 50')")
    assert page.locator("#stop").inner_text() == "Stop after this round?"
    assert page.evaluate("document.activeElement.id") == "stop"
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#stop').textContent === 'stopping after this round'")
    assert (folder / "stop").exists()


def test_a_run_that_ends_brings_its_episodes(address, open_page, played, tmp_path):
    env, name, (episode, _) = played
    replay = watching.about(env, env.spec) | {"played": 1, "shielded": False, "left_out": []}
    replay["episodes"] = [{"rank": "worst", "number": 1, "tracks": [watching.track(env, env.spec, name, episode)]}]
    folder = write_run(tmp_path / "run", env="navigation", done=20, finished=False)
    (folder / "run.json").write_text((folder / "run.json").read_text().replace('"rounds": 20', '"rounds": 21'))
    page = open_page(address)
    with (folder / "records.jsonl").open("a") as file:
        file.write(json.dumps(record(21, (0.004, 0.02), 3)) + "\n")
    write_page(folder / "report.html", page_content([folder], replays={folder: replay}))
    until(page, "document.querySelector('.player') !== null")
    page.locator("#play").click()
    until(page, "document.querySelector('.player').dataset.step === '30'")


def test_a_page_whose_server_has_ended_says_so(open_page, tmp_path):
    write_run(tmp_path / "run", finished=False, done=3)
    with serving([tmp_path]) as (server, address):
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        page = open_page(address)
        server.shutdown()
    until(page, "document.querySelector('#alive').textContent.includes('ended')")
    open_page.complaints.clear()  # the browser logs that nobody answers


def test_train_page_shows_the_run_and_its_button_stops_and_saves(open_page, tmp_path):
    out = tmp_path / "run"
    words = ["train", "probe-unsafe-start", "--algo", "mappo", "--algo.envs", "8", "--algo.steps", "16", "--seeds", "1",
             "--episodes", "1000000", "--no-video", "--page", "--out", str(out)]  # fmt: skip
    child = subprocess.Popen([sys.executable, "-m", "trident", *words], stdout=subprocess.PIPE, text=True)
    try:
        address = child.stdout.readline().removeprefix("the page: ").strip()
        assert address.startswith("http://127.0.0.1:")
        until = time.monotonic() + 240
        while not (out / "records.jsonl").exists() and time.monotonic() < until:
            time.sleep(0.2)
        page = open_page(address)
        page.wait_for_selector("#stop", timeout=30_000)
        page.locator("#stop").click()
        page.get_by_role("button", name="Stop after this round?").click()
        assert child.wait(timeout=60) == 130
        said = child.stdout.read()
        assert "stopping, as the page asked" in said
        assert "to go on: trident resume" in said
        assert read_run(out)["rounds"] > len((out / "records.jsonl").read_text().splitlines()) > 0
        assert list((out / "checkpoints").iterdir())
        assert not (out / "stop").exists()
        page.context.close()
    finally:
        child.kill()
    open_page.complaints.clear()  # the server has gone with the training
