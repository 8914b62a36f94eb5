"""Model, style, pipeline, decoding -> Rater: the one place where a study or a card becomes one."""

from __future__ import annotations

from flipmeter.decide import open_pipeline
from flipmeter.model import interface_of, is_callable
from flipmeter.study.entries import DecodingEntry
from flipmeter.types import Decoding, Extract, Mode, Model, Rater, Style


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
    """A rater that asks for scores if told or if its pipeline needs them, unless it draws instead.

    A callable gives its label itself: nothing is extracted from what it says.
    """
    needs_scores = has_scores or open_pipeline(pipeline).traits.needs_scores
    return Rater(
        *(model, style, pipeline, _decoding(decoding, model, mode)),
        is_scored=needs_scores and not n_draws,
        n_draws=n_draws,
        extract=None if is_callable(model) else extract,
    )


def _decoding(entry: DecodingEntry, model: Model, mode: Mode) -> Decoding:
    """Stop raw text at the end of its line unless told otherwise or the paper is followed.

    A raw-text model goes on after its label with one more example.
    """
    told = entry.model_dump()
    if told["stop"] is None:
        is_raw = interface_of(model) == "completions"
        told["stop"] = ("\n",) if is_raw and mode == "recommended" else ()
    return Decoding(**{**told, "stop": tuple(told["stop"])})
