"""Rated -> rows: the decisions of a run, the calls they rest on, prompts, items, conditions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby, islice
from operator import itemgetter

import polars as pl

from flipmeter.ask.names import without_world
from flipmeter.parquet import collected
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.prompt.probes import place_order
from flipmeter.run.conditions import orbits_of, why_fixed
from flipmeter.run.generation import CALLS, CONDITIONS, DECISIONS, ITEMS, PROMPTS
from flipmeter.run.rate import Evidence, Rated
from flipmeter.types import (
    FAULTS,
    Condition,
    Head,
    Item,
    Rank,
    Role,
    Script,
    Span,
    Usage,
    canonical_json,
)

TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")


@dataclass(frozen=True)
class Column:
    """A column of a stored table, its first format, and its value in older files."""

    name: str
    kind: type[pl.DataType] | pl.DataType = pl.String
    since: int = 3
    default: object = None


def _declare_columns(
    text: str, kind: type[pl.DataType] | pl.DataType, since: int = 3
) -> list[Column]:
    return [Column(name, kind, since) for name in text.split()]


@dataclass(frozen=True)
class Schema:
    """The columns of a stored table, of which the first name a row.

    Tables are made, checked, read and joined by it.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @cached_property
    def kinds(self) -> pl.Schema:
        return pl.Schema({one.name: one.kind for one in self.columns})

    def table(self, rows: Iterable[Sequence[object]] = ()) -> pl.DataFrame:
        return pl.DataFrame([*rows], schema=self.kinds, orient="row")

    def fault(self, found: Mapping[str, pl.DataType], format: int) -> str:
        """The first fault in the columns of a file of a format, "" without one."""
        for one in self.columns:
            if one.name not in found and one.since <= format:
                return f"has no column '{one.name}'"
            if one.name in found and found[one.name] != one.kind:
                return f"'{one.name}' is not a {one.kind}"
        return ""

    def whole(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """A table of an older folder with the defaults of later columns."""
        there = table.collect_schema()
        absent = (one for one in self.columns if one.name not in there)
        return table.with_columns(pl.lit(one.default, one.kind).alias(one.name) for one in absent)


CONDITION = ("rater", "dataset", "level", "seed", "view", "repeat")
"""The columns that name a condition."""
_CONDITION = (
    *_declare_columns("rater dataset level", pl.String),
    Column("seed", pl.Int64),
    Column("view"),
    Column("repeat", pl.Int64),
)
OF_SCORES = ("score", "gold_score", "scale_from", "scale_to", "tolerance")
DECISION = Schema(
    (
        *_CONDITION,
        Column("item"),
        *_declare_columns("gold rank slot", pl.Int64),
        Column("fault"),
        *_declare_columns("tie_decided degenerate", pl.Boolean),
        Column("probabilities", pl.List(pl.Float64)),
        Column("label_mass", pl.Float64),
        Column("prompt"),
        Column("n_classes", pl.Int64),
        *_declare_columns("labels cluster", pl.String),
        *_declare_columns("n_calls shared_calls unread_calls", pl.Int64),
        *_declare_columns(" ".join(TOKENS), pl.Int64),
        Column("seconds", pl.Float64),
        *(Column(f"shared_{name}", pl.Int64, since=4, default=0) for name in TOKENS),
        Column("nominal", pl.Boolean),
        *_declare_columns("place gold_place n_places", pl.Int64),
        *_declare_columns("system_a system_b", pl.String),
        *_declare_columns("orbit invariance", pl.String, since=4),
        *_declare_columns(" ".join(OF_SCORES[:-1]), pl.Float64, since=4),
        Column("tolerance", pl.Int64, since=4),
    ),
    (*CONDITION, "item"),
)
"""`place` is where the field stood that an answer chose, counted from 1, and `gold_place` where the
right one did; 0 for neither. `system_a` and `system_b` wrote the fields as they are given. Rows of
one `orbit` rest on the same set of what was shown, as their pipeline declares; `invariance` says
why what the view moves cannot matter. Both are empty where nothing is declared. The last five are
for decimal scores, whose `rank` counts the steps of a `Span`: up to `tolerance` ranks apart is the
same."""
CALL = Schema(
    (
        *_CONDITION,
        *_declare_columns("item role asked_view part", pl.String),
        Column("draw", pl.Int64),
        *_declare_columns("key prompt reply finish", pl.String),
        *_declare_columns("slot rank", pl.Int64),
        Column("fault"),
        Column("probabilities", pl.List(pl.Float64)),
        Column("label_mass", pl.Float64),
        *_declare_columns(" ".join(TOKENS), pl.Int64),
        Column("seconds", pl.Float64),
        *_declare_columns("answered_by provider fingerprint error", pl.String),
    ),
    (*CONDITION, "item", "role", "asked_view", "part", "draw"),
)
ITEM = Schema(
    (
        *_declare_columns("dataset id role", pl.String),
        Column("gold", pl.Int64),
        *_declare_columns("text fields cluster", pl.String),
        Column("columns", since=4),
    ),
    ("dataset", "role", "id"),
)
"""`fields` is the JSON of an item's other fields, "" where it has a text alone, and `columns` that
of the columns it can be sliced by."""
PROMPT = Schema(tuple(_declare_columns("digest head text", pl.String)), ("digest",))
"""A prompt is a head that many share and the rest of its last message. A head is a row of its own,
whose text is the JSON of its messages and which names no head."""
SHOWN = Schema(
    (
        *_CONDITION,
        Column("n_items", pl.Int64),
        Column("pipeline"),
        Column("label_order", pl.List(pl.Int64)),
        *_declare_columns("demo_order placement place_order", pl.String),
        *_declare_columns("demos calibration", pl.List(pl.String)),
    ),
    CONDITION,
)
"""The conditions of a run; `demos` and `calibration` are ids of items, in the sampler's order."""
SCHEMAS = {
    DECISIONS: DECISION,
    CALLS: CALL,
    ITEMS: ITEM,
    CONDITIONS: SHOWN,
    PROMPTS: PROMPT,
}
"""The tables of a run folder, by file."""


def in_order(table: pl.DataFrame, conditions: pl.DataFrame) -> pl.DataFrame:
    """Sort rows as a study names raters, datasets and levels, not by the alphabet.

    `conditions` has them in that order.
    """
    places = {
        name: {
            value: place for place, value in enumerate(conditions[name].unique(maintain_order=True))
        }
        for name in ("rater", "dataset", "level")
    }
    keys = [
        pl.col(name).replace_strict(known, return_dtype=pl.Int64) for name, known in places.items()
    ]
    return table.sort(keys, maintain_order=True)


def grid_places(grid: Sequence[Condition]) -> Callable[[pl.DataFrame], pl.Series]:
    """A function that numbers rows by the position of their condition in a grid."""
    kinds = {name: DECISION.kinds[name] for name in CONDITION}
    rows = [_condition_columns(condition) for condition in grid]
    places = pl.DataFrame(rows, schema=kinds, orient="row").with_row_index("nth")
    return lambda table: table.select(CONDITION).join(
        places, on=CONDITION, how="left", maintain_order="left"
    )["nth"]


def digest_bins(prompts: pl.DataFrame) -> pl.Series:
    """Number prompts by how their digests begin, in the order of the digests."""
    return prompts["digest"].str.slice(0, 3).str.to_integer(base=16)


def decision_table(rated: Iterable[Rated]) -> pl.DataFrame:
    """One row per decision; the shared part of a condition is repeated in every row."""
    rows: list[tuple[object, ...]] = []
    for _, some in groupby(rated, key=lambda one: id(one.condition)):
        first, *others = some
        shared = total_usage([found.reply.usage for found in first.shared])
        orbit, why = orbits_of(first.condition), why_fixed(first.condition)
        rows += [_decision_row(one, shared, orbit(one.item), why) for one in (first, *others)]
    return DECISION.table(rows)


def _decision_row(one: Rated, shared: Usage, orbit: str, why: str) -> tuple[object, ...]:
    condition, decision = one.condition, one.decision
    usage = total_usage([found.reply.usage for found in one.evidence])
    return (
        *_condition_columns(condition),
        one.item.id,
        one.item.gold,
        decision.rank,
        decision.slot,
        decision.fault or "",
        decision.tie_decided,
        decision.degenerate,
        decision.probabilities,
        decision.label_mass,
        digest_of(
            [f.call.prompt.digest for f in one.evidence if not f.call.draw], is_set=bool(orbit)
        ),
        condition.task.scale.n_ranks,
        one.evidence[0].call.prompt.labels if one.evidence else "",
        one.item.cluster or one.item.id,
        len(one.evidence),
        len(one.shared),
        sum(found.answer.fault is not None for found in one.evidence),
        usage.prompt,
        usage.cached,
        usage.completion,
        usage.reasoning,
        sum(found.reply.seconds for found in one.evidence),
        *(shared.prompt, shared.cached, shared.completion, shared.reasoning),
        condition.task.scale.nominal,
        *_place_columns(one),
        *(orbit, why),
        *scored(condition.task.scale.span, decision.rank, one.item.gold),
    )


def scored(span: Span | None, rank: Rank, gold: Rank | None) -> tuple[float | None, ...]:
    """Score and gold as numbers with their range; nothing where there are classes."""
    if span is None:
        return (None,) * len(OF_SCORES)
    given, right = (span.score(one) if one else None for one in (rank, gold))
    return given, right, span.low, span.high, span.tolerance


def _place_columns(one: Rated) -> tuple[object, ...]:
    """The places of the chosen field and the right one, their number, and the first two systems."""
    task, item = one.condition.task, one.item
    systems = (*item.systems, "", "")[:2]
    if task.places is None:
        return 0, 0, 0, *systems
    order = place_order(item, task.places, one.condition.view.place_order)
    at = [
        0 if (field := task.favoured(rank or 0)) is None else order.index(field) + 1
        for rank in (one.decision.rank, item.gold)
    ]
    return *at, len(order), *systems


PLACE = "at"
"""The number of a decision among all of a run, where it is asked for."""


def tally(decisions: pl.LazyFrame) -> pl.DataFrame:
    """Every condition of numbered decisions in its order: how many, faults, calls and tokens.

    What the items of a condition share is counted once. A call that two conditions rest on counts
    for both, and a stored reply as if it had been asked.
    """
    shared = ["shared_calls", *(f"shared_{name}" for name in TOKENS)]
    table = decisions.group_by(CONDITION).agg(
        pl.col(PLACE).min(),
        n=pl.len(),
        n_faults=(pl.col("fault") != "").sum(),
        **{fault: (pl.col("fault") == fault).sum() for fault in FAULTS},
        n_calls=pl.col("n_calls").sum(),
        # In whole nanoseconds sums do not depend on the order in which rows are read.
        seconds=(pl.col("seconds") * 1e9).round().cast(pl.Int64, strict=False).sum() / 1e9,
        **{name: pl.col(name).sum() for name in TOKENS},
        **{f"{name} told": pl.col(name).is_not_null().any() for name in TOKENS},
        **{name: pl.col(name).max().fill_null(0) for name in shared},
    )
    counted = table.sort(PLACE).pipe(collected, "streaming")
    sums = {"n_calls": "shared_calls", **{name: f"shared_{name}" for name in TOKENS}}
    return (
        counted.with_columns(pl.when(f"{name} told").then(name).alias(name) for name in TOKENS)
        .with_columns(pl.col(name) + pl.col(of) for name, of in sums.items())
        .drop(shared, PLACE, [f"{name} told" for name in TOKENS])
    )


def digest_of(digests: Sequence[str], *, is_set: bool = False) -> str:
    """A digest that is equal for equal prompts, for any number of prompts per decision.

    Their order counts, unless a pipeline declares that it rests on the set: one that asks about an
    item in both label orders to learn a bias still decides by the order of its view.
    """
    if len(digests) == 1:
        return digests[0]
    joined = " ".join(sorted(digests) if is_set else digests)
    return hashlib.sha256(joined.encode()).hexdigest()[:16] if digests else ""


def _condition_columns(condition: Condition) -> tuple[object, ...]:
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


def call_table(found: Iterable[tuple[Condition, Evidence]]) -> pl.DataFrame:
    """One row per call, each once: which stored reply each decision rests on."""
    rows = [(*_condition_columns(condition), *_call_row(evidence)) for condition, evidence in found]
    return CALL.table(rows).unique(maintain_order=True)


class EvidenceOnce:
    """Collects what decisions rest on; what items share is recorded with the first."""

    def __init__(self) -> None:
        self._told: set[tuple[object, ...]] = set()

    def of(self, rated: Sequence[Rated]) -> list[tuple[Condition, Evidence]]:
        """The calls of some decisions that no earlier decision has."""
        found: list[tuple[Condition, Evidence]] = []
        heads: set[int] = set()
        for one in rated:
            # Test items that a pipeline learns from are the own of one lot and shared by others.
            is_learned = open_pipeline(one.condition.rater.pipeline).traits.calibration == "test"
            own = one.evidence if not is_learned else self._new(one.condition, one.evidence)
            found += [(one.condition, evidence) for evidence in own]
            if one.shared and id(one.condition) not in heads:
                heads.add(id(one.condition))
                shared = self._new(one.condition, one.shared)
                found += [(one.condition, evidence) for evidence in shared]
        return found

    def _new(self, condition: Condition, some: Iterable[Evidence]) -> Iterator[Evidence]:
        for evidence in some:
            call = evidence.call  # members of a panel ask the same, each its own model
            key = *_condition_columns(condition), call.ask, call.draw, call.request.key
            if key not in self._told:
                self._told.add(key)
                yield evidence


def _call_row(found: Evidence) -> tuple[object, ...]:
    call, reply, answer, usage = found.call, found.reply, found.answer, found.reply.usage
    return (
        call.ask.item.id,
        call.ask.item.role,
        call.ask.view.name,
        call.ask.part,
        call.draw,
        call.request.key,
        call.prompt.digest,
        reply.text,
        reply.finish,
        answer.slot,
        answer.rank,
        answer.fault or "",
        answer.probabilities,
        answer.label_mass,
        *(usage.prompt, usage.cached, usage.completion, usage.reasoning),
        reply.seconds,
        reply.model,
        reply.provider,
        reply.fingerprint,
        reply.error,
    )


def prompt_table(scripts: Iterable[Script]) -> pl.DataFrame:
    """The prompts of some calls and their heads, each once."""
    rows: dict[str, tuple[str, str, str]] = {}
    for script in scripts:
        digest, head = script.digest[:16], _head_digest(script.head)
        if digest not in rows:
            rows.setdefault(head, (head, "", canonical_json(_head_messages(script.head))))
            rows[digest] = digest, head, script.rest
    return PROMPT.table(rows.values())


def _head_messages(head: Head) -> list[list[str]]:
    return [*([m.role, m.content] for m in head.before), [head.role, head.start]]


@lru_cache(maxsize=1024)
def _head_digest(head: Head) -> str:
    return hashlib.sha256(canonical_json(_head_messages(head)).encode()).hexdigest()[:16]


def prompt_text(head: str, rest: str) -> str:
    """A prompt as one text, from the row of its head and its own."""
    *before, (_, start) = json.loads(head)
    return "\n\n".join([*(content for _, content in before), start + rest])


AT_ONCE = 10000
"""Items that are rows of Python values at the same time."""


class ItemTable:
    """Collects the items of a run: those rated, shown as demonstrations, or asked beside them."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Role], dict[str, Item]] = {}

    def add(self, dataset: str, items: Iterable[Item]) -> None:
        for item in items:
            self._seen.setdefault((dataset, item.role), {}).setdefault(item.id, item)

    def table(self) -> pl.DataFrame:
        """A row for every item, by dataset, role and id."""
        rows = (
            (dataset, *_item_row(some[name]))
            for (dataset, _), some in sorted(self._seen.items(), key=itemgetter(0))
            for name in sorted(some)
        )
        stretches = iter(lambda: list(islice(rows, AT_ONCE)), [])
        return pl.concat([ITEM.table(), *map(ITEM.table, stretches)])


def _item_row(item: Item) -> tuple[object, ...]:
    others = {name: value for name, value in item.fields.items() if name != "text"}
    fields = canonical_json(others) if others else ""
    columns = canonical_json(dict(item.columns)) if item.columns else ""
    text = item.fields.get("text", "")
    return item.id, item.role, item.gold, text, fields, item.cluster, columns


def read_item(row: dict[str, object]) -> Item:
    """An item from its row."""
    fields = {"text": str(row["text"]), **(json.loads(str(row["fields"])) if row["fields"] else {})}
    gold, role = row["gold"], row["role"]
    cluster = str(row["cluster"] or "")
    return Item(str(row["id"]), fields, gold, role, cluster)  # type: ignore[arg-type]  # as written


def condition_table(grid: Sequence[Condition]) -> pl.DataFrame:
    """One row per condition: how its items were shown, and with which demonstrations."""
    rows = [
        (
            *_condition_columns(one),
            len(one.items),
            one.rater.pipeline,
            list(one.view.label_order),
            one.view.demo_order,
            one.view.placement,
            one.view.place_order,
            [item.id for item in one.demos],
            [item.id for item in one.calibration],
        )
        for one in grid
    ]
    return SHOWN.table(rows)


def changes_of_model(calls: pl.LazyFrame) -> dict[str, list[str]]:
    """Say by rater what changed under its name: the model that answered, provider, fingerprint.

    An endpoint that does not say is not a change.
    """
    found: dict[str, list[str]] = {}
    for name, words in ANSWERED.items():
        counts = calls.with_row_index(PLACE).filter(pl.col(name) != "").group_by("rater", name)
        told = counts.agg(pl.len(), pl.col(PLACE).min()).sort(PLACE).pipe(collected, "streaming")
        kin = {one: without_world(one) for one in told[name].unique()}
        told = told.with_columns(pl.col(name).replace(kin))
        told = told.group_by("rater", name, maintain_order=True).agg(pl.col("len").sum())
        for (rater,), group in told.group_by("rater", maintain_order=True):
            if len(group) > 1:
                shown = ", ".join(f"{value} ({n})" for value, n in group.select(name, "len").rows())
                found.setdefault(str(rater), []).append(f"{words} changed during the run: {shown}")
    return found


ANSWERED = {
    "answered_by": "the answering model",
    "provider": "the provider",
    "fingerprint": "the system fingerprint",
}
