"""Answer -> Decision: what must be asked about an item, and the class that settles it."""

from flipmeter.decide.aggregators.aggregate import (
    Aggregator,
    aggregate,
    aggregators,
    oracle_check,
)
from flipmeter.decide.aggregators.bins import (
    copeland,
    weighted_sum,
)
from flipmeter.decide.aggregators.bradley_terry import (
    bradley_terry,
)
from flipmeter.decide.aggregators.kemeny import (
    Ranking,
    central_ranking,
)
from flipmeter.decide.aggregators.outcomes import (
    Aggregated,
)
from flipmeter.decide.aggregators.votes import (
    majority_vote,
    mean_score,
)
from flipmeter.decide.debiasers.averaging import (
    Choice,
    average_probabilities,
    average_ranks,
    choose,
    median_ranks,
)
from flipmeter.decide.debiasers.calibraeval import (
    FairMap,
    fit_fair_map,
)
from flipmeter.decide.debiasers.priors import (
    NULL_TEXTS,
    PAPER_NULL_TEXTS,
    Prior,
    batch_prior,
    contextual_prior,
    divide,
    pride_cyclic_prior,
    pride_odd_prior,
    pride_paper_prior,
    pseudo_texts,
)
from flipmeter.decide.pipelines import comparison, correction  # their pipelines are added on import
from flipmeter.decide.pipelines.pipeline import (
    Heard,
    Panel,
    Pipeline,
    Traits,
    in_mode,
    open_pipeline,
    pipelines,
)
from flipmeter.decide.spaces import (
    by_class,
    by_slot,
    ranks_at,
    rotations,
    slots_of,
)

__all__ = [
    "NULL_TEXTS",
    "PAPER_NULL_TEXTS",
    "Aggregated",
    "Aggregator",
    "Choice",
    "FairMap",
    "Heard",
    "Panel",
    "Pipeline",
    "Prior",
    "Ranking",
    "Traits",
    "aggregate",
    "aggregators",
    "average_probabilities",
    "average_ranks",
    "batch_prior",
    "bradley_terry",
    "by_class",
    "by_slot",
    "central_ranking",
    "choose",
    "comparison",
    "contextual_prior",
    "copeland",
    "correction",
    "divide",
    "fit_fair_map",
    "in_mode",
    "majority_vote",
    "mean_score",
    "median_ranks",
    "open_pipeline",
    "oracle_check",
    "pipelines",
    "pride_cyclic_prior",
    "pride_odd_prior",
    "pride_paper_prior",
    "pseudo_texts",
    "ranks_at",
    "rotations",
    "slots_of",
    "weighted_sum",
]
