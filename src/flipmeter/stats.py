"""The statistics on plain arrays: intervals, tests, flip rates, and aggregators of comparisons.

import flipmeter as fm

fm.stats.wilson(12, 200)
"""

from flipmeter.decide.aggregators.bins import copeland, weighted_sum
from flipmeter.decide.aggregators.bradley_terry import bradley_terry
from flipmeter.decide.aggregators.votes import majority_vote, mean_score
from flipmeter.measure.estimates.flips import flip_rate
from flipmeter.measure.statistics.formulas import cochran_q, mcnemar, wilson

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
