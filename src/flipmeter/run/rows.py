"""Rated -> rows: the decisions of a run and the calls they rest on, as tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import polars as pl

from flipmeter.run.rate import Rated
from flipmeter.types import Condition, Usage

TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
SCHEMA: dict[str, type[pl.DataType] | pl.DataType] = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seed": pl.Int64,
    "view": pl.String,
    "repeat": pl.Int64,
    "item": pl.String,
    "gold": pl.Int64,
    "rank": pl.Int64,
    "slot": pl.Int64,
    "fault": pl.String,
    "tie_decided": pl.Boolean,
    "degenerate": pl.Boolean,
    "probabilities": pl.List(pl.Float64),
    "label_mass": pl.Float64,
    "prompt": pl.String,
    "n_classes": pl.Int64,
    "labels": pl.String,
    "n_calls": pl.Int64,
    "shared_calls": pl.Int64,
    "unread_calls": pl.Int64,
    "prompt_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
    "seconds": pl.Float64,
    **{f"shared_{name}": pl.Int64 for name in TOKENS},
}
CALL_SCHEMA: dict[str, type[pl.DataType] | pl.DataType] = {
    **{name: SCHEMA[name] for name in ("rater", "dataset", "level", "seed", "view", "repeat")},
    "item": pl.String,
    "role": pl.String,
    "asked_view": pl.String,
    "part": pl.String,
    "draw": pl.Int64,
    "key": pl.String,
    "reply": pl.String,
    "finish": pl.String,
    "answered_by": pl.String,
    "provider": pl.String,
    "fingerprint": pl.String,
    "error": pl.String,
}


def in_order(table: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """Sort rows as the study names raters, datasets and levels, not by the alphabet."""
    places = {
        name: {
            value: place for place, value in enumerate(decisions[name].unique(maintain_order=True))
        }
        for name in ("rater", "dataset", "level")
    }
    keys = [
        pl.col(name).replace_strict(known, return_dtype=pl.Int64) for name, known in places.items()
    ]
    return table.sort(keys, maintain_order=True)


def in_grid_order(table: pl.LazyFrame, grid: Sequence[Condition]) -> pl.LazyFrame:
    """Sort rows as the grid has its conditions, however it was cut into lots."""
    names = list(SCHEMA)[:6]
    places = pl.DataFrame([_where(condition) for condition in grid], schema=names, orient="row")
    places = places.cast({name: SCHEMA[name] for name in names}).with_row_index("place")
    joined = table.join(places.lazy(), on=names, how="left", maintain_order="left")
    return joined.sort("place", maintain_order=True).drop("place")


def decision_table(rated: Sequence[Rated]) -> pl.DataFrame:
    """Return one row per decision; what the items of a condition share stands in every row."""
    shared: dict[int, Usage] = {}
    for one in rated:
        if id(one.condition) not in shared:
            shared[id(one.condition)] = total_usage([found.reply.usage for found in one.shared])
    rows = [_decision_row(one, shared[id(one.condition)]) for one in rated]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _decision_row(one: Rated, shared: Usage) -> tuple[object, ...]:
    condition, decision = one.condition, one.decision
    usage = total_usage([found.reply.usage for found in one.evidence])
    return (
        *_where(condition),
        one.item.id,
        one.item.gold,
        decision.rank,
        decision.slot,
        decision.fault or "",
        decision.tie_decided,
        decision.degenerate,
        decision.probabilities,
        decision.label_mass,
        digest_of([f.call.prompt.digest for f in one.evidence if not f.call.draw]),
        len(condition.task.scale),
        one.evidence[0].call.prompt.labels if one.evidence else "",
        len(one.evidence),
        len(one.shared),
        sum(found.answer.fault is not None for found in one.evidence),
        usage.prompt,
        usage.cached,
        usage.completion,
        usage.reasoning,
        sum(found.reply.seconds for found in one.evidence),
        *(shared.prompt, shared.cached, shared.completion, shared.reasoning),
    )


def spent(decisions: pl.DataFrame) -> pl.DataFrame:
    """Return what every condition took, in calls and tokens, with what its items share.

    A call that two conditions rest on counts for both, and a stored reply as if it had been asked.
    """
    shared = ["shared_calls", *(f"shared_{name}" for name in TOKENS)]
    absent = [pl.lit(0).alias(name) for name in shared if name not in decisions.columns]
    own = [pl.col("n_calls", "seconds").sum(), *map(_told, TOKENS)]
    once = pl.col(shared).first().fill_null(0)
    found = decisions.with_columns(absent).group_by(list(SCHEMA)[:6], maintain_order=True)
    table = found.agg(pl.len().alias("n"), *own, once)
    sums = {"n_calls": "shared_calls", **{name: f"shared_{name}" for name in TOKENS}}
    return table.with_columns(pl.col(name) + pl.col(of) for name, of in sums.items()).drop(shared)


def _told(name: str) -> pl.Expr:
    """Add up what was told; what nobody told is no 0."""
    return pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)


def digest_of(digests: Sequence[str]) -> str:
    """Return what is equal for equal prompts, however many a decision rests on."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16] if digests else ""


