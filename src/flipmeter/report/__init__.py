"""Estimate -> page, tables: numbers for people, never without their interval."""

from flipmeter.report.aspects import (
    aspect_notes,
    aspect_table,
    certificate_table,
    comparison_table,
)
from flipmeter.report.differ import side_by_side
from flipmeter.report.effects import write_effects
from flipmeter.report.estimate_tables import (
    accuracy_tests_table,
    calls_table,
    failures_line,
    flip_table,
    performance_table,
    tokens_table,
    verdict_lines,
    warned,
)
from flipmeter.report.findings import Findings
from flipmeter.report.phase0_tables import phase0_view, write_phase0
from flipmeter.report.readings import reading_lines
from flipmeter.report.residuals import residual_notes, residual_table
from flipmeter.report.screen import unmeasured_lines, verdict_table
from flipmeter.report.section import Section, sections
from flipmeter.report.sentences import finding_lines
from flipmeter.report.table import safe_csv, write_table
from flipmeter.report.whole import check_ending, write_report

__all__ = [
    "Findings",
    "Section",
    "accuracy_tests_table",
    "aspect_notes",
    "aspect_table",
    "calls_table",
    "certificate_table",
    "check_ending",
    "comparison_table",
    "failures_line",
    "finding_lines",
    "flip_table",
    "performance_table",
    "phase0_view",
    "reading_lines",
    "residual_notes",
    "residual_table",
    "safe_csv",
    "sections",
    "side_by_side",
    "tokens_table",
    "unmeasured_lines",
    "verdict_lines",
    "verdict_table",
    "warned",
    "write_effects",
    "write_phase0",
    "write_report",
    "write_table",
]
