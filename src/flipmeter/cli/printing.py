"""Warnings and notes printed with every table of a run."""

from __future__ import annotations

from typing import Any

from flipmeter.api import Run
from flipmeter.report.estimate_tables import shared_warnings


def heading(done: Run) -> dict[str, Any]:
    """Study, mode and warnings: the head of every JSON document about a run."""
    return {"study": done.study.name, "mode": done.study.mode, "warnings": done.warnings}


def warning_lines(done: Run) -> list[str]:
    """The warnings of a run, each once, with its raters."""
    return [f"! {names}: {text}" for names, text in shared_warnings(done.source.remarks).items()]
