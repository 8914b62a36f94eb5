"""Decision -> Estimate, and the public statistics on plain arrays (`fm.stats`).

import flipmeter as fm

fm.stats.wilson(12, 200)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flipmeter.pipelines.aggregate import (
        bradley_terry,
        copeland,
        majority_vote,
        mean_score,
        weighted_sum,
    )
    from flipmeter.stats.flips import flip_rate
    from flipmeter.stats.formulas import cochran_q, mcnemar, wilson

__all__ = [
    "bradley_terry",
    "cochran_q",
    "copeland",
    "flip_rate",
    "majority_vote",
    "mcnemar",
    "mean_score",
    "weighted_sum",
    "wilson",
]

_HOMES = {
    "stats.flips": ("flip_rate",),
    "stats.formulas": ("cochran_q", "mcnemar", "wilson"),
}


def __getattr__(name: str) -> Any:
    """Import a public statistic when it is first used: modules in here do not need all of them."""
    if name not in __all__:
        raise AttributeError(f"module 'flipmeter.stats' has no attribute '{name}'")
    home = next((home for home, names in _HOMES.items() if name in names), "pipelines.aggregate")
    return getattr(import_module(f"flipmeter.{home}"), name)


def __dir__() -> list[str]:
    return __all__
