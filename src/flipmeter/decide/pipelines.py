"""Pipelines: which parts of an item to ask, asked again until nothing is left, then settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from flipmeter.registry import Registry
from flipmeter.types import Answer, Decision

Answers = Mapping[str, Answer]
"""The answers so far about one item, by part."""


class Pipeline(Protocol):
    """Ask, look, and ask again. `paradigm` names the prompt that puts a part into words."""

    paradigm: str
    consumes: frozenset[str]
    """The probes whose axis the pipeline averages away or cannot express."""

    def parts(self, answers: Answers) -> Sequence[str]:
        """Return the parts to ask next; nothing when the item can be settled."""
        ...

    def settle(self, answers: Answers) -> Decision: ...


pipelines: Registry[Pipeline] = Registry("pipeline")


class Pointwise:
    """One prompt, one answer: the answer is the decision."""

    paradigm = "pointwise"
    consumes: frozenset[str] = frozenset()

    def parts(self, answers: Answers) -> Sequence[str]:
        return () if answers else ("",)

    def settle(self, answers: Answers) -> Decision:
        answer = answers[""]
        return Decision(rank=answer.rank, slot=answer.slot, fault=answer.fault)


pipelines.add("pointwise", Pointwise())
