"""The report in a real browser: it opens offline, only our own script acts, all can use it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl

import pytest

pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
pytest.importorskip("axe_playwright_python", reason="make test-browser installs it")

from chromium import launched, snap, violations
from chromium import opened as opened_at
from playwright.sync_api import Browser, Page, expect

from flipmeter.run.folder import Run
from flipmeter.show.next_steps import findings
from flipmeter.show.whole import write_report
from report_runs import hostile, many, simulated

Scheme = Literal["light", "dark"]
RUNS: dict[str, Callable[[Path], Run]] = {
    "plain": lambda folder: simulated(folder, models=["sim/first-slot?strength=4"]),
    "many": many,
    "hostile": hostile,
    "none": lambda folder: simulated(folder, models=["sim/honest"]),
    "faults": lambda folder: simulated(folder, models=["sim/refusing?strength=1"]),
    "stopped": lambda folder: simulated(folder, budget={"calls": 155}, block_size=15),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that gives the report of a run by name, written once."""
    root = tmp_path_factory.mktemp("reports")

    def report(name: str) -> Path:
        path = root / f"{name}.html"
        if not path.exists():
            write_report(findings(RUNS[name](root / name)), path)
        return path

    return report


@contextmanager
def opened(browser: Browser, path: Path, *, width: int = 1280, **options: Any) -> Iterator[Page]:
    """Open a file, which is all that is asked for."""
    with opened_at(browser, path.as_uri(), path.as_uri(), width=width, **options) as page:
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", RUNS)
def test_everybody_can_read_the_report(
    browser: Browser, reports: Callable[[str], Path], name: str, scheme: Scheme
) -> None:
    """No violation of WCAG A or AA, with some of everything that can be opened open."""
    # Our policy forbids the rules' own script too, so it is set aside for them.
    with opened(browser, reports(name), color_scheme=scheme, bypass_csp=True) as page:
        snap(page, f"{name}-{scheme}")
        page.evaluate(
            "document.querySelectorAll("
            "'.flip:nth-child(-n+3), #prompts + p + .frame, figure details')"
            ".forEach(one => { one.open = true })"
        )
        assert violations(page) == []


@pytest.mark.parametrize("width", [320, 768, 1280, 1920])
@pytest.mark.parametrize("name", ["plain", "many", "hostile"])
def test_the_page_fits_its_window(
    browser: Browser, reports: Callable[[str], Path], name: str, width: int
) -> None:
    with opened(browser, reports(name), width=width) as page:
        snap(page, f"{name}-{width}")
        if page.locator("details.flip").count():
            page.locator("details.flip > summary").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["plain", "many"])
def test_verdicts_and_rates_need_no_scrolling_on_a_phone(
    browser: Browser, reports: Callable[[str], Path], name: str
) -> None:
    with opened(browser, reports(name), width=320) as page:
        for kind in ("table.matrix", "#flips table.forest"):
            table = page.locator(kind).first
            frame = table.locator("xpath=..")
            assert frame.evaluate("one => one.scrollWidth - one.clientWidth") <= 1
            word = table.locator(".flips").first.bounding_box()
            assert word is not None
            assert word["x"] + word["width"] <= 320


def test_the_mark_of_a_verdict_stands_beside_its_word(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("plain")) as page:
        gap = page.locator(".verdict a").first.evaluate(
            """one => {
                one.style.width = "4rem";
                const top = (part) => part.getBoundingClientRect().top;
                return top(one.firstElementChild) - top(one);
            }"""
        )
        assert gap < 12


def test_only_long_tables_scroll_in_frames(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("faults")) as page:
        hidden = "all => all.map(one => one.scrollHeight - one.clientHeight)"
        assert max(page.locator(".scroll:not(.tall)").evaluate_all(hidden)) <= 1
        rows = "all => all.map(one => one.querySelectorAll('tbody tr').length)"
        assert all(n > 12 for n in page.locator(".scroll.tall").evaluate_all(rows))


def test_the_change_by_level_fits_a_window_of_1280(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("many")) as page:
        frame = page.locator("#levels .scroll").first
        assert frame.evaluate("one => one.scrollWidth - one.clientWidth") <= 1


def test_verdicts_under_six_contrasts_with_noise_fit_a_window_of_1280(
    browser: Browser, tmp_path: Path
) -> None:
    levels = {"label_format": ["natural_language"]}
    run = simulated(tmp_path / "run", models=["sim/noisy"], test_size=30, repeats=2, vary=levels)
    write_report(findings(run), tmp_path / "noisy.html")
    with opened(browser, tmp_path / "noisy.html") as page:
        assert page.locator(".matrix .verdict").filter(has_text="beyond").count()
        frame = page.locator(".scroll:has(.matrix)").first
        assert frame.evaluate("one => one.scrollWidth - one.clientWidth") <= 1


