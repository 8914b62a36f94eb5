"""Gate file -> verdicts on a run: the grammar of limits, and the raters they apply to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator
from rich.console import RenderableType

from flipmeter.checks import error_rate
from flipmeter.choose.tables import claims_table
from flipmeter.documents import check_values
from flipmeter.errors import Problem
from flipmeter.printed import Printed
from flipmeter.registry import suggestion
from flipmeter.run.folder import Run
from flipmeter.run.rows import in_order
from flipmeter.stats.limits import GateLimit, Key, Limit, gate_limits, hold_limits
from flipmeter.study.entries import Strict, explained, read_mapping
from flipmeter.types import ALPHA, Contrast

Share = Annotated[float, Field(gt=0, lt=1)]
Word = Literal["stable", "flips", "unreadable", "inconclusive"]
WILD = "*?["
DRIFT = 0.05
"""Default limits on how much worse flips and accuracy may get since another run."""


class Drift(Strict):
    """Limits on how much worse each number may get since another run.

    `more` has the limits that plug-ins add; a gate file names them like any other.
    """

    flips: dict[str, Share] = Field(default_factory=dict)
    accuracy: Share | None = None
    mae: Annotated[float, Field(gt=0)] | None = None
    faults: Share | None = None
    more: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _sort_in(cls, content: Any) -> Any:
        """Take the limits of plug-ins out of the keys of a rule."""
        if not isinstance(content, Mapping):
            return content
        added = {key: one for key, one in content.items() if _is_added(cls, key)}
        if not added:
            return content
        own = {key: one for key, one in content.items() if key not in added}
        return {**own, "more": {**added, **own.get("more", {})}}

    @field_validator("more")
    @classmethod
    def _in_reach(cls, value: dict[str, float]) -> dict[str, float]:
        for name, bound in value.items():
            if gate_limits[name].reach is None and bound >= 1:
                raise ValueError(f"{name} is {bound:g}; a share is below 1")
        return value

    @field_validator("flips", "excess", "noise", mode="before", check_fields=False)
    @classmethod
    def _one_for_all(cls, value: Any) -> Any:
        return {"*": value} if isinstance(value, int | float) else value

    @property
    def by_contrast(self) -> dict[str, dict[str, float]]:
        names = ("flips", "excess", "noise")
        return {name: getattr(self, name) for name in names if name in type(self).model_fields}

    @property
    def by_view(self) -> dict[str, float]:
        scores: dict[str, float | None] = {
            "accuracy": self.accuracy,
            "mae": self.mae,
            "faults": self.faults,
            **self.more,
        }
        return {metric: bound for metric, bound in scores.items() if bound is not None}

    @property
    def is_empty(self) -> bool:
        return not (any(self.by_contrast.values()) or self.by_view)


class Rule(Drift):
    """Limits for the raters, datasets and levels whose names match; the base level is ''.

    A metric without a limit is not tested. Flips, excess and noise are by contrast, whose name may
    be a pattern; a number alone is for all those with a verdict. Scores are those of the views that
    match `view`. `drift` limits what gets worse since another run.
    """

    excess: dict[str, Share] = Field(default_factory=dict)
    noise: dict[str, Share] = Field(default_factory=dict)
    rater: str = "*"
    dataset: str = "*"
    level: str = ""
    view: str = "base"
    drift: Drift = Drift()

    def is_for(self, key: Key) -> bool:
        return all(map(fnmatchcase, key, (self.rater, self.dataset, self.level)))


class Gate(Rule):
    """A whole gate file: limits for all, and rules, of which the last that matches decides.

    `study` or `run` is what `pytest --flip-gate` tests, relative to the file.
    """

    study: str = ""
    run: str = ""
    alpha: Annotated[float, AfterValidator(error_rate)] = ALPHA
    rules: list[Rule] = Field(default_factory=list)

    @property
    def each(self) -> list[Rule]:
        """All rules, the general one first if it asks anything."""
        own = [] if self.is_empty and self.drift.is_empty else [self]
        return [*own, *self.rules]


def _is_added(rule: type[Drift], key: object) -> bool:
    """Whether a key of a gate file is a limit that a plug-in adds."""
    is_own = key in rule.model_fields or key in ("excess", "noise", "drift", "rules")
    if is_own or not isinstance(key, str) or key not in gate_limits:
        return False
    kind: GateLimit = gate_limits[key]
    return kind.bad is not None


def read_gate(source: Path | Mapping[str, Any]) -> Gate:
    """Read a gate file, or its content."""
    content: Any
    where = str(source) if isinstance(source, Path) else "the gate"
    try:
        content = source
        if isinstance(source, Path):
            nothing = f"{source} is not a gate; write limits, as in flips: {{P1: 0.10}}"
            missing = f"no gate file {source}; docs/gate.md shows one: flips: {{P1: 0.10}}"
            content = read_mapping(source, missing, nothing)
            if not all(isinstance(key, str) for key in content):
                raise Problem(nothing)
        check_values(content, "a limit")
        gate = Gate(**content)
    except ValidationError as error:
        raise Problem(explained(error, where, (Gate,))) from error
    except Problem as problem:
        raise Problem(f"{where}: {problem}") from problem
    empty = [rule for rule in gate.each if rule.is_empty and rule.drift.is_empty]
    if empty or not gate.each:
        raise Problem(
            f"{where}: {'a rule' if empty else 'it'} has no limits; add some, as in "
            "flips: {P1: 0.10}, accuracy: 0.60, faults: 0.02"
        )
    return gate


# --- checking ---------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Checked(Printed):
    """Every claim of a gate about a run with its verdict, and notes."""

    name: str
    claims: pl.DataFrame
    notes: tuple[str, ...]

    @property
    def word(self) -> Word:
        """The word for the whole gate: one broken claim breaks it, all must be shown."""
        words = set(self.claims["word"])
        if words & {"flips", "missed"}:
            return "flips"
        if "unreadable" in words:
            return "unreadable"
        return "stable" if words <= {"stable", "met"} else "inconclusive"

    def tables(self) -> Iterator[RenderableType]:
        yield claims_table(self.claims, f"{self.name}: {self.word}")
        yield from (f"! {note}" for note in self.notes)


def check(run: Run, gate: Gate | None = None, reference: Run | None = None) -> Checked:
    """Test a run against a gate; without one, every contrast against the margin of its study.

    With a reference run, the change since then is tested against the gate's `drift`.
    """
    gate = gate or Gate(flips={"*": run.study.margin})
    known = run.contrasts if reference is None else reference.contrasts
    contrasts = tuple(contrast for contrast in run.contrasts if contrast in known)
    if reference is None:
        rules = [rule.model_copy(update={"drift": Drift()}) for rule in gate.rules]
        kept = [rule for rule in rules if not rule.is_empty]
        gate = gate.model_copy(update={"drift": Drift(), "rules": kept})
    elif all(rule.drift.is_empty for rule in gate.each):
        gate = gate.model_copy(update={"drift": Drift(flips={"*": DRIFT}, accuracy=DRIFT)})
    if reference is not None:
        _refuse_other_data(run, reference)
    named, wild = _limits_by_group(gate, run.tally, contrasts)
    held = hold_limits(
        run.panels,
        contrasts,
        {key: [*named[key], *wild[key]] for key in named},
        reference=None if reference is None else reference.parts.decisions,
        alpha=gate.alpha,
    )
    claims, left_out = _applicable_limits(held, named)
    notes = [f"{rater}: {text}" for rater, text in run.warnings.items()]
    return Checked(run.study.name, in_order(claims, run.tally), (*notes, *left_out))


def _refuse_other_data(run: Run, reference: Run) -> None:
    """Refuse to pair items that only have the same ids."""
    before = reference.environment["datasets"]
    for name, about in run.environment["datasets"].items():
        if name in before and before[name].get("digest") != about.get("digest"):
            raise Problem(
                f"'{name}' differs between {run.folder} and {reference.folder}, so items "
                "cannot be paired; run the reference again on the present data"
            )


_Wanted = dict[Key, list[Limit]]


def _limits_by_group(
    gate: Gate, conditions: pl.DataFrame, contrasts: Sequence[Contrast]
) -> tuple[_Wanted, _Wanted]:
    """The limits of every rater, dataset and level: those named, and those by pattern."""
    groups = conditions.select("rater", "dataset", "level").unique(maintain_order=True)
    keys: list[Key] = groups.rows()
    views = conditions["view"].unique(maintain_order=True).to_list()
    named: _Wanted = {key: [] for key in keys}
    wild: _Wanted = {key: [] for key in keys}
    for rule in gate.each:
        mine = [key for key in keys if rule.is_for(key)]
        if not mine:
            raise _no_group_problem(rule, keys)
        for limit, is_named in _iter_limits(rule, contrasts, views):
            for key in mine:
                for limits in (named[key], wild[key]):  # an earlier rule about the same number
                    limits[:] = [one for one in limits if replace(one, bound=limit.bound) != limit]
                (named if is_named else wild)[key].append(limit)
    return named, wild


def _no_group_problem(rule: Rule, keys: Sequence[Key]) -> Problem:
    for kind, pattern, place in (("rater", rule.rater, 0), ("dataset", rule.dataset, 1)):
        there = list(dict.fromkeys(key[place] for key in keys))
        if not any(fnmatchcase(name, pattern) for name in there):
            return Problem(f"gate: no {kind} matches '{pattern}'{suggestion(pattern, there)}")
    there = list(dict.fromkeys(key[2] or "''" for key in keys))
    return Problem(f"gate: no condition has the level '{rule.level}'; known: {', '.join(there)}")


def _iter_limits(
    rule: Rule, contrasts: Sequence[Contrast], views: Sequence[str]
) -> Iterator[tuple[Limit, bool]]:
    """Yield every limit of a rule, and whether its contrast is named and not matched."""
    for limits, is_drift in ((rule, False), (rule.drift, True)):
        for metric, bounds in limits.by_contrast.items():
            for pattern, bound in bounds.items():
                is_named = not any(mark in pattern for mark in WILD)
                for name in _matching_contrasts(pattern, contrasts):
                    yield Limit(metric, name, bound, is_drift), is_named
        for metric, bound in limits.by_view.items():
            seen = [view for view in views if fnmatchcase(view, rule.view)]
            if not seen:
                near = suggestion(rule.view, list(views))
                raise Problem(f"gate: no view matches '{rule.view}'{near}")
            yield from ((Limit(metric, view, bound, is_drift), True) for view in seen)


def _matching_contrasts(pattern: str, contrasts: Sequence[Contrast]) -> list[str]:
    """The contrasts that a pattern means: an aggregate only if it is named itself."""
    found = [c.name for c in contrasts if c.name == pattern] or [
        c.name for c in contrasts if c.is_judged and fnmatchcase(c.name, pattern)
    ]
    if not found:
        near = suggestion(pattern, [contrast.name for contrast in contrasts])
        raise Problem(f"gate: no contrast matches '{pattern}'{near}")
    return found


def _applicable_limits(held: pl.DataFrame, named: _Wanted) -> tuple[pl.DataFrame, list[str]]:
    """Drop limits that a pattern matched and the run cannot measure, with a note."""
    kept, notes = [], []
    for row in held.iter_rows(named=True):
        key = row["rater"], row["dataset"], row["level"]
        limit = Limit(row["metric"], row["where"], row["limit"], row["is_drift"])
        # Pairs that were compared and could not be read have no rate, and are never left out.
        if row["value"] is not None or row["n"] or limit in named[key]:
            kept.append(row)
        else:
            notes.append(f"{key[0]}, {row['where']}: {row['note']}")
    if not kept:
        raise Problem("gate: the run measures none of these contrasts; use others")
    return pl.DataFrame(kept, schema=held.schema), list(dict.fromkeys(notes))
