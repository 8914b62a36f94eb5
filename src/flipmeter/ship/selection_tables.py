"""Selection -> tables: the Pareto front, the choice, and its held-out performance."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from flipmeter.measure import HeldOut, Standing
from flipmeter.measure.effects.pareto import CANNOT_FLIP
from flipmeter.measure.statistics.resample import RESAMPLES
from flipmeter.report.format import count, interval, number, percent, whole_percent
from flipmeter.report.table import Column, Table, groups_of
from flipmeter.ship.select import Selection, shown_candidate, shown_limits

NOTHING = "-"


def selection_tables(found: Selection, *, show_all: bool = False) -> Iterator[RenderableType]:
    """The configurations on the front, or all of them, and what is chosen."""
    yield _table(found, show_all=show_all)
    yield from _lines(found)


def _table(found: Selection, *, show_all: bool) -> Table:
    shown = found.standings if show_all else found.front
    if found.chosen is not None and found.chosen not in shown:
        shown = [*shown, found.chosen]
    costs = found.cost if found.cost != "none" else "cost"
    numbers = [*(f"{name} flips" for name in found.field.contrasts), costs, "on front", "chosen"]
    columns = ["", "configuration", f"{found.by} [95 %]"]
    n = f"{len(found.front)} of {len(found.standings)} configurations"
    return Table(
        f"{found.dataset}, {found.field.n_items} items; Pareto front: {n}",
        [*columns, *(Column(name, align="right") for name in numbers)],
        groups_of([*_cells(found, one)] for one in shown),
    )


def _cells(found: Selection, one: Standing) -> Iterator[str]:
    yield "→" if one is found.chosen else ("" if one.is_on_front else "dominated")
    yield shown_candidate(one.candidate)
    yield str(one.score)
    yield from (percent(one.flips[name].value) or NOTHING for name in found.field.contrasts)
    yield number(one.cost, ".3g") if found.cost != "none" else NOTHING
    yield percent(one.chance_on_front, 0)
    yield percent(one.chance_chosen, 0)


def _lines(found: Selection) -> Iterator[str]:
    """Yield what is chosen and what that is worth beside the naive numbers, and what to know."""
    n, limits = len(found.standings), shown_limits(found.limits)
    if found.chosen is None:
        yield f"no configuration is shown to have {limits} (95 %, over all {n} compared)"
        yield "  ask more items, compare fewer configurations, or raise the limit"
    else:
        yield f"chosen{f' ({limits})' if limits else ''}: {shown_candidate(found.chosen.candidate)}"
        yield f"  on all items, the best of {n}: {_numbers(found, found.chosen)}"
    if found.held_out is not None:
        yield f"  on held-out items: {_numbers(found, found.held_out)}"
        chosen = dict.fromkeys(shown_candidate(one) for one in found.held_out.chosen)
        yield f"  chosen on each half of the items: {'; '.join(chosen)}"
    elif found.limits and found.chosen is not None:
        yield "  half of the items is too few to show the limit: no held-out estimate"
    if n > 1:
        yield f"95 % intervals and limits hold for all {n} configurations together (simultaneous)"
    yield f"faults count as errors, not flips; chances are shares of {count(RESAMPLES)} resamples"
    yield from _unreadable(found)
    if any(flip.note == CANNOT_FLIP for one in found.standings for flip in one.flips.values()):
        yield f"{NOTHING}: positions cannot vary there, so nothing can flip; counts as 0"
    if found.flip_proof:
        yield f"ruled out by construction in all of these: flips of {', '.join(found.flip_proof)}"
    if found.can_flip:
        yield f"left out, because they can flip: {', '.join(found.can_flip)}"
    if found.left_out:
        yield f"left out, on another scale or dataset: {', '.join(found.left_out)}"


def _unreadable(found: Selection) -> Iterator[str]:
    """Yield the configurations that a limit leaves out because of what cannot be read."""
    for name in found.limits:
        failed = [one for one in found.standings if name in one.unreadable_in]
        if failed:
            shown = "; ".join(
                f"{shown_candidate(one.candidate)} {percent(one.unreadable[name])}"
                for one in failed
            )
            most = whole_percent(found.unreadable_limit)
            yield f"excluded, more than {most} of the pairs of {name} unreadable: {shown}"


def _numbers(found: Selection, one: Standing | HeldOut) -> str:
    is_shown = isinstance(one, Standing) and one.is_allowed
    limits = found.limits if is_shown else {}
    flips = (
        f"{name} {interval(vars(flip), absent=NOTHING)}"
        + (f" (shown below {limits[name]:g})" if name in limits else "")
        for name, flip in one.flips.items()
    )
    return ", ".join([f"{found.by} {one.score}", *flips])
