"""Findings -> what it took: faults and tokens, models and their cost, datasets."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from markupsafe import Markup

from flipmeter.report.estimate_tables import KEYS
from flipmeter.report.findings import Findings
from flipmeter.report.page.markup import (
    MOST_ROWS,
    Cell,
    Grid,
    RowGroup,
    capped,
    count,
    heads,
    number,
)
from flipmeter.types import FAULTS

TOKENS = {
    "prompt_tokens": "prompt",
    "cached_tokens": "cached",
    "completion_tokens": "completion",
    "reasoning_tokens": "reasoning",
}


def conditions_grid(found: Findings) -> Grid:
    """Faults and tokens of every condition, those with most faults first where cut."""
    keys = [key for key in KEYS[:3] if found.tally[key].n_unique() > 1]
    kinds = [fault for fault in FAULTS if found.tally[fault].sum()]
    table = found.tally.group_by(*keys, "view", "repeat", maintain_order=True).agg(
        pl.col("n", *kinds).sum(),
        (pl.col("n_faults").sum() / pl.col("n").sum()).alias("share"),
    )
    table = table.join(
        _taken(found.tally, keys), on=[*keys, "view", "repeat"], maintain_order="left"
    )
    if len(table) > MOST_ROWS:
        table = table.sort("share", descending=True, maintain_order=True)
    told = [name for name in TOKENS if table[name].is_not_null().any()]
    rows = [
        [
            Cell(row["view"] + (", again" if row["repeat"] else ""), row["view"]),
            *(Cell(str(row[key]) or "base", row[key]) for key in keys),
            count(row["n"]),
            *(count(row[fault]) for fault in kinds),
            Cell(f"{100 * row['share']:.1f} %", row["share"], "num"),
            number(row["n_calls"], ",.2f"),
            *(number(row[name], ",.1f") for name in told),
            number(row["seconds"], ".3f"),
        ]
        for row in table.to_dicts()
    ]
    shown, left_out = capped(rows, "those with the most faults; decisions.parquet has all")
    tokens = [TOKENS[name] for name in told]
    titles = ["view", *heads(keys), "n", *kinds, "faults", "calls", *tokens, "seconds"]
    how = (
        "Calls to seconds: means per decision, tokens as the endpoint reports them, all seeds. "
        "Shared calls of a condition (calibration items, null texts) are spread over its items."
    )
    return Grid(
        "Faults and tokens, condition by condition", titles, [RowGroup(shown)], [how, *left_out]
    )


def _taken(tally: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Calls, tokens and seconds per decision; null where nothing was reported."""
    names = ("n_calls", *TOKENS, "seconds")
    each = [
        pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum() / pl.col("n").sum())
        for name in names
    ]
    return tally.group_by(*keys, "view", "repeat", maintain_order=True).agg(
        one.alias(name) for one, name in zip(each, names, strict=True)
    )


# --- what it ran on ---------------------------------------------------------------------------


def models_grid(found: Findings) -> Grid:
    """The model of each rater, the length of its replies, and their cost."""
    totals = found.tally.group_by("rater", maintain_order=True).agg(
        pl.col("n_calls").sum(), *(pl.col(name).sum() for name in TOKENS)
    )
    identities = found.environment.get("models", {})
    hidden = _hidden(found.estimates)
    rows = [
        [
            Cell(row["rater"], row["rater"]),
            Cell(str(identities.get(row["rater"], "")), None, "code"),
            count(row["n_calls"]),
            *(count(row[name]) for name in TOKENS),
            hidden.get(row["rater"], Cell("not reported", None, "why")),
            _cost(found.costs.get(row["rater"])),
        ]
        for row in totals.to_dicts()
    ]
    titles = ["model", "identity and revision", "calls", *TOKENS.values()]
    how = (
        "Calls and tokens are sums over all decisions, shared calls of a condition included "
        "(calibration items, null texts): a reply shared by two conditions counts for both, and "
        "a stored reply counts as if it had been requested. Hidden tokens are means per reply. "
        "Cost is these tokens at the prices in the study, without a discount for cached tokens."
    )
    titles += ["hidden per reply", "cost"]
    return Grid("Models, tokens and cost", titles, [RowGroup(rows)], [how])


def _hidden(estimates: pl.DataFrame) -> dict[str, Cell]:
    rows = estimates.filter(metric="hidden_tokens").drop_nulls("value")
    found = {}
    for (rater,), group in rows.group_by("rater", maintain_order=True):
        mean = float((group["value"] * group["n"]).sum()) / max(int(group["n"].sum()), 1)
        note = str(group["note"][0])
        shown = Markup('{} <small class="ends">{}</small>').format(f"{mean:.1f}", note)
        found[str(rater)] = Cell(shown, mean, "num")
    return found


def _cost(usd: float | None) -> Cell:
    if usd is None:
        return Cell("no price set", None, "why")
    return Cell(f"${usd:,.2f}" if usd >= 0.01 or not usd else "under $0.01", usd, "num")


def datasets_grid(found: Findings) -> Grid:
    """The sources of the items."""
    rows = [
        [
            Cell(name, name),
            count(about.get("n_items")),
            Cell(str(about.get("source", ""))),
            Cell(str(about.get("licence", ""))),
            Cell(str(about.get("digest", ""))[:16], None, "code"),
            Cell("; ".join(f"{n} {why}" for why, n in about.get("left_out", {}).items()) or "none"),
        ]
        for name, about in found.environment.get("datasets", {}).items()
    ]
    titles = ["dataset", "test items", "source", "licence", "digest", "left out"]
    return Grid("Datasets", titles, [RowGroup(rows)])
