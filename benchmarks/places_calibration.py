"""Plant a preference for a place in options and pairs, and count how often it is read back.

    python benchmarks/places_calibration.py [--studies 200] [--write]

An interval must hold its planted value in about 95 of 100 studies, and a rater without a preference
must be flagged in about 5. `--write` puts the table at its place in docs/calibration.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from flipmeter.stats.blocks import placed, shown_alike
from flipmeter.stats.groups import ranks, same_length
from flipmeter.stats.preference import Choices, option_estimates, pair_estimates
from flipmeter.types import Estimate

Ints = npt.NDArray[np.int64]
PAGE = Path(__file__).parents[1] / "docs" / "calibration.md"
START, END = "<!-- benchmarks/places_calibration.py -->", "<!-- end of places -->"
ITEMS = 60
MANY = 200_000


def rotated(n: int, k: int, tilt: float, seed: int, know: float = 2.0) -> tuple[Ints, ...]:
    """Answers to questions with k options in every rotation, with a liking for the first place."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, k, n)
    worth = rng.normal(0, 1, (n, k))
    worth[np.arange(n), gold] += know
    place = (np.arange(k)[None] - np.arange(k)[:, None]) % k
    odds = np.exp(worth[:, None, :] + tilt * (place == 0)[None])
    chance = odds / odds.sum(axis=-1, keepdims=True)
    chosen = (chance.cumsum(axis=-1) > rng.random((n, k, 1))).argmax(axis=-1)
    return chosen + 1, place[np.arange(k)[None], chosen] + 1, gold + 1, place[:, gold].T + 1


def judged(n: int, tilt: float, seed: int, tie: float = -1.0) -> tuple[Ints, Ints, Ints, Ints]:
    """Verdicts (1: a, 2: tie, 3: b) in both orders with a liking for what is shown first."""
    rng = np.random.default_rng(seed)
    gap = rng.normal(0, 1.5, n)
    sides = np.array([1.0, -1.0])
    odds = np.stack(
        [
            gap[:, None] / 2 + sides * tilt / 2,
            np.full((n, 2), tie),
            -gap[:, None] / 2 - sides * tilt / 2,
        ],
        axis=-1,
    )
    chance = np.exp(odds) / np.exp(odds).sum(axis=-1, keepdims=True)
    verdict = (chance.cumsum(axis=-1) > rng.random((n, 2, 1))).argmax(axis=-1) + 1
    first = np.array([1, 3])
    places = np.where(verdict == 2, 0, np.where(verdict == first, 1, 2))
    return verdict[:, 0], verdict[:, 1], places, np.where(gap > 0, 1, 3)


def option_truth(k: int, tilt: float) -> dict[str, float]:
    """Result of a study of very many questions."""
    classes, places, gold, right = rotated(MANY, k, tilt, 1)
    numbers, correct = range(1, k + 1), classes == gold[:, None]
    shares = np.array([(places == s).mean() for s in numbers])
    recalls = [correct[right == s].mean() for s in numbers]
    return {
        "cramers_v": math.sqrt((k * (shares - 1 / k) ** 2).sum() / (k - 1)),
        "slot_excess:1": float(shares[0] - 1 / k),
        "recall:1": float(recalls[0]),
        "recall_sd": float(np.std(recalls)),
    }


def pair_truth(tilt: float) -> dict[str, float]:
    """Result of a study of very many pairs."""
    a, b, places, gold = judged(MANY, tilt, 1)
    decided = (places > 0).sum(axis=1)
    shares = ((places == 1).sum(axis=1) / np.maximum(decided, 1))[decided > 0]
    return {
        "first_share": float(shares.mean()),
        "consistency": float((a == b).mean()),
        "ties:1": float((places[:, 0] == 0).mean()),
        "accuracy:1": float((a == gold).mean()),
        "accuracy_both": float(((a == gold) & (b == gold)).mean()),
    }


def held(found: dict[str, Estimate], truth: dict[str, float]) -> dict[str, bool]:
    """Whether each interval holds its planted value; chance makes no planted distance exactly 0."""
    return {
        name: found[name].low - 1e-3 <= value <= found[name].high + 1e-3
        for name, value in truth.items()
    }


