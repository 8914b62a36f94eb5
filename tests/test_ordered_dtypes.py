"""Orders of a scale that data declare by themselves: Enums of polars, categoricals of pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import flipmeter as fm
from flipmeter.data.files import load_file
from flipmeter.errors import Problem
from flipmeter.study.draft import draft_study
from flipmeter.study.file import read_study

SEVERITY = ["mild", "grave", "fatal"]
"""Not in the order of the alphabet, nor of first appearance."""


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    names = ["fatal", "mild", "grave", "mild"] * 5
    frame = pl.DataFrame(
        {"body": [f"Ticket {place} came in." for place in range(20)], "severity": names},
        schema={"body": pl.String, "severity": pl.Enum(SEVERITY)},
    )
    frame.write_parquet(tmp_path / "tickets.parquet")
    return tmp_path / "tickets.parquet"


def test_an_enum_in_a_file_is_the_scale_of_a_dataset(tickets: Path) -> None:
    found = load_file(tickets, text="body", label="severity")
    assert found.task.scale.names == tuple(SEVERITY)
    assert found.test[0].gold == 3


def test_a_scale_that_is_named_wins_over_that_of_the_file(tickets: Path) -> None:
    found = load_file(tickets, text="body", label="severity", scale=SEVERITY[::-1])
    assert found.task.scale.names == tuple(SEVERITY[::-1])


def test_a_column_of_words_alone_has_no_order(tmp_path: Path, tickets: Path) -> None:
    words = pl.read_parquet(tickets).with_columns(pl.col("severity").cast(pl.String))
    words.write_parquet(tmp_path / "words.parquet")
    with pytest.raises(Problem, match="no scale given"):
        load_file(tmp_path / "words.parquet", text="body", label="severity")


def test_init_takes_the_order_of_an_enum(tickets: Path) -> None:
    out = tickets.with_name("study.yaml")
    drafted = draft_study(tickets, out, model="local/smollm2-135m")
    out.write_text(drafted.text, encoding="utf-8")
    study: Any = read_study(out)
    assert study.datasets[0]["scale"] == SEVERITY


@pytest.mark.parametrize(
    "dtype",
    [pd.CategoricalDtype(SEVERITY, ordered=True), pl.Enum(SEVERITY)],
    ids=["pandas", "polars"],
)
def test_a_dtype_is_the_scale_of_a_study(dtype: Any, tickets: Path) -> None:
    source = {"file": str(tickets), "text": "body", "label": "severity", "scale": dtype}
    study: Any = fm.Study(models=["sim/honest"], datasets=[source])
    assert study.datasets[0]["scale"] == SEVERITY


def test_predictions_with_an_enum_need_no_scale(tmp_path: Path) -> None:
    rows = [
        {"item": f"i{place}", "condition": view, "label": SEVERITY[(place + (view == "b")) % 3]}
        for place in range(6)
        for view in ("a", "b")
    ]
    kinds: Any = {"item": pl.String, "condition": pl.String, "label": pl.Enum(SEVERITY)}
    pl.DataFrame(rows, schema=kinds).write_parquet(tmp_path / "said.parquet")
    ranks = fm.read_predictions(tmp_path / "said.parquet").decisions["rank"].to_list()
    assert ranks[:4] == [1, 2, 2, 3]
