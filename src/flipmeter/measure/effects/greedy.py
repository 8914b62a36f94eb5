"""Residuals -> LevelChoice: the best level of every factor, each chosen alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from flipmeter.measure.effects.baselines import CONTRASTS
from flipmeter.measure.panel.frame import quoted
from flipmeter.measure.statistics.means import SAME
from flipmeter.registry import suggestion
from flipmeter.types import Problem, Style

PROMPT_FACTORS = ("label_format", "shots", "clarity", "separator", "connector", "mood")
"""The factors of a prompt; fewer classes or another model would win every time."""

BETTER_UP = ("accuracy", "macro_f1", "spearman")
SHORT = {
    "acc": ("accuracy",),
    "f1": ("macro_f1",),
    "rho": ("spearman",),
    "mae": ("mae", "mae_normalised"),
}
"""The paper's names of metrics, and ours."""

NEEDED = ("factor", "level", "rater", "dataset", "metric", "value")
WARNING = (
    "every level was chosen alone: interactions are ignored, and the best of many is partly luck; "
    "run the config itself, on other items, before you rely on it"
)


@dataclass(frozen=True)
class LevelChoice:
    """The levels that improve a metric most, what each improves it by alone, and a warning."""

    metric: str
    baseline: Style
    levels: Mapping[str, Any] = field(hash=False)
    residuals: Mapping[str, float] = field(hash=False)
    warning: str = WARNING

    @property
    def style(self) -> Style:
        return replace(self.baseline, **self.levels)


def select_greedy(residuals: pl.DataFrame, *, baseline: Style, metric: str) -> LevelChoice:
    """Choose for each prompt factor the level with the best mean residual, or the base if none is.

    Best is lowest, and highest for accuracy, F1 and Spearman. The frame is that of `residuals`, of
    one rater; a level without a number is not chosen.
    """
    missing = [name for name in NEEDED if name not in residuals.columns]
    if missing:
        raise Problem(f"the residuals lack the columns {quoted(missing)}")
    metric = _known_metric(metric, residuals["metric"].unique(maintain_order=True).to_list())
    rows = residuals.filter(pl.col("factor").is_in(PROMPT_FACTORS), metric=metric, dataset="")
    if rows["rater"].n_unique() > 1:
        raters = quoted(rows["rater"].unique(maintain_order=True).to_list())
        raise Problem(f"the residuals are of {raters}; choose for one rater at a time")
    sign = -1 if metric in BETTER_UP else 1
    defined = rows.with_columns(pl.col("value").fill_nan(None)).drop_nulls("value")
    chosen: dict[str, str] = {}
    gained: dict[str, float] = {}
    for factor in PROMPT_FACTORS:
        levels = dict(defined.filter(factor=factor).select("level", "value").iter_rows())
        best = min(levels, key=lambda level: sign * levels[level], default=None)
        if best is not None and sign * levels[best] < -SAME:
            chosen[factor], gained[factor] = best, levels[best]
    levels = {name: int(best) if name == "shots" else best for name, best in chosen.items()}
    return LevelChoice(metric, baseline, levels, gained)


def objectives(residuals: pl.DataFrame) -> list[str]:
    """The metrics by which the paper chooses configs: accuracy, and every flip rate present."""
    names = residuals["metric"].unique(maintain_order=True).to_list()
    return [name for name in names if name == "accuracy" or name in CONTRASTS]


def _known_metric(name: str, known: list[str]) -> str:
    """A metric by its name, by the paper's short one, or in small letters."""
    small = name.casefold()
    wanted = SHORT.get(small, (small,))
    found = next((metric for metric in known if metric.casefold() in wanted), None)
    if found is None:
        raise Problem(f"no metric named '{name}'{suggestion(name, known)}")
    return found
