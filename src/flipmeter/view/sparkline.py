"""Runs of one study -> a line of their rates over time."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from flipmeter.report.page.draw import place
from flipmeter.report.page.texts import visible
from flipmeter.view.folders import WHERE, Summary

WIDTH, HEIGHT, EDGE = 120, 28, 4
MOST = 40
"""Runs that a line shows: the last ones."""


def rates_line(summaries: Sequence[Summary]) -> Markup:
    """Draw how the worst contrast of the last run went over the runs, oldest first.

    Runs without that rater, dataset, level and contrast are left out; one run has no line.
    """
    worst = summaries[-1].worst if summaries else None
    if worst is None:
        return Markup("")
    where = tuple(worst[name] for name in WHERE)
    values = [one.rates[where] for one in summaries if where in one.rates][-MOST:]
    if len(values) < 2:
        return Markup("")
    top = max(*values, 0.05)
    step = (WIDTH - 2 * EDGE) / (len(values) - 1)
    points = [
        (EDGE + step * at, HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * value / top)
        for at, value in enumerate(values)
    ]
    path = " ".join(f"{place(x)},{place(y)}" for x, y in points)
    told = ", ".join(f"{100 * value:.1f} %" for value in values)
    about = visible(
        f"{worst['contrast']} of {worst['rater']} in {len(values)} runs of this study, "
        f"oldest first: {told}"
    )
    x, y = points[-1]
    return Markup(
        '<svg class="line" role="img" width="{}" height="{}" aria-label="{}"><title>{}</title>'
        '<polyline points="{}"/><circle cx="{}" cy="{}" r="3"/></svg>'
    ).format(WIDTH, HEIGHT, about, about, path, place(x), place(y))
