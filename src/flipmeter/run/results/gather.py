"""Run -> Findings: everything that a report of a run is made of, gathered once."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from flipmeter.base.files.parquet import collected
from flipmeter.measure import compare, headlines, phase0_table, residuals, worst_first
from flipmeter.measure.inference.significance import is_shown, side_of_zero
from flipmeter.report import failures_line
from flipmeter.report.findings import Findings
from flipmeter.report.format import interval
from flipmeter.report.headline import whose
from flipmeter.report.pairs import CONTRAST, OF_SCORES, count_pairs, flipped, numbered_pairs
from flipmeter.report.sentences import Sentence, verdict_sentences
from flipmeter.run.record.folder import Run
from flipmeter.run.record.rows import PLACE
from flipmeter.run.results.aspects import aspects_of
from flipmeter.run.results.changed_items import shared_contrasts
from flipmeter.run.results.drawn_items import report_grid
from flipmeter.run.results.flipped_items import flipped_items
from flipmeter.run.results.sliced import report_slices
from flipmeter.types import Problem


def gather(run: Run) -> Findings:
    """The content of a run's reports, from its folder alone."""
    found = gather_numbers(run)
    return replace(
        found,
        browser=flipped_items(found, run),
        grid=report_grid(found, run),
        slices=list(report_slices(found, run)),
    )


def gather_numbers(run: Run) -> Findings:
    """The content of a run's reports, without the flipped items."""
    study, decisions = run.study, run.parts.decisions
    aspects = _aspects(run)
    is_compared = len(run.named("rater")) > 1 or len(run.named("level")) > 1
    return Findings(
        name=study.name,
        mode=study.mode,
        margin=study.margin,
        contrasts=run.contrasts,
        scan=decisions.drop(PLACE),
        tally=run.tally,
        n_items=decisions.select(pl.col("item").n_unique()).pipe(collected, "streaming").item(),
        estimates=run.estimates,
        verdicts=worst_first(run.verdicts),
        pairs=count_pairs(run.parts, run.contrasts),
        phase0=phase0_table(run.estimates.filter(level="")),
        residuals=_residuals(run) if is_compared else None,
        sentences=sentences(run),
        words=headlines(run.verdicts, whose=whose(run.verdicts)),
        scales=run.scales,
        warnings=run.remarks,
        notes=notes(run),
        stopped=run.stopped,
        unrated=run.unrated,
        study=run.recipe,
        environment=run.environment,
        costs=costs(run),
        aspects=aspects,
        preferred=preferred_places(run, aspects.get("slots")),
    )


def beside_greedy(found: Findings, greedy: Run) -> Findings:
    """Findings with P1, P2 and P3 of the paper's first table, and the verdicts, of a greedy run."""
    table = phase0_table(*(e.filter(level="") for e in (greedy.estimates, found.estimates)))
    name = greedy.study.name
    told = (
        f"The paper's first table: P1, P2 and P3 from {name}, noise, total and p from {found.name}",
        *(f"{name}: {sentence}" for sentence in sentences(greedy)),
        *(f"{name}: {rater}: {text}" for rater, text in greedy.warnings.items()),
    )
    both = f"{name} + {found.name}"
    return replace(found, name=both, phase0=table, notes=[*told, *found.notes])


def _residuals(run: Run) -> pl.DataFrame:
    """The changes by level, with a verdict on each; without an interval there is none."""
    found = residuals(run.parts.decisions, run.contrasts, mode=run.study.mode)
    return found.with_columns(word=pl.when(pl.col("low").is_not_null()).then(side_of_zero()))


def _aspects(run: Run) -> dict[str, pl.DataFrame]:
    """Findings for judges and questions with options: preferred places, ranked systems."""
    is_judge = any(contrast.swaps_answers for contrast in run.contrasts)
    has_options = any(contrast.is_open for contrast in run.contrasts)
    names = [*(["pairs", "systems"] if is_judge else []), *(["slots"] if has_options else [])]
    return aspects_of(run, names) if names else {}


def preferred_places(run: Run, slots: pl.DataFrame | None) -> list[str]:
    """The place that draws the answers of raters that flip when options move, worst first."""
    if slots is None:
        return []
    lines = []
    flips = worst_first(run.verdicts).filter(word="flips", level="")
    for row in flips.iter_rows(named=True):
        own = slots.filter(rater=row["rater"], dataset=row["dataset"], level="")
        own = own.filter(view=row["contrast"])
        away = own.filter(pl.col("metric").str.starts_with("slot_excess:")).drop_nulls("value")
        if away.is_empty() or not is_shown(row["p_direction"]):
            continue
        most = away.sort("value", descending=True).row(0, named=True)
        number = most["metric"].partition(":")[2]
        share = own.filter(metric=f"slot:{number}", seed=most["seed"]).row(0, named=True)
        lines.append(
            f"{row['rater']} prefers place {number}: {interval(share)} of its answers under "
            f"{row['contrast']}, {100 * most['value']:.1f} points more than the same answers in "
            "all orders."
        )
    return lines


def sentences(run: Run) -> list[Sentence]:
    """The verdict on every rater in a sentence."""
    return verdict_sentences(worst_first(run.verdicts), run.contrasts, headlines(run.verdicts))


def notes(run: Run) -> list[str]:
    """The warnings about the decisions and the data."""
    claim = run.environment.get("claim", {})
    lines = [failures_line(run.tally), "" if run.stopped else claim.get("text", "")]
    for name, about in run.environment["datasets"].items():
        counts = [f"{n:,} {reason}" for reason, n in about.get("left_out", {}).items() if n]
        lines += [f"{name}: rows left out: {', '.join(counts)}"] if counts else []
        lines += [f"{name}: {note}" for note in about["notes"]]
    return [line for line in lines if line]


def costs(run: Run) -> dict[str, float]:
    """The cost of the tokens of all decisions at the study's own prices, by rater."""
    taken = run.tally
    found = {}
    for rater, price in run.study.prices.items():
        mine = taken.filter(rater=rater)
        prompt, completion = (mine[f"{kind}_tokens"].sum() for kind in ("prompt", "completion"))
        found[rater] = price.of(int(prompt), int(completion))
    for jury in run.study.juries:
        if {*jury.members} <= {*found} and jury.shows_members:
            found[jury.name] = sum(found[member] for member in jury.members)
    return found


def differences(first: Run, second: Run) -> pl.DataFrame:
    """The second run minus the first, on the contrasts and items that both have."""
    if first.study.mode != second.study.mode:
        modes = f"{first.study.mode} and {second.study.mode}"
        raise Problem(f"the runs are in different modes, {modes}; compare runs of one mode")
    shared = shared_contrasts(first, second)
    return compare(first.parts.decisions, second.parts.decisions, shared)


def flips_of(run: Run) -> pl.DataFrame:
    """Every pair of answers that differ, with the text of its item."""
    each = (pairs for part in run.parts for pairs in numbered_pairs(part, run.contrasts))
    tables = [flipped(pairs).pipe(collected, "streaming") for _, pairs in each]
    found = (
        pl.concat(tables, how="diagonal_relaxed")
        .sort(CONTRAST, PLACE)
        .drop(CONTRAST, PLACE, "prompt", "prompt_b", "place", "place_b", *OF_SCORES)
    )
    if found["score"].is_null().all() and found["score_b"].is_null().all():
        found = found.drop("score", "score_b")
    texts = run.items.filter(role="test").select("dataset", pl.col("id").alias("item"), "text")
    return found.join(texts, on=["dataset", "item"], how="left", maintain_order="left")
