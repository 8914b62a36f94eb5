"""The item explorer over HTTP: the grid, one item, two answers side by side, and what is typed."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from scipy.stats import hypergeom

from changed_runs import changed
from flipmeter.data.files import load_file
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.show.item_grid import GOLD, LENGTH, ORDERS, PAGE, ItemGrid, Sought, item_columns
from flipmeter.show.page.draw import MOST_LINES, NOT_ASKED, DrawnClasses, picture
from flipmeter.show.page.markup import compare
from flipmeter.show.view.flip_pages import Flips
from flipmeter.stats.differences import exchange_p, slice_rates
from flipmeter.stats.formulas import holm
from flipmeter.stats.reading import Parts
from flipmeter.types import Scale, Span
from read_html import Page
from report_runs import HOSTILE, hostile, simulated
from test_view import Answer, naive_flips, served, unread

Look = Callable[[str], Answer]
TILTED, NOISY = "sim/first-slot?strength=5", "sim/biased-noisy"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two raters at two levels with faults, hostile texts, and a run of forty items."""
    root = tmp_path_factory.mktemp("explored")
    simulated(
        root / "several",
        name="several",
        models=[TILTED, NOISY],
        seeds=[0, 1],
        test_size=40,
        vary={"label_format": ["letter"]},
    )
    unread(root / "several")
    hostile(root / "hostile")
    return root


@pytest.fixture(scope="module")
def look(runs: Path) -> Look:
    return lambda path: served(runs, path)[0]


@pytest.fixture(scope="module")
def grid(runs: Path) -> ItemGrid:
    return ItemGrid(Run(runs / "several"))


@pytest.fixture(scope="module")
def flips(grid: ItemGrid) -> list[dict[str, Any]]:
    return list(naive_flips(Run(grid.run.folder)))


def shown_items(html: str) -> list[str]:
    return [unescape(one) for one in re.findall(r'data-note="[^&"]*&#9;([^"]*)"', html)]


# the grid


def test_items_are_counted_as_flips_are(grid: ItemGrid, flips: list[dict[str, Any]]) -> None:
    found = grid.found(Sought())
    counted = dict(found.select("item", "n_flips").iter_rows())
    assert {item: n for item, n in counted.items() if n} == Counter(f["item"] for f in flips)
    assert len(found) == Run(grid.run.folder).decisions["item"].n_unique()


