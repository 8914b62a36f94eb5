"""Study -> Condition: the grid of an experiment, every rater on every dataset, seed and view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flipmeter.data import Sample, merge, sample
from flipmeter.model import World, is_reproducible, latents
from flipmeter.probe import expand
from flipmeter.study import Study
from flipmeter.types import Condition, Dataset, Problem, Rater, Style

REPEATED_ITEMS = 20
"""How many items a rater repeats that is reproducible by construction: enough to show it."""


def conditions(study: Study, datasets: Sequence[Dataset] | None = None) -> list[Condition]:
    """Return the grid: every rater on every dataset, seed and view, at every level."""
    grid: list[Condition] = []
    datasets = study.load() if datasets is None else datasets
    _refuse_repeats([dataset.name for dataset in datasets], "datasets", "give each a `name`")
    _refuse_repeats(study.seeds, "seeds", "name each seed once")
    for dataset in datasets:
        for level, style in study.styles().items():
            merged = merge(dataset, style.cardinality or len(dataset.task.scale))
            for seed in study.seeds:
                drawn = draw_sample(study, merged, style, seed)
                for rater in study.raters(style):
                    grid += _views(study, rater, merged, seed, drawn, level)
    return grid


def _refuse_repeats(names: Sequence[object], what: str, remedy: str) -> None:
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise Problem(f"{what}: {repeated[0]!r} stands there more than once; {remedy}")


def draw_sample(study: Study, dataset: Dataset, style: Style, seed: int) -> Sample:
    return sample(
        dataset, test_size=study.test_size, shots=style.shots, seed=seed, balance=study.balance
    )


def _views(
    study: Study, rater: Rater, dataset: Dataset, seed: int, drawn: Sample, level: str
) -> Iterator[Condition]:
    views = expand(
        study.probes,
        len(dataset.task.scale),
        shots=rater.style.shots,
        repeats=study.repeats,
        repeated=study.repeat_views,
    )
    is_settled = is_reproducible(rater.model, rater.decoding)
    for view in views:
        items = drawn.test[:REPEATED_ITEMS] if view.repeat and is_settled else drawn.test
        yield Condition(rater, dataset.name, dataset.task, seed, view, drawn.demos, items, level)


def worlds(study: Study, datasets: Sequence[Dataset]) -> dict[str, World]:
    """Return what simulated raters know, by dataset: the latent score of every text in it."""
    if not any(rater.model.address.startswith("sim/") for rater in study.raters(study.style)):
        return {}
    sizes = {style.cardinality for style in study.styles().values()}
    merged = [merge(d, size or len(d.task.scale)) for d in datasets for size in sizes]
    return {d.name: world(d) for d in merged}


def world(dataset: Dataset) -> World:
    """Return the latent score of every text that can be sampled, and the names of the classes."""
    items = [item for item in (*dataset.pool, *dataset.test) if item.gold and item.text.strip()]
    scale = dataset.task.scale
    return World(latents(items, scale), scale.names)


def base_conditions(grid: Sequence[Condition]) -> list[Condition]:
    """Return the first rater, dataset, seed and level of a grid, all its views."""
    first = grid[0]
    return [
        condition
        for condition in grid
        if (condition.rater, condition.dataset, condition.seed, condition.level)
        == (first.rater, first.dataset, first.seed, first.level)
    ]