def test_filters_leave_what_fits_and_say_how_many(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("many")) as page:
        flips = page.locator("details.flip")
        total = flips.count()
        form = page.locator("form.filters")
        form.get_by_label("Model").select_option("sim/first-slot?strength=3")
        form.get_by_label("Dataset").select_option("tickets")
        form.get_by_label("Contrast").select_option("P1")
        form.get_by_label("Distance").select_option("2")
        wanted = page.locator(
            'details.flip[data-rater="sim/first-slot?strength=3"][data-dataset="tickets"]'
            '[data-contrast="P1"][data-distance="2"]'
        )
        n = wanted.count()
        assert 0 < n < total
        expect(page.get_by_role("status")).to_have_text(f"{n} of {total} flips fit")
        assert page.locator("details.flip:visible").count() == min(n, 50)
        page.get_by_role("button", name="Show all").click()
        expect(page.get_by_role("status")).to_contain_text("are on this page")
        assert page.locator("details.flip:visible").count() == 50
        page.get_by_role("button", name="more of").click()
        assert page.locator("details.flip:visible").count() == 100
        form.get_by_label("Text").fill("no text says this")
        expect(page.get_by_role("status")).to_have_text(f"0 of {total} flips fit")


def test_the_order_can_be_the_farthest_first(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("many")) as page:
        page.locator("form.filters").get_by_label("Order").select_option("distance")
        distances = page.locator("details.flip").evaluate_all(
            "all => all.map(one => Number(one.dataset.distance))"
        )
        assert distances == sorted(distances, reverse=True)
        assert distances[0] > distances[-1]


def test_a_table_sorts_by_any_column(browser: Browser, reports: Callable[[str], Path]) -> None:
    with opened(browser, reports("plain")) as page:
        head = page.locator("#flips table.forest thead th", has_text="flips [95 %]")
        cells = page.locator("#flips table.forest tbody tr:not(.group) td:nth-child(3)")
        read = "all => all.map(one => Number(one.dataset.sort))"
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        rising = cells.evaluate_all(read)
        assert rising == sorted(rising)
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert cells.evaluate_all(read) == rising[::-1] != rising


def test_a_flipped_item_opens_with_its_two_prompts(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("plain")) as page:
        flip = page.locator("details.flip").first
        flip.locator("summary").click()
        prompts = flip.locator("pre.prompt")
        expect(prompts).to_have_count(2)
        text = flip.locator(".text").inner_text()
        for prompt in prompts.all():
            expect(prompt).to_contain_text(text)
            expect(prompt.locator("mark").first).to_be_visible()
        assert prompts.nth(0).inner_text() != prompts.nth(1).inner_text()
        assert flip.locator(".reply").count() == 2
        flip.locator("summary").click()
        flip.locator("summary").click()
        expect(prompts).to_have_count(2)


def test_the_keyboard_alone_is_enough(browser: Browser, reports: Callable[[str], Path]) -> None:
    with opened(browser, reports("plain")) as page:
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#verdict"
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        seen = set()
        for _ in range(80):
            page.keyboard.press("Tab")
            assert page.evaluate(outline) != "none"
            seen.add(page.evaluate("document.activeElement.tagName"))
            if page.evaluate("document.activeElement.closest('details.flip') !== null"):
                break
        assert {"DIV", "BUTTON", "SELECT", "INPUT", "SUMMARY"} <= seen
        page.keyboard.press("Enter")
        expect(page.locator("details.flip[open] pre.prompt")).to_have_count(2)


def test_no_text_of_a_model_acts(browser: Browser, reports: Callable[[str], Path]) -> None:
    with opened(browser, reports("hostile")) as page:
        title = page.title()
        for flip in page.locator("details.flip > summary").all():
            flip.click()
        page.mouse.move(400, 400)
        assert page.title() == title
        assert "owned" not in title
        assert page.url == reports("hostile").as_uri()
        assert page.evaluate("document.scripts.length") == 1
        assert page.evaluate("document.images.length") == 0
        assert page.evaluate("document.querySelectorAll('main a:not([href^=\"#\"])').length") == 0