def _where(condition: Condition) -> tuple[object, ...]:
    view = condition.view
    name = condition.rater.name
    return name, condition.dataset, condition.level, condition.seed, view.name, view.repeat


def total_usage(usages: Sequence[Usage]) -> Usage:
    """Add up the tokens of replies; None where none of them says."""
    if len(usages) == 1:  # nearly always, and a study has a million
        return usages[0]

    def total(name: str) -> int | None:
        known = [getattr(usage, name) for usage in usages if getattr(usage, name) is not None]
        return sum(known) if known else None

    return Usage(*(total(name) for name in ("prompt", "cached", "completion", "reasoning")))


def call_table(rated: Sequence[Rated]) -> pl.DataFrame:
    """Return one row per call: which stored reply each decision rests on."""
    return pl.DataFrame(list(_call_rows(rated)), schema=CALL_SCHEMA, orient="row")


def _call_rows(rated: Sequence[Rated]) -> Iterator[tuple[object, ...]]:
    told: set[int] = set()
    for one in rated:
        is_first = id(one.condition) not in told
        told.add(id(one.condition))
        for found in (*one.evidence, *(one.shared if is_first else ())):
            reply = found.reply
            yield (
                *_where(one.condition),
                found.call.ask.item.id,
                found.call.ask.item.role,
                found.call.ask.view.name,
                found.call.ask.part,
                found.call.draw,
                found.call.request.key,
                reply.text,
                reply.finish,
                reply.model,
                reply.provider,
                reply.fingerprint,
                reply.error,
            )


def changes_of_model(calls: pl.DataFrame) -> dict[str, list[str]]:
    """Say by rater what changed under its name: the model that answered, provider, fingerprint.

    An endpoint that does not say is not a change.
    """
    found: dict[str, list[str]] = {}
    for name, words in ANSWERED.items():
        told = calls.filter(pl.col(name) != "").with_columns(_without_table(name))
        told = told.group_by("rater", name, maintain_order=True).len()
        for (rater,), group in told.group_by("rater", maintain_order=True):
            if len(group) > 1:
                shown = ", ".join(f"{value} ({n})" for value, n in group.select(name, "len").rows())
                found.setdefault(str(rater), []).append(f"{words} changed during the run: {shown}")
    return found


def _without_table(name: str) -> pl.Expr:
    """Leave out what a simulated rater knows: it has a table for each dataset, and is the same."""
    return pl.col(name).str.replace(r"^(sim/.*)@[0-9a-f]+$", "$1")


ANSWERED = {
    "answered_by": "the model that answers",
    "provider": "the provider",
    "fingerprint": "the system fingerprint",
}
