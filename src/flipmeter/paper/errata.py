"""Errors of the paper: each with its rule, what it finds in an honest rater, and the right rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import comb
from statistics import fmean, pstdev
from typing import Any, Literal

import numpy as np
import polars as pl
from scipy import special

from flipmeter.paper.evidence import Bench, flip_rate, residual_of, share_of_class
from flipmeter.paper.published import METRICS, REFERENCE, printed, published, published_cell
from flipmeter.pipelines.aggregate import aggregate, oracle_check
from flipmeter.registry import Registry
from flipmeter.stats.bounds import is_shown
from flipmeter.stats.formulas import Method, holm, mcnemar, mcnemar_statistic, wilson
from flipmeter.stats.verdict import headlines
from flipmeter.types import Mode

Unit = Literal["points", "share", "p", "plain"]
FORMATS: dict[Unit, str] = {"points": "{:+.1f} pts", "share": "{:.1%}", "p": "{:.3f}"}
MODES: tuple[Mode, Mode] = ("paper", "recommended")
NOISY = "sim/noisy?noise=1"
"""A rater with noise and no preference for a position."""


@dataclass(frozen=True)
class ErratumRow:
    """One number three times: as printed, of an honest rater by the same rule, by the right rule.

    A text stands for itself; the unit says how a number is shown.
    """

    what: str
    paper: str
    honest: float | str
    right: float | str
    unit: Unit = field(default="points", kw_only=True)

    def texts(self) -> tuple[str, str, str, str]:
        """The cells as people read them."""
        return self.what, self.paper, self._text(self.honest), self._text(self.right)

    def _text(self, value: float | str) -> str:
        if isinstance(value, str):
            return value
        return FORMATS.get(self.unit, "{:g}").format(value + 0.0)


Rows = Sequence[ErratumRow]


@dataclass(frozen=True)
class Erratum:
    """One error: where it stands, the rule that the paper follows, the right one, and its study."""

    title: str
    where: str
    rule: str
    remedy: str
    study: Callable[[Bench], Rows]


@dataclass(frozen=True)
class ShownErratum:
    """An erratum with the rows that its study gave."""

    name: str
    erratum: Erratum
    rows: tuple[ErratumRow, ...]

    def record(self) -> dict[str, Any]:
        """The content for a machine."""
        about = self.erratum
        texts = {"title": about.title, "where": about.where, "rule": about.rule}
        rows = [asdict(row) for row in self.rows]
        return {"name": self.name, **texts, "remedy": about.remedy, "rows": rows}


errata: Registry[Erratum] = Registry("erratum")
"""The errata in the order in which a reader of the paper meets them."""


def erratum(
    name: str, *, title: str, where: str, rule: str, remedy: str
) -> Callable[[Callable[[Bench], Rows]], Callable[[Bench], Rows]]:
    """Register the study that shows an error."""

    def add(study: Callable[[Bench], Rows]) -> Callable[[Bench], Rows]:
        errata.add(name, Erratum(title, where, rule, remedy, study))
        return study

    return add


def shown_errata(names: Sequence[str] = ()) -> Iterator[ShownErratum]:
    """Run the study of each erratum, all of them unless named."""
    with Bench() as bench:
        for name in names or errata:
            found = errata[name]
            yield ShownErratum(name, found, tuple(found.study(bench)))


# --- Phase 0 ----------------------------------------------------------------------------------

NOISES = tuple(0.4 + 0.1 * step for step in range(10))
PROBES = ("P1", "P2", "P3")
N_PAPER = 200
DISCORDANT = (10, 20, 36)
"""Number of discordant items; the paper's models have 18 to 36."""
N_RATERS = 10
METHODS: tuple[Method, Method] = ("paper", "mid-p")