def test_items_are_counted_rater_by_rater_where_decisions_are_many(
    grid: ItemGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = grid.found(Sought())
    monkeypatch.setattr("flipmeter.show.item_grid.TOGETHER", 1)
    assert len(list(Parts(grid.decisions, 1))) > 1
    assert_frame_equal(ItemGrid(grid.run).found(Sought()), whole)


@settings(max_examples=25, deadline=None)
@given(
    rater=st.sampled_from(["", TILTED, NOISY, "nobody"]),
    level=st.sampled_from(["", "base", "label_format=letter"]),
    contrast=st.sampled_from(["", "P1", "P3a", "none"]),
    show=st.sampled_from(["", "flipped", "agreed"]),
)
def test_filters_narrow_the_conditions_that_are_counted(
    grid: ItemGrid,
    flips: list[dict[str, Any]],
    rater: str,
    level: str,
    contrast: str,
    show: str,
) -> None:
    asked = {"rater": rater, "level": level, "contrast": contrast}
    told = {name: value for name, value in asked.items() if value}
    found = grid.found(Sought.read(told | {"show": show}))
    fit = Counter(f["item"] for f in flips if all(f[name] == told[name] for name in told))
    counted = dict(found.select("item", "n_flips").iter_rows())
    assert {item: n for item, n in counted.items() if n} == ({} if show == "agreed" else fit)
    assert show != "flipped" or len(found) == len(fit)


@pytest.mark.parametrize("order", ORDERS)
def test_items_come_in_the_order_that_is_asked_for(grid: ItemGrid, order: str) -> None:
    found = grid.found(Sought(order=order))
    told = grid.texts(found)
    values: dict[str, list[Any]] = {
        "": [-k / n for k, n in found.select("n_flips", "n_pairs").iter_rows()],
        "distance": [-(far or 0) for far in found["farthest"]],
        "study": [list(told).index(key) for key in found.select("dataset", "item").iter_rows()],
        "item": found["item"].to_list(),
        "length": [-len(told[key]["text"]) for key in found.select("dataset", "item").iter_rows()],
    }
    assert values[order] == sorted(values[order])
    assert len(set(values[order])) > 1


def test_a_page_of_the_grid_shows_every_rater_and_view(look: Look, grid: ItemGrid) -> None:
    status, html = look("/run/several/items")
    page = Page(html)
    assert status == 200
    items = grid.found(Sought())["item"].to_list()
    assert shown_items(html) == items[:PAGE]
    assert f"1–{PAGE} of {len(items)} items" in page.text
    assert len([one for one in page.classed("strip") if one.get("role") == "img"]) == 2 * PAGE
    assert "Inside a cell: 7 views from left to right" in page.text
    status, html = look("/run/several/items?page=2")
    assert (status, shown_items(html)) == (200, items[PAGE:])
    assert "There is no page 3" in Page(look("/run/several/items?page=3")[1]).text


def test_one_rater_is_laid_out_by_level(look: Look) -> None:
    _, html = look(f"/run/several/items?rater={quote(TILTED)}")
    assert re.search(r'<th scope="col">base</th><th scope="col">label_format=letter</th>', html)


def test_raters_and_levels_of_an_item_break_behind_their_signs(look: Look) -> None:
    (item, *_) = shown_items(look("/run/several/items")[1])
    _, html = look(f"/run/several/item?dataset=reviews&item={item}")
    assert "<strong>sim/first-slot?<wbr>strength=<wbr>5</strong>" in html
    assert "<small>label_format=<wbr>letter · seed 0</small>" in html


def test_a_contrast_leaves_its_views_alone(look: Look) -> None:
    page = Page(look("/run/several/items?contrast=P1")[1])
    assert "Inside a cell: 2 views from left to right" in page.text


def test_a_search_finds_texts_and_ids_whatever_their_capitals(look: Look, grid: ItemGrid) -> None:
    key, about = next(iter(grid.texts(grid.found(Sought())).items()))
    word = max(about["text"].split(), key=len)
    for sought in (word.upper(), key[1]):
        _, html = look(f"/run/several/items?{urlencode({'q': sought})}")
        assert key[1] in shown_items(html)
        assert 0 < len(shown_items(html)) < PAGE
    _, html = look("/run/several/items?q=(%5B")
    assert "No item matches all filters." in Page(html).text


def test_flips_are_searched_as_items_are(look: Look, grid: ItemGrid) -> None:
    key, about = next(iter(grid.texts(grid.found(Sought())).items()))
    flips, wanted = Flips(grid.run), Sought({"q": about["text"]})
    assert set(flips.page(wanted)["item"]) == {key[1]}
    assert sum(flips.options("rater", wanted).values()) == flips.n(wanted)
    _, html = look(f"/run/several/flips?{urlencode({'q': about['text']})}")
    assert f"{flips.n(wanted)} flips that match" in Page(html).text


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("items?order=up", "no order 'up'; known: distance, study, item, length"),
        ("items?show=most", "no show 'most'; known: flipped, agreed, unread"),
        ("items?page=0", "page '0' is not a whole number, 1 or more"),
        ("items?page=%D9%A1", "is not a whole number, 1 or more"),
        ("items?by=colour&slice=red", "no column 'colour' to slice by; known: gold class, length"),
        ("item?dataset=reviews", "the URL of an item needs item"),
        ("item?dataset=reviews&item=x", "no item 'x' of 'reviews' under these conditions"),
    ],
)
def test_garbage_in_an_address_is_named(look: Look, address: str, message: str) -> None:
    status, html = look(f"/run/several/{address}")
    assert status in (400, 404)
    assert message in Page(html).text


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from([*Sought().filters, "q", "rater", "by", "slice", "order",
    "page", "show", "contrast", "level"]), st.text(max_size=12)))  # fmt: skip
def test_no_address_breaks_the_grid(runs: Path, query: dict[str, str]) -> None:
    typed = {name: value.encode(errors="replace").decode() for name, value in query.items()}
    ((status, html),) = served(runs, f"/run/several/items?{urlencode(typed)}")
    assert status in (200, 400)
    Page(html)


# one item


def test_an_item_shows_every_answer_and_leads_to_both_prompts(look: Look, grid: ItemGrid) -> None:
    worst = grid.found(Sought()).row(0, named=True)
    status, html = look(f"/run/several/item?dataset=reviews&item={worst['item']}")
    page = Page(html)
    assert status == 200
    told = f"{worst['n_flips']} of {worst['n_pairs']} pairs of answers flip"
    assert told in page.text
    assert len(page.classed("turned")) == worst["n_flips"]
    links = [a["href"] for a in page.all("a") if "/flip?" in (a.get("href") or "")]
    assert len(links) == worst["n_pairs"]
    for link in (links[0], links[-1]):
        status, html = look(str(link))
        assert status == 200
        assert len([one for one in Page(html).classed("prompt") if "data-copy" in one]) == 2


