"""What every table of a run is printed with."""

from __future__ import annotations

from typing import Any

from flipmeter.api import Run


def heading(done: Run) -> dict[str, Any]:
    """What a machine must know of every table of a run."""
    return {"study": done.study.name, "mode": done.study.mode, "warnings": done.warnings}


def warning_lines(done: Run) -> list[str]:
    return [f"! {rater}: {warning}" for rater, warning in done.warnings.items()]