@erratum(
    "zero-intervals",
    title="An interval that excludes zero is taken as evidence of bias",
    where="Phase 0 table, panel (a): all 30 intervals exclude zero",
    rule="A flip rate is called significant where its Wilson interval excludes 0. It excludes 0 "
    "as soon as one item flips, so the rule cannot fail for a rater with any noise.",
    remedy="Repeat every view and ask whether views differ more than repeats do (the verdict's "
    "randomisation test), and test the size against a margin.",
)
def zero_intervals(bench: Bench) -> Rows:
    """Ten raters that draw at random around the right class and prefer no position."""
    run = bench.run(
        models=[{"name": f"noise {n:.1f}", "model": f"sim/noisy?noise={n:.1f}"} for n in NOISES],
        mode="recommended",
        probes=["label_order", "demo_order", "placement"],
        test_size=30,
        repeats=2,
        base={"shots": 1},
    )
    rates = run.estimates.filter(pl.col("metric").is_in(PROBES), policy="complete")
    n_excluding = sum(wilson(int(k), int(n))[0] > 0 for k, n in rates.select("k", "n").iter_rows())
    words = headlines(run.verdicts)["word_among"].to_list()
    table = published("phase0").to_dicts()
    n_printed = sum(float(row[f"{probe}_lo"]) > 0 for row in table for probe in PROBES)
    return [
        ErratumRow(
            "combinations of rater and probe called biased",
            f"{n_printed} of {len(PROBES) * len(table)}",
            f"{n_excluding} of {len(rates)}",
            f"{words.count('flips')} of {len(words)} raters flip (Holm)",
        ),
        ErratumRow(
            f"lower end of the interval for 1 flip of {N_PAPER}",
            "",
            f"{wilson(1, N_PAPER)[0]:.4f}",
            "1 flip shows nothing",
        ),
    ]


@erratum(
    "halved-mcnemar",
    title="McNemar's corrected test is halved, and ten models are ten tests",
    where="Phase 0 table, panel (b): six of ten models are significant",
    rule="The two-sided p of the continuity-corrected chi-square is cut in half. The correction "
    "makes the test miss effects, halving alone ignores the direction, and ten tests at "
    "5 % each are read as one.",
    remedy="Mid-p, one-sided, with Holm over the models; repeat both orders, so that a quieter "
    "reversed run does not hide an effect.",
)
def halved_mcnemar(bench: Bench) -> Rows:
    """The paper's own counts by both rules, and the exact error of each on honest raters.

    The tests are exact, so nothing is sampled.
    """
    table, counts = published("phase0"), list(_discordant_counts())
    halved, mid = ([mcnemar(b, c, method) for b, c in counts] for method in METHODS)
    n_printed = table["sig"].to_list().count("1")
    pro = table["model"].to_list().index("DeepSeek V4 Pro")
    b, c = counts[pro]
    alone = (
        _false_positive_rate(DISCORDANT[-1], "paper"),
        _false_positive_rate(DISCORDANT[-1], "mid-p", N_RATERS),
    )
    return [
        ErratumRow(
            "models above their noise",
            f"{n_printed} of {len(table)}",
            f"{sum(map(is_shown, halved))} of {len(counts)} (the paper's p, recomputed)",
            f"{sum(map(is_shown, holm(mid)))} of {len(counts)}",
        ),
        ErratumRow(
            f"p of DeepSeek V4 Pro, b = {b}, c = {c}",
            table["p"][pro],
            halved[pro],
            mid[pro],
            unit="p",
        ),
        ErratumRow(
            "p of a rater with fewer flips than noise, b = 5, c = 15",
            "",
            float(special.chdtrc(1, mcnemar_statistic(5, 15)) / 2),
            mcnemar(5, 15, "mid-p"),
            unit="p",
        ),
        *(
            ErratumRow(
                f"honest raters called biased, {n} discordant items (5 % allowed)",
                "",
                *(_false_positive_rate(n, method) for method in METHODS),
                unit="share",
            )
            for n in DISCORDANT
        ),
        ErratumRow(
            f"one or more of {N_RATERS} honest raters called biased, {DISCORDANT[-1]} discordant "
            "items each",
            "",
            *(1 - (1 - error) ** N_RATERS for error in alone),
            unit="share",
        ),
    ]