def test_answers_that_agree_are_shown_side_by_side_too(look: Look) -> None:
    same = r'<td class="same"[^>]*><a href="([^"]*)">same'
    _, html = look("/run/several/items?show=flipped")
    _, html = look(f"/run/several/item?dataset=reviews&item={shown_items(html)[-1]}")
    found = re.search(same, html)
    assert found is not None
    status, html = look(unescape(found[1]))
    assert status == 200
    assert "under both views" in Page(html).text


def test_items_lead_to_those_before_and_after_in_their_list(look: Look, grid: ItemGrid) -> None:
    sought = {"rater": TILTED, "show": "flipped", "order": "item"}
    listed = grid.found(Sought.read(sought))["item"].to_list()
    assert len(listed) > 3
    back = urlencode({f"_{name}": value for name, value in sought.items()})
    _, html = look(f"/run/several/item?dataset=reviews&item={listed[1]}&{back}")
    assert f"item 2 of {len(listed)}" in Page(html).text
    for rel, place in (("prev", 0), ("next", 2)):
        link = next(a["href"] for a in Page(html).all("a") if a.get("rel") == rel)
        assert f"item={listed[place]}&" in str(link)
        assert look(str(link))[0] == 200


def test_flips_lead_to_those_before_and_after_in_their_list(look: Look) -> None:
    _, html = look("/run/several/flips?contrast=P1&order=distance")
    links = [unescape(one) for one in re.findall(r'href="(/run/several/flip\?[^"]*)"', html)]
    _, html = look(links[1])
    found = {a["rel"]: a["href"] for a in Page(html).all("a") if a.get("rel")}
    assert found == {"prev": links[0], "next": links[2]}
    _, html = look(re.sub("_n=1$", "_n=7", links[1]))  # not its place: no neighbours
    assert not [a for a in Page(html).all("a") if a.get("rel")]


def test_a_prompt_can_be_had_as_it_was_sent(look: Look, runs: Path) -> None:
    _, html = look("/run/hostile/flips")
    link = unescape(re.findall(r'href="(/run/hostile/flip\?[^"]*)"', html)[0])
    _, html = look(link)
    raw = [str(one["data-raw"]) for one in Page(html).classed("prompt")]
    sent = [look(address)[1] for address in raw]
    assert sent[0] != sent[1]
    calls = Run(runs / "hostile").calls
    known = set(Run(runs / "hostile").prompts(calls["prompt"].unique().to_list()).values())
    assert set(sent) <= known
    status, html = look(raw[0].replace("side=0", "side=2"))
    assert (status, "no side '2'; known: 0, 1" in Page(html).text) == (400, True)


def test_hostile_texts_stay_texts_in_the_grid_and_on_their_page(look: Look) -> None:
    status, html = look("/run/hostile/items?order=study")
    assert status == 200
    for address in re.findall(r'href="(/run/hostile/item\?[^"]*)"', html)[: len(HOSTILE) + 1]:
        status, own = look(unescape(address))
        assert status == 200
        for text in (html, own):
            page = Page(text)
            assert {one["src"] for one in page.all("script")} == {
                "/assets/page.js",
                "/assets/view.js",
            }
            assert not page.all("img") + page.all("base") + page.all("style")
            assert not any(name.startswith("on") for _, a in page.tags for name in a)
        assert len(own) < 200_000


# what items are sliced by


def test_items_are_filed_by_gold_class_and_length(grid: ItemGrid) -> None:
    columns = item_columns(grid.run)
    assert [*columns.by_name] == [GOLD, LENGTH]
    sizes = columns.of(LENGTH)["slice"].value_counts()["count"].to_list()
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 3
    with pytest.raises(Problem, match="no column 'x' to slice by; known: gold class, length"):
        columns.of("x")


def test_a_slice_filters_the_grid(look: Look, grid: ItemGrid) -> None:
    columns = item_columns(grid.run)
    own = columns.of(GOLD).filter(slice="neutral")
    _, html = look("/run/several/items?by=gold+class&slice=neutral")
    assert set(shown_items(html)) == set(own["item"])
    assert f"{len(own)} items that match" in Page(html).text


# pictures of classes


def test_a_class_shows_by_its_own_number_not_by_its_place() -> None:
    zero_to_ten = DrawnClasses(Scale(tuple(map(str, range(11)))), 11)
    assert [zero_to_ten.sign(rank) for rank in (1, 11, 0)] == ["0", "10", "×"]
    words = DrawnClasses(Scale(("bad", "good")), 2)
    assert [words.sign(rank) for rank in (1, 2)] == ["1", "2"]
    scores = DrawnClasses(Scale((), span=Span(0, 1)), Span(0, 1).n_ranks)
    assert scores.sign(Span(0, 1).rank(0.25)) == "0.25"


