"""Model, style, pipeline, decoding -> Rater: the one place where a study or a card becomes one."""

from __future__ import annotations

from dataclasses import replace

from flipmeter.decide import open_pipeline
from flipmeter.model import interface_of, is_callable
from flipmeter.study.entries import DecodingEntry
from flipmeter.types import Decoding, Extract, Mode, Model, Problem, Rater, Style


def make_rater(
    model: Model,
    style: Style,
    pipeline: str,
    decoding: DecodingEntry,
    *,
    has_scores: bool = False,
    n_draws: int = 0,
    extract: Extract | None = None,
    mode: Mode = "recommended",
) -> Rater:
    """A rater that asks for scores if told or if its pipeline uses them, unless it draws instead.

    A callable gives its label itself: nothing is extracted from what it says.
    """
    needs_scores = has_scores or open_pipeline(pipeline).traits.needs_scores
    if is_reasoned(style) and needs_scores and not n_draws:
        raise Problem(
            "clarity 'reasoned': a reply does not begin with its label, so labels have no "
            "probabilities; leave out `scores` and pipelines that need them, or ask for the label "
            "alone (clarity: explicit)"
        )
    how = extract or (LAST_LABEL if is_reasoned(style) else None)
    return Rater(
        *(model, style, pipeline, _decoding(decoding, model, style, pipeline, mode)),
        is_scored=needs_scores and not n_draws,
        n_draws=n_draws,
        extract=None if is_callable(model) else how,
    )


LAST_LABEL = Extract(regex=r"(?is).*\blabel\b\W*?[:=]\s*(?P<label>[^\n]+)")
"""The place of the label in a reply that begins with reasoning."""
LONGEST_REASONS = 1024
"""Tokens of a reply with reasons, unless a study says how many."""


def is_reasoned(style: Style) -> bool:
    """Whether the built-in prompt asks for reasons before the label."""
    return style.clarity == "reasoned" and not style.prompt


ENDS_IN_A_QUESTION = ("pairwise", "listwise_compare", "listwise_relabel")
"""Paradigms whose prompt ends in a question: raw text answers it in a new line."""


def _decoding(
    entry: DecodingEntry, model: Model, style: Style, pipeline: str, mode: Mode
) -> Decoding:
    """Stop raw text at the end of its line, unless set otherwise or in paper mode.

    A raw-text model goes on after its label with one more example. Behind a question it begins
    with a line break, and a stop there would leave nothing to read. A pipeline that draws needs a
    temperature.
    """
    told, traits = entry.model_dump(), open_pipeline(pipeline).traits
    if is_reasoned(style) and told["max_tokens"] == DecodingEntry().max_tokens:
        told["max_tokens"] = LONGEST_REASONS
    if told["stop"] is None:
        is_raw = interface_of(model) == "completions" and not is_reasoned(style)
        is_cued = traits.paradigm not in ENDS_IN_A_QUESTION
        told["stop"] = ("\n",) if is_raw and is_cued and mode == "recommended" else ()
    found = Decoding(**{**told, "stop": tuple(told["stop"])})
    if traits.temperature and found.is_greedy:
        return replace(found, temperature=traits.temperature, top_k=None)
    return found
