"""Look at single items: the views of one, and one that flipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from flipmeter.base.files.parquet import collected
from flipmeter.decide import open_pipeline
from flipmeter.report.findings import Flip
from flipmeter.report.pairs import flipped, lazy_pairs
from flipmeter.run.rate import panel_of, writer
from flipmeter.run.record.folder import Run
from flipmeter.run.record.generation import DECISIONS
from flipmeter.run.results.flipped_items import Opener
from flipmeter.types import Condition, Contrast, Item, Prompt


def views_of_item(grid: Sequence[Condition], place: int) -> Iterator[tuple[str, Prompt]]:
    """Yield the prompt of one item under every view, repeats left out."""
    item = grid[0].items[place]
    for condition in grid:
        if not condition.view.repeat:
            yield condition.view.name, prompt_of(condition, item)


def prompt_of(condition: Condition, item: Item) -> Prompt:
    """The first prompt that a condition shows for an item."""
    alone = panel_of(replace(condition, items=(item,)))
    first = open_pipeline(condition.rater.pipeline).asks(alone, {})[0]
    return writer(condition)(first)


def flipped_pair(run: Run) -> tuple[Contrast, Flip, tuple[str, str]] | None:
    """The flipped item with the shortest text, of the first contrast that has one; its prompts."""
    read = pl.col("rank") > 0, pl.col("rank_b") > 0, pl.col("level") == ""
    flips = flipped(lazy_pairs(run.scan(DECISIONS), run.contrasts)).filter(read).pipe(collected)
    if flips.is_empty():
        return None
    own = flips.filter(contrast=flips["contrast"][0])
    opener = Opener.of(own, run)
    row = min(own.iter_rows(named=True), key=lambda one: len(opener.texts(one)[0]))
    _, a, b = opener.texts(row)
    return opener.contrast(row), opener.flip(row, ""), (a or "", b or "")
