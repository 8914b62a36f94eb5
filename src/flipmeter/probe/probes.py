"""The probes: each varies one positional axis and holds the others at their base."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

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


def _label_order(n_classes: int) -> tuple[View, ...]:
    return base_view(n_classes), View("reversed", reversed_order(n_classes))


def _demo_order(n_classes: int) -> tuple[View, ...]:
    order = natural(n_classes)
    others = ("ascending", "descending", "random")
    return base_view(n_classes), *(View(name, order, demo_order=name) for name in others)


def _placement(n_classes: int) -> tuple[View, ...]:
    order = natural(n_classes)
    return (
        base_view(n_classes),
        View("after", order, placement="after"),
        View("split", order, placement="split"),
    )


probes.add(
    "label_order",
    Probe(
        "label_order",
        "the label list as it is, and reversed",
        _label_order,
        (Contrast("P1", ("base", "reversed"), "label list reversed", "label_order"),),
        needs_demos=False,
    ),
)
probes.add(
    "demo_order",
    Probe(
        "demo_order",
        "the demonstrations in base, ascending, descending and random order",
        _demo_order,
        (
            Contrast("P2a", ("random", "ascending"), "demos random / ascending", "demo_order"),
            Contrast("P2b", ("random", "descending"), "demos random / descending", "demo_order"),
            Contrast("P2c", ("base", "random"), "demos reshuffled", "demo_order"),
            Contrast(
                "P2",
                ("base", "ascending", "descending", "random"),
                "any order of the demos",
                "demo_order",
            ),
        ),
    ),
)
probes.add(
    "placement",
    Probe(
        "placement",
        "the demonstrations before, after and around the query",
        _placement,
        (
            Contrast("P3a", ("base", "after"), "demos after the query", "placement"),
            Contrast("P3b", ("base", "split"), "demos around the query", "placement"),
            Contrast("P3", ("base", "after", "split"), "any placement of the demos", "placement"),
        ),
    ),
)


def _criterion_order(n_classes: int) -> tuple[View, ...]:
    order = natural(n_classes)
    return (
        base_view(n_classes),
        View("criteria_reversed", order, criterion_order="reversed"),
        View("criteria_rotated", order, criterion_order="rotated"),
    )


def _system_user(n_classes: int) -> tuple[View, ...]:
    return base_view(n_classes), View("in_user", natural(n_classes), instructions="user")


probes.add(
    "criterion_order",
    Probe(
        "criterion_order",
        "the criteria of a rubric as written, reversed, and the first one last",
        _criterion_order,
        (
            Contrast("P4a", ("base", "criteria_reversed"), "criteria reversed", "criterion_order"),
            Contrast("P4b", ("base", "criteria_rotated"), "criteria rotated", "criterion_order"),
            Contrast(
                "P4",
                ("base", "criteria_reversed", "criteria_rotated"),
                "any order of the criteria",
                "criterion_order",
            ),
        ),
        needs_demos=False,
    ),
)
probes.add(
    "system_user",
    Probe(
        "system_user",
        "the instructions in the system message, and at the start of the user's",
        _system_user,
        (Contrast("P5", ("base", "in_user"), "instructions in the user message", "system_user"),),
        needs_demos=False,
    ),
)


def _pair_order(n_classes: int) -> tuple[View, ...]:
    return base_view(n_classes), View("swapped", natural(n_classes), place_order="swapped")


probes.add(
    "pair_order",
    Probe(
        "pair_order",
        "the two answers that a judge compares as given, and swapped",
        _pair_order,
        (Contrast("P6", ("base", "swapped"), "answers swapped", "pair_order"),),
        needs_demos=False,
        moves="pair",
    ),
)


def _moved(names: Sequence[str], orders: Sequence[str]) -> Callable[[int], tuple[View, ...]]:
    """Views that show the fields of an item in some orders of places."""

    def views(n_classes: int) -> tuple[View, ...]:
        order, pairs = natural(n_classes), zip(names, orders, strict=True)
        return base_view(n_classes), *(View(name, order, place_order=one) for name, one in pairs)

    return views


def _add_moving(
    name: str, about: str, contrast: str, moves: PlaceKind, orders: Sequence[str], prefix: str = ""
) -> None:
    """Add a probe that moves more than two fields, as many ways as differ."""
    names = [f"{prefix}{order}" for order in orders]
    said = f"{moves} change places"
    made = Contrast(contrast, ("base", *names), said, name, is_open=True)
    views = _moved(names, orders)
    probes.add(name, Probe(name, about, views, (made,), needs_demos=False, moves=moves))


_ROTATIONS = [order for order in place_orders.so_far if order.startswith("rotated_")]
_PERMUTATIONS = [order for order in place_orders.so_far if order.startswith("permuted_")]
_add_moving(
    "option_order", "the options of a question in all rotations", "P7", "options", _ROTATIONS
)
_add_moving(
    "option_permutations",
    "the options of a question in all orders, of more than 4 in 24 of them",
    "P7x",
    "options",
    _PERMUTATIONS,
)
_add_moving(
    "candidate_order",
    "three or more answers in all rotations",
    "P7c",
    "candidates",
    _ROTATIONS,
    "candidates_",
)


def contrasts_of(names: Sequence[str], *, includes_base: bool = True) -> tuple[Contrast, ...]:
    """The contrasts of some probes; an aggregate of orders may leave the base order out.

    Where only two views would be left there is no aggregate: placements keep theirs, whose base is
    "before".
    """
    found = (contrast for name in names for contrast in probes[name].contrasts)
    return tuple(
        c if includes_base or c.is_open or len(c.views) < 4 else _without_base(c) for c in found
    )


def shown_in(contrasts: Iterable[Contrast], views: Collection[str]) -> tuple[Contrast, ...]:
    """Contrasts about the views that there are, where they name all that there may be."""
    found = (
        replace(c, views=tuple(view for view in c.views if view in views)) if c.is_open else c
        for c in contrasts
    )
    return tuple(c for c in found if len(c.views) > 1)


def _without_base(contrast: Contrast) -> Contrast:
    views = tuple(view for view in contrast.views if view != "base")
    return replace(contrast, views=views, about=f"{contrast.about}, base left out")


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
