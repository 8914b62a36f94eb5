"""Runs -> Run: the runs of several machines as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import polars as pl

from flipmeter.errors import Problem
from flipmeter.parquet import collected
from flipmeter.run.folder import Run
from flipmeter.run.generation import CALLS, DECISIONS
from flipmeter.run.rows import CONDITION, DECISION, SCHEMAS
from flipmeter.study.file import Study

DECIDED = ["rank", "slot", "fault", "prompt"]
ADDED = {"models", "panels", "datasets", "seeds", "vary", "configs", "only_on"}
"""Keys in which the studies of runs may differ, because they can be joined."""
OWN = {"name", "vary_models", "min_interval", "budget", "until", "block_size"}
OWN |= {"folder", "data_dir"}
"""Keys about the making of a run, not its results."""


@dataclass(frozen=True)
class Joined(Run):
    """Several run folders, read as if one study had been asked in one place."""

    runs: tuple[Run, ...]

    @property
    def where(self) -> str:
        return " ".join(run.where for run in self.runs)

    @cached_property
    def study(self) -> Study:
        return _one_study(self.runs)

    def _check(self, decisions: pl.LazyFrame) -> None:
        for run in self.runs:
            run.parts  # noqa: B018 - decisions are checked as they are opened

    def scan(self, name: str) -> pl.LazyFrame:
        whole = pl.concat([run.scan(name) for run in self.runs], how="diagonal_relaxed")
        if name in (DECISIONS, CALLS) and not self._overlaps:
            return whole
        return whole.unique(SCHEMAS[name].key, keep="first", maintain_order=True)

    @cached_property
    def _overlaps(self) -> bool:
        """Say whether runs share conditions; those that contradict each other are a problem."""
        _one_study(self.runs)  # refuses one name for two raters, which says more than their answers
        _refuse_other_data(self.runs)
        shared = _shared_conditions(self.runs)
        for (first, second), conditions in shared.items():
            _refuse_two_decisions(first, second, conditions)
        return bool(shared)

    @cached_property
    def environment(self) -> Mapping[str, Any]:
        return _one_environment(self.runs)

    @property
    def is_settled(self) -> bool:
        ended = [run for run in self.runs if run.stopped]
        return bool(ended) and all(run.is_settled for run in ended)


def joined(runs: Sequence[Run]) -> Run:
    """Runs as one; incompatible or contradicting runs are a Problem.

    Raters, datasets, seeds and levels add up. The same decision may be in two runs.
    """
    folders = [os.path.realpath(run.folder) for run in runs]
    for run, folder in zip(runs, folders, strict=True):
        if folders.count(folder) > 1:
            raise Problem(f"the run folder {run.folder} is given twice; give each once")
    return runs[0] if len(runs) == 1 else Joined(runs[0].folder, tuple(runs))


# --- the study --------------------------------------------------------------------------------


def _refuse_other_studies(runs: Sequence[Run]) -> None:
    first = runs[0].study
    # The cells of a factorial design come from all runs.
    added = ADDED if first.design == "one-at-a-time" else ADDED - {"vary"}
    shape = [name for name in type(first).model_fields if name not in added | OWN]
    for run in runs[1:]:
        phases = ". For the two phases of the paper's first table: report RUN --greedy RUN"
        for name in shape:
            if getattr(first, name) != getattr(run.study, name):
                raise Problem(
                    f"{runs[0].folder} and {run.folder} are not one study: `{name}` is "
                    f"{getattr(first, name)!r} and {getattr(run.study, name)!r}; only "
                    f"{', '.join(sorted(ADDED))} may differ"
                    f"{phases if first.decoding != run.study.decoding else ''}"
                )


def _one_study(runs: Sequence[Run]) -> Study:
    _refuse_other_studies(runs)
    studies = [run.study for run in runs]
    # Where a model was asked, and how fast, may differ.
    models = _one_each(
        (pair for study in studies for pair in zip(study.models, study.entries, strict=True)),
        name=lambda pair: str(pair[1].name or pair[1].model),
        same=lambda pair: pair[1].model,
        what="model",
    )
    named = {
        key: dict(
            _one_each(
                (pair for study in studies for pair in getattr(study, key).items()),
                name=lambda pair: str(pair[0]),
                same=lambda pair: pair[1],
                what=key.removesuffix("s"),
            )
        )
        for key in ("panels", "configs")
    }
    return studies[0].model_copy(
        update={
            "name": " + ".join(dict.fromkeys(study.name for study in studies)),
            "models": [model for model, _ in models],
            "datasets": _distinct_unhashable(spec for study in studies for spec in study.datasets),
            "seeds": _distinct_unhashable(seed for study in studies for seed in study.seeds),
            "vary": _merge_lists(study.vary for study in studies),
            "only_on": _merge_lists(study.only_on for study in studies),
            **named,
            "vary_models": [],
            "budget": None,
            "until": None,
        }
    )


def _one_each(
    things: Iterable[Any],
    *,
    name: Callable[[Any], str],
    same: Callable[[Any], object],
    what: str,
) -> list[Any]:
    """Things by name, each once; one name for two things is a Problem."""
    found: dict[str, Any] = {}
    for thing in things:
        known = found.setdefault(name(thing), thing)
        if same(known) != same(thing):
            raise Problem(
                f"two runs have a {what} called '{name(thing)}', but they differ: "
                f"{same(known)!r} and {same(thing)!r}"
            )
    return list(found.values())


def _distinct_unhashable(things: Iterable[Any]) -> list[Any]:
    """Things once, in their order; a mapping has no hash."""
    found: list[Any] = []
    for thing in things:
        if thing not in found:
            found.append(thing)
    return found


def _merge_lists(mappings: Iterable[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    """Lists by name, those under one name added up."""
    found: dict[str, list[Any]] = {}
    for mapping in mappings:
        for name, values in mapping.items():
            found[name] = _distinct_unhashable([*found.get(name, []), *values])
    return found


# --- the decisions ----------------------------------------------------------------------------


def _shared_conditions(runs: Sequence[Run]) -> dict[tuple[Run, Run], pl.DataFrame]:
    """The conditions that two runs share, by pair of runs."""
    own = {
        run: run.scan(DECISIONS).select(CONDITION).unique().pipe(collected, "streaming")
        for run in runs
    }
    shared = {(a, b): own[a].join(own[b], on=CONDITION) for a, b in combinations(runs, 2)}
    return {pair: found for pair, found in shared.items() if not found.is_empty()}


def _refuse_two_decisions(first: Run, second: Run, conditions: pl.DataFrame) -> None:
    """Refuse runs in which the same item was decided otherwise under the same condition."""
    a, b = (
        run.scan(DECISIONS)
        .select(*DECISION.key, *DECIDED)
        .join(conditions.lazy(), on=CONDITION, how="semi", maintain_order="left")
        for run in (first, second)
    )
    both = a.join(b, on=DECISION.key, suffix="_b", maintain_order="left")
    differs = pl.any_horizontal(pl.col(name) != pl.col(f"{name}_b") for name in DECIDED)
    found = both.filter(differs).pipe(collected, "streaming")
    if not found.is_empty():
        row = found.row(0, named=True)
        place = ", ".join(f"{name} {row[name]}" for name in DECISION.key if row[name] != "")
        ranks = row["rank"] or row["fault"], row["rank_b"] or row["fault_b"]
        raise Problem(
            f"{first.folder} and {second.folder} have different decisions on the same condition, "
            f"{len(found):,} in all; the first: {place}: {ranks[0]} and {ranks[1]}; measure them "
            "one by one"
        )


# --- the environment --------------------------------------------------------------------------


def _one_environment(runs: Sequence[Run]) -> dict[str, Any]:
    """The provenance of all runs; machine details come from the first run."""
    told = [run.environment for run in runs]
    _refuse_other_data(runs)
    ended = [run for run in runs if run.stopped]
    machine = ("flipmeter", "python", "platform", "asked", "origin")
    return {
        **told[0],
        "runs": {
            str(run.folder): {name: one[name] for name in machine if name in one}
            for run, one in zip(runs, told, strict=True)
        },
        **{
            key: {name: one for each in told for name, one in each.get(key, {}).items()}
            for key in ("models", "datasets", "tasks", "capabilities")
        },
        "fallbacks": _merge_lists(each.get("fallbacks", {}) for each in told),
        "greedy": _distinct_unhashable(name for run in runs for name in run.greedy_models),
        "reproducible": _reproducible_raters(runs),
        "claim": {},
        "stopped": "; ".join(f"{run.folder}: {run.stopped}" for run in ended),
    }


def _reproducible_raters(runs: Sequence[Run]) -> list[str]:
    """The raters that are reproducible in every run that has them."""
    claimed = {name for run in runs for name in run.environment["reproducible"]}
    denied = {
        name
        for run in runs
        for name in run.named("rater")
        if name not in run.environment["reproducible"]
    }
    return sorted(claimed - denied)


def _refuse_other_data(runs: Sequence[Run]) -> None:
    found = (
        (name, about["digest"])
        for run in runs
        for name, about in run.environment["datasets"].items()
    )
    _one_each(found, name=lambda pair: pair[0], same=lambda pair: pair[1], what="dataset")
