"""Every table of the paper in its form, with what was measured here in each cell."""

from __future__ import annotations

from collections.abc import Iterator

from flipmeter.paper.evidence import PhaseRuns
from flipmeter.paper.sheets.phase0_sheets import phase0_sheet, tokens_sheet
from flipmeter.paper.sheets.residual_sheets import (
    configs_sheet,
    factors_sheet,
    joint_sheet,
    pipelines_sheet,
    transfer_sheet,
)
from flipmeter.paper.sheets.sheet import Sheet, SheetCell, SheetRow

__all__ = ["Sheet", "SheetCell", "SheetRow", "all_sheets"]


def all_sheets(evidence: PhaseRuns) -> Iterator[Sheet]:
    """The paper's tables in its order; those about factors once for each rater."""
    yield phase0_sheet(evidence)
    yield tokens_sheet(evidence)
    for rater in evidence.raters:
        yield factors_sheet(evidence, rater)
        yield configs_sheet(evidence, rater)
        yield pipelines_sheet(evidence, rater)
    yield joint_sheet(evidence)
    yield transfer_sheet(evidence)
