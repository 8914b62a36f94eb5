"""Numbers as people read them: the one place that writes percentages, intervals, p-values, counts.

    percent(0.21)            "21.0 %"          short_percent(0.21)   "21"
    interval(row)            "21.0 % [16.2, 26.9]", of one estimate or of a row's columns
    bounds(0.5, 0.4, 0.6)    "0.500 [0.400, 0.600]"
    points(2.2)              "+2.2"            plain_points(2.2)     "2.2"
    number(0.5)              "0.500"           count(1200)           "1,200"
    p_value(0.0001)          "< 0.001"         dollars(0.004)        "< $0.01"
    counted(2, "row")        "2 rows"

None and NaN are "" everywhere: what was not measured has no number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

Record = Mapping[str, Any]
SHARE, NUMBER, WHOLE = ".1f", ".3f", ".0f"
"""The digits of a share in percent, of another number, and of one that is whole."""
CENT = 0.01

# Marks that turn or hide text, and what cannot be in a page at all, are shown as their code points.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ue000-\uf8ff\ufdd0-\ufdef\ufeff\ufff9-\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """A text with control and direction marks made visible, as ‹U+202E›."""
    return HIDDEN.sub(lambda found: f"‹U+{ord(found[0]):04X}›", text.replace("\r\n", "\n"))


def is_known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number: neither None nor NaN."""
    return value is not None and value == value


def percent(share: float | None, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %" if is_known(share) else ""


def whole_percent(share: float) -> str:
    """A limit or a level, with the digits that it has: "5 %", "2.5 %"."""
    return f"{100 * share:g} %"


def short_percent(share: float) -> str:
    """Whole percents, with a digit more where that would read as none or as all."""
    is_edge = 0 < share < 0.01 or 0.99 < share < 1
    return f"{100 * share:.{1 if is_edge else 0}f}"


def number(value: float | None, form: str = NUMBER) -> str:
    return f"{value:{form}}" if is_known(value) else ""


def count(n: int | None) -> str:
    return "" if n is None else f"{n:,}"


def counted(n: int, noun: str) -> str:
    """ "1 row", "2 rows"."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def bounds(
    value: float | None, low: float | None, high: float | None, form: str = NUMBER, unit: str = ""
) -> str:
    """A number with its interval, if it has one."""
    told = f"{value:{form}}{unit}" if is_known(value) else ""
    if not told or not is_known(low) or not is_known(high):
        return told
    return f"{told} [{low:{form}}, {high:{form}}]"


def interval(
    row: Record, of: str = "", *, is_percent: bool = True, form: str = "", absent: str = ""
) -> str:
    """The interval of a row: of `value`, or of another column with its `_low` and `_high`.

    Without a number it is `absent`, or the row's note.
    """
    names = (of, f"{of}_low", f"{of}_high") if of else ("value", "low", "high")
    value, low, high = (row[name] for name in names)
    if not is_known(value):
        return absent or str(row.get("note") or "undefined")
    if not is_percent:
        return bounds(value, low, high, form or NUMBER)
    low, high = (None if end is None else 100 * end for end in (low, high))
    return bounds(100 * value, low, high, form or SHARE, " %")


def points(value: float) -> str:
    """ "+2.2", and never "-0.0"."""
    return f"{round(value, 1) + 0.0:+.1f}"


def plain_points(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}"


def points_between(value: float, low: float | None, high: float | None, gap: str = " ") -> str:
    """Points with their interval, whose ends have a sign only where they are negative."""
    if low is None or high is None:
        return points(value)
    return f"{points(value)}{gap}[{plain_points(low)}, {plain_points(high)}]"


def p_value(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def dollars(amount: float) -> str:
    if 0 < amount < CENT:
        return "< $0.01"
    return f"${amount:,.2f}" if amount else "$0"
