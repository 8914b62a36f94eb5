"""All groups at once give what each group gives alone, through the functions on plain lists."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from operator import ne
from random import Random
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from flipmeter.stats.estimates import measure
from flipmeter.stats.flips import silent_noise
from flipmeter.stats.formulas import WILSON, cochran_q, exact_ends, mcnemar, wilson
from flipmeter.stats.groups import SCHEMA, Groups, joined, one_group
from flipmeter.stats.judge import verdicts
from flipmeter.stats.scores import score_estimates
from flipmeter.types import Contrast, Estimate, Mode, Policy
from on_arrays import (
    compare_with_noise,
    excess_disagreement,
    flip_rate_any,
    hidden_tokens,
    mcnemar_counts,
    performance,
)

patient = settings(deadline=None, max_examples=15)
KEY = ["rater", "dataset", "level", "seed"]
VIEWS = ("after", "base", "random", "reversed")
CONTRASTS = [
    Contrast("P1", ("base", "reversed")),
    Contrast("P2", ("random", "after")),
    Contrast("P3", ("base", "random", "after")),
    Contrast("all", VIEWS),
    Contrast("gone", ("base", "nowhere", "never")),
]
ORDINAL = ("spearman", "mae", "kendall_tau_b", "qwk", "mae_normalised")
SCORES = ("accuracy", "macro_f1", *ORDINAL, "macro_f1_present")
POLICIES: tuple[Policy, ...] = ("complete", "strict", "bounds")
Row = dict[str, Any]


# --- the naive twin: one group, one number after the other ------------------------------------


class Alone:
    """The decisions of one group, as runs of items."""

    def __init__(self, rows: Sequence[Row], reproducible: Collection[str]) -> None:
        self.rows = rows
        self.is_called = rows[0]["rater"] in reproducible
        self.runs: dict[tuple[str, int], dict[str, Row]] = {}
        for row in sorted(rows, key=lambda row: (row["repeat"], row["view"])):
            self.runs.setdefault((row["view"], row["repeat"]), {})[row["item"]] = row
        self.gold = {row["item"]: row["gold"] for row in rows if row["gold"]}
        self.views = [view for view, repeat in self.runs if repeat == 0]

    def shared(self, *runs: tuple[str, int]) -> list[str]:
        """List the items of all the runs, sorted: the order of additions shows in the last bit."""
        return sorted(i for i in self.runs[runs[0]] if all(i in self.runs[run] for run in runs))

    def ranks(self, run: tuple[str, int], items: Sequence[str]) -> list[int]:
        return [self.runs[run][item]["rank"] for item in items]

    def found(self, contrast: Contrast) -> tuple[str, str, list[str]]:
        """Return status, note and items of a contrast."""
        missing = [f"'{view}'" for view in contrast.views if (view, 0) not in self.runs]
        if missing:
            return "not applicable", f"not applicable: no view {', '.join(missing)}", []
        runs = [(view, 0) for view in contrast.views]
        asked = self.shared(*runs)
        prompts = {i: [self.runs[run][i]["prompt"] for run in runs] for i in asked}
        differ = [i for i in asked if len(set(prompts[i])) > 1 or not prompts[i][0]]
        if not asked:
            return "not applicable", "not applicable: the views share no item", []
        if not differ:
            return "not identified", "not identified: the prompts are byte-equal", []
        n_equal = len(asked) - len(differ)
        note = f"{n_equal} items left out: their prompts are byte-equal" if n_equal else ""
        return "measured", note, differ

    def is_settled(self, view: str) -> bool:
        both = self.shared((view, 0), (view, 1))
        same = all(self.ranks((view, 0), [i]) == self.ranks((view, 1), [i]) for i in both)
        return self.is_called and bool(both) and same

    def noise(self, contrast: Contrast) -> tuple[tuple[str, int], tuple[str, int]] | None:
        for view in (*contrast.views, "base"):
            if (view, 0) in self.runs and (view, 1) in self.runs:
                return (view, 0), (view, 0 if self.is_settled(view) else 1)
        return None


def row(of: Estimate, metric: str, view: str, policy: str | None, **test: Any) -> Row:
    numbers = {name: getattr(of, name) for name in ("value", "low", "high", "n", "k", "failed")}
    words = {"metric": metric, "view": view, "policy": policy, "note": of.note}
    return numbers | words | {"p": None, "b": None, "c": None, "statistic": None} | test


def naive_rows(group: Alone, contrasts: Sequence[Contrast], mode: Mode) -> Iterator[Row]:
    policies: list[Any] = ["complete"] if mode == "paper" else ["complete", "strict"]
    yield from score_rows(group, policies, mode)
    for contrast in contrasts:
        status, note, items = group.found(contrast)
        if status != "measured":
            nothing = Estimate(math.nan, note=note)
            yield from (row(nothing, contrast.name, "", policy) for policy in POLICIES)
            continue
        yield from flip_rows(group, contrast, items, note, mode)
        if contrast.is_pair:
            yield from noise_test_rows(group, contrast, items, policies, mode)
            yield from excess_rows(group, contrast, items)
        yield from accuracy_rows(group, contrast, items, policies, mode)
    yield from noise_rows(group, mode)
    yield from token_rows(group)


def in_mode(rate: Estimate, policy: Policy, mode: Mode) -> Estimate:
    """A share as a mode has it: paper mode has Wilson's interval and says so."""
    if mode == "recommended" or policy == "bounds" or not rate.n:
        return rate
    assert rate.k is not None
    low, high = wilson(rate.k, rate.n)
    return replace(rate, low=low, high=high, note=joined(rate.note, WILSON))


