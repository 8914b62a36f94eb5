"""Pipelines that average positions away, or learn what a slot adds and take it out again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from flipmeter.pipelines.averaging import (
    NULL_TEXTS,
    PAPER_NULL_TEXTS,
    Prior,
    average_ranks,
    batch_prior,
    choose,
    contextual_prior,
    divide,
    pride_cyclic_prior,
    pride_odd_prior,
    pride_paper_prior,
    pseudo_texts,
)
from flipmeter.pipelines.orbit import Orbit, orbit
from flipmeter.pipelines.pipeline import (
    Asked,
    ByItem,
    Calibration,
    Heard,
    Open,
    Pipeline,
    Traits,
    decisions,
    first_fault,
    meant,
    pipelines,
    table_of,
    unheard,
)
from flipmeter.pipelines.symmetries import Floats, Turns, by_class, rotations
from flipmeter.registry import Registry
from flipmeter.types import NO_CLASS, Answer, Ask, Decision, Item, Mode, Rank, View

Views = Callable[[View], tuple[View, ...]]
"""The views that are put together for the view of a condition."""


def both_label_orders(view: View) -> tuple[View, ...]:
    """A view with the labels in natural and in reversed order, the natural first."""
    natural = tuple(sorted(view.label_order))
    return tuple(_with_labels(view, order) for order in (natural, natural[::-1]))


def all_rotations(view: View) -> tuple[View, ...]:
    """A view with rotated labels, so every class appears in every slot."""
    return tuple(_with_labels(view, order) for order in rotations(len(view.label_order)))


def both_demo_orders(view: View) -> tuple[View, ...]:
    """A view with the demonstrations of the lowest class first, and last."""
    return tuple(
        replace(view, name=f"{view.name}, demos {order}", demo_order=order)
        for order in ("ascending", "descending")
    )


def _with_labels(view: View, order: tuple[Rank, ...]) -> View:
    if order == view.label_order:
        return view
    shown = "-".join(map(str, order))
    return replace(view, name=f"{view.name}, labels {shown}", label_order=order)


def _averaging_pipeline(about: str, axis: str, views: Views) -> Open:
    """A pipeline that asks under the views of an axis and rounds the mean class."""
    traits = Traits(
        about,
        consumes=frozenset({axis}),
        needs_demos=axis == "demo_order",
        needs_order=True,
    )

    def settle(answers: Sequence[Sequence[Answer]], mode: Mode) -> list[Decision]:
        ranks = [[answer.rank for answer in some] for some in answers]
        return decisions(average_ranks(ranks, mode=mode), answers)

    return lambda mode: ByItem(
        traits,
        lambda item, panel: [Ask(item, view) for view in views(panel.view)],
        lambda panel, answers: settle(answers, mode),
    )


def _between_demos(mode: Mode) -> Orbit:
    """Average over two orders of the demonstrations that are the same whatever the view shows."""
    traits = Traits(
        "probabilities with demonstrations ascending and descending, geometric mean",
        consumes=frozenset({"demo_order"}),
        needs_demos=True,
        needs_scores=True,
    )
    return Orbit(traits, lambda view, *sizes: both_demo_orders(view), mode=mode)


_LABELS_AVERAGED = _averaging_pipeline(
    "class in natural and reversed label order, averaged", "label_order", both_label_orders
)
_DEMOS_AVERAGED = _averaging_pipeline(
    "class with demonstrations ascending and descending, averaged", "demo_order", both_demo_orders
)
_LABELS_COMBINED = orbit(
    "probabilities in natural and reversed label order, geometric mean", Turns(labels="reversal")
)
pipelines.add("pointwise+label_average", _LABELS_AVERAGED)
pipelines.add("pointwise+label_average_probabilities", _LABELS_COMBINED)
pipelines.add("pointwise+demo_average", _DEMOS_AVERAGED)
pipelines.add("pointwise+demo_average_probabilities", _between_demos)


# --- what a slot adds -------------------------------------------------------------------------


@dataclass(frozen=True)
class Bias:
    """Estimation of a slot preference: its extra questions, and the prior from their answers.

    There is no prior where no answer has probabilities.
    """

    asks: Callable[[Asked], Sequence[Ask]]
    prior: Callable[[Asked, Heard], Prior | None]


@dataclass(frozen=True)
class Corrected:
    """Ask once, and divide the probabilities of slots by a preference for slots."""

    traits: Traits
    bias: Bias
    mode: Mode = "recommended"

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        return unheard([*_own_item_asks(panel), *self.bias.asks(panel)], heard)

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        answers = [heard[ask] for ask in _own_item_asks(panel)]
        orders = [meant(answer, panel.view.label_order) for answer in answers]
        prior = self.bias.prior(panel, heard)
        if prior is None:
            asked = [heard[ask] for ask in self.bias.asks(panel)] or answers
            return [Decision(NO_CLASS, fault=first_fault(asked)) for _ in answers]
        corrected = divide(table_of(answers, panel.n_classes), prior)
        choice = choose(corrected, orders, mode=self.mode)
        return decisions(choice, [[answer] for answer in answers], by_class(corrected, orders))


def _own_item_asks(panel: Asked) -> list[Ask]:
    return [Ask(item, panel.view) for item in panel.items]


def _learn_from_asks(
    asks: Callable[[Asked], Sequence[Ask]], estimate: Callable[[Floats], Prior]
) -> Bias:
    """Learn from the answers to some questions, a row of probabilities each."""

    def prior(panel: Asked, heard: Heard) -> Prior | None:
        p = table_of((heard[ask] for ask in asks(panel)), panel.n_classes)
        return None if np.isnan(p).all() else estimate(p)

    return Bias(asks, prior)


def _learn_from_null_texts(
    texts: Callable[[Asked], Sequence[str]], form: Literal["contextual", "domain_context"]
) -> Bias:
    """Learn from texts without content, shown in the place of an item."""

    def asks(panel: Asked) -> list[Ask]:
        return [
            Ask(Item(f"null text {number}", {"text": text}, role="null"), panel.view)
            for number, text in enumerate(texts(panel), 1)
        ]

    return _learn_from_asks(asks, partial(contextual_prior, form=form))


def _learn_from_orders(views: Views, estimate: Callable[..., Prior]) -> Bias:
    """Learn from calibration items under several label orders."""

    def asks(panel: Asked) -> list[Ask]:
        return [Ask(item, view) for item in panel.calibration for view in views(panel.view)]

    def prior(panel: Asked, heard: Heard) -> Prior | None:
        orders = [view.label_order for view in views(panel.view)]
        rows = table_of((heard[ask] for ask in asks(panel)), panel.n_classes)
        p = rows.reshape(len(panel.calibration), len(orders), panel.n_classes)
        is_unread = np.isnan(p).any(axis=(1, 2)).all()
        return None if is_unread else estimate(p, orders)

    return Bias(asks, prior)


def _of_domain(panel: Asked) -> Sequence[str]:
    texts = [item.text for item in (*panel.calibration, *panel.demos)]
    return pseudo_texts(texts, seed=panel.seed)


@dataclass(frozen=True)
class Debiaser:
    """A correction for a preference for slots: used as `pointwise+NAME`.

    `calibration` says on which items the bias is learned. `paper` is its form in the paper's mode.
    """

    about: str
    bias: Bias
    calibration: Calibration = ""
    paper: Debiaser | None = None

    def __call__(self, mode: Mode) -> Pipeline:
        form = self.paper if self.paper and mode == "paper" else self
        traits = Traits(form.about, needs_scores=True, calibration=form.calibration)
        return Corrected(traits, form.bias, mode)


debiasers: Registry[Debiaser] = Registry("debiaser")
debiasers.follow(lambda name, debiaser: pipelines.add(f"pointwise+{name}", debiaser))

_PRIDE_PAPER = Debiaser(
    "probabilities divided by their mean over some test items in both label orders",
    _learn_from_orders(both_label_orders, pride_paper_prior),
    "test",
)
_PRIDE_ODD = Debiaser(
    "probabilities divided by a slot prior from two label orders",
    _learn_from_orders(both_label_orders, pride_odd_prior),
    "apart",
)


def _contextual_debiaser(texts: Sequence[str], paper: Debiaser | None = None) -> Debiaser:
    about = f"probabilities divided by those after {len(texts)} texts without content"
    return Debiaser(about, _learn_from_null_texts(lambda panel: texts, "contextual"), paper=paper)


debiasers.add("pride_paper", _PRIDE_PAPER)
debiasers.add("pride_odd", _PRIDE_ODD)
debiasers.add(
    "pride_cyclic",
    Debiaser(
        "probabilities divided by a slot prior from all rotations of the labels",
        _learn_from_orders(all_rotations, pride_cyclic_prior),
        "apart",
    ),
)
debiasers.add("pride", replace(_PRIDE_ODD, paper=_PRIDE_PAPER))
debiasers.add(
    "contextual", _contextual_debiaser(NULL_TEXTS, paper=_contextual_debiaser(PAPER_NULL_TEXTS))
)
debiasers.add(
    "domain_context",
    Debiaser(
        "probabilities divided by those after 20 texts of random words of the domain",
        _learn_from_null_texts(_of_domain, "domain_context"),
        "apart",
    ),
)
debiasers.add(
    "batch",
    Debiaser(
        "probabilities divided by their mean over all items",
        _learn_from_asks(_own_item_asks, batch_prior),
        "batch",
    ),
)
