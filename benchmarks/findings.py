"""Write the tables of docs/findings.md from run folders.

    python benchmarks/findings.py [--claims PHASE[:CLAIM]=RUN[,RUN] ...]
        [--levels RUN ...] [--fronts RUN ...] [--unseen RUN SEEN] [--write]

`--claims` decides the paper's claims on runs of its phases (with two of a phase, for both
models and from one to the other), `--levels` shows what prompt factors
and pipelines change, `--fronts` compares raters with the plain prompt with words and says which to
use within 1, 4, 8 and 16 calls an item, `--unseen` does so on items that were not in the run in
which the choice was made. Every number is one of the run's own estimates, verdicts or
residuals. `--write` puts each table between its marks on the page; the rest of the page is prose.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from flipmeter import Run
from flipmeter.errors import Problem
from flipmeter.paper.answer import PaperAnswer, chosen_claims
from flipmeter.paper.answer_page import words_markdown
from flipmeter.paper.claims import paper_claims
from flipmeter.paper.evidence import PHASES, Phase, PhaseRuns
from flipmeter.show.table import markdown_table
from flipmeter.stats.bounds import side_of_zero
from flipmeter.stats.residuals import residuals

PAGE = Path(__file__).parents[1] / "docs" / "findings.md"
BUDGETS = (1, 4, 8, 16)
WORDS = {"": "words", "pipeline=pointwise+batch": "words, batch calibration"}
RULED_OUT = "by construction"
Record = dict[str, Any]


# --- the paper's claims -------------------------------------------------------------------------


def claims_tables(named: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The word of every claim by rater, and the data and numbers behind each word.

    PHASE:CLAIM=RUN asks one claim on other data, for the second table alone.
    """
    whole: dict[Phase, Run] = {}
    others: list[PaperAnswer] = []
    for text in named:
        where, _, folders = text.partition("=")
        phase, _, claim = where.partition(":")
        if phase not in PHASES:
            raise Problem(f"--claims {text}: write PHASE=RUN; phases are {', '.join(PHASES)}")
        run = Run(*folders.split(","))
        if claim:
            others.append(PaperAnswer(PhaseRuns({phase: run}), chosen_claims([claim])))
        else:
            whole[phase] = run
    first = PaperAnswer(PhaseRuns(whole), chosen_claims([]))
    yield "claims", words_markdown(first)
    yield "reasons", reasons_table([first, *others])


def reasons_table(answers: Sequence[PaperAnswer]) -> str:
    """The data and the numbers behind every word."""
    rows = [["claim", "data", "here", "because"]]
    for answer in answers:
        runs = answer.evidence.runs
        for name, rater, decided in answer.decided:
            run = runs.get(paper_claims[name].phase)
            about = _about(run, rater) if isinstance(run, Run) else ""
            rows.append([name, about, decided.told, decided.reason])
    return markdown_table(rows)


# --- what levels change -------------------------------------------------------------------------


def levels_table(run: Run) -> str:
    """Accuracy and flip rates of the base, and what each level changes in them."""
    calls, accuracies = _calls(run), _base_accuracy(run)
    base = {row["contrast"]: row for row in run.verdicts.filter(level="").to_dicts()}
    first = next(iter(base))
    rows = [["level", "accuracy", *base, f"readable pairs of {first}", "calls"]]
    rates = [_rate(row) for row in base.values()]
    rows.append(["base", _share(accuracies[""]), *rates, str(base[first]["n_pairs"]), calls[""]])
    changes = run.residuals().filter(dataset="")
    for factor, level in changes.select("factor", "level").unique(maintain_order=True).iter_rows():
        mine = changes.filter(factor=factor, level=level)
        found = run.verdicts.filter(level=f"{factor}={level}", contrast=first).to_dicts()
        pairs = str(found[0]["n_pairs"]) if found else ""
        cells = [_change(mine.filter(metric=metric)) for metric in ("accuracy", *base)]
        rows.append([f"{factor}: {level}", *cells, pairs, calls.get(f"{factor}={level}", "")])
    return markdown_table(rows)


# --- raters at equal cost -----------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A rater of a front: what it costs, how good it is, and how it differs from plain words."""

    name: str
    calls: float
    tokens: float
    accuracy: Record
    macro_f1: float | None
    mae: float | None
    worst: float | None
    flips: dict[str, str]
    change: str
    side: str
    is_ruled_out: bool


