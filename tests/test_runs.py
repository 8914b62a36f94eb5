"""Lots and blocks, runs that stop early, and what every table must warn of."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flipmeter.ask.store import Store
from flipmeter.cli.consoles import say
from flipmeter.errors import OutOfBudget, Problem
from flipmeter.run import rate
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.rate import lots
from flipmeter.show.gather import summary
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Condition
from misbehaving import Behaviour, answer, misbehaving, says
from report_runs import simulated

VIEWS = {"base", "reversed", "ascending", "descending", "random", "after", "split"}


def study(**changes: Any) -> Study:
    content = {"models": ["sim/first-slot"], "datasets": ["reviews"], "test_size": 45}
    return read_study({**content, "base": {"shots": 1}, **changes})


def places(lot: Sequence[Condition]) -> list[tuple[str, int, str]]:
    return [(c.view.name, c.view.repeat, item.id) for c in lot for item in c.items]


# Lots


def test_blocks_hold_all_views_of_their_items_and_together_the_whole_grid() -> None:
    grid = conditions(study())
    blocks = list(lots(grid, 20))
    assert [len(block[0].items) for block in blocks] == [20, 20, 5]
    for block in blocks:
        by_view: dict[str, set[str]] = {}
        for view, repeat, item in places(block):
            if not repeat:
                by_view.setdefault(view, set()).add(item)
        assert set(by_view) == VIEWS
        assert len({frozenset(items) for items in by_view.values()}) == 1
    asked = list(itertools.chain.from_iterable(map(places, blocks)))
    assert sorted(asked) == sorted(places(grid))
    assert len(asked) == len(set(asked))


def test_every_block_is_about_as_balanced_as_the_whole() -> None:
    for block in list(lots(conditions(study()), 20))[:2]:
        golds = [item.gold for item in block[0].items]
        assert {golds.count(rank) for rank in range(1, 6)} == {4}


def test_a_run_that_cannot_stop_early_keeps_conditions_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = conditions(study(seeds=[0, 1, 2]))
    monkeypatch.setattr(rate, "LOT", sum(len(one.items) for one in grid if one.seed == 0))
    cut = list(lots(grid, None))
    assert [c for lot in cut for c in lot] == grid
    assert [sorted({c.seed for c in lot}) for lot in cut] == [[0], [1], [2]]


# A budget


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "replies.sqlite") as store:
        yield store


def test_a_budget_leaves_complete_pairs_and_says_so(tmp_path: Path, store: Store) -> None:
    per_block = 15 * len(VIEWS) + 2 * 15  # base and reversed are repeated on 20 items
    limited = study(budget={"calls": per_block + 20}, block_size=15)
    run = perform(limited, tmp_path / "run", store)
    counts = run.decisions.filter(repeat=0).group_by("view").agg(pl.col("item").sort())
    assert set(counts["view"]) == VIEWS
    assert {tuple(items) for items in counts["item"]} == {tuple(counts["item"][0])}
    assert len(counts["item"][0]) == 15
    assert "the budget is used up" in run.stopped
    assert all("not everything was rated" in text for text in run.estimates["warning"])


def test_a_run_goes_on_with_a_larger_budget_and_ends_like_one_without(
    tmp_path: Path, store: Store
) -> None:
    whole = perform(study(), tmp_path / "whole", Store())
    stops = 0
    for _ in range(9):
        run = perform(study(budget={"calls": 100}, block_size=10), tmp_path / "run", store)
        if not run.stopped:
            break
        stops += 1
    assert stops > 2
    assert run.decisions.drop("seconds").equals(whole.decisions.drop("seconds"))
    assert run.estimates.equals(whole.estimates)


def test_a_budget_below_one_block_is_an_error_that_loses_nothing(
    tmp_path: Path, store: Store
) -> None:
    with pytest.raises(OutOfBudget, match="30 calls of 30"):
        perform(study(budget={"calls": 30}), tmp_path / "run", store)
    assert len(store) == 30
    assert not (tmp_path / "run").exists()


# Who answered


@contextmanager
def changing_endpoint(tmp_path: Path, **names: Sequence[str]) -> Iterator[Run]:
    """Give a run against a server whose answers name one model after the other."""
    numbers = itertools.count()

    def rule(_: Any) -> Behaviour:
        place = next(numbers) // 10
        named = {field: values[place % len(values)] for field, values in names.items()}
        return says(answer("2", **named))

    async def go() -> Run:
        async with misbehaving(rule=rule) as server:
            model = {"model": "http/m", "name": "ours", "base_url": server.url, "concurrency": 1}
            asked = study(models=[model], test_size=10, probes=["label_order"], repeats=1)
            with Store() as store:
                return await asyncio.to_thread(perform, asked, tmp_path / "run", store)

    yield asyncio.run(go())


def test_a_model_that_changes_during_a_run_is_a_warning_in_every_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with changing_endpoint(
        tmp_path, model=["m-may", "m-june"], provider=["A", "B"], system_fingerprint=["f1", "f2"]
    ) as run:
        said = run.warnings["ours"]
        assert "the answering model changed during the run: m-may (10), m-june (10)" in said
        assert "the provider changed" in said
        assert "the system fingerprint changed" in said
        assert set(run.estimates["warning"]) == {said}
        say(*summary(run))
        shown = capsys.readouterr().out
        assert shown.count("! ours: the answering model changed") == 1


def test_an_endpoint_that_names_nobody_or_the_same_is_no_change(tmp_path: Path) -> None:
    with changing_endpoint(tmp_path, model=["m", ""], provider=["A"]) as run:
        assert run.warnings == {}


# Where a loop is running


def test_a_study_can_be_performed_where_a_loop_is_running(tmp_path: Path, store: Store) -> None:
    async def notebook() -> Run:
        return perform(study(), tmp_path / "run", store)

    assert len(asyncio.run(notebook()).decisions) == 45 * len(VIEWS) + 2 * 20


# A claim that stops a run


def until(claim: str, model: str, **changes: Any) -> Study:
    shape = {"test_size": 150, "probes": ["label_order"], "repeats": 1, "block_size": 25}
    return study(models=[model], until=claim, **shape, **changes)


@pytest.mark.parametrize(
    ("model", "word"), [("sim/honest", "below"), ("sim/first-slot?strength=3", "above")]
)
def test_a_run_stops_at_the_end_of_the_block_that_settles_its_claim(
    tmp_path: Path, store: Store, model: str, word: str
) -> None:
    run = perform(until("P1<0.10", model), tmp_path / "run", store)
    n_items = run.decisions["item"].n_unique()
    assert n_items < 150
    assert n_items % 25 == 0
    assert f"P1<0.1 was settled after {n_items} of 150 items" in run.stopped
    assert f"{word} (" in run.stopped
    assert f"{300 - 2 * n_items} of 300 decisions were not needed" in run.stopped
    assert all(run.stopped in warning for warning in run.warnings.values())
    assert run.is_settled


def test_a_claim_that_is_never_settled_takes_all_items(tmp_path: Path, store: Store) -> None:
    run = perform(until("P1<0.021", "sim/honest"), tmp_path / "run", store)
    assert run.decisions["item"].n_unique() == 150
    assert not run.stopped
    assert not run.is_settled


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("P9<0.1", "no contrast named 'P9'; known: P1"),
        ("P1<0.001", "cannot be shown with 150 items"),
        ("often", "cannot read the claim 'often'"),
    ],
)
def test_a_claim_that_cannot_stop_a_run_is_refused_before_anything_is_asked(
    tmp_path: Path, store: Store, claim: str, said: str
) -> None:
    with pytest.raises(Problem, match=re.escape(said)):
        perform(until(claim, "sim/honest"), tmp_path / "run", store)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["decisions.parquet", "calls.parquet", "run.json"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    run = simulated(tmp_path, test_size=5, probes=["label_order"])
    path = tmp_path / name if name == "run.json" else run.path(name)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(Problem, match=rf"{name} is damaged .*; run the study again"):
        _ = Run(tmp_path).decisions, Run(tmp_path).calls
