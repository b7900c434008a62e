"""A real browser, headless; whatever it complains of fails the test that made it."""

from __future__ import annotations

import os

import jax
import pytest

from trident.envs.navigation import Navigation
from trident.simulation.episode import play_many
from trident.simulation.step import scripted

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = os.environ.get("TRIDENT_CHROMIUM", "/usr/bin/chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="session")
def chromium():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def played():
    """(environment, name of a scripted policy, two of its episodes of 30 steps)"""
    env = Navigation()
    name = next(iter(env.scripted))
    return env, name, play_many(env, scripted(env, name), jax.random.split(jax.random.key(0), 2), 30)


@pytest.fixture
def open_page(chromium):
    """Opens an address; afterwards nothing may have been logged or asked of anybody else."""
    contexts, complaints, asked = [], [], []

    def heard(text):
        if "willReadFrequently" not in text:  # a test that looks at pixels
            complaints.append(text)

    def open_(address, width=1280, height=800, scheme="light", wait=True, **more):
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address if "://" in str(address) else f"file://{address}")
        if wait:
            page.wait_for_selector("main[aria-busy=false]")
        return page

    open_.complaints, open_.asked = complaints, asked
    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:"))] == []
