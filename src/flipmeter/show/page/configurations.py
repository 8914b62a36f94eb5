"""Choices -> the configuration view: the selection's own Pareto front, drawn and as a table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from markupsafe import Markup

from flipmeter.choose.select import Choice, shown_configuration, worst_flips
from flipmeter.show.findings import Findings
from flipmeter.show.format import Record, percent, visible
from flipmeter.show.page.draw import Point, scatter
from flipmeter.show.page.markup import MOST_ROWS, beside, breakable, left_out, page_table
from flipmeter.show.table import Cell, Column, Table
from flipmeter.types import Contrast, Estimate

if TYPE_CHECKING:
    from flipmeter.stats.front import Standing

MOST_PANELS = 8
MOST_OPEN = 12
"""A table with more rows is there to be opened."""
FLIPS = "flips "
"""Prefix of axes that are a contrast's flip rate."""
TITLES = {
    "accuracy": "accuracy",
    "mae": "mean absolute error, in classes",
    "worst_accuracy": "worst-case accuracy (of the worst view)",
    "calls": "calls per item",
    "tokens": "tokens per item",
}
SHORT = {"mae": "MAE", "worst_accuracy": "worst-case accuracy"}
BETTER_UP = ("accuracy", "worst_accuracy")
HOW = (
    "The Pareto front is that of `flipmeter select`: full dots are not beaten on {by}, flips under "
    "every contrast and {cost} together, so a full dot may look beaten on two axes alone. Lines "
    "are 95 % intervals that hold for all configurations together; those of worst-case accuracy "
    "hold each by itself. 'On it' and 'chosen' are the shares of resamples of the items in which a "
    "configuration is on the front, and in which it is the choice: the larger the dot, the larger "
    "that share."
)
UNREAD = "Unreadable answers count as wrong here; scores by view and changes by level omit them."


@dataclass(frozen=True)
class ConfigurationView:
    """The configurations on a dataset: a picture, a table, and the data of the chart."""

    title: str
    up: str
    across: str
    picture: Markup
    grid: Table
    data: Markup


def configuration_views(found: Findings) -> tuple[list[ConfigurationView], list[str]]:
    """A view for each dataset with something to choose from, and what to know of them."""
    compared = [one for one in found.choices if len(one.standings) > 1]
    troubles = [f"{one.dataset}: {one.trouble}." for one in found.choices if one.trouble]
    if not compared:
        nothing = "One rater at one level: there is nothing to compare it with."
        is_one = found.tally.select("rater", "level").n_unique() == 1
        return [], [nothing] if is_one else troubles or [nothing]
    known = {contrast.name: contrast for contrast in found.contrasts}
    drawn = [_configuration_view(choice, known) for choice in compared[:MOST_PANELS]]
    first = compared[0]
    # The first cost is what the selection weighs; the others are there to be looked at.
    costs = [f"{unit} per item" for unit in first.costs][:1] or ["nothing else"]
    notes = [HOW.format(by=first.by, cost=costs[0]), *troubles]
    if found.verdicts["unreadable"].sum():
        notes.append(UNREAD)
    more = "flipmeter select RUN --dataset NAME --all"
    return drawn, [*notes, *left_out(len(compared) - MOST_PANELS, "datasets", more)]


def _configuration_view(choice: Choice, known: Mapping[str, Contrast]) -> ConfigurationView:
    rows = _configuration_rows(choice)
    drawn = _drawn_configurations(rows)
    cut = f"; the picture shows {len(drawn)} of them" if len(drawn) < len(rows) else ""
    # The contrast that any configuration flips most under is what a choice hangs on.
    worst = [found for row in rows if (found := worst_flips(row["one"].flips))]
    flips = list(choice.standings[0].flips)
    contrast = max(worst, key=lambda found: found[1].value)[0] if worst else flips[0]
    points = [
        Point(
            row["name"],
            _drawn_flip_rate(row["one"], contrast),
            _estimate_ends(row["one"].score),
            row["one"].is_on_front,
            row["is_chosen"],
            not row["one"].level,
        )
        for row in drawn
        if not math.isnan(_drawn_flip_rate(row["one"], contrast)[0])
    ]
    n_front = sum(row["one"].is_on_front for row in rows)
    told = f"{choice.dataset}: {choice.by} against flips under {contrast}"
    picture = scatter(points, f"{told} of {len(rows)} configurations, {n_front} on the front")
    return ConfigurationView(
        f"{choice.dataset}: {len(rows):,} configurations, {n_front:,} on the Pareto front{cut}",
        f"{choice.by}, %",
        f"flips under {contrast}, {known[contrast].about}, %",
        picture if len(points) > 1 and choice.by == "accuracy" else Markup(""),
        _configuration_table(choice, rows),
        _script_data(choice, drawn, known, contrast),
    )


def _configuration_rows(choice: Choice) -> list[Record]:
    """The configurations with their names and the filters of their items: the choice first, then
    the front, the best first."""
    several = len({one.rater for one in choice.standings}) > 1
    sign = -1 if choice.by in BETTER_UP else 1
    rows: list[Record] = [
        {
            "one": one,
            "name": shown_configuration(one, several_raters=several),
            "is_chosen": one is choice.chosen,
            "others": {name: found[place] for name, found in choice.others.items()},
            "costs": {unit: cost[place] for unit, cost in choice.costs.items()},
            "factors": {"rater": one.rater, **choice.factors[place]},
            "query": urlencode(
                {"rater": one.rater, "level": one.level or "base", "dataset": choice.dataset}
            ),
        }
        for place, one in enumerate(choice.standings)
    ]
    rows.sort(
        key=lambda row: (
            not row["is_chosen"],
            not row["one"].is_on_front,
            sign * row["one"].score.value,
        )
    )
    return rows


