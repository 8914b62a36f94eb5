"""Classes without an order: nothing that needs one is measured, shown, asked for or held to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import flipmeter as fm
from conftest import Cli
from flipmeter.data.labels import read_labels
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.stats.metrics import metrics as registered
from flipmeter.types import Scale

Write = Callable[[str, str], Path]
ORDINAL = {name for name, metric in registered.items() if metric.needs_order}
COLOURS = ["red", "green", "blue", "yellow"]
TEXTS = ["{} rose {}", "a {} thing with number {}", "so {} it hurts {} times"]


def texts_of_colours(n: int = 48) -> str:
    rows = [
        f"{TEXTS[k % 3].format(COLOURS[k % 4], k)},{COLOURS[(k * 7) % 4]}" for k in range(1, n + 1)
    ]
    return "\n".join(["text,colour", *rows]) + "\n"


def study(write: Write, folder: Path, **more: object) -> Run:
    path = write("colours.csv", texts_of_colours())
    entry = {"file": str(path), "label": "colour", "scale": "nominal"}
    options = {
        "models": ["sim/first-slot?strength=8&noise=0.4"],
        "test_size": 24,
        "base": {"shots": 1},
    }
    made = fm.Study(datasets=[entry], probes=["label_order"], **{**options, **more})
    return made.run(folder / "run").source


@pytest.fixture
def run(write: Write, tmp_path: Path) -> Run:
    return study(write, tmp_path)


def test_nominal_alone_takes_the_classes_from_the_labels_that_occur() -> None:
    labels = read_labels("nominal", found=["red", "Blue", "green", "red", "", None, "blue"])
    assert labels.task.scale.nominal
    assert [name.casefold() for name in labels.task.scale.names] == ["blue", "green", "red"]
    assert labels.rank("RED") == 3


def test_nominal_classes_may_be_named_in_any_order_and_with_values() -> None:
    named = read_labels({"nominal": ["red", "green"]}).task.scale
    assert named == Scale(("red", "green"), "red", "green", nominal=True)
    valued = read_labels({"nominal": {0: "red", 1: "green"}})
    assert valued.task.scale.nominal
    assert valued.rank(0) == 1
    assert valued.rank("green") == 2


def test_a_scale_with_a_value_called_nominal_keeps_its_order() -> None:
    labels = read_labels({"nominal": "weak", "full": "strong"})
    assert not labels.task.scale.nominal
    assert labels.rank("nominal") == 1


@pytest.mark.parametrize("found", [[], ["red", "red", ""]])
def test_one_class_is_not_enough(found: list[object]) -> None:
    with pytest.raises(Problem, match="two are needed"):
        read_labels("nominal", found=found)


def test_thousands_of_labels_are_no_classes() -> None:
    with pytest.raises(Problem, match="1,001 of them"):
        read_labels("nominal", found=[f"text {k}" for k in range(1001)])


def test_no_number_of_a_nominal_run_needs_an_order(run: Run) -> None:
    assert run.decisions["nominal"].all()
    measured = {*run.estimates["metric"]}
    assert "accuracy" in measured
    assert not measured & ORDINAL
    for name in ("direction", "excess", "worst", "confidence"):
        table = fm.Run(run.folder).aspects(name)
        assert table.height
        assert not {*table["metric"]} & ORDINAL


def test_severity_of_nominal_classes_is_refused(run: Run) -> None:
    with pytest.raises(Problem, match="severity: not defined, because the scale is nominal"):
        fm.Run(run.folder).aspects("severity")


def test_the_verdict_knows_slots_and_no_moves_up_or_down(run: Run) -> None:
    row = run.verdicts.filter(contrast="P1").row(0, named=True)
    assert row["moved_up"] is None
    assert row["moved_down"] is None
    assert row["direction"] > 0
    assert row["word"] == "flips"
    assert row["leans"] == "up"


def test_reports_show_neither_spearman_nor_mae_nor_distances(
    run: Run, cli: Cli, tmp_path: Path
) -> None:
    _, out, _ = cli("measure", str(run.folder), "--show", "scores,verdicts")
    assert "macro F1" in out
    assert "Spearman" not in out
    assert "MAE" not in out
    assert "towards the first label" in " ".join(out.split())
    page = fm.Run(run.folder).report(tmp_path / "page.html").read_text()
    assert "Spearman" not in page
    assert "MAE" not in page
    assert "higher classes" not in page
    assert fm.Run(run.folder).flips["distance"].null_count() == fm.Run(run.folder).flips.height


def test_gates_and_selection_by_mae_are_refused(run: Run) -> None:
    with pytest.raises(Problem, match=r"'colours' have no order, so there is no MAE"):
        fm.Run(run.folder).check(gate={"mae": 0.5})
    with pytest.raises(Problem, match=r"have no order, so there is no MAE"):
        fm.Run(run.folder).select(by="mae")
    assert fm.Run(run.folder).check(gate={"accuracy": 0.01}).word


def test_comparisons_and_residuals_leave_ordinal_scores_out(write: Write, tmp_path: Path) -> None:
    run = fm.Run(study(write, tmp_path, vary={"label_format": ["letter"]}).folder)
    assert not {*run.residuals()["metric"]} & ORDINAL
    assert not {*run.compare(run)["metric"]} & ORDINAL
    assert "accuracy" in {*run.compare(run)["metric"]}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"pipeline": "pairwise"}, "the pipeline 'pairwise'"),
        ({"pipeline": "pointwise+label_average"}, "the pipeline 'pointwise\\+label_average'"),
        ({"base": {"clarity": "ordinal_explicit"}}, "the clarity 'ordinal_explicit'"),
        ({"base": {"cardinality": 2, "shots": 1}}, "a `cardinality` without `merge`"),
    ],
)
def test_what_needs_an_order_is_refused_before_anything_is_asked(
    write: Write, tmp_path: Path, options: dict[str, object], what: str
) -> None:
    with pytest.raises(Problem, match=f"{what} needs classes in an order"):
        study(write, tmp_path, **options)


PREDICTIONS = "item,condition,label,gold\n" + "".join(
    f"{k},base,{COLOURS[k % 4]},{COLOURS[k % 4]}\n{k},other,{COLOURS[(k + k % 2) % 4]},\n"
    for k in range(40)
)


@pytest.mark.parametrize("scale", ["nominal", "nominal:red,green,blue,yellow"])
def test_a_table_of_predictions_may_be_nominal(cli: Cli, write: Write, scale: str) -> None:
    table = PREDICTIONS.replace(",\n", ",{}\n")
    lines = table.splitlines()
    golds = {line.split(",")[0]: line.rsplit(",", 1)[1] for line in lines if ",base," in line}
    filled = [line.replace("{}", golds.get(line.split(",")[0], "")) for line in lines]
    path = write("answers.csv", "\n".join(filled) + "\n")
    code, out, err = cli("measure", str(path), "--scale", scale, "--json")
    assert code == 0, err
    metrics = {row["metric"] for row in json.loads(out)["estimates"]}
    assert "accuracy" in metrics
    assert not metrics & ORDINAL


def test_words_without_a_known_order_may_be_called_nominal(cli: Cli, write: Write) -> None:
    path = write("answers.csv", "item,condition,label\na,x,red\na,y,green\n")
    _, _, err = cli("measure", str(path))
    assert "--scale nominal" in err


def test_decisions_of_a_nominal_run_are_a_nominal_table(run: Run, tmp_path: Path) -> None:
    for name in ("decisions.parquet", "decisions.csv"):
        path = tmp_path / name
        flat = run.decisions.drop("probabilities")
        _ = flat.write_parquet(path) if name.endswith("parquet") else flat.write_csv(path)
        table = fm.Run(path)
        assert not {*table.estimates["metric"]} & ORDINAL
        assert table.verdicts["p"].to_list() == pytest.approx(run.verdicts["p"].to_list())


def test_ordinal_and_nominal_datasets_are_measured_each_in_its_way() -> None:
    from flipmeter.stats.estimates import measure
    from flipmeter.types import Contrast

    rows = [
        {
            "rater": "r",
            "dataset": dataset,
            "level": "",
            "seed": 0,
            "view": view,
            "repeat": 0,
            "item": str(k),
            "gold": 1 + k % 3,
            "rank": 1 + (k + (view == "b")) % 3,
            "n_classes": 3,
            "nominal": dataset == "colours",
        }
        for dataset in ("colours", "grades")
        for view in ("a", "b")
        for k in range(9)
    ]
    table = measure(pl.DataFrame(rows), [Contrast("C", ("a", "b"))])
    by = {name: {*part["metric"]} for (name,), part in table.group_by("dataset")}
    assert "mae" in by["grades"]
    assert not by["colours"] & ORDINAL
