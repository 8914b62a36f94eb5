"""Estimate -> page, tables: numbers for people, never without their interval."""

from flipmeter.report.aspects import (
    aspect_notes,
    aspect_table,
    certificate_table,
    comparison_table,
)
from flipmeter.report.differ import side_by_side
from flipmeter.report.files import residuals_csv, write_residuals
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
    "accuracy_tests_table",
    "aspect_notes",
    "aspect_table",
    "certificate_table",
    "comparison_table",
    "failures_line",
    "flip_table",
    "performance_table",
    "phase0_view",
    "residual_notes",
    "residual_table",
    "residuals_csv",
    "side_by_side",
    "tokens_table",
    "verdict_lines",
    "warned",
    "write_residuals",
]
