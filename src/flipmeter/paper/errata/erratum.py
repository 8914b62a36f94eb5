"""An error of the paper: its rule, what the rule says of an honest rater, and the right rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from flipmeter.paper.bench import Bench
from flipmeter.registry import Registry

Unit = Literal["points", "share", "p", "plain"]
FORMATS: dict[Unit, str] = {"points": "{:+.1f} pts", "share": "{:.1%}", "p": "{:.3f}"}


@dataclass(frozen=True)
class ErratumRow:
    """One number three times: as printed, of an honest rater by the same rule, by the right rule.

    A text stands for itself; the unit says how a number is shown.
    """

    what: str
    paper: str
    honest: float | str
    right: float | str
    unit: Unit = field(default="points", kw_only=True)

    def texts(self) -> tuple[str, str, str, str]:
        """The cells as people read them."""
        return self.what, self.paper, self._text(self.honest), self._text(self.right)

    def _text(self, value: float | str) -> str:
        if isinstance(value, str):
            return value
        return FORMATS.get(self.unit, "{:g}").format(value + 0.0)


Rows = Sequence[ErratumRow]


@dataclass(frozen=True)
class Erratum:
    """One error: where it stands, the rule that the paper follows, the right one, and its study."""

    title: str
    where: str
    rule: str
    remedy: str
    study: Callable[[Bench], Rows]


@dataclass(frozen=True)
class ShownErratum:
    """An erratum with the rows that its study gave."""

    name: str
    erratum: Erratum
    rows: tuple[ErratumRow, ...]

    def record(self) -> dict[str, Any]:
        """The content for a machine."""
        about = self.erratum
        texts = {"title": about.title, "where": about.where, "rule": about.rule}
        rows = [asdict(row) for row in self.rows]
        return {"name": self.name, **texts, "remedy": about.remedy, "rows": rows}


errata: Registry[Erratum] = Registry("erratum")
PAPER_ORDER = (
    *("zero-intervals", "halved-mcnemar", "word-labels", "only-intervention", "sd-over-what"),
    *("weighted-sum-bins", "mean-score", "first-seen-majority", "bradley-terry-star"),
    *("structural-p3", "listwise-compare-ensemble", "half-up", "pride-two-orders"),
    "accuracy-optimal",
)
"""The errata in the order in which a reader of the paper meets them."""


def erratum(
    name: str, *, title: str, where: str, rule: str, remedy: str
) -> Callable[[Callable[[Bench], Rows]], Callable[[Bench], Rows]]:
    """Register the study that shows an error."""

    def add(study: Callable[[Bench], Rows]) -> Callable[[Bench], Rows]:
        errata.add(name, Erratum(title, where, rule, remedy, study))
        return study

    return add


def shown_errata(names: Sequence[str] = ()) -> Iterator[ShownErratum]:
    """Run the study of each erratum, all of them unless named."""
    with Bench() as bench:
        for name in names or PAPER_ORDER:
            found = errata[name]
            yield ShownErratum(name, found, tuple(found.study(bench)))
