"""Decision -> Estimate: flip rates, performance and what they are sure of."""

from flipmeter.measure.additive import additive, forecasts
from flipmeter.measure.flips import (
    NoiseTest,
    excess_disagreement,
    flip_rate,
    flip_rate_any,
    noise_floor,
    total_vs_noise,
)
from flipmeter.measure.greedy import PROMPT_FACTORS, Choice, objectives, select_greedy
from flipmeter.measure.inference import (
    clopper_upper,
    cochran_q,
    holm,
    mcnemar,
    mcnemar_counts,
    paper_round,
    wilson,
)
from flipmeter.measure.interactions import effects
from flipmeter.measure.judge import Verdict, verdict, verdicts
from flipmeter.measure.phase0 import phase0_table
from flipmeter.measure.residuals import residual, residuals, transfer
from flipmeter.measure.scores import Performance, performance
from flipmeter.measure.table import measure
from flipmeter.measure.tokens import hidden_tokens

__all__ = [
    "PROMPT_FACTORS",
    "Choice",
    "NoiseTest",
    "Performance",
    "Verdict",
    "additive",
    "clopper_upper",
    "cochran_q",
    "effects",
    "excess_disagreement",
    "flip_rate",
    "flip_rate_any",
    "forecasts",
    "hidden_tokens",
    "holm",
    "mcnemar",
    "mcnemar_counts",
    "measure",
    "noise_floor",
    "objectives",
    "paper_round",
    "performance",
    "phase0_table",
    "residual",
    "residuals",
    "select_greedy",
    "total_vs_noise",
    "transfer",
    "verdict",
    "verdicts",
    "wilson",
]
