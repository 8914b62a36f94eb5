"""A real browser for tests: Debian's Chromium, what it says, what it asks for, how it looks.

Screenshots go to the folder that FLIPMETER_SCREENSHOTS names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
pytest.importorskip("axe_playwright_python", reason="make test-browser installs it")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}


@contextmanager
def launched() -> Iterator[Browser]:
    """Start a browser."""
    if CHROMIUM is None:
        pytest.fail("no chromium on the path: install Debian's package `chromium`")
    with sync_playwright() as playwright:
        # Chromium has no sandbox for root, and CI often is root; the pages here are our own.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser, address: str, allowed: str, *, width: int = 1280, **options: Any
) -> Iterator[Page]:
    """Open an address; the console stays empty, and only what begins as allowed is asked for."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    page = context.new_page()
    page.set_default_timeout(120_000)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    assert said == []
    assert [url for url in asked if not url.startswith(("data:", allowed))] == []
    context.close()


def snap(page: Page, name: str) -> None:
    """Keep the first screens of a page, if somebody wants to look."""
    folder = os.environ.get("FLIPMETER_SCREENSHOTS")
    if folder:
        size: dict[str, Any] = page.viewport_size or {}
        height = min(5_000, page.evaluate("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height}
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True, clip=clip)


def violations(page: Page) -> list[str]:
    """Return what keeps somebody from using a page, by WCAG A and AA."""
    found = Axe().run(page, options=RULES).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]