def test_the_policy_stops_what_would_have_got_in(
    browser: Browser, reports: Callable[[str], Path], tmp_path: Path
) -> None:
    """Even with a hole in the template, an inline script or a foreign image would do nothing."""
    broken = tmp_path / "broken.html"
    hole = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    main = '<main id="main" tabindex="-1">'
    html = reports("plain").read_text(encoding="utf-8").replace(main, f"{main}{hole}")
    broken.write_text(html, encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto(broken.as_uri())
    assert page.locator("main img").count() == 1
    assert page.title() == "simulated · flipmeter"
    context.close()


def test_everything_but_filters_is_there_without_scripts(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("plain"), java_script_enabled=False) as page:
        expect(page.locator("form.filters")).to_be_hidden()
        flip = page.locator("details.flip").first
        flip.locator("summary").click()
        link = flip.get_by_role("link", name="The two prompts")
        expect(link).to_be_visible()
        frame = page.locator(str(link.get_attribute("href")))
        expect(frame.locator("mark").first).to_be_attached()
        expect(frame.locator(".gap").first).to_be_attached()


def test_it_prints_on_paper_in_light_colours(
    browser: Browser, reports: Callable[[str], Path], tmp_path: Path
) -> None:
    with opened(browser, reports("many"), color_scheme="dark") as page:
        page.emulate_media(media="print")
        paper = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(paper) == "rgb(255, 255, 255)"
        expect(page.locator("nav")).to_be_hidden()
        pdf = page.pdf(format="A4")
        assert pdf.startswith(b"%PDF")
        folder = os.environ.get("FLIPMETER_SCREENSHOTS")
        (Path(folder or tmp_path) / "many.pdf").write_bytes(pdf)


def test_nothing_moves_for_who_asked_for_that(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("plain"), reduced_motion="reduce") as page:
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_a_cell_of_the_matrix_leads_to_its_items_and_the_address_keeps_them(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("many")) as page:
        cell = page.locator("table.matrix td.flips a").first
        query = dict(parse_qsl(str(cell.get_attribute("data-query"))))
        cell.click()
        shown = page.locator("details.flip:visible")
        expect(page.get_by_role("status")).to_contain_text("flips fit")
        for name in ("rater", "dataset", "level", "contrast"):
            assert set(shown.evaluate_all(f"all => all.map(o => o.dataset.{name})")) == {
                query[name]
            }
        address = page.url
        n = shown.count()
    with opened_at(browser, address, reports("many").as_uri()) as page:
        assert page.locator("details.flip:visible").count() == n
        page.get_by_role("button", name="Show all").click()
        assert page.evaluate("location.hash") == "#items"


def test_an_item_of_the_grid_leads_to_its_flips(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("many")) as page:
        link = page.locator("table.explorer tbody a").first
        key = dict(parse_qsl(link.get_attribute("data-query") or ""))
        link.click()
        shown = page.locator("details.flip:visible")
        assert shown.count()
        same = "all => all.map(one => [one.dataset.dataset, one.dataset.item].join())"
        assert set(shown.evaluate_all(same)) == {f"{key['dataset']},{key['item']}"}


def test_a_command_is_copied(browser: Browser, reports: Callable[[str], Path]) -> None:
    allowed: dict[str, Any] = {"permissions": ["clipboard-read", "clipboard-write"]}
    with opened(browser, reports("plain"), **allowed) as page:
        page.get_by_role("button", name="Copy the command").first.click()
        expect(page.locator(".copy").first).to_have_text("Copied")
        command = page.locator(".command code").first.inner_text()
        assert page.evaluate("navigator.clipboard.readText()") == command


def test_the_matrix_sorts_by_a_contrast(browser: Browser, reports: Callable[[str], Path]) -> None:
    with opened(browser, reports("many")) as page:
        page.locator("table.matrix thead th", has_text="P1").get_by_role("button").click()
        cells = page.locator("table.matrix tbody td:nth-child(2)")
        sizes = cells.evaluate_all("all => all.map(one => Number(one.dataset.sort))")
        assert sizes == sorted(sizes)


# The configuration view


def boxes(page: Page, selector: str) -> list[dict[str, float]]:
    found = [one.bounding_box() for one in page.locator(selector).all()]
    return [dict(box) for box in found if box is not None]


def test_configurations_can_be_drawn_on_any_axes_and_split(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("many")) as page:
        figure = page.locator("figure.configurations").first
        dots = figure.locator("svg.plot circle")
        expect(dots).to_have_count(18)
        assert figure.locator("svg.scatter").count() == 0
        figure.get_by_label("Across").select_option("tokens")
        figure.get_by_label("Up").select_option("mae")
        label = figure.locator("svg.plot").get_attribute("aria-label") or ""
        assert label.startswith("mean absolute error, in classes against tokens per item")
        figure.get_by_label("Split by").select_option("rater")
        assert figure.locator("svg.plot").get_by_text("sim/refusing", exact=True).count() == 1
        snap(page, "configurations-split")


@pytest.mark.parametrize("width", [320, 1280])
def test_parts_of_a_split_picture_keep_their_titles_and_names_apart(
    browser: Browser, reports: Callable[[str], Path], width: int
) -> None:
    with opened(browser, reports("many"), width=width) as page:
        figure = page.locator("figure.configurations").first
        figure.get_by_label("Up").select_option("mae")
        figure.get_by_label("Split by").select_option("rater")
        plot = "figure.configurations:first-of-type svg.plot"
        parts = boxes(page, f"{plot} g > rect")
        assert len(parts) == 3
        titles = [one for one in boxes(page, f"{plot} text") if one["y"] < parts[0]["y"] - 10]
        assert len(titles) == 4  # the axis and three raters
        assert not any(touch(a, b) for a, b in combinations(titles, 2))
        for name in boxes(page, f"{plot} .name"):
            assert sum(touch(name, part) for part in parts) == 1


def touch(a: dict[str, float], b: dict[str, float]) -> bool:
    return (
        a["x"] < b["x"] + b["width"]
        and b["x"] < a["x"] + a["width"]
        and a["y"] < b["y"] + b["height"]
        and b["y"] < a["y"] + a["height"]
    )


def test_a_name_says_of_what_its_number_is(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("many")) as page:
        names = page.locator("svg.plot .name").all_text_contents()
        assert "sim/biased-noisy · shots=0" in names
        assert "sim/biased-noisy · neutral_id" in names


def test_a_dot_that_hides_others_is_named_though_it_is_beaten(
    browser: Browser, tmp_path: Path
) -> None:
    vary = {"label_format": ["letter"], "separator": ["tab", "space"], "shots": [0, 2, 3]}
    crowd: dict[str, Any] = {"design": "factorial", "vary": vary, "probes": ["label_order"]}
    run = simulated(tmp_path / "run", models=["sim/biased-noisy"], test_size=30, **crowd)
    write_report(findings(run), tmp_path / "crowded.html")
    with opened(browser, tmp_path / "crowded.html") as page:
        names = page.locator("svg.plot .name").all_text_contents()
        n_front = page.locator('svg.plot circle[aria-label*="on the Pareto front"]').count()
        assert len(names) > n_front + 1  # the base has a name, too


def test_names_of_configurations_do_not_touch(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    for width in (768, 1280):
        with opened(browser, reports("many"), width=width) as page:
            names = boxes(page, "figure.configurations:first-of-type svg.plot .name")
            assert names
            for at, one in enumerate(names):
                for other in names[at + 1 :]:
                    is_beside = (
                        one["x"] + one["width"] <= other["x"]
                        or other["x"] + other["width"] <= one["x"]
                    )
                    is_under = (
                        one["y"] + one["height"] <= other["y"] + 2
                        or other["y"] + other["height"] <= one["y"] + 2
                    )
                    assert is_beside or is_under


def test_a_brush_lists_configurations_with_links_to_their_items(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("many")) as page:
        figure = page.locator("figure.configurations").first
        svg = figure.locator("svg.plot")
        svg.scroll_into_view_if_needed()
        box = svg.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 4, box["y"] + 4)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] - 4)
        page.mouse.up()
        picked = figure.locator(".picked li")
        expect(picked).to_have_count(18)
        picked.nth(0).get_by_role("link").click()
        assert "#items?rater=" in page.url
        expect(page.locator(".count")).to_contain_text("flips fit")
        figure.get_by_role("button", name="Clear").click()
        expect(picked).to_have_count(0)


def test_the_keyboard_picks_a_configuration(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("many")) as page:
        figure = page.locator("figure.configurations").first
        figure.get_by_label("Split by").focus()
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
        name = focused.rsplit(", ", 1)[0].split(", ")[0]
        assert figure.locator(".picked li").count() == 1
        expect(figure.locator(".picked li")).to_contain_text(name)
        page.keyboard.press("ArrowRight")
        outline = "one => getComputedStyle(one).outlineStyle"
        assert figure.locator("circle:focus").evaluate(outline) == "solid"
        assert figure.locator("circle.is-picked:not(:focus)").evaluate(outline) == "none"


def test_without_scripts_there_is_a_picture_and_a_table(
    browser: Browser, reports: Callable[[str], Path]
) -> None:
    with opened(browser, reports("many"), java_script_enabled=False) as page:
        figure = page.locator("figure.configurations").first
        assert figure.locator("svg.scatter circle").count() > 1
        figure.locator("summary").click()
        assert figure.locator("tbody tr").count() == 18
