"""What a terminal shows: the answer and the worst rows, whole at any width."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType

import flipmeter as fm
from conftest import Cli
from flipmeter.cli.consoles import fail, say, warn
from flipmeter.printed import Printed, Shown
from flipmeter.show.estimate_tables import comparison_table, phase0_view, verdict_lines
from flipmeter.show.gather import DETAILS
from flipmeter.show.residuals import residual_table
from flipmeter.show.screen import COLUMNS, DROPPED, MOST_ROWS, TOWARDS, more_rows, verdict_table
from flipmeter.show.table import Column, Table, groups_of
from flipmeter.stats.aspects import ASPECTS
from flipmeter.stats.verdict import worst_first
from flipmeter.types import JUDGED
from report_runs import simulated

WIDTHS = (60, 80, 100, 160)
LONG = "openrouter/an-organisation/a-model-with-a-long-name-2026-11-17"
KINDS: dict[str, dict[str, Any]] = {
    "one rater": {"models": ["sim/first-slot?strength=4"], "probes": ["label_order", "placement"]},
    "many raters, one with a long name": {
        "models": [
            {"model": "sim/first-slot?strength=9", "name": LONG},
            *("sim/honest", "sim/noisy", "sim/biased-noisy", "sim/refusing?strength=1"),
        ],
        "probes": ["label_order", "demo_order"],
    },
    "levels": {
        "models": ["sim/first-slot?strength=4", "sim/noisy"],
        "vary": {"label_format": ["letter", "natural_language"], "shots": [2]},
        "probes": ["label_order"],
        "base": {"shots": 1},
    },
    "several seeds": {"models": ["sim/noisy"], "seeds": [0, 1], "probes": ["label_order"]},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, fm.Run]:
    folder = tmp_path_factory.mktemp("screens")
    found = {
        name: fm.Run.of(simulated(folder / name.replace(" ", "-"), test_size=40, **keys))
        for name, keys in KINDS.items()
    }
    table = folder / "answers.csv"
    rows = ["item,condition,label,gold"]
    rows += [
        f"{k},{c},{'red' if (k + (c == 'b')) % 3 else 'green'},red"
        for k in range(30)
        for c in ("a", "b")
    ]
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    found["a table of nominal answers"] = fm.Run(table, scale=["nominal", "red", "green"])
    return found


NAMES = [*KINDS, "a table of nominal answers"]


def printed(things: Iterable[RenderableType], width: int) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    for thing in things:
        console.print(Shown(thing), highlight=False, markup=False)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def assert_whole(text: str, width: int) -> None:
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "\ue000" not in text


def flat(text: str) -> str:
    return " ".join(text.split())


# The first screen


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_is_whole_at_any_width(
    runs: dict[str, fm.Run], name: str, width: int
) -> None:
    run = runs[name]
    text = printed(run.tables(), width)
    assert_whole(text, width)
    rows = worst_first(run.verdicts).filter(pl.col("status").is_in(JUDGED)).head(MOST_ROWS)
    told, place = flat(text), 0
    for row in rows.to_dicts():
        if row["value"] is None:
            continue
        shown = f"{100 * row['value']:.1f} % [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"
        place = told.index(f"{row['contrast']} ", place)
        place = told.index(shown, place) + len(shown)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_columns_are_dropped_in_the_stated_order(
    runs: dict[str, fm.Run], name: str, width: int
) -> None:
    run = runs[name]
    table = verdict_table(worst_first(run.verdicts), run.contrasts, accuracy={})
    fitting = [table.heads[place] for place in table.fitting(width)]
    told = flat(printed([table], width))
    stays = fitting or ([TOWARDS] if "towards the " in told else [])
    left_out = [one for one in table.heads if one in DROPPED and one not in stays]
    kept = [DROPPED.index(one) for one in DROPPED if one in fitting]
    assert set(DROPPED) <= set(COLUMNS)
    if left_out:
        assert not kept or min(kept) > max(map(DROPPED.index, left_out))
        assert f"left out at this width: {', '.join(left_out)}" in told


def test_stacked_rows_say_where_flips_go_where_that_fits(runs: dict[str, fm.Run]) -> None:
    run = runs["levels"]
    table = verdict_table(worst_first(run.verdicts), run.contrasts, accuracy={})
    at = table.heads.index(TOWARDS)
    ways = [row[at].text for row in table.rows if row[at].text]
    assert ways
    assert not table.fitting(80)
    assert printed([table], 80).count("]  towards the ") == len(ways)
    assert "towards the" not in printed([table], 45)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_says_nothing_twice(runs: dict[str, fm.Run], name: str) -> None:
    lines = [line.strip() for line in printed(runs[name].tables(), 400).splitlines()]
    sentences = [line for line in lines if len(line.split()) > 8]
    assert len(sentences) == len(set(sentences))


def test_the_first_screen_has_twenty_rows_at_most_and_says_so(runs: dict[str, fm.Run]) -> None:
    run = runs["many raters, one with a long name"]
    text = printed(run.tables(), 160)
    words = "flips|stable|inconclusive|unreadable"
    assert len(re.findall(rf"^(?:{words}) ", text, re.MULTILINE)) == 20 == MOST_ROWS
    assert "20 of 20 rows" not in text
    many = simulated_rows(run, 3)
    assert "20 of 60 rows, worst first" in printed(many, 160)


def simulated_rows(run: fm.Run, times: int) -> list[RenderableType]:
    rows = pl.concat([run.verdicts.with_columns(level=pl.lit(f"{k}")) for k in range(times)])
    worst = worst_first(rows)
    return [verdict_table(worst, run.contrasts, accuracy={}), *more_rows(worst)]


def test_the_screen_says_where_the_rest_is(runs: dict[str, fm.Run], cli: Cli) -> None:
    for name in ("levels", "a table of nominal answers"):
        run = runs[name]
        told = flat(printed(run.tables(), 160))
        command = re.search(r"details: flipmeter (measure .*? --show \S+)", told)
        assert command is not None
        arguments = command[1].split()
        code, _, err = cli(*arguments)
        assert code == 0, err
    assert f"flipmeter effects {runs['levels'].source.where}" in flat(
        printed(runs["levels"].tables(), 160)
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_columns_sets_the_width_of_a_pipe(
    runs: dict[str, fm.Run], cli: Cli, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = cli("measure", str(runs["levels"].source.where))
    longest = max(len(line) for line in out.splitlines() if "  flipmeter " not in line)
    assert code == 0
    assert width - 20 < longest <= width


def test_findings_of_the_shown_rows_are_named(runs: dict[str, fm.Run]) -> None:
    run = runs["several seeds"]
    (name,) = {name for row in run.verdicts["findings"] for name in row}
    assert name in printed(run.tables(), 160)


# Details and other tables


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_details_are_whole_at_any_width(runs: dict[str, fm.Run], name: str, width: int) -> None:
    run = runs[name]
    for detail in DETAILS.values():
        assert_whole(printed(detail.tables(run.source), width), width)


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_of_other_verbs_are_whole_at_any_width(runs: dict[str, fm.Run], width: int) -> None:
    run, one = runs["levels"], runs["one rater"]
    things = [
        residual_table(run.residuals()),
        phase0_view(run.phase0(), "recommended"),
        *run.select().tables(),
        *run.check().tables(),
        comparison_table(one.compare(one), ["first", "second"]),
    ]
    for thing in things:
        assert_whole(printed([thing], width), width)


@pytest.mark.parametrize("aspect", list(ASPECTS))
def test_aspects_are_whole_on_a_narrow_terminal(
    runs: dict[str, fm.Run], cli: Cli, aspect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flipmeter.cli.consoles.PIPE_WIDTH", 60)
    code, out, _ = cli("measure", str(runs["levels"].folder), "--show", aspect)
    assert code == 0
    assert_whole(out, 60)


NUMBERS = st.floats(-99, 999).map(lambda x: f"{x:.1f} % [{x - 1:.1f}, {x + 1:.1f}]")
WORDS = st.text("abc/-=.", min_size=1, max_size=50)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(WORDS, NUMBERS, WORDS, NUMBERS), min_size=1, max_size=4),
    st.integers(40, 140),
)
def test_no_table_loses_a_character(rows: list[tuple[str, ...]], width: int) -> None:
    table = Table("A title", ["rater", "flips [95 %]", "what moves", "noise"], groups_of(rows))
    text = printed([table], width)
    assert_whole(text, width)
    shown = re.sub(r"[^\w.\[\]%,/=-]", "", text)
    for cell in {cell for row in rows for cell in row}:
        for part in re.findall(r"[-\d.]+ %|\[[^]]*\]", cell):
            assert part in flat(text)
        assert all(character in shown for character in set(cell) - {" "})


def test_a_footer_is_shown_at_any_width() -> None:
    columns = [Column("model", footer="all of the models"), Column("price", footer="$12,345.67")]
    row = ["a model with quite a long name", "$12,000.00 to $13,000.00"]
    table = Table("", columns, groups_of([row]))
    for width in (30, 40, 60):
        text = flat(printed([table], width))
        assert "$12,345.67" in text
        assert all(word in text.split() for word in ("all", "of", "the", "models"))


def test_a_table_that_fits_is_left_alone() -> None:
    table = Table("", ["a", "b"], groups_of([["1.0 % [0.0, 2.0]", "x"]]))
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    assert printed([table], 80) == console.file.getvalue()  # type: ignore[attr-defined]


def test_an_unreadable_row_keeps_its_share_and_a_name_stands_once_where_rows_are_stacked(
    runs: dict[str, fm.Run],
) -> None:
    run = runs["many raters, one with a long name"]
    row = run.verdicts.filter(word="unreadable").row(0, named=True)
    share = f"{100 * row['unreadable']:.1f} %"
    wide = next(line for line in printed(run.tables(), 300).splitlines() if share in line)
    assert wide.count(share) == 1
    text = printed(run.tables(), 60)
    assert f"unreadable  {row['contrast']}  {100 * row['unreadable']:.1f} % unreadable" in text
    lines = [line.strip() for line in text.splitlines()]
    assert not [1 for a, b in itertools.pairwise(lines) if a == b != ""]
    names = [at for at, line in enumerate(lines) if line == row["rater"]]
    assert all(lines[at + 1] != lines[at] for at in names)


def test_contrasts_with_the_same_reason_share_a_sentence(runs: dict[str, fm.Run]) -> None:
    said = [str(line) for line in verdict_lines(runs["one rater"].verdicts)]
    reasons = [line.split(": ", 1)[1] for line in said]
    assert len(reasons) == len(set(reasons)) < len(runs["one rater"].verdicts)


MARKED = "[red]low[/red] flipmeter[hf] :smile: [/]"


class Marked(Printed):
    def tables(self) -> Iterable[RenderableType]:
        return [Table(MARKED, [MARKED], groups_of([[MARKED]])), MARKED]


def test_brackets_and_colons_in_names_mean_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    say(*Marked().tables())
    warn(MARKED)
    with pytest.raises(SystemExit):
        fail(MARKED)
    out, err = capsys.readouterr()
    assert out.count(MARKED) == str(Marked()).count(MARKED) == 4
    assert Marked()._repr_html_().count(MARKED) == 4
    assert err.count(MARKED) == 2


def test_every_table_is_printed_on_a_plain_console() -> None:
    source = Path(fm.__file__).parent
    made = [path.name for path in source.rglob("*.py") if " Console(" in path.read_text("utf-8")]
    assert made == ["printed.py"]