def score_rows(group: Alone, policies: Sequence[Any], mode: Mode) -> Iterator[Row]:
    graded = {v: sorted(i for i in group.runs[v, 0] if i in group.gold) for v in group.views}
    for view in group.views:
        ranks = group.ranks((view, 0), list(group.runs[view, 0]))
        k, n = ranks.count(0), len(ranks)
        low, high = exact_ends(np.array([k]), np.array([n]))
        share = Estimate(k / n, float(low[0]), float(high[0]), n, k, k)
        yield row(in_mode(share, "complete", mode), "parse_failure", view, "complete")
        nothing = Estimate(math.nan, note="no labels")
        if not graded[view]:
            yield from (row(nothing, name, view, "complete") for name in SCORES)
    for policy in policies:
        names = [name for name in SCORES if policy == "complete" or name not in ORDINAL]
        for view in group.views:
            if graded[view]:
                scored = naive_scores(group, view, graded[view], policy, mode)
                yield from (row(scored[name], name, view, policy) for name in names)


def naive_scores(
    group: Alone, view: str, items: Sequence[str], policy: Any, mode: Mode
) -> dict[str, Estimate]:
    """Values from the plain function; intervals as the one group alone has them."""
    n_classes = group.rows[0]["n_classes"]
    gold, predicted = [group.gold[i] for i in items], group.ranks((view, 0), items)
    scored, failed = performance(gold, predicted, n_classes, policy), predicted.count(0)
    alone = score_estimates(
        np.array(gold), np.array(predicted), n_classes, one_group(len(gold)), policy, mode
    )
    estimates = {}
    for name, found in alone.items():
        only, n = found.only(), len(items) - failed * (policy == "complete")
        hits = sum(g == p for g, p in zip(gold, predicted, strict=True))
        k = hits if name == "accuracy" else None
        ends = only.low, only.high
        estimates[name] = Estimate(getattr(scored, name), *ends, n, k, failed, note=only.note)
    return estimates


def flip_rows(
    group: Alone, contrast: Contrast, items: list[str], note: str, mode: Mode
) -> Iterator[Row]:
    table = np.array([group.ranks((view, 0), items) for view in contrast.views]).T
    for policy in POLICIES:
        rate = in_mode(flip_rate_any(table, policy), policy, mode)
        yield row(rate, contrast.name, "", policy) | {"note": joined(note, rate.note)}


def noise_rows(group: Alone, mode: Mode) -> Iterator[Row]:
    for view in group.views:
        both = group.shared((view, 0), (view, 1)) if (view, 1) in group.runs else []
        for policy in POLICIES if both else ():
            first, second = group.ranks((view, 0), both), group.ranks((view, 1), both)
            plain = in_mode(flip_rate_any(np.array([first, second]).T, policy), policy, mode)
            complete = sum(min(pair) > 0 for pair in zip(first, second, strict=True))
            note = silent_noise(len(both), complete, sum(map(ne, first, second)))
            if group.is_called:
                moved = sum(a != b for a, b in zip(first, second, strict=True))
                called = f"declared reproducible, but {moved} of {len(both)} repeated items differ"
                note = called if moved else f"0 by construction ({len(both)} items repeated)"
            rate = replace(plain, note=joined(note, plain.note))
            yield row(rate, "noise" if view == "base" else f"noise:{view}", "", policy)


