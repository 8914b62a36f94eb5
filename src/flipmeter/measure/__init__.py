"""Decision -> Estimate: flip rates, performance and what they are sure of."""

from flipmeter.measure.aspects.aspects import ASPECTS, Aspect, measure_aspects
from flipmeter.measure.aspects.excess import noise_warnings
from flipmeter.measure.effects.compare import compare
from flipmeter.measure.effects.field import Field, read_field
from flipmeter.measure.effects.greedy import PROMPT_FACTORS, LevelChoice, objectives, select_greedy
from flipmeter.measure.effects.held_out import HeldOut, held_out
from flipmeter.measure.effects.interactions import interactions
from flipmeter.measure.effects.pareto import Standing, standings
from flipmeter.measure.effects.residuals import absolutes, residuals, transfer
from flipmeter.measure.estimates.flips import flip_rate
from flipmeter.measure.estimates.long_table import rows_of
from flipmeter.measure.estimates.phase0 import phase0_table
from flipmeter.measure.estimates.table import measure
from flipmeter.measure.inference import Finding, Verdict, verdict
from flipmeter.measure.inference.claims import Claim, certify, claimed, read_claim
from flipmeter.measure.inference.headlines import headlines, worst_first
from flipmeter.measure.inference.judge import judge, verdicts
from flipmeter.measure.inference.limits import GateLimit, Limit, gate_limits, hold_limits
from flipmeter.measure.inference.sequential.boundaries import looks_of
from flipmeter.measure.inference.sequential.power import (
    PowerPlan,
    plan_power,
    refuse_unreachable,
)
from flipmeter.measure.inference.sequential.watch import Watch, Watched
from flipmeter.measure.panel.panel import Panel, compared
from flipmeter.measure.panel.reading import Panels, Parts
from flipmeter.measure.statistics.formulas import mcnemar, wilson

__all__ = [
    "ASPECTS",
    "PROMPT_FACTORS",
    "Aspect",
    "Claim",
    "Field",
    "Finding",
    "GateLimit",
    "HeldOut",
    "LevelChoice",
    "Limit",
    "Panel",
    "Panels",
    "Parts",
    "PowerPlan",
    "Standing",
    "Verdict",
    "Watch",
    "Watched",
    "absolutes",
    "certify",
    "claimed",
    "compare",
    "compared",
    "flip_rate",
    "gate_limits",
    "headlines",
    "held_out",
    "hold_limits",
    "interactions",
    "judge",
    "looks_of",
    "mcnemar",
    "measure",
    "measure_aspects",
    "noise_warnings",
    "objectives",
    "phase0_table",
    "plan_power",
    "read_claim",
    "read_field",
    "refuse_unreachable",
    "residuals",
    "rows_of",
    "select_greedy",
    "standings",
    "transfer",
    "verdict",
    "verdicts",
    "wilson",
    "worst_first",
]
