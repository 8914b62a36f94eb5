"""The instrument reads back what was planted, through the whole chain from text to interval."""

from __future__ import annotations

import asyncio

import polars as pl
import pytest

from flipmeter.ask.engine import Engine
from flipmeter.ask.family import World
from flipmeter.ask.names import open_backend
from flipmeter.ask.sim import latents
from flipmeter.ask.store import Store
from flipmeter.ask.tilts import sim_spec
from flipmeter.prompt.pointwise import unshown
from flipmeter.prompt.probes import expand, probes
from flipmeter.run.rate import rate
from flipmeter.run.rows import decision_table
from flipmeter.stats.estimates import measure
from flipmeter.stats.judge import verdicts
from flipmeter.types import Condition, Item, Model, Rater, Scale, Style, Task
from planted_flips import Positions, predict_flip_rate

NAMES = ("awful", "poor", "fair", "good", "superb")
TASK = Task(Scale(NAMES))
PROBES = [
    name
    for name, probe in probes.items()
    if name not in unshown(Style(), TASK) and probe.moves is None
]
CONTRASTS = [contrast for name in PROBES for contrast in probes[name].contrasts]


def decisions_of(
    address: str, draw: int, *, n_items: int, names: list[str], repeats: int = 1
) -> pl.DataFrame:
    """Rate fresh texts with a simulated rater: every draw is another sample of texts."""
    demos = tuple(
        Item(f"demo{draw}.{k}", {"text": f"demo text {draw}.{k}"}, 1 + (3 * k + 1) % 5, "demo")
        for k in range(10)
    )
    items = tuple(
        Item(f"{draw}.{k}", {"text": f"text {draw}.{k}"}, 1 + k % 5) for k in range(n_items)
    )
    rater = Rater(Model(address), Style())
    grid = [
        Condition(rater, "planted", TASK, draw, view, demos, items)
        for view in expand(names, 5, repeats=repeats)
    ]
    world = World(latents((*items, *demos), TASK.scale), NAMES)
    backend = open_backend(rater.model, world)

    async def decisions() -> pl.DataFrame:
        with Store() as store:
            engine = Engine({backend.identity: backend}, store)
            identities = {(rater.model, "planted"): backend.identity}
            return pl.concat(
                [decision_table(rated) async for rated in rate(grid, engine, identities)]
            )

    return asyncio.run(decisions())


NATURAL, REVERSED = Positions((1, 2, 3, 4, 5)), Positions((5, 4, 3, 2, 1))


@pytest.mark.parametrize("address", ["sim/first-slot?strength=2", "sim/last-slot?noise=0.4"])
def test_a_planted_flip_rate_is_inside_its_interval_about_95_times_in_100(address: str) -> None:
    planted = predict_flip_rate(sim_spec(address), 5, NATURAL, REVERSED)
    n_draws, inside = 60, 0
    for draw in range(n_draws):
        frame = decisions_of(address, draw, n_items=100, names=["label_order"])
        row = measure(frame, CONTRASTS).filter(metric="P1", policy="complete").to_dicts()[0]
        inside += row["low"] <= planted <= row["high"]
    # 95 % of 60 is 57, with a standard error of 1.7: four of them either way.
    assert inside >= 50


def test_the_planted_noise_is_read_back_as_noise_not_as_a_flip() -> None:
    address = "sim/noisy?strength=0.8"
    frames = [
        decisions_of(address, draw, n_items=200, names=["label_order"], repeats=2)
        for draw in range(5)
    ]
    rows = measure(pl.concat(frames), CONTRASTS)
    noise = rows.filter(metric="noise", policy="complete")["value"].mean()
    planted = predict_flip_rate(sim_spec(address), 5, NATURAL, NATURAL)
    assert noise == pytest.approx(planted, abs=0.06)
    assert verdicts(pl.concat(frames), CONTRASTS[:1])["word"].to_list() != ["flips"]


def test_the_honest_rater_raises_no_flag() -> None:
    frame = decisions_of("sim/honest", 0, n_items=150, names=PROBES, repeats=2)
    judged = verdicts(frame, CONTRASTS, reproducible=["sim/honest"])
    assert set(judged["word"]) == {"stable"}
    assert measure(frame, CONTRASTS).filter(metric="P2")["k"].to_list() == [0, 0, 0]


def test_recency_shows_in_the_order_of_demonstrations_and_nowhere_else() -> None:
    frame = decisions_of("sim/recency?strength=4", 0, n_items=200, names=PROBES, repeats=2)
    words = dict(
        verdicts(frame, CONTRASTS, reproducible=["sim/recency?strength=4"])
        .select("contrast", "word")
        .iter_rows()
    )
    assert words["P1"] == "stable"
    assert "flips" in (words["P2a"], words["P2b"])


def test_a_slot_preference_is_undone_to_classes_in_the_right_direction() -> None:
    """A preference for slot 1 pulls down in natural order and up in reversed order."""
    frame = decisions_of("sim/first-slot?strength=3", 0, n_items=200, names=["label_order"])
    means = dict(frame.group_by("view").agg(pl.col("rank").mean()).iter_rows())
    assert means["base"] < 2.95 < 3.05 < means["reversed"]


def test_a_rater_that_refuses_is_never_stable() -> None:
    frame = decisions_of("sim/refusing?strength=0.5", 0, n_items=100, names=["label_order"])
    judged = verdicts(frame, CONTRASTS[:1]).to_dicts()[0]
    assert judged["word"] == "unreadable"
    assert "of pairs are unreadable" in judged["reason"]
    assert set(frame["fault"]) == {"", "refused"}
