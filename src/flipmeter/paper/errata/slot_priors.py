"""PriDe from two orders: what the items say is taken for what the slots add."""

from __future__ import annotations

from flipmeter.paper.bench import Bench, residual_of
from flipmeter.paper.errata.erratum import ErratumRow, Rows, erratum
from flipmeter.paper.published import printed

MIXES = {"mostly neutral": (25, 25, 160, 25, 25), "mostly extreme": (90, 25, 25, 25, 90)}
HONEST, TILTED = "sim/honest", "sim/first-slot?strength=1"
FORMS = ("pointwise+pride@paper", "pointwise+pride@recommended")


@erratum(
    "pride-two-orders",
    title="PriDe is learned from two label orders",
    where="Phase 2 pipeline table, debiasing strategy; appendix on PriDe",
    rule="The prior is the mean probability of each slot over ten items in the natural and the "
    "reversed order. Two orders only mirror the classes: the content of the ten items stays in "
    "the estimate, and dividing by it moves answers that were right and stable.",
    remedy="From two orders use the odd part only (a slot against its mirror image), which is "
    "all "
    "that they identify; for the whole prior, rotate the labels through every slot.",
)
def pride_two_orders(bench: Bench) -> Rows:
    """Raters without and with a planted slot preference, on classes that are not balanced."""
    rows: list[ErratumRow] = []
    for name, counts in MIXES.items():
        run = bench.run(
            models=[HONEST, TILTED],
            datasets=[bench.texts(counts)],
            mode="paper",
            test_size=120,
            balance="proportional",
            probes=["label_order"],
            base={"shots": 1},
            vary={"pipeline": list(FORMS)},
        )
        lost = [residual_of(run, form, "accuracy", HONEST) or 0.0 for form in FORMS]
        flips = [residual_of(run, form, "P1", TILTED) or 0.0 for form in FORMS]
        accuracy, p1 = (printed("phase2_pipeline", of, method="PriDe") for of in ("accuracy", "P1"))
        rows += [
            ErratumRow(f"accuracy without a preference, {name} items", accuracy, *lost),
            ErratumRow(f"P1 with 1 log-odds for slot 1, {name} items", p1, *flips),
        ]
    return rows
