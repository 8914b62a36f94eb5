"""Errors of the paper, each shown on raters that are known to be honest."""

from flipmeter.paper.errata import (  # noqa: F401 - each adds its errata
    aggregation_rules,
    config_choice,
    ensembling,
    noise_intervals,
    significance_tests,
    slot_priors,
    spreads,
    structural_zeros,
    word_labels,
)
from flipmeter.paper.errata.erratum import Erratum, ErratumRow, ShownErratum, errata, shown_errata

__all__ = ["Erratum", "ErratumRow", "ShownErratum", "errata", "shown_errata"]
