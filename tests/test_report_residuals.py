"""Residuals on a terminal and in files: the cells, and texts that could break a format."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from flipmeter.ask.store import Store
from flipmeter.cli import main
from flipmeter.errors import Problem
from flipmeter.run.perform import perform
from flipmeter.show.residuals import (
    cell_text,
    residual_notes,
    residual_table,
    residuals_latex,
    residuals_markdown,
)
from flipmeter.show.screen import write_effects
from flipmeter.show.table import safe_csv, shade_of, write_table
from flipmeter.stats.residuals import SCHEMA
from flipmeter.study.file import read_study


def row(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "factor": "label_format",
        "level": "natural_language",
        "rater": "r",
        "dataset": "",
        "metric": "accuracy",
        "value": 2.2,
        "low": -1.0,
        "high": 5.3,
        "seed_sd": 1.5,
        "dataset_sd": 2.72,
        "spread_low": None,
        "spread_high": None,
        "n_datasets": 2,
        "n_seeds": 3,
        "n": 60,
        "failed": 0,
        "note": "",
        "mode": "recommended",
        "against": "r",
    }
    return plain | changes


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA)


def printed(residuals: pl.DataFrame) -> str:
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(residual_table(residuals))
    return console.export_text()


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, "+2.2 [-1.0, 5.3]"),
        ({"mode": "paper"}, "+2.2 ±2.7"),
        ({"low": None, "high": None}, "+2.2"),
        ({"value": -0.04, "low": -0.02, "high": 0.01}, "+0.0 [0.0, 0.0]"),
        ({"value": None, "note": "not applicable: no view 'random'"}, "n/a"),
        ({"value": None, "note": "base: not identified: equal"}, "n/i"),
        ({"value": None, "note": "undefined: gold or answers are constant"}, "undef."),
        ({"value": None, "note": "something else"}, "-"),
    ],
)
def test_a_cell_says_its_number_or_why_there_is_none(changes: dict[str, Any], wanted: str) -> None:
    assert cell_text(row(**changes)) == wanted


def test_the_terminal_shows_levels_with_spreads_and_datasets_under_them() -> None:
    shown = printed(table(row(), row(dataset="a", value=4.0), row(dataset="b", value=0.4)))
    lines = [line.split() for line in shown.splitlines()]
    assert ["Label", "format"] in lines
    assert ["natural", "language", "+2.2", "[-1.0,", "5.3]"] in lines
    assert ["SD", "over", "seeds", "1.5"] in lines
    assert ["SD", "over", "datasets", "2.7"] in lines
    assert ["b", "+0.4", "[-1.0,", "5.3]"] in lines


def test_paper_mode_shows_means_only() -> None:
    rows = [row(mode="paper"), row(mode="paper", dataset="a"), row(mode="paper", dataset="b")]
    shown = printed(table(*rows))
    assert "+2.2 ±2.7" in shown
    assert "SD over seeds" not in shown


def test_nine_intervals_fit_into_160_columns() -> None:
    names = ("accuracy", "macro_f1", "spearman", "mae_normalised", "P1", "P2a", "P2b", "P3a", "P3b")
    shown = printed(table(*(row(metric=name, low=-55.5, value=-33.3, high=11.1) for name in names)))
    assert "…" not in shown
    assert sum("-33.3" in line and line.count("-33.3") == 9 for line in shown.splitlines()) == 1


def test_several_raters_have_blocks_of_their_own() -> None:
    shown = printed(table(row(rater="one"), row(rater="[two]")))
    assert "Label format · one" in shown
    assert "Label format · [two]" in shown


def test_every_note_stands_under_the_table_once() -> None:
    rows = [row(metric=name, note="on the 3 items in common") for name in ("accuracy", "P1")]
    mode, *notes = residual_notes(table(*rows))
    assert mode.startswith("mode: recommended")
    assert notes == ["label_format=natural_language: on the 3 items in common"]
    _, *notes = residual_notes(table(*rows, row(metric="P2a")))
    assert notes == ["label_format=natural_language (accuracy, P1): on the 3 items in common"]


def test_notes_say_whose_they_are() -> None:
    alone = row(note="on the 3 items in common")
    assert "level minus base of r, x 100" in residual_notes(table(alone))[0]
    both = table(alone, alone | {"rater": "s", "against": "s"}, row(rater="t", against="t"))
    mode, note = residual_notes(both)
    assert "level minus base, x 100" in mode
    levels = ("label_format=natural_language · r", "label_format=natural_language · s")
    assert note == f"{'; '.join(levels)}: on the 3 items in common"


def test_a_model_is_named_with_the_one_that_is_subtracted() -> None:
    model = row(factor="model", level="s", rater="s", note="on 3")
    mode, note = residual_notes(table(model))
    assert "model minus r, both at the base" in mode
    assert note == "model=s: on 3"


def test_a_transfer_table_has_a_block_for_each_model() -> None:
    rows = [
        row(factor="transfer", level=config, rater=rater, against="ref", note=f"on {config}_1")
        for rater in ("one", "two")
        for config in ("baseline", "my_own")
    ]
    lines = [line.split() for line in printed(table(*rows)).splitlines()]
    assert [line[0] for line in lines if line and line[0] in ("one", "two")] == ["one", "two"]
    assert sum(line[:1] == ["my_own"] for line in lines) == 2
    mode, *notes = residual_notes(table(*rows))
    assert "model minus ref, both under the same config" in mode
    assert notes[1] == "my_own · one; my_own · two: on my_own_1"
    text = residuals_latex(table(*rows))
    assert r"one & baseline & " in text
    assert r" & my\_own & " in text


# Files

EVIL = "=1+1|a_b*[x](y)<b>\\&%$#{}~^\nnext"


def test_markdown_has_one_line_and_as_many_cells_per_row_whatever_the_names() -> None:
    text = residuals_markdown(table(row(mode="paper", level=EVIL), row(mode="paper")))
    lines = text.split("\n\n")[0].splitlines()
    assert len(lines) == 4
    bare = [line.replace("\\\\", "").replace("\\|", "") for line in lines]
    assert {line.count("|") for line in bare} == {5}
    assert "<b>" not in text


def test_latex_escapes_every_special_sign() -> None:
    text = residuals_latex(table(row(factor="model", level=EVIL)))
    body = next(line for line in text.splitlines() if "next" in line)
    assert (
        r"\textbar{}a\_b{*}{[}x{]}(y)\textless{}b\textgreater{}\textbackslash{}\&\%\$\#\{\}" in body
    )
    assert r"\textasciitilde{}\textasciicircum{} next" in body


@pytest.mark.parametrize("sign", ["_", "%", "&", "#", "$", "{", "}"])
def test_no_special_sign_of_a_name_is_bare_anywhere_in_latex(sign: str) -> None:
    name = f"a{sign}b"
    rows = [
        row(factor=name, level=name, rater=rater, dataset=dataset, metric=metric)
        for rater in (name, f"{name} again")
        for dataset in ("", name, f"{name}2")
        for metric in ("accuracy", name)
    ]
    lines = residuals_latex(table(*rows)).splitlines()
    body = [line for line in lines if "b" in line and not line.startswith(("%", "\\"))]
    shown = "\n".join(body)
    assert shown.count(f"a\\{sign}b") == shown.count(f"{sign}b") > 5
    rows_of_cells = [line for line in body if line.endswith("\\\\")]
    assert {line.replace("\\&", "").count("&") for line in rows_of_cells} == {4}


def test_latex_comments_stay_comments_and_hyphens_stay_apart() -> None:
    text = residuals_latex(table(row(factor="model", level="a--b · c…", note="line\n\\bad")))
    assert r"a-{}-b $\cdot$ c\ldots{}" in text
    end = text.rindex(r"\end{tabular}")
    assert all(line.startswith("%") for line in text[end:].splitlines()[1:])


def test_latex_shades_by_sign_and_size() -> None:
    text = residuals_latex(
        table(row(value=10.0), row(metric="P1", value=-2.0), row(metric="P2a", value=None))
    )
    interval = r"\\{\scriptsize $[-1.0, 5.3]$}}"
    assert rf"\cellcolor{{residualPositive!80}}\flipstack{{$+10.0${interval}" in text
    assert rf"\cellcolor{{residualNegative!22}}\flipstack{{$-2.0${interval}" in text
    assert r"\cellcolor{gray!20}-" in text
    assert text.index(r"\toprule") < text.index(r"\midrule") < text.index(r"\bottomrule")


@pytest.mark.parametrize(("value", "shade"), [(0.0, 8), (5.0, 14), (-30.0, 44), (60.0, 80)])
def test_the_largest_residual_has_the_strongest_shade(value: float, shade: int) -> None:
    assert shade_of(value, 60.0) == shade


@pytest.mark.parametrize("name", ["=cmd()", "+1", "-x", "@sum", "\tx", " =1", "plain", 'a"b,c'])
def test_no_text_in_a_csv_can_start_a_formula_and_numbers_stay_numbers(name: str) -> None:
    text = safe_csv(table(row(factor="model", level=name, value=-2.5)))
    (found,) = csv.DictReader(io.StringIO(text))
    assert found["level"].lstrip()[:1] not in ("=", "+", "-", "@")
    assert found["level"].removeprefix("'") == name
    assert float(found["value"]) == -2.5


def test_no_text_in_a_csv_can_steer_a_terminal() -> None:
    text = safe_csv(table(row(factor="model", level="\x1b[2J\x9bboo\rx\r\ny\tz")))
    (found,) = csv.DictReader(io.StringIO(text))
    assert found["level"] == "\ufffd[2J\ufffdboo\ufffdx\ny\tz"


def write_alone(residuals: pl.DataFrame, path: Path) -> None:
    write_effects({"residuals": residuals}, residuals, path)


def test_a_table_that_is_written_as_csv_starts_no_formula_either(tmp_path: Path) -> None:
    for write in (write_alone, write_table):
        write(table(row(factor="model", level="=cmd()")), tmp_path / "r.csv")
        (found,) = csv.DictReader((tmp_path / "r.csv").read_text(encoding="utf-8").splitlines())
        assert found["level"] == "'=cmd()"


def test_the_ending_of_a_file_decides_its_format(tmp_path: Path) -> None:
    residuals = table(row())
    for ending in ("md", "tex", "csv", "parquet"):
        write_alone(residuals, tmp_path / f"r.{ending}")
    assert pl.read_parquet(tmp_path / "r.parquet").equals(residuals)
    assert pl.read_csv(tmp_path / "r.csv")["value"].to_list() == [2.2]
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("| factor | level |")
    assert r"\begin{tabular}" in (tmp_path / "r.tex").read_text(encoding="utf-8")
    with pytest.raises(Problem, match=r"\.md"):
        write_alone(residuals, tmp_path / "r.docx")


# The verb


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("residuals")
    content = {"models": ["sim/first-slot"], "datasets": ["reviews"], "test_size": 20}
    vary = {"vary": {"shots": [0], "cardinality": [3]}, "probes": ["label_order", "demo_order"]}
    with Store(folder / "replies.sqlite") as store:
        perform(read_study({**content, **vary, "base": {"shots": 1}}), folder / "run", store)
    return folder / "run"


@pytest.fixture
def called(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Return a function that measures the run as a user does: exit code and what is printed."""

    def call(verb: str, *options: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["flipmeter", verb, str(run_folder), *options])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out + err

    return call


Called = Callable[..., tuple[int, str]]


def test_the_verb_prints_and_writes_what_each_level_changes(called: Called, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    code, text = called("effects", "--out", str(out))
    assert code == 0
    assert "3-way by merging" in text
    assert "n/a: not applicable" in text
    levels = pl.read_csv(out)["level"].cast(pl.String).unique(maintain_order=True).to_list()
    assert levels == ["3", "3 by merging", "0"]


def test_the_verb_gives_residuals_to_a_machine(called: Called) -> None:
    code, text = called("effects", "--json")
    assert code == 0
    assert {row["dataset"] for row in json.loads(text)["residuals"]} == {"", "reviews"}
    assert called("effects", "--csv")[1].startswith("factor,level,rater,dataset,metric,value")


def test_a_run_with_levels_says_that_there_are_residuals(called: Called) -> None:
    code, text = called("measure")
    assert code == 0
    assert "changes by factor level: flipmeter effects" in text