def _discordant_counts() -> Iterator[tuple[int, int]]:
    """b and c of every model; where the paper's numbers leave them open, the least favourable."""
    for row in published("derived_phase0_counts").to_dicts():
        b, c = row["mcnemar_b_total_only"], row["mcnemar_c_noise_only"]
        if b is not None:
            yield int(b), int(c)
        else:
            total, noise = int(row["total_k"]), int(row["noise_k"])
            open_c = 5 if "22/5" in row["note"] else min(noise, total)
            yield total - noise + open_c, open_c


def _false_positive_rate(n: int, method: Method, n_tests: int = 1) -> float:
    """Probability that an honest rater with n discordant items is called biased.

    Holm holds the smallest p of several tests to the level divided by their number.
    """
    found = (b for b in range(n + 1) if is_shown(n_tests * mcnemar(b, n - b, method)))
    return float(sum(comb(n, b) / 2**n for b in found))


# --- Phase 1 ----------------------------------------------------------------------------------

CLASSES = (5, 5, 3, 2, 2)
"""Number of classes of the paper's five datasets."""
WORDS = {"label_format": "natural_language"}
FLIPS = tuple(name for name in METRICS.values() if name.startswith("P"))
N_CELL = 600
"""Items of a dataset over three seeds: accuracy moves in steps of 100 / 600 points."""


@erratum(
    "word-labels",
    title="Word labels are read by position",
    where="Phase 1 table, label format; joint configuration P2a",
    rule="One formula maps every reversed answer back by its place in the list. A number stands "
    "for another class after the reversal, but a word does not: a rater that says 'positive' "
    "twice is counted as flipping unless the word is the middle class, and always where there "
    "are two classes.",
    remedy="Read words by name. Where both prompts are byte-equal (words with the minimal header), "
    "nothing was changed and nothing can be measured.",
)
def word_labels(bench: Bench) -> Rows:
    """An honest rater under word labels with five, three and two classes."""
    sizes = {size: None if size == 5 else size for size in (5, 3, 2)}
    run = bench.run(
        test_size=60,
        configs={f"{n} classes": {**WORDS, "cardinality": card} for n, card in sizes.items()}
        | {"minimal": {**WORDS, "clarity": "minimal"}},
    )
    flips, right = (
        {n: 100 * (flip_rate(run, metric, f"config={n} classes") or 0.0) for n in sizes}
        for metric in ("P1", "P1_semantic")
    )
    over_all = [flips[size] for size in CLASSES]
    equal = published("phase2_joint_absolute").filter(config="P2a", metric="P1")["mean"]
    return [
        *(ErratumRow(f"P1, {size} classes", "", flips[size], right[size]) for size in sizes),
        ErratumRow(
            "P1 minus that of numbers, mean ± SD over five datasets",
            printed("phase1_residuals", "P1", level="Natural language"),
            f"{fmean(over_all):+.2f} ± {pstdev(over_all):.2f}",
            fmean(right[size] for size in CLASSES),
        ),
        ErratumRow(
            "P1 of configuration P2a (equal prompts), by model",
            ", ".join(equal),
            f"{flip_rate(run, 'P1', 'config=minimal'):.3f}",
            "not identified",
        ),
    ]


@erratum(
    "only-intervention",
    title="Fewer classes are not the only change that improves both",
    where="Abstract, introduction and Phase 1: only lower cardinality improves both",
    rule="Accuracy must rise and all five flip rates must fall. Other rows of the same table do "
    "so too; and fewer classes flip less for a trivial reason, since answers that differ "
    "are merged.",
    remedy="List every row that does. Compare fewer classes with merging the answers alone, "
    "which needs no call.",
)
def only_intervention(bench: Bench) -> Rows:
    """A rater with noise and no preference for a position, on five classes and on three."""
    run = bench.run(models=[NOISY], test_size=80, base={"shots": 1}, vary={"cardinality": [3, 2]})
    table = published("phase1_residuals").filter(pl.col("metric").is_in(["accuracy", *FLIPS]))
    mean = pl.col("mean").cast(pl.Float64)
    better = pl.when(pl.col("metric") == "accuracy").then(mean).otherwise(-mean) > 0
    levels = table.drop_nulls("mean").group_by("factor", "level", maintain_order=True)
    judged = levels.agg(better.all().alias("is_better"), pl.len())
    both = judged.filter(pl.col("is_better"), pl.col("len") == 1 + len(FLIPS))["level"].to_list()
    named = [level for level in both if level.endswith("-way")]
    what = "levels with higher accuracy and five lower flip rates"
    return [
        ErratumRow(what, ", ".join(named), "", ", ".join(both)),
        *(
            ErratumRow(
                f"P1, {size} classes minus 5 (right: by merging the answers alone)",
                printed("phase1_residuals", "P1", level=f"{size}-way"),
                residual_of(run, f"{size}", "P1"),
                residual_of(run, f"{size} by merging", "P1"),
            )
            for size in (3, 2)
        ),
    ]


