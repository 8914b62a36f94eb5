"""Pipelines that ask behind a few demonstrations at a time and add up what each group says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flipmeter.decide.debiasers.averaging import choose
from flipmeter.decide.pipelines.choosing import decisions, is_ordered, precedence, table_of
from flipmeter.decide.pipelines.comparison import group_parts
from flipmeter.decide.pipelines.pipeline import (
    Asked,
    Heard,
    Traits,
    WithOptions,
    meant,
    pipelines,
    unheard,
)
from flipmeter.decide.spaces import Floats, by_class, logs, softmax
from flipmeter.types import Ask, Decision, Item, Mode

NO_DEMOS = ""
"""The part that shows no demonstration."""


@dataclass(frozen=True)
class Windows:
    """Ask behind every group of demonstrations by itself, and once without any.

    The log-probabilities of G groups are added up, less G - 1 times those without demonstrations:
    what the model thinks of the text anyway counts once, and not with every group.
    """

    traits: Traits
    is_single: bool

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        return unheard((ask for item in panel.items for ask in self._asks(item, panel)), heard)

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        answers = [[heard[ask] for ask in self._asks(item, panel)] for item in panel.items]
        order = panel.view.label_order
        orders = [[meant(answer, order) for answer in some] for some in answers]
        flat = table_of((answer for some in answers for answer in some), panel.n_classes)
        p = by_class(flat.reshape(len(answers), -1, panel.n_classes), orders)
        joint = np.stack([combined(one) for one in p]) if len(p) else p[:, 0]
        first = precedence(panel.items, panel)
        choice = choose(joint, precedence=first, ordered=is_ordered(panel))
        return decisions(choice, answers, joint)

    def _asks(self, item: Item, panel: Asked) -> list[Ask]:
        groups = [demo.id for demo in panel.demos] if self.is_single else group_parts(panel)
        return [Ask(item, panel.view, part) for part in (NO_DEMOS, *groups)]


def combined(p: Floats) -> Floats:
    """Groups x classes of probabilities, those without demonstrations first -> one distribution.

    Sums are exact, so that the order of the groups cannot move a last bit.
    """
    if np.isnan(p).any():
        return np.full(p.shape[1], np.nan)
    without, *groups = logs(p).tolist()
    more = len(groups) - 1
    each = zip(without, *groups, strict=True)
    return softmax(np.array([math.fsum([*some, -more * prior]) for prior, *some in each]))


_GROUPS = Traits(
    "probabilities after each group with one demonstration of every class, added up; K + 1 calls. "
    "Option: 1 (one demonstration in each prompt)",
    "windows",
    needs_demos=True,
    needs_scores=True,
    shows=frozenset({"grouping"}),
)
_SINGLE = Traits(
    "probabilities after each demonstration alone, added up; one call each, plus 1",
    "single_windows",
    needs_demos=True,
    needs_scores=True,
    forgets={"demo_order": "one demonstration in each prompt"},
)


def _windows(options: Mapping[str, str], mode: Mode) -> Windows:
    is_single = "size" in options
    return Windows(_SINGLE if is_single else _GROUPS, is_single)


pipelines.add("windows", WithOptions(_windows, {"size": ("1",)}))