def noise_test_rows(
    group: Alone, contrast: Contrast, items: list[str], policies: Sequence[Any], mode: Mode
) -> Iterator[Row]:
    runs = group.noise(contrast)
    if runs is None:
        return
    kept = [i for i in items if all(i in group.runs[run] for run in runs)]
    sides = [group.ranks((view, 0), kept) for view in contrast.views]
    noise = [group.ranks(run, kept) for run in runs]
    everywhere = [i for i, ranks in enumerate(zip(*sides, *noise, strict=True)) if all(ranks)]
    failed = len(kept) - len(everywhere)
    for policy in policies:
        if not (kept if policy == "strict" else everywhere):
            none = Estimate(math.nan, failed=failed, note="no item was read in all runs")
            yield row(none, "mcnemar_p", contrast.name, policy)
            continue
        t = compare_with_noise((sides[0], sides[1]), (noise[0], noise[1]), policy)
        p = t.paper_p if mode == "paper" else t.mid_p
        every = f"mid-p {t.mid_p:.4f}, exact {t.exact_p:.4f}, paper {t.paper_p:.4f}"
        own = runs[0][0] == contrast.views[0]
        note = joined(every, "" if own else f"noise of view '{runs[0][0]}'")
        about = Estimate(p, n=t.n, failed=failed, note=note)
        test = {"p": p, "b": t.b, "c": t.c, "statistic": chi_square(t.b, t.c)}
        yield row(about, "mcnemar_p", contrast.name, policy, **test)


def chi_square(b: int, c: int) -> float:
    return (abs(b - c) - 1) ** 2 / (b + c) if b + c else 0.0


def excess_rows(group: Alone, contrast: Contrast, items: list[str]) -> Iterator[Row]:
    runs = [(view, repeat) for view in contrast.views for repeat in (0, 1)]
    if not all(run in group.runs for run in runs) or any(map(group.is_settled, contrast.views)):
        return
    kept = [i for i in items if all(i in group.runs[run] for run in runs)]
    if kept:
        excess = excess_disagreement(*(group.ranks(run, kept) for run in runs))
        yield row(excess, f"excess:{contrast.name}", "", "complete")


def accuracy_rows(
    group: Alone, contrast: Contrast, items: list[str], policies: Sequence[Any], mode: Mode
) -> Iterator[Row]:
    graded = [i for i in items if i in group.gold]
    read = [i for i in graded if all(group.runs[view, 0][i]["rank"] for view in contrast.views)]
    failed = len(graded) - len(read)
    for policy in policies:
        kept = read if policy == "complete" else graded
        gold, views = [group.gold[i] for i in kept], [(view, 0) for view in contrast.views]
        correct = np.array([group.ranks(run, kept) for run in views]) == gold
        if not kept:
            continue
        if contrast.is_pair:
            b, c = mcnemar_counts(correct[0], correct[1])
            p = mcnemar(b, c, "paper" if mode == "paper" else "mid-p", "two-sided")
            note = f"two-sided; b: right only under '{contrast.views[0]}'"
            name, test = "accuracy_mcnemar", {"b": b, "c": c, "statistic": chi_square(b, c)}
        else:
            q, df, p = cochran_q(correct.T)
            name, test, note = "accuracy_cochran", {"statistic": q}, f"Cochran's Q, df {df}"
        about = Estimate(p, n=len(kept), failed=failed, note=note)
        yield row(about, name, contrast.name, policy, p=p, **test)


def token_rows(group: Alone) -> Iterator[Row]:
    written = [row["completion_tokens"] for row in group.rows]
    known = np.array([count for count in written if count is not None], dtype=float)
    if len(known):
        yield row(Estimate(known.mean(), n=len(known)), "output_tokens", "", None)
    hidden = hidden_tokens(written, [row["reasoning_tokens"] for row in group.rows])
    if not math.isnan(hidden.value):
        yield row(hidden, "hidden_tokens", "", None)


def groups_of(decisions: pl.DataFrame, reproducible: Collection[str]) -> list[tuple[Any, Alone]]:
    parts = decisions.partition_by(KEY, as_dict=True, maintain_order=True)
    return [(key, Alone(parts[key].to_dicts(), reproducible)) for key in sorted(parts)]


