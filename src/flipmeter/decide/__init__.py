"""Answer -> Decision: what must be asked about an item, and the class that settles it."""

from flipmeter.decide.aggregators.aggregate import (
    Aggregator,
    aggregate,
    aggregators,
    oracle_check,
)
from flipmeter.decide.aggregators.bins import copeland, weighted_sum
from flipmeter.decide.aggregators.bradley_terry import bradley_terry
from flipmeter.decide.aggregators.outcomes import Aggregated
from flipmeter.decide.aggregators.votes import majority_vote, mean_score
from flipmeter.decide.debiasers.averaging import (
    AveragedRanks,
    average_probabilities,
    average_ranks,
    choose,
    median_ranks,
)
from flipmeter.decide.debiasers.priors import NULL_TEXTS, Prior
from flipmeter.decide.juries import settle_jury
from flipmeter.decide.pipelines import (  # noqa: F401 - add pipelines
    both_orders,
    comparison,
    correction,
    orbit,
    sampled,
)
from flipmeter.decide.pipelines.correction import Bias, Debiaser, debiasers
from flipmeter.decide.pipelines.pipeline import Asked, Traits, in_mode, open_pipeline, pipelines

__all__ = [
    "NULL_TEXTS",
    "Aggregated",
    "Aggregator",
    "Asked",
    "AveragedRanks",
    "Bias",
    "Debiaser",
    "Prior",
    "Traits",
    "aggregate",
    "aggregators",
    "average_probabilities",
    "average_ranks",
    "bradley_terry",
    "choose",
    "copeland",
    "debiasers",
    "in_mode",
    "majority_vote",
    "mean_score",
    "median_ranks",
    "open_pipeline",
    "oracle_check",
    "pipelines",
    "settle_jury",
    "weighted_sum",
]
