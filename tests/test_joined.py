"""Several run folders as one: what adds up, and what contradicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from changed_runs import changed
from conftest import Cli
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.run.joined import joined
from flipmeter.run.perform import perform
from flipmeter.show.gather import gather
from flipmeter.show.next_steps import next_steps
from flipmeter.study.file import read_study

TILTED, NOISY = "sim/first-slot?strength=2", "sim/noisy"
Do = Callable[..., Run]


@pytest.fixture
def do(tmp_path: Path) -> Do:
    """Return a function that performs a study with some keys changed, in a folder of its own."""

    def perform_in(name: str, **changes: Any) -> Run:
        fixed = {"name": "whole", "models": [TILTED], "datasets": ["reviews"], "test_size": 15}
        study = read_study({**fixed, "base": {"shots": 1}, **changes})
        return perform(study, tmp_path / name, Store())

    return perform_in


@pytest.mark.parametrize(
    "parts",
    [
        ({"models": [TILTED]}, {"models": [NOISY]}),
        ({"seeds": [0]}, {"seeds": [7]}),
        ({"vary": {"shots": [0]}}, {"vary": {"shots": [2], "mood": ["interrogative"]}}),
        ({"models": [TILTED], "seeds": [0, 7]}, {"models": [TILTED, NOISY], "seeds": [7]}),
    ],
    ids=["raters", "seeds", "levels that share a base", "overlapping"],
)
def test_runs_of_parts_are_measured_like_the_run_of_the_whole(
    do: Do, parts: tuple[dict[str, Any], ...]
) -> None:
    runs = [do(f"part {n}", **part) for n, part in enumerate(parts)]
    one = joined(runs)
    decided = one.decisions.drop("seconds")
    apart = pl.concat([run.decisions.drop("seconds") for run in runs])
    assert decided.equals(apart.unique(maintain_order=True))
    assert set(one.calls["key"]) == {key for run in runs for key in run.calls["key"]}
    for run in runs:
        mine = ["rater", "dataset", "level", "seed"]
        groups = run.estimates.select(mine).unique()
        theirs = one.estimates.join(groups, on=mine, how="semi").sort(mine, maintain_order=True)
        assert theirs.equals(run.estimates.sort(mine, maintain_order=True))


def test_a_study_cut_by_seeds_is_whole_again(do: Do) -> None:
    whole = do("whole", seeds=[0, 7, 9], models=[TILTED, NOISY])
    one = joined([do(f"seed {seed}", seeds=[seed], models=[TILTED, NOISY]) for seed in (0, 7, 9)])
    assert one.study.model_dump() == whole.study.model_dump()
    assert one.estimates.equals(whole.estimates)
    assert one.verdicts.equals(whole.verdicts)
    assert one.warnings == whole.warnings
    assert one.environment["datasets"] == whole.environment["datasets"]
    assert set(one.calls["key"]) == set(whole.calls["key"])


def test_every_drawn_reply_of_every_run_is_there(do: Do) -> None:
    runs = [do(f"seed {seed}", seeds=[seed], scores="sampled", test_size=5) for seed in (0, 7)]
    assert joined(runs).calls.height == sum(run.calls.height for run in runs)


def test_drawn_replies_stand_in_the_order_of_their_draws(do: Do) -> None:
    drawn = {"scores": "sampled", "score_samples": 3, "test_size": 4, "probes": ["label_order"]}
    first, other, again = do("a", **drawn), do("b", seeds=[7], **drawn), do("c", **drawn)
    whole = joined([first, other, again]).calls
    assert whole.equals(pl.concat([first.calls, other.calls]))
    assert whole["draw"].to_list()[:4] == [0, 1, 2, 3]


def test_of_a_call_that_two_runs_hold_the_first_counts(do: Do) -> None:
    first, again = do("first"), do("again")
    later = changed(again.folder, calls=again.calls.with_columns(fingerprint=pl.lit("later")))
    assert joined([first, later]).calls.equals(first.calls)
    assert set(joined([later, first]).calls["fingerprint"]) == {"later"}


def test_one_run_is_itself(do: Do) -> None:
    run = do("one")
    assert joined([run]) is run


def test_the_same_run_twice_adds_nothing_but_a_folder_twice_is_a_slip(do: Do) -> None:
    first, again = do("first"), do("again")
    assert joined([first, again]).decisions.equals(first.decisions)
    with pytest.raises(Problem, match="first is given twice"):
        joined([first, again, first])


def test_runs_that_contradict_each_other_are_refused(do: Do) -> None:
    first, second = do("first"), do("second")
    other = second.decisions.with_columns(
        rank=pl.when(pl.int_range(pl.len()) == 4).then(pl.col("rank") % 5 + 1).otherwise("rank")
    )
    row = other.row(4, named=True)
    second = changed(second.folder, decisions=other)
    with pytest.raises(Problem, match=rf"1 in all.*view {row['view']}.*item {row['item']}"):
        _ = joined([first, second]).decisions


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"base": {"shots": 2}}, "`base` is {'shots': 1} and {'shots': 2}"),
        ({"mode": "paper"}, "`mode`"),
        ({"probes": ["label_order"]}, "`probes`"),
        ({"decoding": {"temperature": 0.7}}, "`decoding`"),
        ({"test_size": 10}, "`test_size`"),
        ({"models": [{"model": NOISY, "name": TILTED}]}, "a model called 'sim/first-slot"),
    ],
)
def test_runs_of_another_shape_are_refused(do: Do, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem) as told:
        _ = joined([do("first"), do("second", **changes)]).decisions
    assert named in str(told.value)


def test_two_datasets_of_one_name_are_refused(do: Do) -> None:
    first, second = do("first"), do("second", seeds=[7])
    about = {"reviews": {**second.environment["datasets"]["reviews"], "digest": "another"}}
    second = changed(second.folder, {"datasets": about})
    with pytest.raises(Problem, match="a dataset called 'reviews'"):
        _ = joined([first, second]).environment


def test_a_rater_is_reproducible_if_all_its_runs_say_so(do: Do) -> None:
    first, second = do("first"), do("second", seeds=[7])
    assert joined([first, second]).environment["reproducible"] == [TILTED]
    second = changed(second.folder, {"reproducible": []})
    assert joined([first, second]).environment["reproducible"] == []


def test_a_run_that_was_stopped_is_named(do: Do) -> None:
    limited = do("limited", seeds=[7], budget={"calls": 120}, block_size=5)
    one = joined([do("first"), limited])
    assert "limited: the budget is used up" in one.stopped
    assert not one.is_settled


def test_no_next_step_of_several_runs_writes_to_two_folders(do: Do) -> None:
    one = joined([do("a", models=[NOISY], repeats=2), do("b", models=[TILTED])])
    commands = [step.command for step in next_steps(one)]
    assert any(command.startswith("flipmeter run STUDY.yaml --set") for command in commands)
    assert not [command for command in commands if f"--out {one.where}" in command]


def test_a_report_of_several_runs_shows_their_prompts(do: Do) -> None:
    one = joined([do("a", models=[TILTED]), do("b", models=[NOISY])])
    found = gather(one)
    assert found.browser.flips
    assert all(flip.frame is not None for flip in found.browser.flips)
    assert {flip.rater for flip in found.browser.flips} == {TILTED, NOISY}


def test_measure_and_report_take_several_folders(do: Do, cli: Cli, tmp_path: Path) -> None:
    do("a", seeds=[0])
    do("b", seeds=[7])
    code, out, _ = cli("measure", "a", "b", "--json")
    assert code == 0
    assert {row["seed"] for row in json.loads(out)["estimates"]} == {0, 7}
    out = cli("report", "a", "b")[1]
    assert out.startswith("report: report.html\n")
    assert "flipmeter check a b" in out
    assert (tmp_path / "report.html").is_file()
    assert not (tmp_path / "a" / "report.html").exists()
