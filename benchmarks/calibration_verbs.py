"""Hard cases through the verbs: tables of predictions, and the messages about them.

Every study is a dataset of one table, so that one call of a verb concludes all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from calibration_cells import COVERS, COVERS_SMALL, RARE, Limit, ManyCell
from calibration_core import (
    FLIPPING,
    MARGIN,
    N_CLASSES,
    SIZES,
    Floats,
    Ints,
    Planted,
    always,
    constant,
    copied,
    errors,
    failing,
    flipping,
    moved,
    true_differences,
)
from scipy import special

import flipmeter as fm
from flipmeter.stats.measured_items import SCORES

SCALE = [str(place) for place in range(1, N_CLASSES + 1)]
VIEWS = ("base", "reversed")
WORDS = ("stable", "flips", "unreadable")
Plant = Callable[[np.random.Generator], Planted]
Seen = dict[str, list[float]]


def run_of(rows: pl.DataFrame, scale: Sequence[str] = SCALE) -> fm.Run:
    """A run from a table of predictions, read into memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "planted.parquet"
        rows.write_parquet(path)
        run = fm.Run(path, scale=scale)
        run.decisions  # noqa: B018 - read before the file is gone
        return run


def told(planted: Planted, study: int) -> pl.DataFrame:
    """One study as rows of a table: answers, and which items are copies or seeds."""
    row, first = planted.row, np.asarray(planted.row.pairs)
    n = len(first)
    clusters = np.arange(n) if row.clusters is None else np.asarray(row.clusters)
    within = np.arange(n) - np.searchsorted(clusters, clusters)
    again = first if row.repeats is None else np.asarray(row.repeats)
    frames = [
        pl.DataFrame(
            {
                "dataset": f"study {study:05}",
                "item": [f"i{place}" for place in clusters],
                "seed": within,
                "condition": view,
                "repeat": repeat,
                "label": ["" if one == 0 else str(one) for one in answers[:, at]],
            }
        )
        for repeat, answers in enumerate((first, again))
        for at, view in enumerate(VIEWS)
    ]
    return pl.concat(frames)


def as_copies(rows: pl.DataFrame) -> pl.DataFrame:
    """The same with every seed as an item of its own that has the same text."""
    text = pl.format("text {}", "item")
    return rows.with_columns(item=pl.format("{}/{}", "item", "seed"), text=text).drop("seed")


def concluded(
    rng: np.random.Generator, n: int, *, plant: Plant, n_classes: int, copies: bool
) -> Seen:
    """Words of `measure` and `check`, and what they cover."""
    planted = [plant(rng) for _ in range(n)]
    rows = pl.concat([told(one, study) for study, one in enumerate(planted)])
    run = run_of(as_copies(rows) if copies else rows, SCALE[:n_classes])
    verdicts = run.verdicts.sort("dataset")
    checked = run.check(gate={"flips": {"P1": MARGIN}}).claims.sort("dataset")
    found: Seen = {}
    for verb, words in (("measure", verdicts["word"]), ("check", checked["word"])):
        found |= {f"{verb}: {word}": (words == word).cast(float).to_list() for word in WORDS}
    agree = verdicts["word"] == checked["word"]
    found["measure and check agree"] = agree.cast(float).to_list()
    for truth, low, high in (("rate", "low", "high"), ("excess", "excess_low", "excess_high")):
        known = [getattr(one, truth) for one in planted]
        ends = zip(verdicts[low], known, verdicts[high], strict=True)
        inside = [float(a <= b <= c) for a, b, c in ends if None not in (a, b, c)]
        if inside:
            found[f"measure: {truth} covered"] = inside
    return found


