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

from flipmeter.report.configurations import (
    Choice,
    shown_configuration,
    worst_flips,
)
from flipmeter.report.findings import Findings
from flipmeter.report.format import Record, percent, visible
from flipmeter.report.page.draw import Point, scatter
from flipmeter.report.page.markup import MOST_ROWS, beside, breakable, left_out, page_table
from flipmeter.report.table import Cell, Column, Table
from flipmeter.types import Contrast, Estimate

if TYPE_CHECKING:
    from flipmeter.measure.effects.pareto import Standing

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
    drawn = [_view(choice, known) for choice in compared[:MOST_PANELS]]
    first = compared[0]
    costs = " and ".join(_weighed(first)) or "nothing else"
    notes = [HOW.format(by=first.by, cost=costs), *troubles]
    if found.verdicts["unreadable"].sum():
        notes.append(UNREAD)
    more = "flipmeter select RUN --dataset NAME --all"
    return drawn, [*notes, *left_out(len(compared) - MOST_PANELS, "datasets", more)]


def _weighed(choice: Choice) -> list[str]:
    """The cost that the selection weighs; the others are there to be looked at."""
    return [f"{unit} per item" for unit in list(choice.costs)[:1]]


def _view(choice: Choice, known: Mapping[str, Contrast]) -> ConfigurationView:
    several = len({one.rater for one in choice.standings}) > 1
    names = [shown_configuration(one, several_raters=several) for one in choice.standings]
    order = _order(choice)
    drawn = _drawn(choice, order)
    cut = f"; the picture shows {len(drawn)} of them" if len(drawn) < len(order) else ""
    contrast = _leading(choice)
    points = [
        Point(
            names[place],
            _rate(one, contrast),
            _ends(one.score),
            one.is_on_front,
            one is choice.chosen,
            not one.level,
        )
        for place in drawn
        if not math.isnan(_rate(one := choice.standings[place], contrast)[0])
    ]
    n_front = sum(one.is_on_front for one in choice.standings)
    told = f"{choice.dataset}: {choice.by} against flips under {contrast}"
    picture = scatter(points, f"{told} of {len(names)} configurations, {n_front} on the front")
    return ConfigurationView(
        f"{choice.dataset}: {len(names):,} configurations, {n_front:,} on the Pareto front{cut}",
        f"{choice.by}, %",
        f"flips under {contrast}, {known[contrast].about}, %",
        picture if len(points) > 1 and choice.by == "accuracy" else Markup(""),
        _grid(choice, names, order),
        _data(choice, names, drawn, known, contrast),
    )


