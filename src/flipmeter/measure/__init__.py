"""Decision -> Estimate: flip rates, performance and what they are sure of."""

from flipmeter.measure.aspects.aspects import ASPECTS, measure_aspects
from flipmeter.measure.aspects.certainty import confidence_trend
from flipmeter.measure.aspects.confidence import (
    Abstention,
    abstention_curve,
    agreement,
    conformal_sets,
    entropies,
    flips_by_confidence,
    margins,
    ordinal_scores,
    vote_probabilities,
)
from flipmeter.measure.aspects.direction import (
    bowker,
    direction,
    flip_matrix,
    stuart_maxwell,
    wilcoxon,
)
from flipmeter.measure.aspects.excess import excess_over_noise, noise_warnings
from flipmeter.measure.aspects.severity import krippendorff_alpha, severity
from flipmeter.measure.aspects.slots import chi_square, slot_preference
from flipmeter.measure.aspects.worst import worst_case
from flipmeter.measure.certificates import (
    Certificate,
    Claim,
    anytime_interval,
    certifiable_rate,
    certificates,
    certify,
    certify_excess,
    detectable_excess,
    e_above,
    e_below,
    e_value,
    first_stop,
    items_for_excess,
    items_needed,
    read_claim,
)
from flipmeter.measure.effects.additive import additive, forecasts
from flipmeter.measure.effects.compare import compare
from flipmeter.measure.effects.greedy import PROMPT_FACTORS, Choice, objectives, select_greedy
from flipmeter.measure.effects.interactions import effects
from flipmeter.measure.effects.propose import Proposal, propose
from flipmeter.measure.effects.residuals import residual, residuals, transfer
from flipmeter.measure.estimates.flips import (
    NoiseTest,
    excess_disagreement,
    flip_rate,
    flip_rate_any,
    noise_floor,
    total_vs_noise,
)
from flipmeter.measure.estimates.phase0 import phase0_table
from flipmeter.measure.estimates.scores import Performance, performance
from flipmeter.measure.estimates.table import measure
from flipmeter.measure.estimates.tokens import hidden_tokens
from flipmeter.measure.front import (
    Field,
    HeldOut,
    Standing,
    choose,
    held_out,
    non_dominated,
    read_field,
    standings,
)
from flipmeter.measure.judge import Verdict, verdict, verdicts
from flipmeter.measure.limits import (
    METRICS,
    Held,
    Limit,
    hold_difference,
    hold_limits,
    hold_mean,
    hold_share,
)
from flipmeter.measure.sequential import Watched, claimed_contrast, watch
from flipmeter.measure.statistics.formulas import (
    clopper_upper,
    cochran_q,
    holm,
    mcnemar,
    mcnemar_counts,
    paper_round,
    wilson,
)
from flipmeter.measure.statistics.multiplicity import adjusted, benjamini_hochberg
from flipmeter.measure.statistics.paired import tango

__all__ = [
    "ASPECTS",
    "METRICS",
    "PROMPT_FACTORS",
    "Abstention",
    "Certificate",
    "Choice",
    "Claim",
    "Field",
    "Held",
    "HeldOut",
    "Limit",
    "NoiseTest",
    "Performance",
    "Proposal",
    "Standing",
    "Verdict",
    "Watched",
    "abstention_curve",
    "additive",
    "adjusted",
    "agreement",
    "anytime_interval",
    "benjamini_hochberg",
    "bowker",
    "certifiable_rate",
    "certificates",
    "certify",
    "certify_excess",
    "chi_square",
    "choose",
    "claimed_contrast",
    "clopper_upper",
    "cochran_q",
    "compare",
    "confidence_trend",
    "conformal_sets",
    "detectable_excess",
    "direction",
    "e_above",
    "e_below",
    "e_value",
    "effects",
    "entropies",
    "excess_disagreement",
    "excess_over_noise",
    "first_stop",
    "flip_matrix",
    "flip_rate",
    "flip_rate_any",
    "flips_by_confidence",
    "forecasts",
    "held_out",
    "hidden_tokens",
    "hold_difference",
    "hold_limits",
    "hold_mean",
    "hold_share",
    "holm",
    "items_for_excess",
    "items_needed",
    "krippendorff_alpha",
    "margins",
    "mcnemar",
    "mcnemar_counts",
    "measure",
    "measure_aspects",
    "noise_floor",
    "noise_warnings",
    "non_dominated",
    "objectives",
    "ordinal_scores",
    "paper_round",
    "performance",
    "phase0_table",
    "propose",
    "read_claim",
    "read_field",
    "residual",
    "residuals",
    "select_greedy",
    "severity",
    "slot_preference",
    "standings",
    "stuart_maxwell",
    "tango",
    "total_vs_noise",
    "transfer",
    "verdict",
    "verdicts",
    "vote_probabilities",
    "watch",
    "wilcoxon",
    "wilson",
    "worst_case",
]