def verdict_cells() -> Iterator[ManyCell]:
    """Cases of a verdict, as `measure` and `check` tell them."""
    same = {"measure and check agree": Limit(least=1.0)}
    no_flips = {"measure: flips": RARE, "check: flips": RARE}
    not_stable = {"measure: stable": RARE, "check: stable": RARE}
    rate, excess = ({f"measure: {name} covered": COVERS} for name in ("rate", "excess"))

    def cell(
        name: str,
        plant: Plant,
        limits: Mapping[str, Limit],
        n_classes: int = N_CLASSES,
        copies: bool = False,
    ) -> ManyCell:
        study = partial(concluded, plant=plant, n_classes=n_classes, copies=copies)
        return ManyCell(f"verbs: {name}", study, {**limits, **same})

    for n in SIZES[:3]:
        null = partial(moved, n=n, noise=(0.25, 0.25), share=0.0)
        yield cell(f"null noise .25 n={n}", null, no_flips | excess)
        two = partial(moved, n=n, noise=(0.25, 0.25), share=0.0, n_classes=2)
        yield cell(f"two classes, null n={n}", two, no_flips | excess, n_classes=2)
        copies = partial(copied, n=n, copies=3)
        yield cell(f"copies x3, null n={n}", copies, no_flips | excess, copies=True)
        margin = partial(moved, n=n, noise=(0.2, 0.2), share=0.1 / 0.65)
        yield cell(f"excess at margin n={n}", margin, not_stable | excess)
        yield cell(f"constant n={n}", partial(constant, n=n), no_flips)
        faults = {"measure: flips": Limit(most=0.0), **not_stable}
        yield cell(f"faults in one view 16 % n={n}", partial(failing, n=n, share=0.2), faults)
        few = partial(always, n=n, seeds=5)
        yield cell(f"few always flip, seeds=5 n={n}", few, not_stable | rate)
    unequal = partial(moved, n=100, noise=(0.25, 0.0), share=0.15)
    yield cell("unequal noise .25/0 n=100", unequal, {"measure: flips": Limit(least=0.8), **excess})
    for seeds in (1, 3, 5):
        for icc in (0.0, 0.3, 0.9):
            plant = partial(flipping, n=60, seeds=seeds, rate=MARGIN, icc=icc)
            yield cell(f"seeds={seeds} icc={icc:g} at margin n=60", plant, not_stable | rate)


# --- compare ----------------------------------------------------------------------------------


def compared(
    rng: np.random.Generator, n: int, *, n_items: int, chances: Floats, seeds: int
) -> Seen:
    """Verdict of `compare` on two similar raters, and whether its interval covers."""
    answers = [_two_raters(rng, n_items, chances) for _ in range(n)]
    runs = []
    for rater in range(2):
        frames = [
            _answers(*of[rater], study, seed)
            for study, of in enumerate(answers)
            for seed in range(seeds)
        ]
        runs.append(run_of(pl.concat(frames)))
    table = runs[0].compare(runs[1]).filter(pl.col("dataset") != "")
    truths = -100 * true_differences(chances, SCORES["recommended"])
    found: Seen = {}
    for name, truth in zip((*SCORES["recommended"], "P1"), truths, strict=True):
        own = table.filter(metric=name)
        given = own.drop_nulls("low")
        inside = (given["low"] <= truth + 1e-9) & (given["high"] >= truth - 1e-9)
        found[f"{name} covered"] = inside.cast(float).to_list()
        found[f"{name} given"] = own["low"].is_not_null().cast(float).to_list()
        found[f"{name} width"] = (given["high"] - given["low"]).to_list()
    return {name: values for name, values in found.items() if values}


def _two_raters(rng: np.random.Generator, n: int, chances: Floats) -> list[tuple[Ints, Ints, Ints]]:
    """Gold, answer and answer in the other view of two raters on the same items."""
    picked = rng.choice(chances.size, n, p=chances.ravel())
    gold, *answers = (np.asarray(of) + 1 for of in np.unravel_index(picked, chances.shape))
    alike = rng.random(n)
    return [
        (gold, answer, np.where(alike < rate, answer % N_CLASSES + 1, answer))
        for answer, rate in zip(answers, FLIPPING, strict=True)
    ]


def _answers(gold: Ints, base: Ints, turned: Ints, study: int, seed: int) -> pl.DataFrame:
    frames = [
        pl.DataFrame(
            {
                "dataset": f"study {study:05}",
                "item": [f"i{place}" for place in range(len(gold))],
                "seed": seed,
                "condition": view,
                "gold": gold.astype(str),
                "label": labels.astype(str),
                "model": "rater",
            }
        )
        for view, labels in zip(VIEWS, (base, turned), strict=True)
    ]
    return pl.concat(frames)