@pytest.mark.parametrize(
    ("span", "score", "sign"),
    [
        (Span(0, 10), 0.0461, "0.05"),
        (Span(0, 10), 10, "10"),
        (Span(0, 100), 87.46, "87.5"),
        (Span(-500, 500), -120.4, "-120"),
        (Span(0, 0.1), 0.0461, "0.046"),
    ],
)
def test_a_score_fits_its_tick(span: Span, score: float, sign: str) -> None:
    drawn = DrawnClasses(Scale((), span=span), span.n_ranks)
    assert drawn.sign(span.rank(score)) == sign
    assert drawn.width > 6 * len(sign)


def test_a_legend_names_what_a_chip_does_not_say() -> None:
    scores, words = DrawnClasses(Scale(("0", "1")), 2), DrawnClasses(Scale(("low", "high")), 2)
    assert [name for _, name in scores.legend] == ["", "", "no class"]
    assert [name for _, name in words.legend] == ["low", "high", "no class"]


def test_shades_run_from_the_lowest_class_to_the_highest() -> None:
    five = DrawnClasses(Scale(("a", "b", "c", "d", "e")), 5)
    assert [five.shade(rank) for rank in range(6)] == ["k0", "k1", "k3", "k5", "k7", "k9"]
    assert DrawnClasses(None, 1).shade(1) == "k1"


def test_a_picture_says_in_words_what_it_shows() -> None:
    classes = DrawnClasses(Scale(("low", "high")), 2)
    drawn = picture([[1, 2], [1, 0]], ["base", "reversed"], classes)
    assert 'aria-label="base: low 2 times; reversed: no class, high"' in drawn
    assert drawn.count("<rect") == 4
    gaps = picture([[1, NOT_ASKED]], ["base", "reversed"], classes)
    assert gaps.count("<rect") == 1
    bars = picture([[1, 2]] * (MOST_LINES + 1), ["base", "reversed"], classes)
    assert bars.count("<rect") == 2
    assert picture([[NOT_ASKED]], ["base"], classes) == ""


# differences between prompts


def test_labels_are_marked_whole() -> None:
    first, second = compare(
        "1. very negative\n", "1. very positive\n", ["very negative", "very positive"]
    )
    assert [piece.text for piece in first if piece.kind == "differs"] == ["very negative"]
    assert [piece.text for piece in second if piece.kind == "differs"] == ["very positive"]


