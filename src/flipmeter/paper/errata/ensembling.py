"""Corrections whose gain or loss is that of asking several times, or of rounding."""

from __future__ import annotations

from flipmeter.paper.bench import Bench, residual_of, share_of_class
from flipmeter.paper.errata.erratum import ErratumRow, Rows, erratum
from flipmeter.paper.published import printed


@erratum(
    "listwise-compare-ensemble",
    title="Listwise-compare is compared with single calls",
    where="Phase 2 pipeline table: P1 -18.11 of listwise-compare",
    rule="Its flip rate is that of two majorities of five calls, the baseline's that of two "
    "single "
    "calls. A majority of five is steadier whatever the question.",
    remedy="Spend as many calls on the pointwise prompt (one demonstration per class in each of "
    "five calls) and compare with that.",
)
def listwise_compare_ensemble(bench: Bench) -> Rows:
    """A rater with noise and no preference for a position: only asking more often can help."""
    run = bench.run(
        models=["sim/noisy?noise=1"],
        mode="paper",
        test_size=80,
        probes=["label_order"],
        vary={"pipeline": ["pointwise_vote@recommended"]},
    )
    gain = residual_of(run, "pointwise_vote@recommended", "P1") or 0.0
    what = "P1 of a majority of five calls minus that of single calls"
    as_printed = printed("phase2_pipeline", "P1", method="Listwise-compare")
    right = "compare with five pointwise calls, not with one"
    return [ErratumRow(what, as_printed, gain, right)]


@erratum(
    "half-up",
    title="Averages of two answers are rounded up",
    where="Phase 2 pipeline table: label averaging",
    rule="The mean of two answers is rounded half up, so neighbouring answers that disagree "
    "always "
    "become the upper class. With two classes, label averaging means 'the upper class "
    "whenever the orders disagree'.",
    remedy="Keep the natural order's answer at a half, or average probabilities, which need no "
    "rounding.",
)
def half_up(bench: Bench) -> Rows:
    """A rater with noise on two classes of equal size."""
    forms = ("pointwise+label_average@paper", "pointwise+label_average@recommended")
    run = bench.run(
        models=["sim/noisy?noise=2"],
        mode="paper",
        test_size=100,
        probes=["label_order"],
        base={"shots": 1, "cardinality": 2},
        vary={"pipeline": list(forms)},
    )
    shares = [share_of_class(run, f"pipeline={form}", 2) for form in forms]
    return [ErratumRow("items that get the upper class, of 50 %", "", *shares, unit="share")]
