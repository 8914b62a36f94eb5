"""Runs -> the content of pages about a whole run, a list of flips, or one flip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.report.findings import class_name
from flipmeter.report.format import Record
from flipmeter.report.page import CHART, environment, page_content
from flipmeter.report.page.markup import counts, texts
from flipmeter.report.page.texts import compare
from flipmeter.report.table import Cell, Column, Table
from flipmeter.run.results.flipped_items import NO_PROMPTS, Opener, cut_out
from flipmeter.run.results.item_grid import WHOSE, Sought, led_from
from flipmeter.ship.choices import findings
from flipmeter.view.explorer import item_address
from flipmeter.view.flip_pages import FILTERS, KEY, ORDERS, PAGE, Flips, flips_of, read_key
from flipmeter.view.folders import ChosenRuns, NotHere


def make_report(chosen: ChosenRuns) -> dict[str, Any]:
    """Measure a run and write all sections of its report; flips are looked at in pages."""
    content = page_content(findings(chosen.run, with_items=False))
    flips = flips_of(chosen)
    html = (
        environment("flipmeter.view")
        .get_template("sections.html")
        .render(
            items="drill.html",
            flips_at=f"/run/{chosen.name}/flips",
            run=chosen.name,
            menus=flips.menus(Sought()),
            n_flips=flips.n(Sought()),
            **content,
        )
    )
    scripts = CHART if content["configurations"] else ()
    told = {name: content[name] for name in ("facts", "sections")}
    return {**told, "html": Markup(html), "scripts": scripts}


def flips_page(chosen: ChosenRuns, query: Mapping[str, str]) -> dict[str, Any]:
    """The flips that an address asks for, with their texts, without replies."""
    flips, wanted = flips_of(chosen), Sought.read(query, FILTERS, ORDERS)
    rows, n = flips.page(wanted), flips.n(wanted)
    opener, start = Opener.of_texts(rows, flips.run), (wanted.page - 1) * PAGE
    whose = {name: wanted[name] for name in (*WHOSE, "contrast") if wanted[name]}
    return {
        "wanted": wanted,
        "menus": flips.menus(wanted),
        "flips": [
            (opener.flip(row, opener.texts(row)[0]), _address(chosen, row, wanted, place))
            for place, row in enumerate(rows.iter_rows(named=True), start)
        ],
        "first": start + 1,
        "n_flips": n,
        "n_all": flips.n(Sought()),
        "n_pages": -(-n // PAGE),
        "unread": urlencode(whose | {"show": "unread"}),
    }


def _address(chosen: ChosenRuns, key: Mapping[str, Any], wanted: Sought, place: int) -> str:
    named = {name: key[name] for name in KEY}
    return f"/run/{chosen.name}/flip?" + urlencode(named | wanted.back(n=place))


def flip_page(chosen: ChosenRuns, query: Mapping[str, str]) -> dict[str, Any]:
    """One flip with all there is to see of it, and those beside it in its list."""
    key, told = read_key(query), led_from(query)
    flips, wanted = flips_of(chosen), Sought.read(told, FILTERS, ORDERS)
    opened, n = open_flip(flips, key), told.get("n", "")
    place = int(n) if n.isascii() and n.isdecimal() and len(n) < 10 else -1
    before = after = ""
    if place >= 0:
        start = max(place - 1, 0)
        rows = flips.some(wanted, start, place - start + 2).select(KEY).rows(named=True)
        at = place - start
        if at < len(rows) and rows[at] == key:
            before, after = (
                _address(chosen, rows[beside], wanted, start + beside)
                if 0 <= beside < len(rows)
                else ""
                for beside in (at - 1, at + 1)
            )
    sent = f"/run/{chosen.name}/sent?" + urlencode(key)
    return {
        **opened,
        "back": wanted.at(place // PAGE + 1 if place >= 0 else 1),
        "place": place,
        "n_flips": flips.n(wanted) if place >= 0 else 0,
        "before": before,
        "after": after,
        "raw": [f"{sent}&side={side}" for side in (0, 1)] if opened["sent"] else ("", ""),
        "item": item_address(chosen.name, (key["dataset"], key["item"]), Sought.read(told)),
    }


def open_flip(flips: Flips, key: Mapping[str, Any]) -> dict[str, Any]:
    """Two answers with their prompts, what differs between them marked, or why they are not there.

    In the prompts a gap stands for the text of the item; `sent` are the prompts as they were sent.
    """
    row = flips.row(key)
    if row is None:
        raise NotHere(
            f"no answers to item '{key['item']}' under {key['contrast']} by '{key['rater']}'"
        )
    opener = Opener.of(pl.DataFrame([row]), flips.run)
    text, a, b = opener.texts(row)
    contrast, prompts, sent = opener.contrast(row), [], None
    if a is not None and b is not None:
        marked = compare(*cut_out(a, b, text), opener.labels(row["dataset"]))
        prompts, sent = list(zip(contrast.views, marked, strict=True)), (a, b)
    return {
        "flip": opener.flip(row, text),
        "is_flip": bool(row["is_flip"]),
        "moves": contrast.about,
        "marked": prompts,
        "sent": sent,
        "trouble": f"The two prompts are not shown: {NO_PROMPTS}.",
        "views": _views(flips, key),
    }


def _views(flips: Flips, key: Mapping[str, Any]) -> Table:
    scales = flips.run.scales

    def answer(row: Record) -> Cell:
        rank = row["rank"]
        fault = f"no class ({row['fault']})"
        return Cell(class_name(scales, key["dataset"], rank) if rank else fault, rank)

    columns = [texts("view", kind="code"), counts("repeat"), Column("answer", answer)]
    return Table.of("Answers under every view", columns, flips.answers(key).to_dicts())
