"""Answer -> Decision: what must be asked about an item, and the class that settles it."""

from flipmeter.decide.aggregate import Aggregator, aggregate, aggregators, oracle_check
from flipmeter.decide.bins import copeland, weighted_sum
from flipmeter.decide.comparisons import Aggregated
from flipmeter.decide.pipelines import Pipeline, pipelines
from flipmeter.decide.strengths import bradley_terry
from flipmeter.decide.votes import majority_vote, mean_score

__all__ = [
    "Aggregated",
    "Aggregator",
    "Pipeline",
    "aggregate",
    "aggregators",
    "bradley_terry",
    "copeland",
    "majority_vote",
    "mean_score",
    "oracle_check",
    "pipelines",
    "weighted_sum",
]