def contenders(run: Run) -> Iterator[Contender]:
    """Every level of a run, the plain prompt first."""
    scores = run.estimates.filter(policy="complete", view="base")
    worst = run.aspects("worst").filter(metric="worst_accuracy", view="P1")
    changes = run.residuals().filter(dataset="", metric="accuracy").with_columns(side_of_zero())
    accuracies, costs = _base_accuracy(run), _costs(run)
    for level in run.decisions["level"].unique(maintain_order=True).to_list():
        mine = scores.filter(level=level)
        rows = run.verdicts.filter(level=level).to_dicts()
        factor, _, value = level.partition("=")
        change = changes.filter(factor=factor, level=value)
        floor = worst.filter(level=level)["value"].to_list()
        is_ruled_out = any(r["contrast"] == "P1" and r["status"] == RULED_OUT for r in rows)
        yield Contender(
            name=WORDS.get(level, value),
            calls=costs[level][0],
            tokens=costs[level][1],
            accuracy=accuracies[level],
            macro_f1=_one(mine, "macro_f1"),
            mae=_one(mine, "mae"),
            worst=accuracies[level]["value"] if is_ruled_out else next(iter(floor), None),
            flips={row["contrast"]: _rate(row) for row in rows},
            change=_change(change) if level else "",
            side=change["literal"][0] if level and len(change) else "",
            is_ruled_out=is_ruled_out,
        )


def front_table(run: Run) -> str:
    """All raters of a run, with what they cost."""
    found = list(contenders(run))
    contrasts = list(dict.fromkeys(name for one in found for name in one.flips))
    heads = ["rater", "calls", "tokens", "accuracy [95 %]", "minus words, points [95 %]"]
    rows = [[*heads, "macro F1", "MAE", "worst view", *contrasts]]
    for one in found:
        numbers = [_number(one.macro_f1), _number(one.mae), _number(one.worst)]
        cost = [f"{one.calls:.0f}", f"{one.tokens:.0f}"]
        flips = [one.flips.get(name, "") for name in contrasts]
        rows.append([one.name, *cost, _share(one.accuracy), one.change, *numbers, *flips])
    return markdown_table(rows)


def advice_table(runs: Sequence[Run]) -> str:
    """The most accurate rater within each number of calls, with and without flips ruled out."""
    rows = [["data", "calls at most", "most accurate", "minus words", "of those that cannot flip"]]
    for run in runs:
        found = list(contenders(run))
        for told, budgets in groupby(BUDGETS, partial(_advice, found)):
            rows.append([_about(run), ", ".join(map(str, budgets)), *told])
    return markdown_table(rows)


def _advice(found: Sequence[Contender], budget: int) -> tuple[str, str, str]:
    within = [one for one in found if one.calls <= budget]
    best = max(within, key=_rank)
    proof = max((one for one in within if one.is_ruled_out), key=_rank, default=None)
    plain = f"{best.change}, {best.side}" if best.side else "is words"
    return best.name, plain, f"{proof.name}: {proof.change}, {proof.side}" if proof else "none"


def unseen_table(run: Run, seen: Run) -> str:
    """Changes by level, on the items that another run did not have."""
    known = seen.decisions["item"].unique()
    fresh = run.decisions.filter(~pl.col("item").is_in(known.implode()))
    changes = residuals(fresh, run.contrasts, mode=run.study.mode).filter(dataset="")
    rows = [["rater", "accuracy", "minus words, points [95 %]", "P1 minus words", "items"]]
    base = fresh.filter(view="base", repeat=0)
    for level in base["level"].unique(maintain_order=True).to_list():
        mine = base.filter(level=level)
        factor, _, value = level.partition("=")
        change = changes.filter(factor=factor, level=value)
        moved = [_change(change.filter(metric=metric)) for metric in ("accuracy", "P1")]
        right = sum(mine["rank"] == mine["gold"]) / len(mine)
        rows.append([WORDS.get(level, value), f"{right:.2f}", *moved, str(len(mine))])
    return markdown_table(rows)


def _rank(one: Contender) -> tuple[float, float]:
    return one.accuracy["value"], -one.calls


# --- cells --------------------------------------------------------------------------------------