def test_nothing_is_marked_inside_the_item(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for k in range(40):
            rows.writerow(
                [f"It was very good or very bad, said number {k}", ("bad", "good")[k % 2]]
            )
    data = {"file": str(path), "text": "text", "label": "label", "scale": ["bad", "good"]}
    run = simulated(tmp_path / "runs" / "r", models=[TILTED], datasets=[data], test_size=20)
    assert Flips(run).n(Sought())
    ((_, html),) = served(tmp_path / "runs", "/run/r/flips")
    link = unescape(re.findall(r'href="(/run/r/flip\?[^"]*)"', html)[0])
    ((_, html),) = served(tmp_path / "runs", link)
    own = re.findall(r'<span class="own">(.*?)</span>', html)
    assert len(own) == 2
    assert all("<mark>" not in text and text.startswith("It was very good") for text in own)
    assert "<mark>" in html


def test_a_run_without_texts_shows_its_items_by_id(runs: Path, tmp_path: Path) -> None:
    run = simulated(tmp_path / "r", models=[TILTED], test_size=20)
    changed(run.folder, items=run.items.with_columns(text=pl.lit("")))
    (status, html), (_, own) = served(
        tmp_path, "/run/r/items", f"/run/r/item?dataset=reviews&item={run.decisions['item'][0]}"
    )
    assert status == 200
    assert f"item {shown_items(html)[0]}" in Page(html).text
    assert "The run has no text of this item." in Page(own).text


# slices


def planted(folder: Path, **changes: Any) -> Run:
    """A rater that reverses its answers to one language only, under the label list reversed."""
    path = folder.parent / "planted.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "language", "wordy"])
        for k in range(180):
            language = ("de", "en", "fr")[k % 3]
            label = ("low", "mid", "high")[k // 3 % 3]
            rows.writerow([f"{language} text number {k}", label, language, f"row {k}"])
    data = {
        "file": str(path),
        "name": "planted",
        "scale": ["low", "mid", "high"],
        "slices": ["language", "wordy"],
    }
    study = {"models": ["sim/honest"], "datasets": [data], "test_size": 90, **changes}
    run = simulated(folder, probes=["label_order"], **study)
    moved = (pl.col("view") == "reversed") & pl.col("item").is_in(
        [one["id"] for one in run.items.to_dicts() if one["text"].startswith("de")]
    )
    rank = pl.when(moved).then(pl.col("rank") % 3 + 1).otherwise("rank")
    return changed(folder, decisions=run.decisions.with_columns(rank=rank))


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return planted(tmp_path_factory.mktemp("sliced") / "planted")


def test_columns_of_the_data_are_kept_and_never_shown(sliced: Run) -> None:
    assert "language" in item_columns(sliced).by_name
    prompts = sliced.prompts(sliced.calls["prompt"].unique().to_list())
    assert not any("row " in text for text in prompts.values())
    with pytest.raises(Problem, match="has no column 'tongue'"):
        load_file(
            sliced.folder.parent / "planted.csv", scale=["low", "mid", "high"], slices=["tongue"]
        )


def test_the_slice_that_flips_is_found(sliced: Run) -> None:
    slices = item_columns(sliced).of("language")
    found = slice_rates(sliced.decisions, slices, sliced.contrasts)
    words = dict(found.select("slice", "word").iter_rows())
    assert words == {"de": "higher", "en": "lower", "fr": "lower"}
    values = dict(found.select("slice", "value").iter_rows())
    assert values == {"de": 1.0, "en": 0.0, "fr": 0.0}


def test_a_slice_of_everything_has_the_rate_and_interval_of_the_verdict(sliced: Run) -> None:
    whole = item_columns(sliced).keys.with_columns(slice=pl.lit("all"))
    (row,) = slice_rates(sliced.decisions, whole, sliced.contrasts).to_dicts()
    (verdict,) = sliced.verdicts.to_dicts()
    assert [row[name] for name in ("value", "low", "high")] == pytest.approx(
        [verdict[name] for name in ("value", "low", "high")]
    )
    assert (row["rest"], row["p"], row["word"]) == (None, None, "")


def test_slices_by_chance_are_rarely_told_apart() -> None:
    rng = np.random.default_rng(3)
    wrong = 0
    for seed in range(200):
        shares = (rng.random(90) < 0.3).astype(float)
        p = [exchange_p(shares[k::3], np.delete(shares, np.s_[k::3]), seed=seed, draws=999)
             for k in range(3)]  # fmt: skip
        wrong += bool((holm(p) < 0.05).any())
    assert wrong <= 0.05 * 200 + 3 * (0.0475 * 200) ** 0.5


def test_exchanging_agrees_with_the_hypergeometric_distribution() -> None:
    inside, outside = np.array([1.0] * 6 + [0.0] * 4), np.array([1.0] * 4 + [0.0] * 16)
    p = exchange_p(inside, outside, draws=100_000)
    tail = hypergeom(30, 10, 10)
    exact = sum(tail.pmf(k) for k in range(11) if abs(k - 10 / 3) >= 6 - 10 / 3 - 1e-9)
    assert p == pytest.approx(exact, abs=0.004)


def test_clusters_in_two_slices_are_not_tested(sliced: Run) -> None:
    one = sliced.decisions.with_columns(cluster=pl.lit("all of them"))
    found = slice_rates(one, item_columns(sliced).of("language"), sliced.contrasts)
    assert found["p"].to_list() == [None] * 3
    assert set(found["word"]) == {""}


def test_the_page_of_slices_leads_to_the_items_of_each(sliced: Run) -> None:
    root = sliced.folder.parent
    ((status, html),) = served(root, "/run/planted/slices?by=language")
    page = Page(html)
    assert status == 200
    assert "P1 by language" in page.text
    assert "100.0 % [" in page.text
    link = next(str(a["href"]) for a in page.all("a") if "slice=de" in (a.get("href") or ""))
    ((_, html),) = served(root, link)
    n = len(item_columns(sliced).of("language").filter(slice="de"))
    assert f"{n} items that match" in Page(html).text
    for address, told in (
        ("by=nothing", "no column 'nothing' to slice by; known: gold class, length, language"),
        ("contrast=P9", "No pair of answers matches."),
        ("rater=nobody", "No pair of answers matches."),
    ):
        ((status, html),) = served(root, f"/run/planted/slices?{address}")
        assert told in Page(html).text
    ((_, html),) = served(root, "/run/planted/slices")
    assert "P1 by gold class" in Page(html).text


def test_a_name_for_every_item_is_nothing_to_slice_by(sliced: Run) -> None:
    assert "wordy" in sliced.items["columns"][0]
    assert "wordy" not in item_columns(sliced).by_name
