"""Estimate -> page, tables: numbers for people, never without their interval."""

from flipmeter.report.differ import side_by_side
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
    "failures_line",
    "flip_table",
    "performance_table",
    "phase0_view",
    "side_by_side",
    "tokens_table",
    "verdict_lines",
    "warned",
]
