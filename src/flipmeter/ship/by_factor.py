"""Run -> the best level of every prompt factor, each chosen alone, as configs of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import yaml

from flipmeter.measure import PROMPT_FACTORS, LevelChoice, objectives, residuals, select_greedy
from flipmeter.registry import suggestion
from flipmeter.run.record.folder import Run
from flipmeter.types import Problem

Choices = Mapping[str, Sequence[LevelChoice]]


def select_by_factor(
    run: Run, by: str | None = None, *, rater: str | None = None
) -> dict[str, tuple[LevelChoice, ...]]:
    """Choose levels for every rater, or for the one that is named."""
    raters = run.named("rater")
    if rater is not None and rater not in raters:
        raise Problem(f"no model named '{rater}' in this run{suggestion(rater, raters)}")
    found = {name: levels_of_rater(run, name, by) for name in ([rater] if rater else raters)}
    chosen = {name: choices for name, choices in found.items() if choices}
    if not chosen:
        raise Problem("no prompt factor was varied alone in this run; add levels under `vary:`")
    return chosen


def levels_of_rater(run: Run, rater: str, by: str | None = None) -> tuple[LevelChoice, ...]:
    """Choose by one metric, or by accuracy and each flip rate; empty if no factor was varied."""
    if run.tally.filter(rater=rater)["level"].n_unique() < 2:
        return ()
    own = run.parts.decisions.filter(rater=rater)
    table = residuals(own, run.contrasts, mode=run.study.mode)
    varied = table.filter(pl.col("factor").is_in(PROMPT_FACTORS))
    if varied.is_empty():
        return ()
    metrics = [by] if by else objectives(varied)
    return tuple(
        select_greedy(varied, baseline=run.study.style, metric=metric) for metric in metrics
    )


def configs_of(choices: Sequence[LevelChoice]) -> dict[str, dict[str, object]]:
    """The chosen levels as configs of a study, by name."""
    return {f"greedy-{one.metric}": dict(one.levels) for one in choices if one.levels}


def configs_yaml(choices: Choices) -> str:
    """Choices as YAML to paste into a study, one document per rater."""
    documents = []
    for rater, chosen in choices.items():
        lines = [f"# chosen on {' '.join(rater.split())}; {chosen[0].warning}"]
        for choice in chosen:
            gains = (
                f"{factor}={choice.levels[factor]} {points:+.1f}"
                for factor, points in choice.residuals.items()
            )
            told = ", ".join(gains) or "no level is better than the base"
            lines.append(f"# {choice.metric}: {told}")
        lines.append(yaml.safe_dump({"configs": configs_of(chosen)}, sort_keys=False).rstrip())
        documents.append("\n".join(lines))
    return "\n---\n".join(documents) + "\n"
