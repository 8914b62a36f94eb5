"""Answer -> Decision: what must be asked about an item, and the class that settles it."""

from flipmeter.decide import comparing, correcting  # their pipelines are added on import
from flipmeter.decide.aggregate import (
    Aggregator,
    aggregate,
    aggregators,
    oracle_check,
)
from flipmeter.decide.averages import (
    Choice,
    average_probabilities,
    average_ranks,
    choose,
    median_ranks,
)
from flipmeter.decide.bins import (
    copeland,
    weighted_sum,
)
from flipmeter.decide.calibraeval import (
    FairMap,
    fit_fair_map,
)
from flipmeter.decide.comparisons import (
    Aggregated,
)
from flipmeter.decide.kemeny import (
    Ranking,
    central_ranking,
)
from flipmeter.decide.pipelines import (
    Heard,
    Panel,
    Pipeline,
    Traits,
    in_mode,
    open_pipeline,
    pipelines,
)
from flipmeter.decide.priors import (
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
from flipmeter.decide.spaces import (
    by_class,
    by_slot,
    ranks_at,
    rotations,
    slots_of,
)
from flipmeter.decide.strengths import (
    bradley_terry,
)
from flipmeter.decide.votes import (
    majority_vote,
    mean_score,
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
    "comparing",
    "contextual_prior",
    "copeland",
    "correcting",
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
