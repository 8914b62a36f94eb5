"""Estimate -> page, tables: numbers for people, never without their interval."""

from flipmeter.report.aspects import (
    aspect_notes,
    aspect_table,
    certificate_table,
    comparison_table,
)
from flipmeter.report.differ import side_by_side
from flipmeter.report.effects import CANNOT_SEE, effect_notes, effect_table, write_effects
from flipmeter.report.files import residuals_csv, write_residuals
from flipmeter.report.forecasts import forecast_notes, forecast_table
from flipmeter.report.residuals import residual_notes, residual_table
from flipmeter.report.tables import (
    accuracy_tests_table,
    failures_line,
    flip_table,
    performance_table,
    phase0_view,
    tokens_table,
    verdict_lines,
    warned,
)

__all__ = [
    "CANNOT_SEE",
    "accuracy_tests_table",
    "aspect_notes",
    "aspect_table",
    "certificate_table",
    "comparison_table",
    "effect_notes",
    "effect_table",
    "failures_line",
    "flip_table",
    "forecast_notes",
    "forecast_table",
    "performance_table",
    "phase0_view",
    "residual_notes",
    "residual_table",
    "residuals_csv",
    "side_by_side",
    "tokens_table",
    "verdict_lines",
    "warned",
    "write_effects",
    "write_residuals",
]