def _about(run: Run, rater: str = "") -> str:
    base = run.decisions.filter(level="")
    base = base.filter(rater=rater) if rater else base
    raters, data = (
        ", ".join(base[name].unique(maintain_order=True)) for name in ("rater", "dataset")
    )
    n_items, n_classes = base["item"].n_unique(), max(base["n_classes"].to_list())
    shots = run.study.base.get("shots", 5)
    shown = f"{n_classes} classes, {shots} demonstration{'s' * (shots != 1)} of each"
    return f"{raters}, {data.partition('/')[0]}, {shown}, {n_items} items"


def _base_accuracy(run: Run) -> dict[str, Record]:
    rows = run.estimates.filter(metric="accuracy", view="base", policy="complete")
    return {row["level"]: row for row in rows.to_dicts()}


def _costs(run: Run) -> dict[str, tuple[float, float]]:
    """Calls and prompt tokens of an item by level, under the base view.

    Requests that all items share, as those of a calibration, count for each with its part.
    """
    base = run.decisions.filter(view="base", repeat=0)
    tokens = pl.col("prompt_tokens") + pl.col("shared_prompt_tokens").fill_null(0) / pl.len()
    each = base.group_by("level").agg(pl.col("n_calls").mean(), tokens.mean().alias("tokens"))
    return {level: (calls, many) for level, calls, many in each.iter_rows()}


def _calls(run: Run) -> dict[str, str]:
    return {level: f"{calls:.0f}" for level, (calls, _) in _costs(run).items()}


def _one(rows: pl.DataFrame, metric: str) -> float | None:
    found = rows.filter(metric=metric)["value"].to_list()
    return found[0] if found else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _share(row: Record) -> str:
    if row["low"] is None:
        return f"{row['value']:.2f}"
    return f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def _rate(row: Record) -> str:
    """A flip rate in percent; one that is ruled out, or that does not exist, in words."""
    if row["status"] == RULED_OUT:
        return "0 by construction"
    if row["value"] is None:
        return ""
    low, high = (f"{100 * row[end]:.0f}" for end in ("low", "high"))
    return f"{100 * row['value']:.0f} % [{low}, {high}]"


def _change(rows: pl.DataFrame) -> str:
    """A difference from the base in points."""
    found = rows.to_dicts()
    if not found or found[0]["value"] is None:
        return ""
    row = found[0]
    ends = "" if row["low"] is None else f" [{row['low']:+.0f}, {row['high']:+.0f}]"
    return f"{row['value']:+.0f}{ends}"


# --- the page -----------------------------------------------------------------------------------


def marks(name: str) -> tuple[str, str]:
    return f"<!-- findings: {name} -->", f"<!-- end of {name} -->"


def put(page: str, name: str, text: str) -> str:
    """The page with a table between its marks."""
    start, end = marks(name)
    if start not in page:
        raise Problem(f"{PAGE.name} has no place for '{name}': add the lines {start} and {end}")
    before, rest = page.split(start)
    _, after = rest.split(end)
    return f"{before}{start}\n{text}\n{end}{after}"


def tables(asked: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if asked.claims:
        yield from claims_tables(asked.claims)
    for folder in asked.levels:
        run = Run(folder)
        yield Path(folder).name, f"{_about(run)}\n\n{levels_table(run)}"
    for folder in asked.fronts:
        run = Run(folder)
        yield Path(folder).name, f"{_about(run)}\n\n{front_table(run)}"
    if asked.fronts:
        yield "advice", advice_table([Run(folder) for folder in asked.fronts])
    if asked.unseen:
        run, seen = map(Run, asked.unseen)
        yield Path(asked.unseen[0]).name, unseen_table(run, seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--claims", nargs="*", default=[], metavar="PHASE[:CLAIM]=RUN[,RUN]")
    parser.add_argument("--levels", nargs="*", default=[], metavar="RUN")
    parser.add_argument("--fronts", nargs="*", default=[], metavar="RUN")
    parser.add_argument("--unseen", nargs=2, metavar=("RUN", "SEEN"))
    parser.add_argument("--write", action="store_true", help="put the tables into the docs")
    asked = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8") if asked.write else ""
    for name, text in tables(asked):
        print(f"{name}\n\n{text}\n")
        page = put(page, name, text) if asked.write else page
    if asked.write:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
