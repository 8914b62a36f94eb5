"""Run -> Findings: all that a report is made of, gathered once; its summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
from rich.console import RenderableType

from flipmeter.choose.select import Choice
from flipmeter.errors import Problem
from flipmeter.parquet import collected
from flipmeter.run.folder import Run
from flipmeter.run.rows import PLACE, in_order
from flipmeter.show.differ import side_by_side
from flipmeter.show.estimate_tables import (
    accuracy_tests_table,
    calls_table,
    failures_line,
    flip_table,
    performance_table,
    score_titles,
    shared_warnings,
    tokens_table,
    verdict_lines,
)
from flipmeter.show.findings import Findings
from flipmeter.show.flipped_items import flipped_items, flipped_pair, shared_contrasts
from flipmeter.show.format import interval
from flipmeter.show.headline import Headline, plain, whose
from flipmeter.show.item_grid import report_grid, report_slices
from flipmeter.show.pairs import CONTRAST, OF_SCORES, count_pairs, flipped, numbered_pairs
from flipmeter.show.screen import more_rows, unmeasured_lines, verdict_table
from flipmeter.show.section import added_sections, has_added
from flipmeter.show.sentences import Sentence, finding_lines, reading_lines, verdict_sentences
from flipmeter.stats.aspects import measure_aspects
from flipmeter.stats.bounds import is_shown, side_of_zero
from flipmeter.stats.estimates import phase0_table
from flipmeter.stats.groups import Floats
from flipmeter.stats.judge import certify, read_claim
from flipmeter.stats.residuals import compare, residuals
from flipmeter.stats.verdict import headlines, worst_first
from flipmeter.types import NO_LABELS


def aspects_of(
    run: Run, names: Sequence[str], costs: Floats | None = None
) -> dict[str, pl.DataFrame]:
    """Measure some aspects; `costs` (gold by given) are for the worst case."""
    found = measure_aspects(
        run.panels,
        run.contrasts,
        list(names),
        costs=costs,
        mode=run.study.mode,
    )
    return {name: in_order(table, run.tally) for name, table in found.items()}


def worst_cases(run: Run) -> pl.DataFrame:
    """The worst case over all views of a run, for every group."""
    found = measure_aspects(run.panels, [], ["worst"], mode=run.study.mode)["worst"]
    return in_order(found, run.tally)


def certificates_of(run: Run, claims: Sequence[str]) -> pl.DataFrame:
    """Hold the claims of a user against a run."""
    found = certify(run.panels, run.contrasts, [read_claim(claim) for claim in claims])
    return in_order(found, run.tally)


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
    aspects = _judge_aspects(run)
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


def _judge_aspects(run: Run) -> dict[str, pl.DataFrame]:
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


def summary(run: Run, choices: Sequence[Choice] = ()) -> Iterator[RenderableType]:
    """The first screen: the answer, the worst rows, warnings, and where the rest is."""
    verdicts = worst_first(run.verdicts)
    yield ""
    yield from headline(run, choices)
    yield ""
    accuracy = _accuracy_by_rater(run)
    is_one = run.tally.select("rater", "dataset", "level").n_unique() == 1
    by_row = {} if is_one else accuracy
    yield verdict_table(verdicts, run.contrasts, accuracy=by_row)
    yield from more_rows(verdicts)
    if is_one and accuracy:
        yield f"accuracy at the base view: {next(iter(accuracy.values()))}"
    elif _is_unlabelled(run):
        yield f"accuracy: {NO_LABELS}"
    yield from unmeasured_lines(verdicts)
    yield from (f"! {names}: {text}" for names, text in shared_warnings(run.remarks).items())
    yield from (f"! {note}" for note in notes(run))
    for section in added_sections(gather_numbers(run)) if has_added() else ():
        yield ""
        yield section.text
    yield f"details: flipmeter measure {run.where} --show {','.join([*DETAILS, *_aspects_of(run)])}"
    if run.tally["level"].n_unique() > 1:
        yield f"changes by factor level: flipmeter effects {run.where}"


def _is_unlabelled(run: Run) -> bool:
    notes = run.estimates.filter(metric="accuracy")["note"]
    return len(notes) > 0 and (notes == NO_LABELS).all()


def _aspects_of(run: Run) -> Iterator[str]:
    """The aspects that say which place is preferred, where answers or options change places."""
    if any(contrast.swaps_answers for contrast in run.contrasts):
        yield "pairs"
    if any(contrast.is_open for contrast in run.contrasts):
        yield "slots"


def headline(run: Run, choices: Sequence[Choice] = ()) -> list[str]:
    """The summary of a run, in a few lines."""
    verdicts = run.verdicts
    words = headlines(verdicts, whose=whose(verdicts))
    told = (sentences(run), choices, run.unrated)
    found = Headline.of(words, worst_first(verdicts), run.contrasts, *told)
    return [plain(line) for line in found.lines]


def _accuracy_by_rater(run: Run) -> dict[tuple[str, ...], str]:
    """Accuracy at the base view with its interval, by rater, dataset and level, for one seed."""
    rows = run.estimates.filter(metric="accuracy", policy="complete", view="base")
    if rows["seed"].n_unique() > 1:
        return {}
    return {
        (row["rater"], row["dataset"], row["level"]): interval(row)
        for row in rows.filter(pl.col("value").is_not_null()).to_dicts()
    }


# --- details -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Detail:
    """More of what was measured than fits a screen: for people, and as rows."""

    tables: Callable[[Run], Iterator[RenderableType]]
    rows: Callable[[Run], pl.DataFrame]


def _verdict_section(run: Run) -> Iterator[RenderableType]:
    """Every rater in a sentence, every row with its reason and findings."""
    yield from map(str, sentences(run))
    yield flip_table(run.estimates, run.verdicts, run.contrasts)
    yield ""
    yield from verdict_lines(run.verdicts)
    yield from (f"! {line}" for line in finding_lines(run.verdicts))
    yield from reading_lines(run.estimates)
    yield (
        f"mode: {run.study.mode}; flip rates on readable pairs; a verdict counts an item once, "
        "with its seeds and repeats"
    )


def _score_tables(run: Run) -> Iterator[RenderableType]:
    yield performance_table(run.estimates, run.views)
    if (tests := accuracy_tests_table(run.estimates)) is not None:
        yield tests


def _tokens(run: Run) -> Iterator[RenderableType]:
    tables = (tokens_table(run.estimates), calls_table(run.estimates))
    if not any(tables):
        yield "no token counts were reported, and every decision took one call"
    yield from (table for table in tables if table is not None)


def _metrics_matching(*metrics: str) -> Callable[[Run], pl.DataFrame]:
    pattern = "^(" + "|".join(metrics) + ")"
    return lambda run: run.estimates.filter(pl.col("metric").str.contains(pattern))


def _score_rows(run: Run) -> pl.DataFrame:
    """The rows of the tables of scores, with the tests of accuracy."""
    beside = (f"{name}$" for name in score_titles(run.estimates))
    return _metrics_matching("accuracy", *beside, "mae", "parse_failure$", "weighted:accuracy$")(
        run
    )


DETAILS: Mapping[str, Detail] = {
    "verdicts": Detail(_verdict_section, lambda run: run.verdicts),
    "scores": Detail(_score_tables, _score_rows),
    "tokens": Detail(_tokens, _metrics_matching("output_tokens$", "hidden_tokens$", "calls$")),
}
"""The choices of `flipmeter measure --show` besides the aspects."""


def one_flip(run: Run) -> Iterator[RenderableType]:
    """One flipped item with its two prompts side by side."""
    pair = flipped_pair(run)
    if pair is None:
        yield "\nno item flipped"
        return
    contrast, flip, prompts = pair
    yield (
        f"\nOne item that flipped ({contrast.name}, {contrast.about}); "
        f"its gold label is {flip.gold}:"
    )
    answers = [f"answer: {side.answer}" for side in flip.sides]
    yield side_by_side([side.view for side in flip.sides], prompts, answers)
