"""Errors of the paper, each shown on raters that are known to be honest."""

from flipmeter.paper.errata.erratum import Erratum, ErratumRow, ShownErratum, errata, shown_errata

__all__ = ["Erratum", "ErratumRow", "ShownErratum", "errata", "shown_errata"]