@erratum(
    "sd-over-what",
    title="The SD is over datasets, not over seeds",
    where="Statistical tests section; Phase 1 and Phase 2 tables",
    rule="The text speaks of mean and SD over three demonstration seeds. The printed SDs are the "
    "population SD over datasets of means over seeds: how different the datasets are, which "
    "more items or seeds do not reduce, and not the uncertainty of the mean.",
    remedy="A paired interval over items for the mean; the SDs over seeds and over datasets apart, "
    "with their names.",
)
def sd_over_what(bench: Bench) -> Rows:
    """A rater that answers alike for every seed, on two datasets that differ in their classes."""
    keys = {
        "datasets": ["reviews", bench.texts((25, 60, 60, 60, 25))],
        "seeds": [0, 1, 42],
        "test_size": 60,
        "balance": "proportional",
        "base": {"shots": 1},
        "vary": {"cardinality": [3]},
    }
    paper, right = (
        bench.run(mode=mode, cardinality_sample="remap", **keys)
        .residuals()
        .filter(pl.col("dataset") == "", factor="cardinality", level="3", metric="accuracy")
        .row(0, named=True)
        for mode in MODES
    )
    as_printed = printed("phase1_residuals", "accuracy", level="3-way")
    return [
        ErratumRow(
            "accuracy, 3 classes minus 5",
            as_printed,
            f"{paper['value']:+.2f} ± {paper['dataset_sd']:.2f}",
            f"{right['value']:+.2f} [{right['low']:.2f}, {right['high']:.2f}]",
        ),
        ErratumRow(
            "SD over the three seeds of the same number",
            "",
            f"{paper['seed_sd']:.2f}",
            f"{right['seed_sd']:.2f}",
        ),
        ErratumRow(
            "two datasets that give the printed mean and SD, steps of 1/6 points",
            as_printed,
            f"{_n_pairs(0)} as population SD",
            f"{_n_pairs(1)} as sample SD",
        ),
    ]


