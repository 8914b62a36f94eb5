"""Work that takes long, made once while pages go on being served: sections, lists of flips."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from subprocess import PIPE, Popen
from typing import Any
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.errors import Problem
from flipmeter.process import start_python
from flipmeter.show.findings import class_name
from flipmeter.show.flipped_items import NO_PROMPTS, Opener, cut_out
from flipmeter.show.format import Record
from flipmeter.show.item_grid import WHOSE, Sought, led_from
from flipmeter.show.next_steps import findings
from flipmeter.show.page import CHART, environment, page_content
from flipmeter.show.page.markup import compare, counts, texts
from flipmeter.show.table import Cell, Column, Table
from flipmeter.show.view.explorer import item_address
from flipmeter.show.view.flip_pages import FILTERS, KEY, ORDERS, PAGE, Flips, flips_of, read_key
from flipmeter.show.view.folders import ChosenRuns, NotHere, said

KEPT = 16
"""Number of results kept."""
PATIENCE = 1.0
"""Seconds that a page waits for a result before it says that it is being made."""
SOON = 0.1
"""The wait for large work: it is never done so soon."""


@dataclass
class Jobs:
    """Results by key. Small work is done in a thread, large work in a process that ends with it."""

    patience: float = PATIENCE
    _tasks: OrderedDict[Hashable, asyncio.Task[Any]] = field(default_factory=OrderedDict)
    _processes: set[Popen[bytes]] = field(default_factory=set)

    async def result(
        self,
        key: Hashable,
        work: Callable[..., Any],
        *arguments: Any,
        is_small: bool,
    ) -> Any | None:
        """The result of some work, None while it takes longer than a page can wait.

        A failure is raised, and the work tried again at the next request.
        """
        if key not in self._tasks:
            run = asyncio.to_thread if is_small else self._apart
            self._tasks[key] = asyncio.create_task(run(work, *arguments))
            while len(self._tasks) > KEPT:
                self._tasks.popitem(last=False)[1].cancel()
        task = self._tasks[key]
        self._tasks.move_to_end(key)
        left = self.patience * (1 if is_small else SOON)
        await asyncio.wait([task], timeout=max(left, 0.0))
        if not task.done():
            return None
        if task.cancelled() or task.exception() is not None:
            del self._tasks[key]
        return task.result()

    async def _apart(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Work in a process of its own: what it reads whole is let go of when it ends."""
        asked = pickle.dumps((work, arguments))
        code = f"from {__name__} import tell; tell()"
        process = start_python("-c", code, stdin=PIPE, stdout=PIPE)
        self._processes.add(process)
        try:
            told, _ = await asyncio.to_thread(process.communicate, asked)
        finally:
            self._processes.discard(process)
            process.kill()
        if not told:
            raise Problem("the process that made this was killed; is there enough memory?")
        result, problem = pickle.loads(told)
        if problem:
            raise Problem(problem)
        return result

    def close(self) -> None:
        """End what is under way."""
        for process in list(self._processes):
            process.kill()


def tell() -> None:
    """In the process apart: do the work that standard input names, and write what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us says when to end
    pipe, sys.stdout = sys.stdout.buffer, sys.stderr  # whatever is printed is no result
    work, arguments = pickle.load(sys.stdin.buffer)
    try:
        told = (work(*arguments), "")
    except Exception as error:
        told = (None, said(error))
    pipe.write(pickle.dumps(told))
    pipe.flush()


def make_report(chosen: ChosenRuns) -> dict[str, Any]:
    """Measure a run and write all sections of its report; flips are looked at in pages."""
    content = page_content(findings(chosen.run, with_items=False))
    flips = flips_of(chosen)
    html = (
        environment("flipmeter.show.view")
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
            (opener.flip(row, opener.texts(row)[0]), _flip_page_address(chosen, row, wanted, place))
            for place, row in enumerate(rows.iter_rows(named=True), start)
        ],
        "first": start + 1,
        "n_flips": n,
        "n_all": flips.n(Sought()),
        "n_pages": -(-n // PAGE),
        "unread": urlencode(whose | {"show": "unread"}),
    }


def _flip_page_address(
    chosen: ChosenRuns, key: Mapping[str, Any], wanted: Sought, place: int
) -> str:
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
                _flip_page_address(chosen, rows[beside], wanted, start + beside)
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
        "views": _views_table(flips, key),
    }


def _views_table(flips: Flips, key: Mapping[str, Any]) -> Table:
    scales = flips.run.scales

    def answer(row: Record) -> Cell:
        rank = row["rank"]
        fault = f"no class ({row['fault']})"
        return Cell(class_name(scales, key["dataset"], rank) if rank else fault, rank)

    columns = [texts("view", kind="code"), counts("repeat"), Column("answer", answer)]
    return Table.of("Answers under every view", columns, flips.answers(key).to_dicts())
