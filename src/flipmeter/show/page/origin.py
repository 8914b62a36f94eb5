"""Findings -> what it took: faults, tokens, cost, datasets; two runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from flipmeter.show.estimate_tables import KEYS
from flipmeter.show.findings import Findings
from flipmeter.show.format import Record, percent
from flipmeter.show.page.markup import (
    MOST_ROWS,
    beside,
    count,
    counts,
    keyed,
    numbers,
    p_values,
    page_table,
    texts,
)
from flipmeter.show.residuals import metric_title
from flipmeter.show.table import Cell, Column, Table
from flipmeter.types import FAULTS

TOKENS = {
    "prompt_tokens": "prompt",
    "cached_tokens": "cached",
    "completion_tokens": "completion",
    "reasoning_tokens": "reasoning",
}


def conditions_grid(found: Findings) -> Table:
    """Faults and tokens of every condition, those with most faults first where cut."""
    keys = [key for key in KEYS[:3] if found.tally[key].n_unique() > 1]
    kinds = [fault for fault in FAULTS if found.tally[fault].sum()]
    each = [_per_decision(name) for name in ("n_calls", *TOKENS, "seconds")]
    table = found.tally.group_by(*keys, "view", "repeat", maintain_order=True).agg(
        pl.col("n", *kinds).sum(), (pl.col("n_faults").sum() / pl.col("n").sum()), *each
    )
    if len(table) > MOST_ROWS:
        table = table.sort("n_faults", descending=True, maintain_order=True)
    told = [name for name in TOKENS if table[name].is_not_null().any()]
    columns = [
        Column("view", _view_cell),
        *keyed(keys),
        *map(counts, ("n", *kinds)),
        Column("faults", lambda row: Cell(percent(row["n_faults"]), row["n_faults"], "num")),
        numbers("n_calls", "calls", ",.2f"),
        *(numbers(name, TOKENS[name], ",.1f") for name in told),
        numbers("seconds", "seconds"),
    ]
    how = (
        "Calls to seconds: means per decision, tokens as the endpoint reports them, all seeds. "
        "Shared calls of a condition (calibration items, null texts) are spread over its items."
    )
    title, more = "Faults and tokens, condition by condition", "those with the most faults"
    more += "; decisions.parquet has all"
    return page_table(title, columns, table.to_dicts(), [how], more)


def _view_cell(row: Record) -> Cell:
    return Cell(row["view"] + (", again" if row["repeat"] else ""), row["view"])


def _per_decision(name: str) -> pl.Expr:
    """Calls, tokens or seconds per decision; null where nothing was reported."""
    mean = pl.col(name).sum() / pl.col("n").sum()
    return pl.when(pl.col(name).is_not_null().any()).then(mean).alias(name)


# --- what it ran on ---------------------------------------------------------------------------


def models_grid(found: Findings) -> Table:
    """The model of each rater, the length of its replies, and their cost."""
    totals = found.tally.group_by("rater", maintain_order=True).agg(
        pl.col("n_calls").sum(), *(pl.col(name).sum() for name in TOKENS)
    )
    identities = found.environment.get("models", {})
    columns = [
        texts("rater", "model"),
        Column(
            "identity and revision",
            lambda row: Cell(str(identities.get(row["rater"], "")), None, "code"),
        ),
        counts("n_calls", "calls"),
        *(counts(name, title) for name, title in TOKENS.items()),
        Column("hidden per reply", lambda row: _hidden_tokens_cell(found.estimates, row)),
        Column("cost", lambda row: _dollar_cell(found.costs, row)),
    ]
    how = (
        "Calls and tokens are sums over all decisions, shared calls of a condition included "
        "(calibration items, null texts): a reply shared by two conditions counts for both, and "
        "a stored reply counts as if it had been requested. Hidden tokens are means per reply. "
        "Cost is these tokens at the prices in the study, without a discount for cached tokens."
    )
    return Table.of("Models, tokens and cost", columns, totals.to_dicts(), notes=[how])


def _hidden_tokens_cell(estimates: pl.DataFrame, row: Record) -> Cell:
    own = estimates.filter(metric="hidden_tokens", rater=row["rater"]).drop_nulls("value")
    if own.is_empty():
        return Cell("not reported", None, "why")
    mean = float((own["value"] * own["n"]).sum()) / max(int(own["n"].sum()), 1)
    return beside(f"{mean:.1f}", str(own["note"][0]), mean)


def _dollar_cell(costs: Mapping[str, float], row: Record) -> Cell:
    usd = costs.get(row["rater"])
    if usd is None:
        return Cell("no price set", None, "why")
    return Cell(f"${usd:,.2f}" if usd >= 0.01 or not usd else "under $0.01", usd, "num")


def datasets_grid(found: Findings) -> Table:
    """The sources of the items."""

    def about(title: str, name: str, kind: str = "", longest: int | None = None) -> Column:
        return Column(title, lambda row: Cell(str(row.get(name, ""))[:longest], None, kind))

    datasets = found.environment.get("datasets", {}).items()
    columns = [
        texts("dataset"),
        Column("test items", lambda row: count(row.get("n_items"))),
        about("source", "source"),
        about("licence", "licence"),
        about("digest", "digest", "code", 16),
        Column("left out", _left_out),
    ]
    return Table.of("Datasets", columns, [{**about, "dataset": name} for name, about in datasets])


def _left_out(row: Record) -> str:
    return "; ".join(f"{n} {why}" for why, n in row.get("left_out", {}).items()) or "none"


COMPARED_BY = ("rater", "level", "dataset")


def comparison_grid(comparison: pl.DataFrame) -> Table:
    """Every difference in points; columns with one value for all rows are left out."""
    columns = [
        Column("metric", lambda row: Cell(metric_title(row["metric"]), row["metric"])),
        *keyed(
            [key for key in COMPARED_BY if comparison[key].n_unique() > 1],
            {"dataset": "all", "level": "base"},
        ),
        Column("difference [95 %]", _difference_cell),
        counts("b", "only 2nd"),
        counts("c", "only 1st"),
        p_values("p", "p, McNemar"),
        p_values("p_holm", "Holm"),
        p_values("p_bh", "BH"),
        counts("n"),
        Column("reading", _reading_cell),
    ]
    how = (
        "Points: the second run minus the first, on the items that both have. Bootstrap over "
        "items, 95 %, given the datasets and seeds. The verdict follows the interval. 'Only' "
        "counts items that only one run gets right, or flips; p is McNemar's, two-sided mid-p, "
        "where there is one seed, followed by the p-values of Holm and of Benjamini and Hochberg."
    )
    title, kind = "The second run minus the first, x 100", "plain differences"
    more = "flipmeter compare FIRST SECOND --csv"
    return page_table(title, columns, comparison.to_dicts(), [how], more, kind=kind)


def _difference_cell(row: Record) -> Cell:
    if row["value"] is None:
        return Cell("", None, "num")
    ends = "" if row["low"] is None else f" [{row['low']:+.1f}, {row['high']:+.1f}]"
    return Cell(f"{row['value']:+.1f}{ends}", row["value"], "num")


def _reading_cell(row: Record) -> Cell:
    if row["value"] is None:
        return Cell(row["note"] or row["word"], row["word"], "why")
    is_told = row["word"] != "not distinguishable"
    return Cell(row["word"], row["word"], "word flips" if is_told else "why")