def _n_pairs(ddof: int) -> int:
    """Number of pairs of two datasets' residuals that print as the paper's +25.00 ± 6.17."""
    cell = published_cell("phase1_residuals", "accuracy", level="3-way")
    if cell is None or cell.sd is None:
        return 0
    total = round(2 * cell.value * N_CELL / 100)
    factor = 0.5 if ddof == 0 else 0.5**0.5
    gaps = (abs(2 * first - total) for first in range(total // 2 + 1))
    return sum(f"{factor * gap * 100 / N_CELL:.2f}" == f"{cell.sd:.2f}" for gap in gaps)


# --- Phase 2: comparisons ---------------------------------------------------------------------

RULES = {
    "majority_vote": "Majority vote",
    "mean_score": "Mean score",
    "weighted_sum": "Weighted sum",
    "copeland": "Copeland",
    "bradley_terry": "Bradley-Terry",
}
FAMILY = "Aggregation method"
N_CLASSES, SHOTS, N_ITEMS, N_STUDIES = 5, 5, 100, 40
SPREAD = 0.6
"""Of texts around their class, as simulated raters have it."""


def _honest_accuracy_residual(bench: Bench, rule: str, mode: Mode) -> float:
    """Accuracy of an honest rater asked in pairs, minus its own pointwise accuracy."""
    return residual_of(bench.comparisons, f"pairwise+{rule}@{mode}", "accuracy")


def _accuracy_row(bench: Bench, rule: str, right: str = "") -> ErratumRow:
    """Accuracy by the paper's form of a rule, and by the recommended form of it or of another."""
    as_printed = printed("phase2_pipeline", "accuracy", method=RULES[rule], family=FAMILY)
    found = (
        _honest_accuracy_residual(bench, rule, "paper"),
        _honest_accuracy_residual(bench, right or rule, "recommended"),
    )
    return ErratumRow("accuracy minus pointwise accuracy", as_printed, *found)


def _oracle_classes(rule: str, mode: Mode = "recommended") -> str:
    """The results for a perfect comparator's classes 1 to 5."""
    return ", ".join(map(str, oracle_check(rule, mode=mode)))


@erratum(
    "weighted-sum-bins",
    title="The bins of the weighted sum are misplaced",
    where="Phase 2 pipeline table, pairwise and aggregation method",
    rule="The sum of outcome times label is cut into bins of equal width. The sums that a perfect "
    "comparator gives to the classes are not equally spaced, so most classes fall into the "
    "wrong bin: the loss of accuracy is the rule's, not the comparisons'.",
    remedy="Cut midway between the sums that a perfect comparator gives to neighbouring classes.",
)
def weighted_sum_bins(bench: Bench) -> Rows:
    """The default aggregator of the paper's pairwise pipeline."""
    what = "classes 1, 2, 3, 4, 5 under a perfect comparator"
    classes = (_oracle_classes("weighted_sum", mode) for mode in MODES)
    return [ErratumRow(what, "", *classes), _accuracy_row(bench, "weighted_sum")]


@erratum(
    "mean-score",
    title="The mean score cannot reach the ends of the scale",
    where="Phase 2 pipeline table, aggregation method",
    rule="Every demonstration votes for its label moved by one step, and the votes are averaged: "
    "demonstrations far away pull every item to the middle.",
    remedy="No rounding helps; use the net number of wins (Copeland) or anchored strengths.",
)
def mean_score(bench: Bench) -> Rows:
    """The right column is Copeland's, on the same comparisons."""
    what = "classes 1, 2, 3, 4, 5 under a perfect comparator"
    classes = _oracle_classes("mean_score", "paper"), f"{_oracle_classes('copeland')} (Copeland)"
    return [ErratumRow(what, "", *classes), _accuracy_row(bench, "mean_score", "copeland")]


@erratum(
    "first-seen-majority",
    title="Ties of the majority vote go to the vote seen first",
    where="Phase 2 pipeline table: P2a and P2b of majority vote against weighted sum",
    rule="Where two classes have the most votes, the one whose vote came first wins, so the "
    "order of the demonstrations decides although every comparison is the same.",
    remedy="Use the tied class nearest the mean of all votes: no order, no flip.",
)
def first_seen_majority(bench: Bench) -> Rows:
    """Comparisons without a preference for a position, aggregated in two orders."""
    rng = np.random.default_rng(0)
    studies = [_reordered_flip_shares(rng) for _ in range(N_STUDIES)]
    flips = [100 * float(np.mean(rates)) for rates in zip(*studies, strict=True)]
    excess = []
    for metric in ("P2a", "P2b"):
        cells = (
            published_cell("phase2_pipeline", metric, method=RULES[rule], family=FAMILY)
            for rule in ("majority_vote", "weighted_sum")
        )
        majority, weighted = (cell.value if cell else 0.0 for cell in cells)
        excess.append(f"{majority - weighted:+.2f}")
    as_printed = f"{', '.join(excess)} over weighted sum"
    return [ErratumRow("flips by reordering alone", as_printed, *flips)]


def _reordered_flip_shares(rng: np.random.Generator) -> list[float]:
    """Share of items whose class changes with the order, in the paper's form and in ours.

    Items and demonstrations lie around their classes; two orders that disagree are a tie.
    """
    labels = np.repeat(np.arange(1, N_CLASSES + 1), SHOTS)
    true = np.repeat(np.arange(1, N_CLASSES + 1), N_ITEMS // N_CLASSES)
    items, demos = (ranks + SPREAD * rng.standard_normal(ranks.size) for ranks in (true, labels))
    chances = 1 / (1 + np.exp(demos - items[:, None]))
    wins = rng.random((2, *chances.shape)) < chances
    outcomes = np.where(wins[0] == wins[1], 2 * wins[0].astype(np.int64) - 1, 0)
    order = rng.permutation(labels.size)
    found = [
        [
            aggregate("majority_vote", outcomes[:, by], labels[by], N_CLASSES, mode=mode).ranks
            for by in (np.arange(labels.size), order)
        ]
        for mode in MODES
    ]
    return [float((first != again).mean()) for first, again in found]


@erratum(
    "bradley-terry-star",
    title="Bradley-Terry on a star has no solution",
    where="Phase 2 pipeline table, aggregation method",
    rule="Strengths come from the item's own games alone. A demonstration with one game won or "
    "lost has no finite strength; the loop stops somewhere, and items without a tie "
    "get class 1.",
    remedy="Add the games that the labels imply (a higher label beats a lower one) and a small "
    "prior; no further call is needed.",
)
def bradley_terry_star(bench: Bench) -> Rows:
    """An honest rater whose comparisons are nearly free of ties."""
    forms = (f"pipeline=pairwise+bradley_terry@{mode}" for mode in MODES)
    shares = (share_of_class(bench.comparisons, form, 1) for form in forms)
    share = ErratumRow("items that get class 1, of 20 %", "", *shares, unit="share")
    return [share, _accuracy_row(bench, "bradley_terry")]


@erratum(
    "structural-p3",
    title="A flip rate that cannot vary is subtracted as if it were 0",
    where="Phase 2 pipeline table, aggregation method: P3a -67.43 and P3b -56.10 in all five rows",
    rule="A pairwise prompt shows one demonstration: there is no block of them to move, and all "
    "three placements are the same calls. The table prints 0 minus the pointwise baseline, "
    "the same number for every aggregator, as if comparing had removed the sensitivity.",
    remedy="Not applicable: a contrast whose prompts are equal has no flip rate.",
)
def structural_p3(bench: Bench) -> Rows:
    """A rater with noise and no preference for a position, asked in pairs."""
    run = bench.run(
        models=[NOISY],
        test_size=30,
        probes=["placement"],
        base={"shots": 2},
        vary={"pipeline": [f"pairwise+{rule}" for rule in RULES]},
    )
    rows = []
    for contrast in ("P3a", "P3b"):
        table = published("phase2_pipeline").filter(metric=contrast, family=FAMILY)
        means = table.select("mean", "sd").unique().iter_rows()
        as_printed = ", ".join(f"{mean} ± {sd}" for mean, sd in means)
        levels = [f"pairwise+{rule}" for rule in RULES]
        found = run.residuals().filter(pl.col("level").is_in(levels), metric=contrast, dataset="")
        values = set(found["value"])
        right = "not applicable" if values <= {None} else str(values)
        base = -100 * (flip_rate(run, contrast) or 0.0)
        rows.append(ErratumRow(f"{contrast} of all five rules", as_printed, base, right))
    return rows


# --- Phase 2: corrections and configurations --------------------------------------------------

MIXES = {"mostly neutral": (25, 25, 160, 25, 25), "mostly extreme": (90, 25, 25, 25, 90)}
HONEST, TILTED = "sim/honest", "sim/first-slot?strength=1"
JOINT = {"label_format": "letter", "separator": "tab"}


@erratum(
    "listwise-compare-ensemble",
    title="Listwise-compare is compared with single calls",
    where="Phase 2 pipeline table: P1 -18.11 of listwise-compare",
    rule="Its flip rate is that of two majorities of five calls, the baseline's that of two "
    "single calls. A majority of five is steadier whatever the question.",
    remedy="Spend as many calls on the pointwise prompt (one demonstration per class in each of "
    "five calls) and compare with that.",
)
def listwise_compare_ensemble(bench: Bench) -> Rows:
    """A rater with noise and no preference for a position: only asking more often can help."""
    form = "pointwise_vote@recommended"
    run = bench.run(models=[NOISY], test_size=80, vary={"pipeline": [form]})
    return [
        ErratumRow(
            "P1 of a majority of five calls minus that of single calls",
            printed("phase2_pipeline", "P1", method="Listwise-compare"),
            residual_of(run, form, "P1"),
            "compare with five pointwise calls, not with one",
        )
    ]


@erratum(
    "half-up",
    title="Averages of two answers are rounded up",
    where="Phase 2 pipeline table: label averaging",
    rule="The mean of two answers is rounded half up, so neighbouring answers that disagree "
    "always become the upper class. With two classes, label averaging means 'the upper class "
    "whenever the orders disagree'.",
    remedy="Keep the natural order's answer at a half, or average probabilities, which need no "
    "rounding.",
)
def half_up(bench: Bench) -> Rows:
    """A rater with noise on two classes of equal size."""
    forms = [f"pointwise+label_average@{mode}" for mode in MODES]
    run = bench.run(
        models=["sim/noisy?noise=2"],
        test_size=100,
        base={"shots": 1, "cardinality": 2},
        vary={"pipeline": forms},
    )
    shares = (share_of_class(run, f"pipeline={form}", 2) for form in forms)
    return [ErratumRow("items that get the upper class, of 50 %", "", *shares, unit="share")]


@erratum(
    "pride-two-orders",
    title="PriDe is learned from two label orders",
    where="Phase 2 pipeline table, debiasing strategy; appendix on PriDe",
    rule="The prior is the mean probability of each slot over ten items in the natural and the "
    "reversed order. Two orders only mirror the classes: the content of the ten items stays in "
    "the estimate, and dividing by it moves answers that were right and stable.",
    remedy="From two orders use the odd part only (a slot against its mirror image), which is "
    "all that they identify; for the whole prior, rotate the labels through every slot.",
)
def pride_two_orders(bench: Bench) -> Rows:
    """Raters without and with a planted slot preference, on classes that are not balanced."""
    rows: list[ErratumRow] = []
    forms = [f"pointwise+pride@{mode}" for mode in MODES]
    for name, counts in MIXES.items():
        run = bench.run(
            models=[HONEST, TILTED],
            datasets=[bench.texts(counts)],
            test_size=120,
            balance="proportional",
            base={"shots": 1},
            vary={"pipeline": forms},
        )
        for what, metric, rater in (
            ("accuracy without a preference", "accuracy", HONEST),
            ("P1 with 1 log-odds for slot 1", "P1", TILTED),
        ):
            as_printed = printed("phase2_pipeline", metric, method="PriDe")
            found = (residual_of(run, form, metric, rater) for form in forms)
            rows.append(ErratumRow(f"{what}, {name} items", as_printed, *found))
    return rows


@erratum(
    "accuracy-optimal",
    title="The accuracy-optimal configuration is not the most accurate",
    where="Phase 2b: configuration A",
    rule="For each factor the level that is best alone is chosen, and the levels are put "
    "together. Factors interact, and their combination can be worse than its parts.",
    remedy="Measure the configuration itself, beside the others, on items that the choice did not "
    "see.",
)
def accuracy_optimal(bench: Bench) -> Rows:
    """A rater that was planted to misread under letters or tabs, but not under both."""
    run = bench.run(
        models=["sim/joint"],
        test_size=60,
        base={"shots": 1},
        vary={factor: [level] for factor, level in JOINT.items()},
        configs={"both": JOINT},
    )
    alone = sum(residual_of(run, level, "accuracy") for level in JOINT.values())
    together = residual_of(run, "both", "accuracy")
    cells = {
        config: published_cell("phase2_joint_absolute", "accuracy", model=REFERENCE, config=config)
        for config in ("baseline", "A", "P1", "P2a", "P2b")
    }
    values = ", ".join(f"{name} {cell.value:.3f}" for name, cell in cells.items() if cell)
    best = max((cell.value, name) for name, cell in cells.items() if cell)[1]
    what = "accuracy: sum of two levels alone, and both together"
    return [
        ErratumRow("most accurate configuration", values, "A, by its levels alone", best),
        ErratumRow(what, "", alone, together),
    ]
