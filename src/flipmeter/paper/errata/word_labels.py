"""Word labels: an answer that stays the same is counted as a flip."""

from __future__ import annotations

from statistics import fmean, pstdev

from flipmeter.paper.bench import Bench, flip_rate
from flipmeter.paper.errata.erratum import ErratumRow, Rows, erratum
from flipmeter.paper.published import printed, published

CLASSES = (5, 5, 3, 2, 2)
"""Number of classes of the paper's five datasets."""
WORDS = {"label_format": "natural_language"}


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
        models=["sim/honest"],
        mode="paper",
        test_size=60,
        probes=["label_order"],
        configs={f"{n} classes": {**WORDS, "cardinality": card} for n, card in sizes.items()}
        | {"minimal": {**WORDS, "clarity": "minimal"}},
    )
    levels = {size: f"config={size} classes" for size in sizes}
    flips = {size: 100 * (flip_rate(run, "P1", level) or 0.0) for size, level in levels.items()}
    right = {size: 100 * (flip_rate(run, "P1_semantic", levels[size]) or 0.0) for size in sizes}
    over_all = [flips[size] for size in CLASSES]
    rows = [ErratumRow(f"P1, {size} classes", "", flips[size], right[size]) for size in sizes]
    mean = ErratumRow(
        "P1 minus that of numbers, mean ± SD over five datasets",
        printed("phase1_residuals", "P1", level="Natural language"),
        f"{fmean(over_all):+.2f} ± {pstdev(over_all):.2f}",
        fmean(right[size] for size in CLASSES),
    )
    equal = ErratumRow(
        "P1 of configuration P2a (equal prompts), by model",
        ", ".join(_printed_equal()),
        f"{flip_rate(run, 'P1', 'config=minimal'):.3f}",
        "not identified",
    )
    return [*rows, mean, equal]


def _printed_equal() -> list[str]:
    rows = published("phase2_joint_absolute").filter(config="P2a", metric="P1")
    return rows["mean"].to_list()
