"""The first screen of a report: the answer, the matrix, what to do next."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import polars as pl
import pytest

from conftest import Cli
from flipmeter.ask.store import Store
from flipmeter.choose.select import select
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.show.estimate_tables import beyond_text, items_text
from flipmeter.show.findings import Findings
from flipmeter.show.headline import Headline, plain
from flipmeter.show.next_steps import findings
from flipmeter.show.page import render_page
from flipmeter.show.page.markup import MOST_ROWS
from flipmeter.show.page.places import residual_grids, squares
from flipmeter.show.page.rates import forest_grid, matrix_grid
from flipmeter.stats.verdict import headlines, worst_first
from flipmeter.study.file import read_study
from read_html import Page
from report_runs import many, simulated

RATERS = [
    "sim/honest",
    "sim/first-slot?strength=0.6",
    "sim/biased-noisy",
    "sim/first-slot?strength=4",
]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return simulated(tmp_path_factory.mktemp("several"), models=RATERS, test_size=60)


@pytest.fixture(scope="module")
def found(several: Run) -> Findings:
    return findings(several)


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return findings(many(tmp_path_factory.mktemp("many")))


def answer(found: Findings) -> list[str]:
    return [plain(line) for line in found.headline.lines]


# The answer


def test_counts_are_those_of_the_core_over_all_rows(several: Run, found: Findings) -> None:
    n = Counter(headlines(several.verdicts, whose=["rater"])["word_among"])
    assert n == {"stable": 1, "flips": 1, "inconclusive": 2}
    assert answer(found)[0].startswith("1 of 4 raters is stable; 1 flips, 2 are inconclusive.")


def test_the_worst_that_is_named_is_the_first_row(found: Findings, levels: Findings) -> None:
    for one in (found, levels):
        first = one.verdicts.row(0, named=True)
        share = f"{100 * first['value']:.1f} % [{100 * first['low']:.1f}, "
        told = f"The worst is {first['level'] or first['rater']}"
        assert share in answer(one)[0]
        assert told.split(" is ")[1] in answer(one)[0]


def test_flips_that_the_counts_leave_out_are_named(found: Findings) -> None:
    rows = found.verdicts.filter(word="flips")
    counted = set(found.words.filter(word_among="flips")["rater"])
    alone = [(r, c) for r, c in rows.select("rater", "contrast").iter_rows() if r not in counted]
    assert alone
    assert all(f"{rater} ({contrast}" in answer(found)[1] for rater, contrast in alone)
    assert "not after Holm's correction over all 24 rows" in answer(found)[1]


def test_what_is_counted_stable_has_stable_rows_only(found: Findings, levels: Findings) -> None:
    for one in (found, levels):
        keys = one.headline.keys
        stable = one.verdicts.join(one.words.filter(word_among="stable"), on=keys, how="semi")
        assert set(stable["word"]) <= {"stable"}
        flips = one.words.filter(word_among="flips")
        for key in flips.select(keys).iter_rows():
            own = one.verdicts.filter(**dict(zip(keys, key, strict=True)))
            assert "flips" in set(own["word"])


def test_what_to_use_is_what_select_chooses(several: Run, found: Findings) -> None:
    chosen = select(several, max_flip={"*": several.study.margin}).chosen
    assert chosen is not None
    assert chosen.candidate == ("sim/honest", "")
    score = f"accuracy {100 * chosen.score.value:.1f} % [{100 * chosen.score.low:.1f}, "
    assert answer(found)[-1].startswith(f"Use sim/honest: {score}")


def test_intervals_of_what_to_use_say_over_how_many_they_hold(found: Findings) -> None:
    assert answer(found)[-1].endswith("(intervals over all 4 compared).")
    assert "no flips under any contrast: 0.0 % [0.0, " in answer(found)[-1]


def test_where_nothing_could_be_read_flips_are_not_the_reason(tmp_path: Path) -> None:
    models = ["sim/refusing?strength=1", {"model": "sim/refusing?strength=1", "name": "other"}]
    run = simulated(tmp_path, models=models, probes=["label_order"], test_size=20)
    assert len(answer(findings(run))) == 1
    assert "2 are unreadable" in answer(findings(run))[0]


def test_datasets_with_the_same_choice_share_a_sentence(found: Findings) -> None:
    choice = found.choices[0]
    both = replace(found, choices=[choice, replace(choice, dataset="other")])
    told = [line for line in answer(both) if line.startswith("Use ")]
    assert len(told) == 1
    assert told[0].startswith("Use sim/honest on all 2 datasets: accuracy ")


def test_that_nothing_can_be_chosen_is_said(levels: Findings) -> None:
    n = len(levels.choices[0].standings)
    nothing = "No configuration is shown to flip less than 10 % under every contrast"
    assert [line for line in answer(levels) if line.startswith(nothing) and f"all {n} " in line]


def test_raters_are_not_called_configurations(found: Findings) -> None:
    choices = [replace(one, chosen=None) for one in found.choices]
    assert answer(replace(found, choices=choices))[-1].startswith("No rater is shown to flip less")


def test_one_rater_gets_its_sentence_with_its_word(tmp_path: Path) -> None:
    run = simulated(tmp_path, models=["sim/honest"], probes=["label_order"])
    (line,) = answer(findings(run))
    assert line.startswith("sim/honest is stable: it flips 0 % [0, 8] of its answers")


def test_one_rater_on_several_datasets_is_counted_by_dataset(levels: Findings) -> None:
    first = levels.decisions["rater"][0]
    own = levels.verdicts.filter(rater=first, level="")
    one = replace(levels, verdicts=own, words=headlines(own, whose=["dataset"]), choices=[])
    assert re.match(r"Stable on 0 of 3 datasets; .*flips on \d", answer(one)[0])


# The matrix and its cuts


def many_rows(found: Findings) -> Findings:
    """Verdicts that do not fit on a page; those that flip come last in the study."""
    stable = found.verdicts.filter(word="stable").row(0, named=True)
    bad = found.verdicts.filter(word="flips").row(0, named=True)
    n = MOST_ROWS + 60
    rows = [dict(stable, rater=f"quiet-{k}") for k in range(n)]
    rows += [dict(bad, rater=f"loud-{k}", contrast=bad["contrast"]) for k in range(40)]
    table = pl.DataFrame(rows, schema=found.verdicts.schema)
    return replace(found, verdicts=worst_first(table))


def test_cuts_leave_out_the_least_severe_and_say_how_many(found: Findings) -> None:
    large = many_rows(found)
    for grid in (matrix_grid(large), forest_grid(large)):
        rows = [row for group in grid.groups for row in group.rows]
        assert len(rows) == MOST_ROWS
        text = str(grid.groups)
        assert all(f"loud-{k}" in text for k in range(40))
        assert "100 more rows, less severe than these, are left out" in grid.notes[-1]


def test_a_cell_leads_to_its_own_items(found: Findings) -> None:
    page = Page(render_page(found))
    every = [dict(parse_qsl(a["data-query"] or "")) for a in page.all("a") if "data-query" in a]
    links = [link for link in every if "contrast" in link]
    assert len(links) == len(found.verdicts)
    flips = Counter((f.rater, f.contrast) for f in found.browser.flips)
    led_to = {(link["rater"], link["contrast"]): link for link in links}
    assert set(flips) <= set(led_to)
    assert (
        led_to["sim/honest", "P1"] | {"dataset": "reviews", "level": "base"}
        == led_to["sim/honest", "P1"]
    )


def test_a_cell_has_word_rate_arrow_and_noise(found: Findings) -> None:
    row = found.verdicts.filter(rater="sim/biased-noisy", contrast="P1").row(0, named=True)
    (cell,) = (
        cell
        for group in matrix_grid(found).groups
        for line in group.rows
        for cell in line
        if cell.query.startswith("rater=sim%2Fbiased-noisy") and cell.query.endswith("contrast=P1")
    )
    text = re.sub(r"<[^>]+>", "", str(cell.text))
    assert row["leans"] == "up"
    assert text.split()[:2] == [row["word"], "←"]
    said = f"noise {100 * row['noise']:.1f} %, {100 * row['size']:.1f} % beyond"
    assert said in text.replace("\N{NO-BREAK SPACE}", " ")
    assert 'title="mostly towards the first label"' in str(cell.text)


def test_the_worst_beyond_noise_has_the_number_that_rows_are_sorted_by(found: Findings) -> None:
    own = found.verdicts.filter(rater="sim/biased-noisy")
    row = own.row(0, named=True)
    words = headlines(own, whose=["rater", "contrast"])
    told = "".join(
        part.text for part in replace(found, verdicts=own, words=words).headline._worst()
    )
    assert f"noise of {100 * row['noise']:.1f} % ({100 * row['size']:.1f} % beyond it)" in told
    assert beyond_text({**row, "excess": None}) == ""


@pytest.mark.parametrize(
    ("metric", "value", "word", "kind"),
    [
        ("accuracy", 4.0, "higher", "better"),
        ("accuracy", -4.0, "lower", "worse"),
        ("P1", 4.0, "higher", "worse"),
        ("P1", -4.0, "lower", "better"),
        ("mae_normalised", 4.0, "higher", "worse"),
        ("P1", 4.0, "not distinguishable", "faint"),
    ],
)
def test_colour_means_better_or_worse_and_no_effect_is_faint(
    levels: Findings, metric: str, value: float, word: str, kind: str
) -> None:
    assert levels.residuals is not None
    own = levels.residuals.filter(metric=metric, factor="mood", dataset="")[:1]
    told = own.with_columns(value=pl.lit(value), word=pl.lit(word))
    (grid, *_) = residual_grids(replace(levels, residuals=told))
    ((_, cell),) = grid.groups[0].rows
    assert cell.sort == value
    assert cell.kind.split()[1] == kind


def test_levels_break_behind_their_signs(levels: Findings) -> None:
    assert levels.residuals is not None
    one = levels.residuals.filter(metric="P1", factor="mood", dataset="")[:1]
    told = one.with_columns(level=pl.lit("mood=indicative,shots=0"))
    (grid, *_) = residual_grids(replace(levels, residuals=told))
    assert grid.groups[0].rows[0][0].text == "mood=<wbr>indicative,<wbr>shots=<wbr>0"


def test_colours_of_moves_compare_over_tables(found: Findings) -> None:
    (few, *_) = found.pairs.matrices
    matrices = [replace(few, counts={(1, 1): 10, (2, 1): n}) for n in (10, 1)]
    pairs = replace(found.pairs, matrices=matrices)
    ((_, _, (first, second)), *_), _ = squares(replace(found, pairs=pairs))
    kinds = [one.rows[1][2][0].kind for one in (first, second)]
    assert kinds == ["mass s9", "mass s2"]


def test_what_is_stable_by_itself_and_not_counted_is_named(several: Run) -> None:
    words = pl.DataFrame(
        {
            "rater": ["ann", "ben", "cat"],
            "word": ["stable", "stable", "flips"],
            "word_among": ["stable", "inconclusive", "flips"],
            "alone": pl.Series([[], [], []], dtype=pl.List(pl.String)),
        }
    )
    lines = Headline.of(words, several.verdicts.clear(), several.contrasts, ()).lines
    told = [plain(line) for line in lines]
    assert told == [
        "1 of 3 raters is stable; 1 flips, 1 is inconclusive.",
        "Not counted as stable: ben, which is stable by its own test but not after Holm's "
        "correction over all 3.",
    ]


# What to do next


def commands(found: Findings) -> list[list[str]]:
    return [shlex.split(step.command)[1:] for step in found.next_steps]


def test_every_command_can_be_copied_and_run(
    cli: Cli, tmp_path: Path, several: Run, found: Findings
) -> None:
    told = commands(found)
    assert [words[0] for words in told] == ["run", "select", "run", "check"]
    for place, words in enumerate(told):
        if words[0] == "run":
            words[words.index("--out") + 1] = f"{tmp_path}/new-{place}"
        code, out, err = cli(*words)
        assert code in (0, 1, 3), err
        assert out
    assert (tmp_path / "rater.yaml").is_file()
    n = int(next(w for w in told[0] if w.startswith("test_size")).partition("=")[2])
    assert len(Run(tmp_path / "new-0").items.filter(role="test")) == n


def test_the_number_of_items_is_what_the_core_says_would_settle_half(
    several: Run, found: Findings
) -> None:
    needed = sorted(several.verdicts.filter(word="inconclusive")["n_needed"].drop_nulls())
    half = needed[(len(needed) - 1) // 2]
    assert f"--set test_size={half} " in found.next_steps[0].command
    assert f"{half:,} instead of 60" in found.next_steps[0].text


def small_data(tmp_path: Path, n: int, **keys: Any) -> dict[str, Any]:
    """A study of a file with so many rows, of which all are rated."""
    lines = [f"note {k} of the day,{'low' if k % 2 else 'high'},{k // 4}" for k in range(n)]
    (tmp_path / "small.csv").write_text("body,severity,ticket\n" + "\n".join(lines) + "\n")
    dataset = {"file": str(tmp_path / "small.csv"), "text": "body", "label": "severity"}
    return {
        "models": ["sim/honest?noise=0.6"],
        "datasets": [{**dataset, "scale": ["low", "high"], **keys}],
        "base": {"shots": 0},
        "probes": ["label_order"],
        "test_size": n,
    }


def test_no_more_items_are_suggested_than_the_data_has(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", **small_data(tmp_path, 40))
    (needed,) = run.verdicts.filter(word="inconclusive")["n_needed"]
    assert needed > 40
    told = f"small has 40 items to test, and {needed} instead of 40 would settle it"
    assert f"Add rows to the data: {told} (power 80 %)." in findings(run).next_steps[0].text
    (reason,) = run.verdicts["reason"]
    assert reason.endswith(f"about {needed} items would settle it (small has 40)")


def test_a_run_stands_for_its_study_where_its_data_is_found(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", **small_data(tmp_path, 40))
    assert commands(findings(run))[0][:2] == ["run", str(run.folder)]
    (tmp_path / "small.csv").unlink()
    assert commands(findings(run))[0][:2] == ["run", "STUDY.yaml"]


def test_items_are_counted_where_several_are_one_cluster(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", **small_data(tmp_path, 40, cluster="ticket"))
    assert items_text(run.verdicts.row(0, named=True)) == "40 in 10 clusters"
    (row,) = run.verdicts.filter(word="inconclusive").to_dicts()
    assert row["n_clusters"] == 10
    assert row["reason"].endswith("would settle it (small has 10)")
    assert f"{4 * row['n_needed']} instead of 40" in findings(run).next_steps[0].text


def test_a_choice_is_confirmed_on_items_that_the_data_has(cli: Cli, tmp_path: Path) -> None:
    for n_rated, told in ((40, "add rows"), (30, "--items 10")):
        study = small_data(tmp_path, 40) | {"test_size": n_rated}
        run = simulated(tmp_path / str(n_rated), **study)
        _, out, _ = cli("select", str(run.folder), "--out", "card.yaml")
        assert told in out


def test_a_rater_that_never_answered_is_to_be_asked_again(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "down.py").write_text("def rate(question):\n    raise RuntimeError('down')\n")
    study = small_data(tmp_path, 20) | {"models": ["python/down.py:rate"], "name": "down"}
    (tmp_path / "study.yaml").write_text(str(study), encoding="utf-8")
    code, out, _ = cli("run", "study.yaml", "--out", "run", "--trust")
    assert code == 4
    assert "cannot be judged when the label list is reversed: no pair was answered" in out
    assert "no answered pair" in out
    assert "could not be read" not in out
    assert "1 of 1 verdicts have no answered pair: retry the failed requests." in out
    assert "repeats=2" not in out


def test_a_rater_that_flips_alone_is_told_to_compare(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", models=["sim/first-slot?strength=4"], probes=["label_order"])
    told = commands(findings(run))
    assert [words[0] for words in told] == ["run", "run", "check"]
    assert "vary={pipeline: [orbit]}" in told[0]
    assert "vary={label_format: [letter, natural_language, neutral_id]}" in told[1]


def test_the_suggested_pipeline_rules_the_flips_out_and_is_used(tmp_path: Path) -> None:
    models = ["sim/first-slot?strength=4"]
    vary = {"pipeline": ["orbit"]}
    run = simulated(tmp_path, models=models, probes=["label_order"], vary=vary)
    use = findings(run).next_steps[0].text
    assert use.startswith("Use pipeline=orbit: accuracy ")
    assert "P1 0 by construction instead of " in use
    assert not any("vary=" in step.command for step in findings(run).next_steps)


@pytest.mark.parametrize(
    "changes",
    [
        {"models": ["sim/refusing?strength=1", "sim/first-slot?strength=4"]},
        {"models": ["sim/first-slot?strength=4"], "vary": {"shots": [0, 2]}},
    ],
    ids=["beside an unreadable rater", "at every level"],
)
def test_flips_of_several_have_a_next_step_where_none_can_be_used(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    run = simulated(tmp_path, probes=["label_order"], **changes)
    told = [words for words in commands(findings(run)) if "vary={pipeline: [orbit]}" in words]
    assert [words[-2:] for words in told] == [["--out", f"{tmp_path}-pipelines"]]


def test_the_label_format_in_use_is_not_suggested(tmp_path: Path) -> None:
    base = {"label_format": "natural_language"}
    models = ["sim/first-slot?strength=9"]
    run = simulated(tmp_path / "run", models=models, probes=["label_order"], base=base)
    (step,) = (step for step in findings(run).next_steps if "vary={label" in step.command)
    assert "vary={label_format: [numeric, letter, neutral_id]}" in step.command
    assert step.text == "Try other label formats: numbers, letters or neutral names."


def test_unreadable_replies_and_missing_repeats_have_a_next_step(tmp_path: Path) -> None:
    bad = simulated(tmp_path / "bad", models=["sim/refusing?strength=1"], probes=["label_order"])
    assert commands(findings(bad))[0] == ["try", str(bad.folder)]
    page = render_page(findings(bad))
    assert page.count("No pair of answers could be read.") == 2
    assert "No item flipped" not in page
    once = simulated(tmp_path / "once", models=["sim/noisy"], probes=["label_order"], repeats=1)
    assert commands(findings(once))[0] == [
        *("run", str(once.folder), "--set", "repeats=2", "--out", str(once.folder))
    ]


def test_a_run_that_was_stopped_is_to_be_finished_first(tmp_path: Path) -> None:
    run = simulated(tmp_path, budget={"calls": 155}, block_size=15)
    assert findings(run).next_steps[0].text == (
        "Finish the run, which stopped early: only missing requests are sent."
    )


def beside_a_refuser(folder: Path) -> Run:
    """Return a run that leaves out a rater whose first replies could not be read."""
    models = [
        {"model": "sim/refusing?strength=1", "name": "refuser"},
        {"model": "sim/first-slot?strength=4", "name": "flipper"},
    ]
    content = {"name": "both", "models": models, "datasets": ["reviews"], "test_size": 45}
    return perform(read_study({**content, "probes": ["label_order"]}), folder, Store())


def test_a_run_that_stopped_at_unreadable_replies_is_finished_with_anyway(tmp_path: Path) -> None:
    run = beside_a_refuser(tmp_path)
    told = commands(findings(run))
    assert told[0] == ["try", str(tmp_path)]
    assert told[1] == ["run", str(tmp_path), "--out", str(tmp_path), "--anyway"]
    assert not any("refuser" in step.text for step in findings(run).next_steps)


def test_the_answer_names_the_raters_that_a_stopped_run_left_out(
    tmp_path: Path, cli: Cli, found: Findings
) -> None:
    run = beside_a_refuser(tmp_path)
    missing = "Not rated, because the run stopped early: refuser."
    assert answer(findings(run))[1] == missing
    assert missing in " ".join(cli("measure", str(tmp_path))[1].split())
    assert not any("Not rated" in line for line in answer(found))


def test_one_limit_is_for_every_contrast(several: Run, cli: Cli) -> None:
    every = dict.fromkeys((c.name for c in several.contrasts if c.is_judged), 0.1)
    assert select(several, max_flip={"*": 0.1}).limits == every
    assert select(several, max_flip={"*": 0.1, "P1": 0.2}).limits == every | {"P1": 0.2}
    code, out, _ = cli("select", str(several.folder), "--max-flip", "0.1")
    assert code == 0
    assert "P3b below 0.1" in " ".join(out.split())


def test_the_largest_is_said_to_be_beyond_noise_where_another_rate_is_higher(
    found: Findings,
) -> None:
    rows = found.verdicts.filter(pl.col("value").is_not_null()).head(2)
    rates: dict[str, list[Any]] = {
        "value": [0.10, 0.25],
        "noise": [0.0, 0.19],
        "is_reproducible": [True, False],
    }
    open_ones = rows.with_columns(
        *(pl.Series(name, values) for name, values in rates.items()),
        word=pl.lit("inconclusive"),
        rater=pl.Series(["calm", "noisy"]),
    )
    words = pl.DataFrame({"rater": ["calm", "noisy"], "word_among": ["inconclusive"] * 2})
    headline = Headline.of(words, open_ones, found.contrasts, found.sentences)
    assert " Largest beyond noise: calm" in "".join(part.text for part in headline._worst())
    quiet = open_ones.with_columns(noise=pl.lit(0.0))
    assert " Largest: calm" in "".join(
        part.text for part in Headline.of(words, quiet, found.contrasts, found.sentences)._worst()
    )


def test_captions_name_only_what_is_drawn(tmp_path: Path, found: Findings) -> None:
    calm = forest_grid(findings(simulated(tmp_path / "calm", test_size=30))).notes[0]
    assert "band" not in calm
    assert "p:" not in calm
    assert "The band is the noise" in forest_grid(found).notes[0]
