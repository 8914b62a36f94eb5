"""Levels -> cells: which combinations of factor levels a study asks, and what they can tell."""

from flipmeter.design.cells import (
    Allowed,
    Cell,
    Levels,
    cell_name,
    is_one_at_a_time,
    levels_of,
    parse_cell,
)
from flipmeter.design.designs import default_runs, factorial, fractional, one_at_a_time
from flipmeter.design.quality import Quality, Standing, assess

__all__ = [
    "Allowed",
    "Cell",
    "Levels",
    "Quality",
    "Standing",
    "assess",
    "cell_name",
    "default_runs",
    "factorial",
    "fractional",
    "is_one_at_a_time",
    "levels_of",
    "one_at_a_time",
    "parse_cell",
]
