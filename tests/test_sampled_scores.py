"""Label probabilities counted from drawn replies, where an endpoint shows none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.ask.family import Capability, World
from flipmeter.ask.names import open_backend, request_for
from flipmeter.ask.sim import latents
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.prompt.parsing import counted, parse
from flipmeter.prompt.pointwise import render
from flipmeter.prompt.question import posing
from flipmeter.run.conditions import adapted
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.preview import preview
from flipmeter.run.progress import Terms
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Answer, Decoding, Item, Model, Scale, Style, Task, View

NAMES = ("low", "middle", "high")


def study(**changes: Any) -> Study:
    content = {
        "models": [{"name": "rater", "model": "sim/biased-noisy?strength=1&noise=1"}],
        "datasets": ["reviews"],
        "test_size": 8,
        "repeats": 1,
        "base": {"shots": 1},
        "probes": ["label_order"],
        "scores": "sampled",
    }
    return read_study(content | changes)


def performed(folder: Path, **changes: Any) -> Run:
    return perform(study(**changes), folder / "run", Store(), Terms(anyway=True))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_counts_are_probabilities_and_none_is_0(slots: list[int]) -> None:
    task = Task(Scale(NAMES))
    prompt = render(task, Style(shots=0), View("base", (1, 2, 3)), (), Item("q", {"text": "?"}))
    plain = Answer(2, 2)
    found = counted(plain, [Answer(slot, slot) for slot in slots], prompt)
    assert (found.slot, found.rank) == (2, 2)
    read = [slot for slot in slots if slot]
    assert found.label_mass == pytest.approx(len(read) / len(slots))
    if not read:
        assert found.probabilities is None
        return
    assert found.probabilities is not None
    assert sum(found.probabilities) == pytest.approx(1)
    assert min(found.probabilities) > 0
    order = np.argsort([read.count(slot) for slot in (1, 2, 3)], kind="stable")
    assert (np.diff(np.array(found.probabilities)[order]) >= 0).all()


def test_one_more_draw_is_spread_over_all_slots() -> None:
    task = Task(Scale(NAMES))
    prompt = render(task, Style(shots=0), View("base", (1, 2, 3)), (), Item("q", {"text": "?"}))
    found = counted(Answer(2, 2), [Answer(slot, slot) for slot in (1, 1, 3, 0)], prompt)
    thirds = ((2 + 1 / 3) / 4, (1 / 3) / 4, (1 + 1 / 3) / 4)
    assert found.probabilities == pytest.approx(thirds)


def test_counted_draws_converge_to_the_scores_of_the_same_rater() -> None:
    item = Item("q", {"text": "a text"}, 2)
    task, view, model = Task(Scale(NAMES)), View("base", (3, 2, 1)), Model("sim/noisy?first=1")
    prompt = posing("pointwise")(task, Style(shots=0), view, ())(item, "")
    backend = open_backend(model, World(latents([item], task.scale), NAMES))

    def ask(draw: int) -> Answer:
        request = request_for(model, backend.identity, prompt, Decoding().drawn, 1000 * draw)
        return parse(asyncio.run(backend.ask(request)), prompt)

    answers = [ask(draw) for draw in range(1, 2001)]
    shown = np.array(answers[0].probabilities)
    for n in (20, 2000):
        found = np.array(counted(answers[0], answers[:n], prompt).probabilities)
        error = np.sqrt(shown * (1 - shown) / n) + 1 / n
        assert (np.abs(found - shown) < 4 * error).all()


def test_a_study_pays_for_every_draw_and_says_so_before(tmp_path: Path) -> None:
    asked = study(score_samples=5)
    assert preview(asked, Store()).cost.distinct == 2 * 8 * (1 + 5)
    run = perform(asked, tmp_path / "run", Store())
    assert set(run.decisions["n_calls"]) == {6}
    assert run.environment["asked"]["wanted"] == 2 * 8 * 6
    assert sorted(run.calls["draw"].unique()) == [0, 1, 2, 3, 4, 5]
    assert run.calls["key"].n_unique() == len(run.calls)


def test_debiasers_work_on_counted_draws(tmp_path: Path) -> None:
    level = "pipeline=pointwise+contextual"
    run = performed(tmp_path, vary={"pipeline": ["pointwise+contextual"]}, score_samples=60)
    rows = run.decisions.filter(level=level)
    assert rows["probabilities"].null_count() == 0
    assert set(rows["shared_calls"]) == {3 * 61}
    # The first slot is preferred; what null texts show of it is taken out of every item's shares.
    shares = [
        np.array(run.decisions.filter(level=at, view="base")["probabilities"].to_list())[:, 0]
        for at in ("", level)
    ]
    assert shares[1].mean() < shares[0].mean() - 0.02


def test_draws_of_two_repeats_are_not_the_same(tmp_path: Path) -> None:
    run = performed(tmp_path, repeats=2, repeat_views=["base"])
    repeats = [run.decisions.filter(view="base", repeat=repeat) for repeat in (0, 1)]
    assert repeats[0]["probabilities"].to_list() != repeats[1]["probabilities"].to_list()
    assert len(repeats[1]) == 8
    assert run.environment["reproducible"] == []
    assert not run.warnings


def test_draws_do_not_change_the_class_or_the_prompt(tmp_path: Path) -> None:
    plain = performed(tmp_path / "plain", scores=False)
    drawn = performed(tmp_path / "drawn", score_samples=2)
    names = ["view", "item", "rank", "slot", "prompt"]
    assert plain.decisions.select(names).equals(drawn.decisions.select(names))


def test_without_the_option_a_model_without_log_probabilities_is_refused() -> None:
    endpoint = {"name": "ours", "model": "openai/any", "base_url": "http://127.0.0.1:9/v1"}
    changes = {"models": [endpoint], "pipeline": "pointwise+contextual"}
    found = {"logprobs": Capability("logprobs", False, "refused")}
    for scores in (True, False):
        grid = conditions(study(scores=scores, **changes))
        with pytest.raises(Problem, match="scores: sampled"):
            adapted(grid, {grid[0].rater.model: found})
    grid = conditions(study(**changes))
    kept, told = adapted(grid, {grid[0].rater.model: found})
    assert (kept, told) == (grid, {})
    assert {condition.rater.n_draws for condition in kept} == {20}


def test_a_labels_share_of_few_draws_is_warned_of(tmp_path: Path) -> None:
    model = [{"name": "rater", "model": "sim/refusing?strength=1"}]
    run = performed(tmp_path, models=model, score_samples=2)
    assert run.decisions.filter(pl.col("label_mass") > 0).is_empty()
    assert "16 of 16 decisions" in run.warnings["rater"]
