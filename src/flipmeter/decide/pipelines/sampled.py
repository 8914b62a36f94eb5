"""Pipelines that draw: the same prompt several times, or label orders at random.

The popular ways to steady a rater, and what raters that cannot flip are compared with at equal
cost. Neither rules anything out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flipmeter.base.chance import shuffled
from flipmeter.decide.debiasers.averaging import choose
from flipmeter.decide.pipelines.choosing import decisions, is_ordered, precedence
from flipmeter.decide.pipelines.orbit import Orbit
from flipmeter.decide.pipelines.pipeline import (
    Asked,
    ByItem,
    Traits,
    drawn,
    pipelines,
    with_draws,
)
from flipmeter.types import Answer, Ask, Decision, View

USUAL_DRAWS, MOST_DRAWS = 5, 99
TEMPERATURE = 0.7


def votes(n_draws: int) -> ByItem:
    """Ask the same prompt several times, and take the class of most answers."""

    def join(panel: Asked, answers: Sequence[Sequence[Answer]]) -> list[Decision]:
        ranks = np.array([[answer.rank for answer in some] for some in answers], dtype=np.int64)
        counts = np.stack([(ranks == rank).sum(axis=-1) for rank in sorted(panel.view.label_order)])
        with np.errstate(invalid="ignore"):  # no readable draw: no class
            shares = (counts / counts.sum(axis=0)).T
        first = precedence(panel.items, panel)
        choice = choose(shares, precedence=first, ordered=is_ordered(panel))
        return decisions(choice, answers, shares)

    return ByItem(
        Traits(
            f"the same prompt several times, the most frequent class; 1 call per draw, at "
            f"temperature {TEMPERATURE} where the study is greedy",
            temperature=TEMPERATURE,
        ),
        lambda item, panel: [Ask(item, drawn(panel.view, draw)) for draw in range(n_draws)],
        join,
    )


def random_orders(n_draws: int) -> Orbit:
    """The average over label orders that are drawn for each view."""

    def views(view: View, n_demos: int, n_places: int) -> tuple[View, ...]:
        orders = (
            shuffled(view.label_order, "random orders", view.name, draw, name=str)
            for draw in range(n_draws)
        )
        return tuple(
            replace(
                view, name=f"{view.name}, labels {'-'.join(map(str, order))}", label_order=order
            )
            for order in dict.fromkeys(orders)
        )

    about = "probabilities over label orders drawn at random, geometric mean; 1 call per draw"
    return Orbit(Traits(about, needs_scores=True), views)


pipelines.add("votes", with_draws(votes, USUAL_DRAWS, MOST_DRAWS))
pipelines.add("random_orders", with_draws(random_orders, USUAL_DRAWS, MOST_DRAWS))
