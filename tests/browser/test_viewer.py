"""The viewer in a real browser, started as people start it."""

from __future__ import annotations

import csv
import json
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")

from chromium import launched, snap, violations
from chromium import opened as opened_at
from playwright.sync_api import Browser, Page, expect

from flipmeter.run.heartbeat import PROGRESS
from report_runs import hostile, many, simulated

expect.set_options(timeout=120_000)

Scheme = Literal["light", "dark"]
PAGES = {
    "list": "",
    "report": "run/plain",
    "together": "run/plain,weak",
    "flips": "run/many/flips",
    "flip": "run/many/flips",
    "items": "run/many/items",
    "item": "run/many/items",
    "slices": "run/many/slices?by=length",
    "notes": "run/many/notes",
    "compare": "compare?first=weak&second=plain",
    "watch": "run/going",
    "problem": "run/nothing",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    simulated(root / "plain", models=["sim/first-slot?strength=4"])
    simulated(root / "weak", models=["sim/first-slot?strength=1"])
    many(root / "many")
    hostile(root / "hostile")
    beat(root / "going")
    return root


def beat(folder: Path, asked: int = 200) -> None:
    """Write what a run in progress leaves; the process is this one."""
    told = {
        "study": "going",
        "pid": os.getpid(),
        "host": platform.node(),
        "started": time.time() - 60,
        "seen": time.time() + 3_600,  # tests take their time
        "planned": 2_000,
        "stored": 300,
        "asked": asked,
        "failed": 3,
        "retried": 7,
        "per_second": 12.5,
        "prompt_tokens": 40_000,
        "completion_tokens": 1_000,
        "usd": 0.1234,
        "is_dearest": False,
        "decided": 150,
        "faults": {"refused": 4, "unparsed": 1},
        "doors": [
            {
                "server": "http://127.0.0.1:8080/v1 a-model-with-a-rather-long-name",
                "in_use": 3,
                "permits": 4,
                "limit": 32,
                "was_crowded": True,
                "pause": 2.4,
            }
        ],
    }
    folder.mkdir(exist_ok=True)
    (folder / "new").write_text(json.dumps(told), encoding="utf-8")
    (folder / "new").replace(folder / PROGRESS)


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    """Start the viewer by its verb; it says where it is on stdout."""
    command = "from flipmeter.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "view", str(runs)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    watchdog = threading.Timer(300, process.kill)
    watchdog.start()
    address = process.stdout.readline().strip()
    watchdog.cancel()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    yield address
    process.terminate()
    process.wait(60)
    process.stdout.close()


@contextmanager
def opened(browser: Browser, address: str, path: str = "", **options: Any) -> Iterator[Page]:
    """Open a page of the viewer; nothing but the viewer is asked for anything."""
    with opened_at(browser, address + path, address, **options) as page:
        yield page


def reach(page: Page, name: str) -> None:
    """Wait for what a page comes to in the end."""
    if name in ("report", "together"):
        expect(page.locator("#origin")).to_be_visible()
    elif name == "compare":
        expect(page.locator("table.differences")).to_be_visible()
    elif name == "flip":
        page.locator(".drill a").first.click()
        expect(page.locator("pre.prompt")).to_have_count(2)
    elif name == "item":
        page.locator(".explorer tbody a").first.click()
        expect(page.locator("table.answers")).to_be_visible()
    elif name == "slices":
        expect(page.locator("table.slices")).to_be_visible()


@contextmanager
def at(browser: Browser, address: str, name: str, **options: Any) -> Iterator[Page]:
    if name == "problem":  # a browser says on its console that a page is not there
        context = browser.new_context(
            viewport={"width": options.pop("width", 1280), "height": 900}, **options
        )
        page = context.new_page()
        page.goto(address + PAGES[name])
        yield page
        context.close()
        return
    with opened(browser, address, PAGES[name], **options) as page:
        reach(page, name)
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_everybody_can_use_every_page(
    browser: Browser, address: str, name: str, scheme: Scheme
) -> None:
    # Our policy forbids the rules' own script too, so it is set aside for them.
    with at(browser, address, name, color_scheme=scheme, bypass_csp=True) as page:
        snap(page, f"view-{name}-{scheme}")
        assert violations(page) == []


@pytest.mark.parametrize("width", [320, 768, 1920])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_its_window(browser: Browser, address: str, name: str, width: int) -> None:
    with at(browser, address, name, width=width) as page:
        snap(page, f"view-{name}-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_from_the_list_to_a_flipped_item_and_back(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.get_by_role("link", name="many", exact=True).click()
        reach(page, "report")
        page.get_by_role("link", name="Browse all").click()
        form = page.get_by_role("form", name="Filter the flipped items")
        form.get_by_label("Model").select_option("sim/first-slot?strength=3")
        form.get_by_label("Contrast").select_option("P1")
        form.get_by_label("Order").select_option("distance")
        form.get_by_role("button", name="Show").click()
        expect(page.get_by_role("status")).to_contain_text("flips that match")
        rows = page.locator(".drill li")
        assert set(rows.locator("> .code").all_inner_texts()) == {"P1"}
        expect(form.get_by_label("Contrast")).to_have_value("P1")
        texts = rows.locator(".meta").all_inner_texts()
        distances = [int(found[1]) for text in texts if (found := re.search(r"ance (\d)", text))]
        assert len(distances) == len(texts)
        assert distances == sorted(distances, reverse=True)
        rows.locator("a").first.click()
        prompts = page.locator("pre.prompt")
        expect(prompts).to_have_count(2)
        expect(prompts.first.locator("mark").first).to_be_visible()
        assert page.locator("pre.reply").count() == 2
        page.get_by_role("link", name="Back to the flips").click()
        expect(form.get_by_label("Contrast")).to_have_value("P1")
        expect(form.get_by_label("Order")).to_have_value("distance")


def test_pages_follow_each_other(browser: Browser, address: str) -> None:
    with opened(browser, address, "run/many/flips") as page:
        first = page.locator(".drill .meta").all_inner_texts()
        assert len(first) == 50
        page.get_by_role("link", name="Next").click()
        expect(page.get_by_role("status")).to_contain_text("51–100 of")
        assert page.locator(".drill .meta").all_inner_texts() != first
        page.get_by_role("link", name="Previous").click()
        expect(page.get_by_role("status")).to_contain_text("1–50 of")
        assert page.locator(".drill .meta").all_inner_texts() == first
        page.get_by_role("link", name="Last").click()
        expect(page.get_by_role("link", name="Next")).to_have_count(0)


def test_runs_are_sorted_by_any_column(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        head = page.locator("thead th", has_text="decisions")
        head.get_by_role("button").click()
        cells = page.locator('tbody td[data-head="decisions"]')
        n = cells.evaluate_all("all => all.map(one => Number(one.dataset.sort))")
        assert n == sorted(n)
        assert len(set(n)) > 2


@pytest.mark.parametrize("has_scripts", [True, False])
def test_ticked_runs_open_as_one(browser: Browser, address: str, has_scripts: bool) -> None:
    with opened(browser, address, java_script_enabled=has_scripts) as page:
        for name in ("plain", "weak"):
            page.get_by_role("checkbox", name=f"read {name} as part of one").focus()
            page.keyboard.press("Space")
        page.get_by_role("button", name="Open together").focus()
        page.keyboard.press("Enter")
        reach(page, "together")
        assert set(page.url.rpartition("/")[2].split(",")) == {"plain", "weak"}
        expect(page.get_by_role("banner")).to_contain_text("Read as one run: ")
        page.get_by_role("link", name="Browse all").click()
        models = page.get_by_label("Model").locator("option").all_inner_texts()
        assert [name.partition(" ")[0] for name in models[1:]] == [
            "sim/first-slot?strength=1",
            "sim/first-slot?strength=4",
        ]
        page.locator(".drill a").first.click()
        expect(page.locator("pre.prompt")).to_have_count(2)


def test_two_runs_are_compared(browser: Browser, address: str) -> None:
    with opened(browser, address, "compare") as page:
        form = page.get_by_role("form", name="The two runs")
        form.get_by_label("First").select_option("weak")
        form.get_by_label("Second").select_option("plain")
        form.get_by_role("button", name="Compare").click()
        reach(page, "compare")
        expect(page.get_by_role("heading", level=1)).to_have_text("plain minus weak")
        assert page.locator("table.differences tbody tr").count() > 3


def test_a_run_in_progress_keeps_up(browser: Browser, address: str, runs: Path) -> None:
    with opened(browser, address, "run/going") as page:
        replies = page.locator('[data-live="replies"]')
        expect(replies).to_have_text("500 of 2,000, 300 were stored")
        beat(runs / "going", asked=900)
        expect(replies).to_have_text("1,200 of 2,000, 300 were stored")
        assert page.locator("progress").evaluate("one => one.value") == 1200
        expect(page.locator('[data-rows="doors"] tr')).to_have_count(1)
        expect(page.locator('[data-rows="rates"] tr')).to_have_text("no pair of answers yet")
        beat(runs / "going")


def test_the_keyboard_alone_is_enough(browser: Browser, address: str) -> None:
    with opened(browser, address, "run/many/flips?contrast=P1") as page:
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        for _ in range(20):
            page.keyboard.press("Tab")
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert page.evaluate(outline) != "none"
            if page.evaluate("document.activeElement.closest('.drill') !== null"):
                break
        page.keyboard.press("Enter")
        expect(page.locator("pre.prompt")).to_have_count(2)


def test_no_text_of_a_model_acts(browser: Browser, address: str) -> None:
    with opened(browser, address, "run/hostile/flips") as page:
        links = page.locator(".drill a").evaluate_all("all => all.map(one => one.href)")
        assert len(links) > 3
        for link in [*links, address + "run/hostile"]:
            page.goto(link)
            page.mouse.move(400, 400)
            assert "owned" not in page.title()
            assert page.evaluate("document.images.length") == 0
            sources = "[...document.scripts].map(one => one.getAttribute('src'))"
            assert set(page.evaluate(sources)) <= {"/assets/page.js", "/assets/view.js"}


def test_everything_works_without_scripts(browser: Browser, address: str) -> None:
    with opened(browser, address, "run/many/flips", java_script_enabled=False) as page:
        page.get_by_label("Contrast").select_option("P1")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("status")).to_contain_text("flips that match")
        page.locator(".drill a").first.click()
        expect(page.locator("pre.prompt")).to_have_count(2)


def test_j_and_k_go_through_items_unless_switched_off(browser: Browser, address: str) -> None:
    with opened(browser, address, "run/plain/items?show=flipped") as page:
        page.locator(".explorer tbody a").first.click()
        place = page.get_by_label("item before and after")
        expect(place).to_contain_text("item 1 of")
        page.keyboard.press("j")
        expect(place).to_contain_text("item 2 of")
        page.keyboard.press("k")
        expect(place).to_contain_text("item 1 of")
        page.get_by_label("Note").press("j")  # written, not gone to
        expect(place).to_contain_text("item 1 of")
        page.get_by_role("checkbox").uncheck()
        page.locator("h1").click()
        page.keyboard.press("j")
        page.reload()
        expect(place).to_contain_text("item 1 of")
        expect(page.get_by_role("checkbox")).not_to_be_checked()
        page.get_by_role("link", name="Next").click()
        expect(place).to_contain_text("item 2 of")


def test_notes_stay_in_the_browser_and_leave_as_csv(browser: Browser, address: str) -> None:
    with opened(browser, address, "run/plain/items") as page:
        page.locator(".explorer tbody a").first.click()
        name = page.locator("h1 bdi").inner_text()
        page.get_by_label("Tags").fill("sarcasm, short")
        page.get_by_label("Note").fill('=1+1 "quoted"\nsecond line')
        page.locator("h1").click()
        expect(page.get_by_role("status")).to_have_text("Saved in this browser.")
        page.get_by_role("link", name="Back to the items").click()
        expect(page.locator(".told")).to_contain_text("sarcasm, short")
        page.get_by_role("link", name="Notes").click()
        expect(page.get_by_role("status")).to_have_text("1 item with notes or tags")
        with page.expect_download() as started:
            page.get_by_role("button", name="Save as CSV").click()
        rows = list(csv.DictReader(started.value.path().read_text().splitlines(keepends=True)))
        assert [(row["item"], row["tags"]) for row in rows] == [(name, "sarcasm, short")]
        assert rows[0]["note"].startswith("'=1+1")
        page.get_by_role("link", name=name).click()
        expect(page.get_by_label("Tags")).to_have_value("sarcasm, short")


def test_a_selection_is_saved_by_name(browser: Browser, address: str) -> None:
    with opened(browser, address, "run/plain/slices?by=length") as page:
        page.get_by_label("Save this selection as").fill("by <b>length</b>")
        page.keyboard.press("Enter")
        page.goto(address + "run/plain/slices")
        page.get_by_role("link", name="by <b>length</b>").click()
        expect(page.get_by_label("Slice by")).to_have_value("length")
        page.get_by_role("button", name="Remove by").click()
        expect(page.locator(".saver li")).to_have_count(0)


def test_a_prompt_is_copied_as_it_was_sent_and_opens_at_the_item(
    browser: Browser, address: str
) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with opened(browser, address, "run/plain/flips", permissions=permissions) as page:
        page.locator(".drill a").first.click()
        prompt = page.locator("pre.prompt").first
        own = prompt.locator(".own").last
        assert prompt.evaluate(
            "one => { const own = [...one.querySelectorAll('.own')].at(-1).getBoundingClientRect();"
            "const box = one.getBoundingClientRect();"
            "return own.top >= box.top && own.top < box.bottom }"
        )
        page.get_by_role("button", name="Copy the prompt").first.click()
        expect(page.get_by_role("button", name="Copy the prompt").first).to_have_text("Copied")
        sent = page.request.get(address.rstrip("/") + str(prompt.get_attribute("data-raw"))).text()
        assert page.evaluate("navigator.clipboard.readText()") == sent
        assert own.inner_text() in sent


def test_the_explorer_works_without_scripts(browser: Browser, address: str) -> None:
    with opened(browser, address, "run/many/items", java_script_enabled=False) as page:
        page.get_by_label("Contrast").select_option("P1")
        page.get_by_label("Text", exact=True).fill("ticket")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("status")).to_contain_text("items that match")
        page.locator(".explorer tbody a").first.click()
        page.locator(".answers td a").first.click()
        expect(page.locator("pre.prompt")).to_have_count(2)
