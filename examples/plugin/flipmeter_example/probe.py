"""A probe: the label list from its middle outwards."""

from flipmeter.prompt.probes import Probe, base_view, probes
from flipmeter.types import Contrast, View


def middle_first(n_classes: int) -> tuple[View, ...]:
    ranks = range(1, n_classes + 1)
    order = tuple(sorted(ranks, key=lambda rank: abs(2 * rank - n_classes - 1)))
    return base_view(n_classes), View("middle_first", order)


probes.add(
    "middle_first",
    Probe(
        "middle_first",
        "the label list from its middle outwards",
        middle_first,
        (Contrast("M1", ("base", "middle_first"), "middle labels first", "middle_first"),),
        needs_demos=False,
    ),
)