def option_bias(
    classes: npt.ArrayLike,
    places: npt.ArrayLike,
    *,
    gold: npt.ArrayLike | None = None,
    right: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
) -> dict[str, Estimate]:
    """Say which places are preferred when options change places (items x orders).

    `classes` are the options chosen, the same in every order; `places` where they stood. `slot:s`
    are shares of answers, `slot_excess:s` what they are beyond the same answers dealt to all
    orders, `slot_test` the p of the randomisation test on them (its statistic is Pearson's
    chi-square) and `cramers_v` their size, 0 to 1. With `gold` and `right`, the place of the right
    option in every order: `recall:s` is the accuracy when it stands in place s, and `recall_sd`
    their SD over places (RStD).
    """
    given, where = np.asarray(classes, dtype=np.int64), np.asarray(places, dtype=np.int64)
    n, blank = len(given), np.zeros_like(given)
    truth = np.zeros(n, dtype=np.int64) if gold is None else np.asarray(gold, dtype=np.int64)
    there = blank if right is None else np.asarray(right, dtype=np.int64)
    whose = np.arange(n) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    size = max(int(where.max(initial=2)), int(there.max(initial=2)), int(given.max(initial=2)))
    n_places = np.full(n, size)
    told = np.concatenate([given, np.broadcast_to(truth[:, None], given.shape)])
    alike = shown_alike(told, np.concatenate([where, there]), size)
    table = placed(where, given, given)
    if alike is not None:
        table = np.broadcast_to(alike, (n, *alike.shape))
    found, _ = option_estimates(Choices(given, where, truth, there, table, n_places, whose))
    return found


def pair_bias(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    places: npt.ArrayLike,
    *,
    gold: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
) -> dict[str, Estimate]:
    """Say which place a judge prefers, from its verdicts as given and with the answers swapped.

    `places` (items x 2) say where the winner stood, 0 for a tie. `first_share` is the share of
    wins of the answer shown first, over both orders and without ties: 1/2 for a judge without a
    preference. `consistency` is the share of items with the same verdict in both orders. `ties:1`
    and `ties:2` are shares by order, and with gold `accuracy:1`, `accuracy:2` and `accuracy_both`.
    """
    a, b = ranks(first, "first"), ranks(second, "second")
    same_length(first=a, second=b)
    n, where = len(a), np.asarray(places, dtype=np.int64)
    truth = np.zeros(n, dtype=np.int64) if gold is None else ranks(gold, "gold")
    whose = np.arange(n) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    both, blank = np.stack([a, b], axis=1), np.zeros((n, 2), dtype=np.int64)
    table = np.zeros((n, 2, max(int(both.max()), 1)), dtype=np.int64)
    choices = Choices(both, where, truth, blank, table, np.full(n, 2), whose)
    return pair_estimates(choices)


def option_study(k: int, tilt: float, seed: int) -> dict[str, Estimate]:
    classes, places, gold, right = rotated(ITEMS, k, tilt, seed)
    return option_bias(classes, places, gold=gold, right=right)


def pair_study(tilt: float, seed: int) -> dict[str, Estimate]:
    a, b, places, gold = judged(ITEMS, tilt, seed)
    return pair_bias(a, b, places, gold=gold)


def counted(n: int) -> Iterator[tuple[str, str, dict[str, int], int]]:
    """Yield for each planted preference how often every interval holds, and how often it flags."""
    for k, tilt in ((3, 0.0), (4, 0.0), (4, 0.8)):
        truth = option_truth(k, tilt)
        studies = [option_study(k, tilt, 100 + seed) for seed in range(n)]
        yield f"{k} options", f"{tilt:g}", _total(studies, truth), _flagged(studies, "slot_test")
    for tilt in (-0.8, 0.0, 0.8, 1.5):
        truth = pair_truth(tilt)
        studies = [pair_study(tilt, 1000 + seed) for seed in range(n)]
        yield "two answers", f"{tilt:g}", _total(studies, truth), _flagged(studies, "first_test")


def _total(studies: list[dict[str, Estimate]], truth: dict[str, float]) -> dict[str, int]:
    marks = [held(found, truth) for found in studies]
    return {name: sum(mark[name] for mark in marks) for name in truth}


def _flagged(studies: list[dict[str, Estimate]], test: str) -> int:
    return sum(found[test].value < 0.05 for found in studies)


def table(n: int) -> str:
    """The counts as Markdown."""
    lines = [
        f"{n} studies of {ITEMS} items each (`python benchmarks/places_calibration.py`).",
        "",
        "| what changes places | planted, log-odds for the first | intervals that hold | flagged |",
        "| --- | --- | --- | --- |",
    ]
    for what, tilt, marks, flagged in counted(n):
        shares = ", ".join(f"`{name}` {100 * k / n:.0f} %" for name, k in marks.items())
        lines.append(f"| {what} | {tilt} | {shares} | {100 * flagged / n:.0f} % |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    text = table(asked.studies)
    print(text)
    if asked.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
