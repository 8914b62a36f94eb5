"""The page and the other forms of a report: what is in them, and that no text can act."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from changed_runs import changed
from conftest import Cli
from flipmeter.ask.store import Store
from flipmeter.run.folder import Run
from flipmeter.show import item_grid as drawn_items
from flipmeter.show.estimate_tables import shared_warnings
from flipmeter.show.findings import GAP, Findings
from flipmeter.show.flipped_items import flipped_items
from flipmeter.show.format import HIDDEN, short_percent, visible
from flipmeter.show.gather import gather, sentences
from flipmeter.show.item_grid import ItemGrid, Sought
from flipmeter.show.next_steps import findings
from flipmeter.show.page import render_page
from flipmeter.show.page.draw import Point, axis_for, scatter
from flipmeter.show.page.markup import clipped, compare, excerpt
from flipmeter.show.pairs import matrices, pair_up, slot_shares
from flipmeter.show.sentences import verdict_sentences
from flipmeter.show.whole import report_latex, report_markdown
from flipmeter.stats.verdict import headlines
from flipmeter.types import Contrast, Message, Remark, Script
from read_html import Page
from report_runs import HOSTILE, LONG, hostile, many, simulated


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return simulated(tmp_path_factory.mktemp("plain"), models=["sim/first-slot?strength=4"])


@pytest.fixture(scope="module")
def found(plain: Run) -> Findings:
    return gather(plain)


@pytest.fixture(scope="module")
def rich_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return many(tmp_path_factory.mktemp("many"))


@pytest.fixture(scope="module")
def rich(rich_run: Run) -> Findings:
    return findings(rich_run)


@pytest.fixture(scope="module")
def rich_html(rich: Findings) -> str:
    return render_page(rich)


@pytest.fixture(scope="module")
def rich_page(rich_html: str) -> Page:
    return Page(rich_html)


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return gather(hostile(tmp_path_factory.mktemp("hostile")))


# The page


def test_the_sections_come_in_the_order_in_which_a_reader_asks(found: Findings) -> None:
    page = Page(render_page(found))
    ids = [section["id"] for section in page.all("section")]
    assert ids == [
        "verdict",
        "flips",
        "accuracy",
        "where",
        "faults",
        "items",
        "method",
        "origin",
        "table",
    ]
    linked = [a["href"] for a in page.all("a") if "data-query" not in a][1:]
    assert linked[: len(ids)] == [f"#{name}" for name in ids]
    assert page.open == []


def test_headings_go_down_one_step_at_a_time_and_landmarks_are_there(rich_page: Page) -> None:
    page = rich_page
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in page.tags}
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))


def test_every_cell_of_a_head_says_what_it_heads(rich_page: Page) -> None:
    page = rich_page
    heads = page.all("th")
    assert heads
    assert {head.get("scope") for head in heads} == {"col", "row", "rowgroup"}
    assert len(page.all("caption")) == len(page.all("table"))


def test_a_picture_has_words_for_who_cannot_see_it(rich_page: Page) -> None:
    pictures = rich_page.all("svg")
    named = [picture for picture in pictures if picture.get("role") == "img"]
    assert named
    assert all(picture["aria-label"] for picture in named)
    assert all(p.get("role") == "img" or p.get("aria-hidden") == "true" for p in pictures)


def test_nothing_on_the_page_leads_out_of_it(found: Findings, bad: Findings) -> None:
    for html in (render_page(found), render_page(bad)):
        page = Page(html)
        where = [v for _, a in page.tags for k, v in a.items() if k in ("href", "src", "action")]
        assert all(value == "data:," or (value or "").startswith("#") for value in where)
        links = [(a["href"] or "")[1:] for a in page.all("a")]
        ids = {a["id"] for _, a in page.tags if "id" in a}
        assert set(links) <= ids


def test_the_policy_allows_our_own_script_and_style_and_nothing_else(found: Findings) -> None:
    html = render_page(found)
    page = Page(html)
    (policy,) = (m["content"] or "" for m in page.all("meta") if m.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert policy.count("sha256-") == 2
    assert all("style" not in a for _, a in page.tags)
    assert not [k for _, a in page.tags for k in a if k.startswith("on")]


def test_the_numbers_of_the_forest_are_those_of_the_verdicts(found: Findings, plain: Run) -> None:
    html = render_page(found)
    for row in plain.verdicts.filter(status="measured").to_dicts():
        assert (
            f"{100 * row['value']:.1f} % [{100 * row['low']:.1f}, {100 * row['high']:.1f}]" in html
        )


def test_every_table_says_how_its_numbers_were_made(rich_page: Page) -> None:
    text = rich_page.text
    for words in (
        "each seed separately",
        "mode recommended",
        "an item counts once",
        "95 % interval over items",
        "Clopper-Pearson",
    ):
        assert words in text


def test_the_study_versions_and_identities_are_on_the_page(found: Findings, plain: Run) -> None:
    text = Page(render_page(found)).text
    assert "sim/first-slot?strength=4" in text
    assert plain.environment["models"]["sim/first-slot?strength=4"] in text
    assert plain.environment["packages"]["polars"] in text
    assert plain.environment["datasets"]["reviews"]["digest"][:16] in text
    assert "test_size: 45" in text


def test_a_price_in_the_study_becomes_a_cost(tmp_path: Path) -> None:
    model = {"model": "sim/first-slot", "name": "dear", "price": {"prompt": 1e6, "completion": 0}}
    run = simulated(tmp_path, models=[model], probes=["label_order"], repeats=1, test_size=10)
    tokens = run.decisions["prompt_tokens"].sum()
    assert f"${tokens:,.2f}" in Page(render_page(gather(run))).text


# Runs at the edge


def test_a_run_without_flips_says_so(tmp_path: Path) -> None:
    run = simulated(tmp_path, models=["sim/honest"])
    found = gather(run)
    assert found.browser.n_flips == 0
    page = Page(render_page(found))
    assert "No item flipped." in page.text
    assert not page.classed("flip")


def test_a_run_of_faults_is_no_stable_run(tmp_path: Path) -> None:
    run = simulated(tmp_path, models=["sim/refusing?strength=1"])
    page = Page(render_page(gather(run)))
    assert "cannot be judged when the label list is reversed: 100 % of its pairs" in page.text
    assert not [a for a in page.classed("word") if "stable" in (a["class"] or "")]
    assert "refused" in page.text


def test_a_run_with_one_class_of_gold_or_none_is_shown(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    for gold in (2, None):
        other = run.decisions.with_columns(gold=pl.lit(gold, dtype=pl.Int64))
        assert Page(render_page(gather(changed(tmp_path, decisions=other)))).open == []


def test_a_run_that_its_budget_stopped_says_so_first(tmp_path: Path) -> None:
    run = simulated(tmp_path, budget={"calls": 155}, block_size=15)
    assert run.stopped
    html = render_page(gather(run))
    assert html.index("Incomplete: not everything was rated.") < html.index('class="headline"')


def test_levels_raters_and_datasets_get_a_heat_map(rich_page: Page) -> None:
    page = rich_page
    assert "levels" in [section["id"] for section in page.all("section")]
    shades = Counter(word for a in page.all("td") for word in (a.get("class") or "").split())
    assert shades["better"] + shades["worse"] + shades["mass"] == sum(
        shades[f"s{k}"] for k in range(10)
    )
    assert shades["better"]
    assert shades["faint"]


# Texts that try to act


def test_hostile_texts_make_no_element_and_no_attribute(bad: Findings, found: Findings) -> None:
    """Whatever the texts say, the page has the elements and attributes that our template has."""
    page, ours = Page(render_page(bad)), Page(render_page(found))
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in ours.tags}
    assert {k for _, a in page.tags for k in a} <= {k for _, a in ours.tags for k in a}
    assert len(page.all("script")) == 1
    assert page.texts["script"] == ours.texts["script"]
    assert page.open == []


def test_commands_and_keys_in_notes_are_code(found: Findings) -> None:
    """Backticks mark them in our own notes; what stands between them is escaped like any text."""
    note = "set `weights:`, or `<b>` ` alone"
    html = render_page(replace(found, notes=[note], stopped="`flipmeter try STUDY` shows why"))
    assert 'set <code class="code">weights:</code>, or <code class="code">&lt;b&gt;</code>' in html
    assert " ` alone</p>" in html
    assert '<code class="code">flipmeter try STUDY</code> shows why' in html


def test_hostile_texts_are_there_to_be_read(bad: Findings) -> None:
    text = Page(render_page(bad)).text
    assert HOSTILE["script"] in text
    assert "‹U+202E›" in text
    assert "‹U+001B›[31mred" in text
    assert "{{ 7 * 7 }}" in text
    assert not HIDDEN.search(text)


def test_a_text_of_100_000_characters_is_cut_and_says_how_much_is_missing(bad: Findings) -> None:
    html = render_page(bad)
    assert len(LONG) == 100_000
    assert LONG[:3_000] in html
    assert LONG[:10_000] not in html
    assert re.search(r"… 9\d,\d{3} characters left out", html)


@given(st.text(st.characters(codec=None, exclude_categories=[])))
def test_what_is_visible_hides_nothing_and_can_be_written(text: str) -> None:
    shown = visible(text)
    assert not HIDDEN.search(shown)
    shown.encode()
    assert visible(shown) == shown


def test_a_text_without_marks_is_left_alone() -> None:
    assert (
        visible("Fine – \u00e9t\u00e9, \u05e9\u05dc\u05d5\u05dd\n\tA\u200dB")
        == "Fine – \u00e9t\u00e9, \u05e9\u05dc\u05d5\u05dd\n\tA\u200dB"
    )


def test_an_excerpt_is_one_line_of_limited_length() -> None:
    assert excerpt("one\n two\x07  three") == "one two‹U+0007› three"
    assert len(excerpt("word " * 1000, 50)) <= 50


# Prompts


WORDS = st.text(st.sampled_from("ab \n" + GAP), max_size=40)


@given(WORDS, WORDS)
def test_marking_differences_loses_nothing(a: str, b: str) -> None:
    for text, pieces in zip((a, b), compare(a, b), strict=True):
        assert "".join(GAP if p.kind == "gap" else p.text for p in pieces) == text
    if a == b:
        assert not [p for p in compare(a, b)[0] if p.kind == "differs"]


def test_only_what_differs_is_marked() -> None:
    left, right = compare("Label: 1\nsame\n", "Label: 5\nsame\n")
    assert [(p.kind, p.text) for p in left] == [
        ("same", "Label: "),
        ("differs", "1"),
        ("same", "\nsame\n"),
    ]
    assert [p.text for p in right if p.kind == "differs"] == ["5"]


def test_a_warning_that_raters_share_is_said_once_with_the_count_of_each() -> None:
    why = "repeats differ although decoding is greedy"
    told = {
        "ann": [Remark(why, "53 of 300")],
        "ben": [Remark("no price")],
        "cai": [Remark(why, "1,040 of 3,000")],
    }
    assert shared_warnings(told) == {
        "ann (53 of 300), cai (1,040 of 3,000)": why,
        "ben": "no price",
    }
    assert shared_warnings({"ann": told["ann"]}) == {"ann": f"53 of 300 {why}"}


def test_labels_are_marked_where_they_stand_and_texts_that_did_not_move_are_not() -> None:
    texts = "van, ticket 92", "all my work was lost", "van, ticket 138, please look", "no refund"

    def prompt(labels: str, order: Sequence[int]) -> str:
        demos = (f"Text: {texts[k]}\nLabel: {labels[k]}\n\n" for k in order)
        return f"{''.join(demos)}Text: query\nLabel:"

    left, right = compare(prompt("1234", range(4)), prompt("4321", range(4)))
    assert [p.text for p in left if p.kind == "differs"] == list("1234")
    assert [p.text for p in right if p.kind == "differs"] == list("4321")
    moved, _ = compare(prompt("1234", range(4)), prompt("1234", (1, 2, 3, 0)))
    (piece,) = (p.text for p in moved if p.kind == "differs")
    assert "van, ticket 92" in piece
    assert "work" not in piece


def test_frames_filled_with_the_text_are_the_prompts_that_were_asked(
    found: Findings, plain: Run
) -> None:
    assert found.browser.flips
    digests = set(plain.decisions["prompt"])
    for flip in found.browser.flips:
        assert flip.frame is not None
        for text in found.browser.frames[flip.frame].texts:
            whole = Script.of([Message("user", text.replace(GAP, flip.text))])
            assert whole.digest[:16] in digests


def test_probabilities_are_shown_by_class_whatever_the_order_of_the_list(tmp_path: Path) -> None:
    with Store() as store:
        run = simulated(
            tmp_path, store, models=["sim/first-slot?strength=4"], probes=["label_order"]
        )
        flip = gather(run).browser.flips[0]
    natural, reversed_list = (side.probabilities for side in flip.sides)
    assert natural is not None
    assert reversed_list is not None
    names = [name for name, _ in natural]
    assert names == [name for name, _ in reversed_list]
    assert names[0] == "very negative"
    for shares, side in zip((natural, reversed_list), flip.sides, strict=True):
        assert sum(share for _, share in shares) == pytest.approx(1)
        assert max(shares, key=lambda one: one[1])[0] == side.answer
    # What stands first is preferred: the lowest class in one list, the highest in the other.
    assert dict(natural)[names[0]] > dict(reversed_list)[names[0]]


# The grid of items


def test_the_grid_shows_the_items_that_disagree_most_as_the_viewer_does(
    rich: Findings, rich_html: str, rich_run: Run
) -> None:
    grid = rich.grid
    assert grid is not None
    every = ItemGrid(rich_run).found(Sought({"show": "flipped"}))
    worst = list(every.select("dataset", "item").iter_rows())
    assert [row.key for row in grid.rows] == worst[: len(grid.rows)]
    assert len(grid.rows) > 5
    assert f"{len(every) - len(grid.rows)} more items with less disagreement" in grid.notes[0]
    html = rich_html
    links = [one["data-query"] for one in Page(html).all("a") if one.get("href") == "#each"]
    assert links == [urlencode({"dataset": dataset, "item": item}) for dataset, item in worst[:30]]


def test_the_grid_keeps_the_worst_raters_within_its_room(
    rich: Findings, rich_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_items, "MOST_COLUMNS", 2)
    monkeypatch.setattr(drawn_items, "ROOM", 5_000)
    grid = drawn_items.report_grid(rich, rich_run)
    assert grid is not None
    worst = rich.verdicts["rater"].unique(maintain_order=True).to_list()
    assert set(grid.heads) == set(worst[:2])
    assert all(len(row.pictures) == 2 for row in grid.rows)
    assert 0 < len(grid.rows) < 30
    assert "and 1 of 3 columns with less severe verdicts are left out" in grid.notes[0]


def test_slices_of_the_worst_contrast_are_those_of_the_viewer(
    rich: Findings, rich_page: Page, rich_run: Run
) -> None:
    columns = {column: rates for column, _, rates in rich.slices}
    assert set(columns) == set(ItemGrid(rich_run).columns.by_name)
    assert {contrast for _, contrast, _ in rich.slices} == {rich.verdicts["contrast"][0]}
    own = ItemGrid(rich_run).columns.of("length").filter(dataset="tickets")["slice"].unique()
    rates = columns["length"].filter(dataset="tickets", rater="sim/refusing")
    assert set(rates["slice"]) == set(own)
    assert "P1 by length" in rich_page.text


def test_where_nothing_flips_there_is_no_grid(tmp_path: Path) -> None:
    found = gather(simulated(tmp_path, models=["sim/honest"]))
    assert found.grid is None
    assert "disagree most" not in render_page(found)


# Size


def test_200_items_under_7_views_fit_into_three_megabytes(tmp_path: Path) -> None:
    run = simulated(
        tmp_path, test_size=200, base={"shots": 5}, models=["sim/biased-noisy?strength=4&noise=2"]
    )
    found = gather(run)
    assert found.browser.n_flips > 500
    assert len(render_page(found).encode()) < 3_000_000


def test_what_does_not_fit_is_left_out_by_severity_and_said(rich: Findings, rich_run: Run) -> None:
    whole = rich.browser
    some = flipped_items(rich, rich_run, room=150_000)
    assert 0 < len(some.flips) < some.n_flips == whole.n_flips
    kept, every = (
        Counter((f.rater, f.dataset, f.level, f.contrast) for f in one.flips)
        for one in (some, whole)
    )
    worst_left_out = min(rich.severity(where) for where in every if kept[where] < every[where])
    at_once = [where for where in every if kept[where] < min(every[where], 5)]
    assert all(rich.severity(where) >= worst_left_out for where in at_once)
    assert max(map(rich.severity, kept)) < max(map(rich.severity, every))
    assert (
        f"{some.n_flips - len(some.flips):,} of {some.n_flips:,} flips are left out"
        in some.notes[0]
    )
    text = Page(render_page(replace(rich, browser=some))).text
    assert all(part in text for part in some.notes[0].split("`"))


# Sentences, directions, pictures


def test_the_verdict_is_one_sentence_with_noise_and_direction(plain: Run) -> None:
    (sentence,) = sentences(plain)
    row = plain.verdicts.filter(contrast="P1").to_dicts()[0]
    assert sentence.word == row["word"] == "flips"
    told = f"flips {short_percent(row['value'])} % [{short_percent(row['low'])}, "
    assert sentence.text.startswith(told)
    assert "when the label list is reversed; its replies are reproducible; " in sentence.text
    n = row["moved_up"]
    assert f"all {n} towards the first label" in sentence.text


MEASURED: dict[str, Any] = {
    "rater": "r",
    "dataset": "d",
    "level": "",
    "status": "measured",
    "reason": "",
    "notes": [],
    "findings": [],
    "upper": 0.05,
    "bound_on": "rate",
    "alpha": 0.05,
    "leans": "",
    "moved_up": 0,
    "moved_down": 0,
    "noise": None,
    "is_reproducible": False,
}


@pytest.mark.parametrize(
    ("words", "p", "wanted"),
    [
        (["flips"], 0.04, "flips"),
        (["flips", "stable", "stable"], 0.04, "inconclusive"),
        (["unreadable", "stable"], 0.5, "unreadable"),
        (["stable", "flips"], 0.04, "inconclusive"),
        (["stable", "flips"], 0.02, "flips"),
        (["stable", "stable", "flips"], 0.03, "inconclusive"),
        (["stable", "stable", "flips"], 0.01, "flips"),
        (["stable", "stable", "flips"], None, "flips"),
        (["stable", "stable", "stable"], 0.5, "stable"),
        (["stable", "inconclusive"], 0.5, "inconclusive"),
    ],
)
def test_a_rater_is_stable_only_if_every_contrast_is(
    words: list[str], p: float | None, wanted: str
) -> None:
    """What flips most must not stand beside the word `stable`."""
    row = MEASURED | {"value": 0.1, "low": 0.05, "high": 0.2, "size": 0.1, "unreadable": 0.0}
    places = range(len(words))
    sure = {"flips": (p or 0.0, 1.0), "stable": (1.0, 0.001)}
    rows = [
        row
        | {"contrast": f"C{k}", "word": words[k], "p": p}
        | dict(zip(("p_flips", "p_stable"), sure.get(words[k], (1.0, 1.0)), strict=True))
        for k in places
    ]
    contrasts = [Contrast(f"C{k}", ("base", f"v{k}"), "moved") for k in places]
    table = pl.DataFrame(rows)
    (sentence,) = verdict_sentences(table, contrasts, headlines(table))
    assert sentence.word == wanted


def test_the_worst_contrast_is_one_that_was_read() -> None:
    row = MEASURED | {"p_flips": 1.0, "p_stable": 1.0}
    row |= {"word": "unreadable", "low": 0.0, "high": 1.0, "p": 0.5, "size": 0.0}
    rows = [
        row | {"contrast": "P1", "value": 0.0, "unreadable": 1.0},
        row | {"contrast": "P2a", "value": 0.4, "unreadable": 0.0, "word": "inconclusive"},
        row | {"contrast": "P3a", "value": 0.9, "unreadable": 0.6},
    ]
    contrasts = [Contrast(name, ("a", "b"), "") for name in ("P1", "P2a", "P3a")]
    table = pl.DataFrame(rows)
    (sentence,) = verdict_sentences(table, contrasts, headlines(table))
    assert "cannot be judged when the label list is reversed" in sentence.text
    assert sentence.text.endswith("between demos in random and in ascending order")
    assert "40 %" in sentence.text
    assert "90 %" not in sentence.text


def test_the_direction_follows_the_planted_tilt(tmp_path: Path) -> None:
    run = simulated(tmp_path, models=["sim/last-slot?strength=4"], probes=["label_order"])
    assert "towards the last label" in sentences(run)[0].text


def test_noise_that_is_measured_is_a_number(tmp_path: Path) -> None:
    run = simulated(tmp_path, models=["sim/noisy"], probes=["label_order"])
    assert re.search(r"its own noise is \d+ %", sentences(run)[0].text)
    once = simulated(tmp_path / "once", models=["sim/noisy"], probes=["label_order"], repeats=1)
    assert "its own noise was not measured" in sentences(once)[0].text


def test_measure_prints_the_sentences_of_the_report(cli: Cli, tmp_path: Path) -> None:
    run = simulated(tmp_path / "run")
    out = cli("measure", "run", "--show", "verdicts")[1]
    assert all(" ".join(str(one).split()) in " ".join(out.split()) for one in sentences(run))


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0"), (0.004, "0.4"), (0.21, "21"), (0.996, "99.6"), (1.0, "100")]
)
def test_short_percents_never_read_as_none_or_all(share: float, text: str) -> None:
    assert short_percent(share) == text


def decisions(rows: list[tuple[str, str, int, int, str]], n_classes: int = 5) -> pl.DataFrame:
    """Return decisions of one rater: item, view, rank, slot, fault."""
    return pl.DataFrame(
        [
            ("r", "d", "", 0, view, 0, item, 1, rank, slot, fault, f"{item}{view}", n_classes)
            for item, view, rank, slot, fault in rows
        ],
        schema=[
            "rater",
            "dataset",
            "level",
            "seed",
            "view",
            "repeat",
            "item",
            "gold",
            "rank",
            "slot",
            "fault",
            "prompt",
            "n_classes",
        ],
        orient="row",
    )


P1 = Contrast("P1", ("base", "reversed"), "label list reversed", "label_order")


def test_pairs_know_distance_direction_and_faults() -> None:
    rows = [
        ("a", "base", 2, 2, ""), ("a", "reversed", 5, 1, ""),
        ("b", "base", 4, 4, ""), ("b", "reversed", 4, 2, ""),
        ("c", "base", 5, 5, ""), ("c", "reversed", 1, 5, ""),
        ("d", "base", 3, 3, ""), ("d", "reversed", 0, 0, "refused"),
    ]  # fmt: skip
    pairs = pair_up(decisions(rows), [P1])
    assert pairs["distance"].to_list() == [3, 0, 4, None]
    assert pairs["towards"].to_list() == ["first label", "", "last label", ""]
    (matrix,) = matrices(pairs)
    assert matrix.counts == {(2, 5): 1, (4, 4): 1, (5, 1): 1, (3, 0): 1}
    assert matrix.n_flipped == 3
    (shares,) = slot_shares(pairs, [P1])
    assert shares.n == 6
    assert shares.shares == pytest.approx((1 / 6, 2 / 6, 0, 1 / 6, 2 / 6))
    assert shares.expected == pytest.approx((0.5, 0, 0, 0, 0.5))


def test_equal_prompts_are_no_pair() -> None:
    rows = [("a", "base", 2, 2, ""), ("a", "reversed", 5, 1, "")]
    same = decisions(rows).with_columns(prompt=pl.lit("x"))
    assert pair_up(same, [P1]).is_empty()


@given(st.lists(st.floats(0, 1), min_size=1))
def test_an_axis_holds_its_values_between_round_ticks(values: list[float]) -> None:
    axis = axis_for(values)
    assert axis.low <= min(values)
    assert axis.high >= max(values)
    assert 2 <= len(axis.ticks) <= 7
    assert all(0 <= axis.at(value) <= 100 for value in values)


def test_a_picture_escapes_its_titles() -> None:
    ends = (0.1, 0.0, 0.2), (0.5, 0.4, 0.6)
    drawn = scatter([Point("<b>\"'&\x1b", *ends, is_chosen=True), Point("other", *ends)], "<i>")
    assert isinstance(drawn, Markup)
    page = Page(drawn)
    assert {tag for tag, _ in page.tags} <= {"svg", "line", "circle", "text", "title"}
    assert "‹U+001B›" in drawn


# Other forms


def test_markdown_holds_verdicts_and_tables_and_calls_nobody(bad: Findings, rich: Findings) -> None:
    text = report_markdown(rich)
    assert all(sentence.text.split(";")[0].split("[")[0] in text for sentence in rich.sentences)
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len(tables) > 20
    hostile_text = report_markdown(bad)
    assert "<script>" not in hostile_text.replace("\\<", "")
    assert "@" not in hostile_text
    assert (
        len(
            {
                line.count("|") - line.count("\\|")
                for line in hostile_text.splitlines()
                if line.startswith("| ")
            }
        )
        <= 3
    )


def test_latex_has_booktabs_and_shaded_cells(rich: Findings) -> None:
    text = report_latex(rich)
    for words in (r"\toprule", r"\midrule", r"\bottomrule", r"\cellcolor{residualNegative!"):
        assert words in text
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    n_columns = text.split(r"\flipfit{\begin{tabular}{")[1].split("}")[0]
    assert {line.count(" & ") + 1 for line in body.strip().splitlines()} == {len(n_columns)}


def test_latex_comments_stay_in_their_line(bad: Findings) -> None:
    text = report_latex(bad)
    before = text.split(r"\definecolor")[0]
    assert all(line.startswith("%") for line in before.strip().splitlines())


FORMS: dict[str, Any] = {
    ".html": lambda content: content.startswith(b"<!doctype html>"),
    ".md": lambda content: content.startswith(b"## simulated"),
    ".tex": lambda content: rb"\begin{tabular}" in content,
    ".csv": lambda content: pl.read_csv(BytesIO(content)).height > 10,
    ".parquet": lambda content: pl.read_parquet(BytesIO(content)).height > 10,
}


@pytest.mark.parametrize("suffix", FORMS)
def test_report_writes_the_form_that_the_name_ends_in(
    cli: Cli, tmp_path: Path, suffix: str
) -> None:
    simulated(tmp_path / "run")
    code, out, err = cli("report", "run", "--out", f"file{suffix}")
    assert (code, out.splitlines()[0], err) == (0, f"report: file{suffix}", "")
    assert "next: " in out
    assert FORMS[suffix]((tmp_path / f"file{suffix}").read_bytes())


def test_the_page_goes_into_the_run_folder_and_is_the_same_again(cli: Cli, tmp_path: Path) -> None:
    simulated(tmp_path / "run")
    code, out, _ = cli("report", "run")
    assert (code, out.splitlines()[0]) == (0, "report: run/report.html")
    first = (tmp_path / "run" / "report.html").read_bytes()
    cli("report", "run")
    assert (tmp_path / "run" / "report.html").read_bytes() == first


def test_estimates_as_csv_are_no_formulas(cli: Cli, tmp_path: Path) -> None:
    model = {"model": "sim/first-slot", "name": '=HYPERLINK("http://192.0.2.1")'}
    simulated(tmp_path / "run", models=[model], probes=["label_order"], test_size=10)
    cli("report", "run", "-o", "all.csv")
    raters = set(pl.read_csv(tmp_path / "all.csv")["rater"])
    assert raters == {'\'=HYPERLINK("http://192.0.2.1")'}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "not a run folder"),
        (["run", "--out", "page.pdf"], "must end in .html, .md, .tex, .csv or .parquet"),
        (["run", "--out", "no/such/folder/page.html"], "use another file with --out"),
        (["run", "--out", "taken.html"], "use another file with --out"),
    ],
)
def test_a_report_that_cannot_be_written_says_why(
    cli: Cli, tmp_path: Path, arguments: list[str], message: str
) -> None:
    simulated(tmp_path / "run", probes=["label_order"], test_size=10)
    (tmp_path / "taken.html").mkdir()
    code, out, err = cli("report", *arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_a_long_prompt_keeps_its_query() -> None:
    demos = "".join(f"Sentence: demo {k} goes on\nLabel: 2\n\n" for k in range(3_000))
    left, right = compare(f"{demos}Query: {GAP}", f"{demos}Question: {GAP}")
    assert left[-1].kind == right[-1].kind == "gap"
    assert ("differs", "Query") in [(p.kind, p.text) for p in left]
    assert "characters left out" in "".join(p.text for p in left)


def test_long_texts_are_clipped_only_beyond_the_limit() -> None:
    assert clipped("x" * 10, 10) == "x" * 10
    assert clipped("x" * 12, 10) == "x" * 10 + "\n… 2 characters left out"


def test_the_page_explains_words_as_the_core_makes_them(rich_page: Page) -> None:
    text = rich_page.text
    for words in (
        "exact randomisation test",
        "counts once",
        "change of class shares",
        "readable pairs",
    ):
        assert words in text
    for old in ("as if independent", "under 80 %", "two thirds", "forest are strict"):
        assert old not in text


def test_a_stable_rater_is_told_with_the_bound_that_makes_it_so(tmp_path: Path) -> None:
    run = simulated(tmp_path, models=["sim/honest"], probes=["label_order"], test_size=30)
    row = run.verdicts.row(0, named=True)
    assert row["word"] == "stable"
    assert row["high"] > row["margin"]
    assert f"at most {100 * row['upper']:.1f} % (one-sided 95 %)" in sentences(run)[0].text


def test_noise_is_told_once(tmp_path: Path) -> None:
    run = simulated(tmp_path, models=["sim/noisy"], probes=["label_order"], test_size=30)
    assert "noisy" in run.verdicts["findings"][0]
    assert "of repeats differ" not in sentences(run)[0].text