def naive(decisions: pl.DataFrame, mode: Mode, reproducible: Collection[str]) -> pl.DataFrame:
    rows = [
        dict(zip(KEY, key, strict=True)) | {"mode": mode} | each
        for key, group in groups_of(decisions, reproducible)
        for each in naive_rows(group, CONTRASTS, mode)
    ]
    return pl.DataFrame(rows, schema=SCHEMA).with_columns(pl.col(pl.Float64).fill_nan(None))


# --- random decisions -------------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    """Draw groups of unequal sizes and scales, with views, items, gold and tokens missing."""
    key = st.tuples(*(st.sampled_from(names) for names in ("rs", "de", ["", "x"], [0, 1, 42])))
    random, share = Random(draw(st.integers(0, 10**9))), st.sampled_from([0.0, 0.1, 0.9])
    faults, missing, equal, ungraded = (draw(share) for _ in range(4))
    rows = []
    for where in draw(st.lists(key, min_size=1, max_size=6, unique=True)):
        n_classes, n_items = draw(st.integers(2, 9)), draw(st.integers(1, 30))
        runs = [(v, k) for v in VIEWS for k in range(3) if random.random() < (0.9, 0.5, 0.2)[k]]
        golden = [random.randint(1, n_classes) for _ in range(n_items)]
        gold = [None if random.random() < ungraded else rank for rank in golden]
        for view, repeat in runs or [("base", 0)]:
            for item in range(n_items):
                if (repeat, item) == (0, 0) or random.random() >= missing:
                    cell = decided(random, view, item, n_classes, faults, equal)
                    rows.append(
                        dict(zip(KEY, where, strict=True))
                        | {"view": view, "repeat": repeat, "item": f"i{item}", "gold": gold[item]}
                        | {"n_classes": n_classes, **cell}
                    )
    random.shuffle(rows)
    counts = ("gold", "completion_tokens", "reasoning_tokens")
    overrides = dict.fromkeys(counts, pl.Int64)
    return pl.DataFrame(rows, schema_overrides=overrides, infer_schema_length=None)


def decided(
    random: Random, view: str, item: int, n_classes: int, faults: float, equal: float
) -> Row:
    mostly = item % n_classes + 1 if random.random() < 0.7 else random.randint(1, n_classes)
    prompt = f"{item}" if random.random() < equal else f"{view} {item}"
    return {
        "rank": 0 if random.random() < faults else mostly,
        "prompt": random.choice([prompt] * 9 + [""]),
        "completion_tokens": random.choice([None, 1, 7, 100]),
        "reasoning_tokens": random.choice([None] * 20 + [50]),
    }


@patient
@given(tables(), st.sampled_from(["recommended", "paper"]), st.sampled_from([[], ["r"]]))
def test_all_groups_at_once_are_each_group_alone(
    decisions: pl.DataFrame, mode: Mode, reproducible: list[str]
) -> None:
    together = measure(decisions, CONTRASTS, mode=mode, reproducible=reproducible)
    # Scores are those of stacks of tables, whose sums may differ in their last bits.
    assert_frame_equal(together, naive(decisions, mode, reproducible), check_exact=False)


@patient
@given(tables(), st.sampled_from([[], ["r"]]))
def test_verdicts_of_all_groups_are_those_of_each_alone(
    decisions: pl.DataFrame, reproducible: list[str]
) -> None:
    together = verdicts(decisions, CONTRASTS, reproducible=reproducible)
    for key, mine in together.group_by("rater", "dataset", "level", maintain_order=True):
        own = decisions.filter(**dict(zip(("rater", "dataset", "level"), key, strict=True)))
        alone = verdicts(own, CONTRASTS, reproducible=reproducible)
        # How far p is resolved depends on the number of rows; words and bounds do not.
        assert_frame_equal(
            mine.drop("reason", "p", "p_excess"), alone.drop("reason", "p", "p_excess")
        )


def discordant(group: Alone, contrast: Contrast, items: list[str]) -> tuple[int, int] | None:
    if not contrast.is_pair:
        return None
    tests = list(noise_test_rows(group, contrast, items, ["strict"], "recommended"))
    return next(((test["b"], test["c"]) for test in tests if test["n"]), None)


@patient
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e6, 1e6)), max_size=300))
def test_a_group_adds_up_to_the_last_bit_as_it_would_alone(pairs: list[tuple[int, float]]) -> None:
    of, values = np.array([g for g, _ in pairs], dtype=int), np.array([v for _, v in pairs])
    alone = [values[of == group].sum() for group in range(4)]
    np.testing.assert_array_equal(Groups(of, 4).total(values), alone)
