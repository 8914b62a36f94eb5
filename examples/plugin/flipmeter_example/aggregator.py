"""An aggregator: the class next to the highest demonstration that an item beats."""

import numpy as np

from flipmeter.pipelines.aggregate import Aggregated, Aggregator, Comparisons, aggregators
from flipmeter.types import Mode

BOTH: frozenset[Mode] = frozenset({"recommended", "paper"})


def above_the_beaten(compared: Comparisons, mode: Mode) -> Aggregated:
    """One class above the highest that lost every comparison with the item."""
    is_beaten = (compared.wins == compared.sizes) & (compared.sizes > 0)
    highest = np.where(is_beaten, compared.classes, 0).max(axis=1)
    return Aggregated.of(np.minimum(highest + 1, compared.n_classes))


aggregators.add(
    "above_the_beaten",
    Aggregator(above_the_beaten, "one class above those it beats", lopsided=BOTH),
)
