"""Look at single items: the views of one, and one that flipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from flipmeter.decide import open_pipeline
from flipmeter.run.rate import panel_of, writer
from flipmeter.types import NO_CLASS, Condition, Contrast, Item, Prompt


@dataclass(frozen=True)
class FlippedPair:
    """One item with two views on which the rater did not agree with itself."""

    contrast: Contrast
    gold: str
    views: tuple[str, str]
    prompts: tuple[str, str]
    answers: tuple[str, str]


def views_of_item(grid: Sequence[Condition], place: int) -> Iterator[tuple[str, Prompt]]:
    """Yield the prompt of one item under every view, repeats left out."""
    item = grid[0].items[place]
    for condition in grid:
        if not condition.view.repeat:
            yield condition.view.name, prompt_of(condition, item)


def prompt_of(condition: Condition, item: Item) -> Prompt:
    """Return the first prompt that a condition shows for an item."""
    alone = panel_of(replace(condition, items=(item,)))
    first = open_pipeline(condition.rater.pipeline).asks(alone, {})[0]
    return writer(condition)(first)


def flipped_pair(
    grid: Sequence[Condition], decisions: pl.DataFrame, contrasts: Sequence[Contrast]
) -> FlippedPair | None:
    """Return the flipped item with the shortest text: the easiest one to look at."""
    for contrast in contrasts:
        if contrast.is_pair:
            pair = _flipped_by(grid, decisions, contrast)
            if pair is not None:
                return pair
    return None


def _flipped_by(
    grid: Sequence[Condition], decisions: pl.DataFrame, contrast: Contrast
) -> FlippedPair | None:
    sides = [c for name in contrast.views for c in grid if _shows(c, name)]
    by_name = {side.view.name: side for side in sides[::-1]}
    if any(name not in by_name for name in contrast.views):
        return None
    a, b = (by_name[name] for name in contrast.views)
    ranks_a, ranks_b = _ranks(decisions, a), _ranks(decisions, b)
    both = [item for item in a.items if item.id in ranks_a and item.id in ranks_b]
    flipped = [
        item
        for item in both
        if ranks_a[item.id] != ranks_b[item.id]
        and NO_CLASS not in (ranks_a[item.id], ranks_b[item.id])
    ]
    if not flipped:
        return None
    item, scale = min(flipped, key=lambda one: len(one.text)), a.task.scale
    return FlippedPair(
        contrast,
        scale.name(item.gold) if item.gold else "unknown",
        (a.view.name, b.view.name),
        (prompt_of(a, item).text, prompt_of(b, item).text),
        (scale.name(ranks_a[item.id]), scale.name(ranks_b[item.id])),
    )


def _shows(condition: Condition, view: str) -> bool:
    return condition.view.name == view and not condition.view.repeat and not condition.level


def _ranks(decisions: pl.DataFrame, side: Condition) -> dict[str, int]:
    mine = decisions.filter(
        rater=side.rater.name,
        dataset=side.dataset,
        level=side.level,
        seed=side.seed,
        view=side.view.name,
        repeat=side.view.repeat,
    )
    return dict(zip(mine["item"], mine["rank"], strict=True))