def compare_cells() -> Iterator[ManyCell]:
    """Two runs whose raters are alike and whose errors are rare."""
    designs = {
        "rare": errors(own=0.03, shared=0.03, step=1),
        "rare, across": errors(own=0.02, shared=0.05, step=4),
        "alike": errors(own=0.06, shared=0.3),
    }
    limits = {f"{name} covered": COVERS_SMALL for name in (*SCORES["recommended"], "P1")}
    for name, chances in designs.items():
        for n_items in SIZES:
            seeds = 3 if name == "alike" else 1
            study = partial(compared, n_items=n_items, chances=chances, seeds=seeds)
            yield ManyCell(f"verbs: compare, {name}, seeds={seeds} n={n_items}", study, limits)


# --- select -----------------------------------------------------------------------------------


def selected(
    rng: np.random.Generator, n: int, *, n_items: int, candidates: int, seeds: int
) -> Seen:
    """Whether `select` passes one of several models that all flip exactly at the limit."""
    passes, covers = [], []
    for _ in range(n):
        own = rng.standard_normal((candidates, n_items)) + rng.standard_normal(n_items)
        gold = rng.integers(1, N_CLASSES + 1, n_items)
        frames = []
        for seed in range(seeds):
            # Seeds of an item mostly flip alike.
            noise = rng.standard_normal((candidates, n_items)) * np.sqrt(0.2 * (seeds > 1))
            flips = (own + noise) / np.sqrt(2 + 0.2 * (seeds > 1)) < special.ndtri(MARGIN)
            for place, flip in enumerate(flips):
                turned = np.where(flip, gold % N_CLASSES + 1, gold)
                model = pl.lit(f"rater {place:02}")
                frames.append(_answers(gold, gold, turned, 0, seed).with_columns(model=model))
        found = run_of(pl.concat(frames)).select(max_flip={"P1": MARGIN}, cost="none")
        passes.append(float(found.chosen is not None))
        least = min(found.standings, key=lambda one: one.flips["P1"].value).flips["P1"]
        covers.append(float(least.low <= MARGIN <= least.high))
    return {"one passes": passes, "interval of the steadiest covers": covers}


def select_cells() -> Iterator[ManyCell]:
    limits = {"one passes": RARE, "interval of the steadiest covers": COVERS}
    for candidates, seeds in ((1, 1), (10, 1), (10, 3), (40, 1)):
        study = partial(selected, n_items=100, candidates=candidates, seeds=seeds)
        name = f"verbs: select, candidates={candidates} seeds={seeds} n=100"
        yield ManyCell(name, study, limits)


# --- aspects ----------------------------------------------------------------------------------


def aspects(rng: np.random.Generator, n: int, *, n_items: int, share: float) -> Seen:
    """Numbers of `measure --show severity` for items redrawn in one of two views."""
    frames = []
    for study in range(n):
        gold = rng.integers(1, N_CLASSES + 1, n_items)
        drawn = rng.integers(1, N_CLASSES + 1, n_items)
        turned = np.where(rng.random(n_items) < share, drawn, gold)
        frames.append(_answers(gold, gold, turned, study, 0))
    table = run_of(pl.concat(frames)).aspects("severity")
    places = np.arange(N_CLASSES)
    away = np.abs(places[:, None] - places).mean() / (N_CLASSES - 1)
    truths = {"disagreement": share * (1 - 1 / N_CLASSES), "distance": share * float(away)}
    truths |= dict.fromkeys(("kappa", "qwk", "alpha"), 1 - share)
    found: Seen = {}
    for name, truth in truths.items():
        given = table.filter(metric=name).drop_nulls("low").filter(pl.col("low").is_not_nan())
        inside = (given["low"] <= truth + 1e-9) & (given["high"] >= truth - 1e-9)
        found[f"{name} covered"] = inside.cast(float).to_list()
    return {name: values for name, values in found.items() if values}


def aspect_cells() -> Iterator[ManyCell]:
    names = ("disagreement", "distance", "kappa", "qwk", "alpha")
    for share in (0.05, 0.3):
        for n_items in SIZES:
            study = partial(aspects, n_items=n_items, share=share)
            limits = {f"{name} covered": COVERS_SMALL for name in names}
            yield ManyCell(f"verbs: severity, {100 * share:g} % redrawn n={n_items}", study, limits)


def cells() -> Iterator[ManyCell]:
    """All cases through the verbs."""
    yield from verdict_cells()
    yield from compare_cells()
    yield from aspect_cells()
    yield from select_cells()
