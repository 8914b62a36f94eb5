"""Text -> number, as people and models write it: 7.5, 7,5, -1e-3, 1,000."""

from __future__ import annotations

import math
import re

NUMBER = r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
"""A decimal number; a comma before three digits parts thousands, any other is a decimal comma."""

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")
_WHOLE = re.compile(NUMBER)


def read_number(value: object) -> float | None:
    """The finite number that a value is or says, None for anything else."""
    if isinstance(value, str):
        text = value.strip().replace("\u2212", "-")
        if not _WHOLE.fullmatch(text):
            return None
        value = float(_THOUSANDS.sub("", text).replace(",", "."))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