def _drawn(choice: Choice, order: Sequence[int]) -> Sequence[int]:
    """The configurations that a picture has room for: the best of the front and of the others."""
    if len(order) <= MOST_ROWS:
        return order
    known = choice.standings
    best = [at for at in order if known[at] is choice.chosen or known[at].is_on_front]
    others = [at for at in order if at not in best]
    n_best = max(MOST_ROWS // 2, MOST_ROWS - len(others))
    return [*best[:n_best], *others][:MOST_ROWS]


def _order(choice: Choice) -> list[int]:
    """Places of the configurations: the choice, then the front, best first."""
    sign = -1 if choice.by in BETTER_UP else 1
    return sorted(
        range(len(choice.standings)),
        key=lambda place: (
            choice.standings[place] is not choice.chosen,
            not choice.standings[place].is_on_front,
            sign * choice.standings[place].score.value,
        ),
    )


def _leading(choice: Choice) -> str:
    """The contrast that any configuration flips most under, which is what a choice hangs on."""
    worst = [found for one in choice.standings if (found := worst_flips(one.flips))]
    names = list(choice.standings[0].flips)
    return max(worst, key=lambda found: found[1].value)[0] if worst else names[0]


def _is_known(one: Estimate) -> bool:
    return not math.isnan(one.value)


def _rate(one: Standing, contrast: str) -> tuple[float, float, float]:
    """The drawn flip rate with its interval; what cannot flip counts as 0, as in the selection."""
    return (0.0, 0.0, 0.0) if contrast in one.cannot_flip else _ends(one.flips[contrast])


def _ends(one: Estimate) -> tuple[float, float, float]:
    return one.value, one.low, one.high


# --- as a table -------------------------------------------------------------------------------


def _grid(choice: Choice, names: Sequence[str], order: Sequence[int]) -> Table:
    columns = [
        Column("configuration", partial(_name, choice)),
        Column(Markup("Pareto front <small>on it, chosen</small>"), _standing),
        Column(SHORT.get(choice.by, choice.by), lambda row: _number(row["one"].score, choice.by)),
        *(_numbers(SHORT.get(name, name), choice.others[name], name) for name in choice.others),
        *(
            _numbers(f"{name} flips", [one.flips[name] for one in choice.standings], FLIPS)
            for name in choice.standings[0].flips
        ),
        *(
            [Column(f"{', '.join(choice.costs)} per item", partial(_costs, choice))]
            if choice.costs
            else []
        ),
    ]
    rows = [
        {
            "one": choice.standings[at],
            "at": at,
            "name": names[at],
            "is_chosen": choice.standings[at] is choice.chosen,
        }
        for at in order
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


def _numbers(title: str, found: Sequence[Estimate], name: str) -> Column:
    return Column(title, lambda row: _number(found[row["at"]], name))


def _name(choice: Choice, row: Record) -> Cell:
    return Cell(breakable(row["name"]), row["name"], "", _query(choice, row["one"]))


def _query(choice: Choice, one: Standing) -> str:
    """The filters of the items of a configuration."""
    return urlencode({"rater": one.rater, "level": one.level or "base", "dataset": choice.dataset})


def _standing(row: Record) -> Cell:
    """Its place in the selection, and in how many resamples it is on the front and chosen."""
    one: Standing = row["one"]
    word = "chosen" if row["is_chosen"] else "yes" if one.is_on_front else "no"
    shares = f"{percent(one.chance_on_front, 0)}, {percent(one.chance_chosen, 0)}"
    sort = 4 * row["is_chosen"] + 2 * one.is_on_front + one.chance_on_front
    return beside(word, shares, sort)


def _costs(choice: Choice, row: Record) -> Cell:
    first, *others = (cost[row["at"]] for cost in choice.costs.values())
    return beside(f"{first:.3g}", ", ".join(f"{cost:.3g}" for cost in others), first)


def _number(one: Estimate, metric: str) -> Cell:
    if not _is_known(one):
        return Cell("–", None, "num")
    is_error = metric == "mae"
    value, low, high = (f"{x:.2f}" if is_error else f"{100 * x:.1f}" for x in _ends(one))
    return beside(value + ("" if is_error else " %"), f"[{low}, {high}]", one.value)


# --- as data ----------------------------------------------------------------------------------


def _data(
    choice: Choice,
    names: Sequence[str],
    order: Sequence[int],
    known: Mapping[str, Contrast],
    contrast: str,
) -> Markup:
    """The data of the page's script, as JSON that is safe inside an element."""
    first = choice.standings[0]
    axes = {
        **{name: TITLES[name] for name in (choice.by, *choice.others)},
        **{f"{FLIPS}{name}": f"flips under {name}, {known[name].about}" for name in first.flips},
        **{unit: TITLES[unit] for unit in choice.costs},
    }
    content = {
        "dataset": visible(choice.dataset),
        "axes": [_axis(name, title) for name, title in axes.items()],
        "across": f"{FLIPS}{contrast}",
        "up": choice.by,
        "facets": _facets(choice),
        "points": [_point(choice, names[place], place) for place in order],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))


def _axis(name: str, title: str) -> dict[str, Any]:
    is_share = name in BETTER_UP or name.startswith(FLIPS)
    return {
        "name": name,
        "title": title,
        "unit": "%" if is_share else "",
        "better": "up" if name in BETTER_UP else "down",
    }


def _facets(choice: Choice) -> list[str]:
    """The facets of configurations: raters, and factors that vary."""
    values: dict[str, set[str]] = {"rater": {one.rater for one in choice.standings}}
    for factors in choice.factors:
        for factor, level in factors.items():
            values.setdefault(factor, set()).add(level)
    return [name for name, some in values.items() if len(some) > 1]


def _point(choice: Choice, name: str, place: int) -> dict[str, Any]:
    one = choice.standings[place]
    numbers: dict[str, tuple[float, float, float]] = {choice.by: _ends(one.score)}
    numbers |= {metric: _ends(found[place]) for metric, found in choice.others.items()}
    numbers |= {f"{FLIPS}{contrast}": _rate(one, contrast) for contrast in one.flips}
    return {
        "name": visible(name),
        "query": _query(choice, one),
        "isFront": one.is_on_front,
        "isChosen": one is choice.chosen,
        "isBase": not one.level,
        "onFront": round(one.chance_on_front, 4),
        "chosen": round(one.chance_chosen, 4),
        "values": {
            key: [round(x, 6) for x in ends]
            for key, ends in numbers.items()
            if not math.isnan(ends[0])
        }
        | {unit: [round(cost[place], 6)] for unit, cost in choice.costs.items()},
        "factors": {"rater": visible(one.rater)}
        | {factor: visible(level) for factor, level in choice.factors[place].items()},
    }
