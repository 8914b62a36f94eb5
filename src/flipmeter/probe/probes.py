"""The probes: each varies one positional axis and holds the others at their base."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flipmeter.probe.orders import distinct, place_orders
from flipmeter.registry import Registry
from flipmeter.types import Contrast, PlaceKind, Rank, View

LabelOrder = tuple[Rank, ...]


def natural(n_classes: int) -> LabelOrder:
    return tuple(range(1, n_classes + 1))


def reversed_order(n_classes: int) -> LabelOrder:
    return tuple(range(n_classes, 0, -1))


@dataclass(frozen=True)
class Probe:
    """A positional axis: its views, the base first, and the contrasts that they make.

    One that `moves` fields of an item needs a dataset that declares such fields.
    """

    name: str
    about: str
    views: Callable[[int], tuple[View, ...]]
    contrasts: tuple[Contrast, ...]
    needs_demos: bool = True
    moves: PlaceKind | None = None


probes: Registry[Probe] = Registry("probe")


def base_view(n_classes: int) -> View:
    return View("base", natural(n_classes))


def _changed(**others: Mapping[str, Any]) -> Callable[[int], tuple[View, ...]]:
    """The base view, and others by their names with what each changes in it."""

    def views(n_classes: int) -> tuple[View, ...]:
        base = base_view(n_classes)
        return base, *(replace(base, name=name, **changed) for name, changed in others.items())

    return views


def _label_order(n_classes: int) -> tuple[View, ...]:
    return base_view(n_classes), View("reversed", reversed_order(n_classes))


def _add(
    name: str,
    about: str,
    views: Callable[[int], tuple[View, ...]],
    contrasts: Mapping[str, tuple[str, tuple[str, ...]]],
    *,
    needs_demos: bool = False,
    moves: PlaceKind | None = None,
) -> None:
    """Add a probe with its contrasts: what each compares, and the views that it is about."""
    made = tuple(
        Contrast(contrast, shown, said, name, is_open=moves is not None and moves != "pair")
        for contrast, (said, shown) in contrasts.items()
    )
    probes.add(name, Probe(name, about, views, made, needs_demos=needs_demos, moves=moves))


_add(
    "label_order",
    "the label list as it is, and reversed",
    _label_order,
    {"P1": ("label list reversed", ("base", "reversed"))},
)
_DEMO_ORDERS = ("ascending", "descending", "random")
_add(
    "demo_order",
    "the demonstrations in base, ascending, descending and random order",
    _changed(**{order: {"demo_order": order} for order in _DEMO_ORDERS}),
    {
        "P2a": ("demos random / ascending", ("random", "ascending")),
        "P2b": ("demos random / descending", ("random", "descending")),
        "P2c": ("demos reshuffled", ("base", "random")),
        "P2": ("any order of the demos", ("base", *_DEMO_ORDERS)),
    },
    needs_demos=True,
)
_add(
    "placement",
    "the demonstrations before, after and around the query",
    _changed(after={"placement": "after"}, split={"placement": "split"}),
    {
        "P3a": ("demos after the query", ("base", "after")),
        "P3b": ("demos around the query", ("base", "split")),
        "P3": ("any placement of the demos", ("base", "after", "split")),
    },
    needs_demos=True,
)
_add(
    "criterion_order",
    "the criteria of a rubric as written, reversed, and the first one last",
    _changed(
        criteria_reversed={"criterion_order": "reversed"},
        criteria_rotated={"criterion_order": "rotated"},
    ),
    {
        "P4a": ("criteria reversed", ("base", "criteria_reversed")),
        "P4b": ("criteria rotated", ("base", "criteria_rotated")),
        "P4": ("any order of the criteria", ("base", "criteria_reversed", "criteria_rotated")),
    },
)
_add(
    "system_user",
    "the instructions in the system message, and at the start of the user's",
    _changed(in_user={"instructions": "user"}),
    {"P5": ("instructions in the user message", ("base", "in_user"))},
)
_add(
    "pair_order",
    "the two answers that a judge compares as given, and swapped",
    _changed(swapped={"place_order": "swapped"}),
    {"P6": ("answers swapped", ("base", "swapped"))},
    moves="pair",
)


def _add_moving(
    name: str, about: str, contrast: str, moves: PlaceKind, kind: str, prefix: str = ""
) -> None:
    """Add a probe that moves more than two fields, as many ways as differ."""
    orders = [order for order in place_orders.so_far if order.startswith(kind)]
    shown = {f"{prefix}{order}": {"place_order": order} for order in orders}
    said = f"{moves} change places", ("base", *shown)
    _add(name, about, _changed(**shown), {contrast: said}, moves=moves)


_add_moving(
    "option_order", "the options of a question in all rotations", "P7", "options", "rotated_"
)
_add_moving(
    "option_permutations",
    "the options of a question in all orders, of more than 4 in 24 of them",
    "P7x",
    "options",
    "permuted_",
)
_add_moving(
    "candidate_order",
    "three or more answers in all rotations",
    "P7c",
    "candidates",
    "rotated_",
    "candidates_",
)


def contrasts_of(names: Sequence[str], *, includes_base: bool = True) -> tuple[Contrast, ...]:
    """The contrasts of some probes; an aggregate of orders may leave the base order out.

    Where only two views would be left there is no aggregate: placements keep theirs, whose base is
    "before".
    """
    return tuple(
        replace(
            contrast,
            views=tuple(view for view in contrast.views if view != "base"),
            about=f"{contrast.about}, base left out",
        )
        if not (includes_base or contrast.is_open or len(contrast.views) < 4)
        else contrast
        for name in names
        for contrast in probes[name].contrasts
    )


def shown_in(contrasts: Iterable[Contrast], views: Collection[str]) -> tuple[Contrast, ...]:
    """Contrasts about the views that there are, where they name all that there may be."""
    found = (
        replace(c, views=tuple(view for view in c.views if view in views)) if c.is_open else c
        for c in contrasts
    )
    return tuple(c for c in found if len(c.views) > 1)


def expand(
    names: Sequence[str],
    n_classes: int,
    *,
    shots: int = 1,
    repeats: int = 1,
    repeated: Sequence[str] = ("base", "reversed"),
    n_places: int | None = None,
) -> tuple[View, ...]:
    """The distinct views of some probes, the base first, repeats of a view after it.

    `n_places` is how many fields may change places; without it all orders of places count.
    """
    views = {"base": base_view(n_classes)}
    for name in names:
        probe = probes[name]
        if shots or not probe.needs_demos:
            found = probe.views(n_classes)
            is_counted = probe.moves and n_places is not None
            kept = distinct(found, n_places or 0) if is_counted else found
            views.update((view.name, view) for view in kept)
    return tuple(
        replace(view, repeat=repeat)
        for view in views.values()
        for repeat in range(repeats if view.name in repeated or "all" in repeated else 1)
    )