def _drawn_configurations(rows: Sequence[Record]) -> Sequence[Record]:
    """The configurations that a picture has room for: the best of the front and of the others."""
    best = [row for row in rows if row["is_chosen"] or row["one"].is_on_front]
    others = [row for row in rows if not (row["is_chosen"] or row["one"].is_on_front)]
    n_best = max(MOST_ROWS // 2, MOST_ROWS - len(others))
    return [*best[:n_best], *others][:MOST_ROWS]


def _drawn_flip_rate(one: Standing, contrast: str) -> tuple[float, float, float]:
    """The drawn flip rate with its interval; what cannot flip counts as 0, as in the selection."""
    return (0.0, 0.0, 0.0) if contrast in one.cannot_flip else _estimate_ends(one.flips[contrast])


def _estimate_ends(one: Estimate) -> tuple[float, float, float]:
    return one.value, one.low, one.high


# --- as a table -------------------------------------------------------------------------------


def _configuration_table(choice: Choice, rows: Sequence[Record]) -> Table:
    columns = [
        Column(
            "configuration",
            lambda row: Cell(breakable(row["name"]), row["name"], "", row["query"]),
        ),
        Column(Markup("Pareto front <small>on it, chosen</small>"), _selection_standing_cell),
        Column(
            SHORT.get(choice.by, choice.by), lambda row: _estimate_cell(row["one"].score, choice.by)
        ),
        *(
            Column(SHORT.get(name, name), partial(_other_metric_cell, name))
            for name in choice.others
        ),
        *(
            Column(f"{name} flips", partial(_flip_rate_cell, name))
            for name in choice.standings[0].flips
        ),
        *([Column(f"{', '.join(choice.costs)} per item", _cost_cell)] if choice.costs else []),
    ]
    dashed = any(one.cannot_flip for one in choice.standings)
    never = "–: positions cannot vary there, so nothing can flip; counts as 0."
    return page_table(
        f"{choice.dataset} as a table, the Pareto front first",
        columns,
        rows,
        [never] if dashed else [],
        f"flipmeter select RUN --dataset {choice.dataset} --all",
        kind="plain rates configurations",
        is_detail=len(rows) > MOST_OPEN,
    )


def _selection_standing_cell(row: Record) -> Cell:
    """Its place in the selection, and in how many resamples it is on the front and chosen."""
    one: Standing = row["one"]
    word = "chosen" if row["is_chosen"] else "yes" if one.is_on_front else "no"
    shares = f"{percent(one.chance_on_front, 0)}, {percent(one.chance_chosen, 0)}"
    return beside(word, shares, 4 * row["is_chosen"] + 2 * one.is_on_front + one.chance_on_front)


def _cost_cell(row: Record) -> Cell:
    first, *others = row["costs"].values()
    return beside(f"{first:.3g}", ", ".join(f"{cost:.3g}" for cost in others), first)


def _other_metric_cell(metric: str, row: Record) -> Cell:
    return _estimate_cell(row["others"][metric], metric)


def _flip_rate_cell(contrast: str, row: Record) -> Cell:
    return _estimate_cell(row["one"].flips[contrast], FLIPS)


def _estimate_cell(one: Estimate, metric: str) -> Cell:
    if math.isnan(one.value):
        return Cell("–", None, "num")
    is_error = metric == "mae"
    value, low, high = (f"{x:.2f}" if is_error else f"{100 * x:.1f}" for x in _estimate_ends(one))
    return beside(value + ("" if is_error else " %"), f"[{low}, {high}]", one.value)


# --- as data ----------------------------------------------------------------------------------


def _script_data(
    choice: Choice, rows: Sequence[Record], known: Mapping[str, Contrast], contrast: str
) -> Markup:
    """The data of the page's script, as JSON that is safe inside an element."""
    first = choice.standings[0]
    axes = {
        **{name: TITLES[name] for name in (choice.by, *choice.others)},
        **{f"{FLIPS}{name}": f"flips under {name}, {known[name].about}" for name in first.flips},
        **{unit: TITLES[unit] for unit in choice.costs},
    }
    facets: dict[str, set[str]] = {"rater": {one.rater for one in choice.standings}}
    for factors in choice.factors:
        for name, value in factors.items():
            facets.setdefault(name, set()).add(value)
    content = {
        "dataset": visible(choice.dataset),
        "axes": [
            {
                "name": name,
                "title": title,
                "unit": "%" if name in BETTER_UP or name.startswith(FLIPS) else "",
                "better": "up" if name in BETTER_UP else "down",
            }
            for name, title in axes.items()
        ],
        "across": f"{FLIPS}{contrast}",
        "up": choice.by,
        "facets": [name for name, some in facets.items() if len(some) > 1],
        "points": [_scatter_data(row, choice.by) for row in rows],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))


def _scatter_data(row: Record, by: str) -> dict[str, Any]:
    one: Standing = row["one"]
    numbers = {
        name: _estimate_ends(found) for name, found in {by: one.score, **row["others"]}.items()
    }
    numbers |= {f"{FLIPS}{contrast}": _drawn_flip_rate(one, contrast) for contrast in one.flips}
    return {
        "name": visible(row["name"]),
        "query": row["query"],
        "isFront": one.is_on_front,
        "isChosen": row["is_chosen"],
        "isBase": not one.level,
        "onFront": round(one.chance_on_front, 4),
        "chosen": round(one.chance_chosen, 4),
        "values": {
            key: [round(x, 6) for x in ends]
            for key, ends in numbers.items()
            if not math.isnan(ends[0])
        }
        | {unit: [round(cost, 6)] for unit, cost in row["costs"].items()},
        "factors": {factor: visible(level) for factor, level in row["factors"].items()},
    }
