"""Tables of predictions: every estimate and the report without a model."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from conftest import Cli
from flipmeter import read_predictions
from flipmeter.errors import Problem
from flipmeter.prompt.probes import contrasts_of
from flipmeter.run.folder import Run
from flipmeter.run.generation import DECISIONS
from flipmeter.run.predictions import contrasts_between
from flipmeter.stats.aspects import measure_aspects
from flipmeter.stats.residuals import residuals
from report_runs import simulated

Write = Callable[[str, str], Path]
NAMES = ("very negative", "negative", "neutral", "positive", "very positive")

SMALL = """\
item,condition,label,gold
a,long,low,low
a,short,low,low
b,long,high,high
b,short,mid,high
c,long,mid,mid
c,short,,mid
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run with noise, so that nothing is 0 by construction."""
    models = ["sim/first-slot?noise=0.5", "sim/noisy"]
    return simulated(tmp_path_factory.mktemp("run"), models=models, seeds=[0, 1], test_size=40)


def exported(run: Run) -> pl.DataFrame:
    """Return the decisions of a run as somebody else would write them down."""
    names = pl.Series("name", ["", *NAMES])
    return run.decisions.select(
        pl.col("rater").alias("model"),
        "dataset",
        "level",
        "seed",
        pl.col("view").alias("condition"),
        "repeat",
        "item",
        names.gather(run.decisions["rank"]).alias("label"),
        names.gather(run.decisions["gold"]).alias("gold"),
        "fault",
    )


def without_costs(estimates: pl.DataFrame) -> pl.DataFrame:
    """Leave out what answers cost: a table of predictions does not say."""
    costs = pl.col("metric").str.contains("tokens|calls")
    return estimates.filter(~costs).drop("warning")


def test_the_decisions_of_a_run_give_exactly_its_estimates(run: Run) -> None:
    table = read_predictions(run.path(DECISIONS))
    assert_frame_equal(table.estimates.drop("warning"), run.estimates.drop("warning"))
    # A table does not know how many items its data has, which some reasons of a run say.
    assert_frame_equal(table.verdicts.drop("reason"), run.verdicts.drop("reason"))
    assert table.contrasts == run.contrasts


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_predictions_exported_from_a_run_give_exactly_its_estimates(
    run: Run, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"answers.{ending}"
    table = exported(run)
    if ending == "csv":
        table.write_csv(path)
    elif ending == "jsonl":
        table.write_ndjson(path)
    else:
        table.write_parquet(path)
    found = read_predictions(path, NAMES)
    assert_frame_equal(without_costs(found.estimates), without_costs(run.estimates))
    assert found.decisions["slot"].to_list() == run.decisions["slot"].to_list()


def test_other_conditions_are_held_against_the_first(write: Write) -> None:
    found = read_predictions(write("answers.csv", SMALL), ["low", "mid", "high"])
    (contrast,) = found.contrasts
    assert (contrast.name, contrast.views) == ("short", ("long", "short"))
    flips = found.estimates.filter(metric="short")
    by_policy = {row["policy"]: (row["k"], row["n"]) for row in flips.to_dicts()}
    assert by_policy["complete"] == (1, 2)
    assert by_policy["strict"] == (2, 3)


def test_base_is_the_reference_wherever_it_stands() -> None:
    found = contrasts_between(["short", "base", "long"])
    assert [contrast.views for contrast in found] == [("base", "short"), ("base", "long")]


def test_our_views_make_our_contrasts_and_others_join_them() -> None:
    found = contrasts_between(["base", "reversed", "french"])
    assert [(c.name, c.probe) for c in found] == [("P1", "label_order"), ("french", "")]
    assert contrasts_between(["base", "after", "split"]) == contrasts_of(["placement"])


def test_a_condition_must_not_pass_for_a_contrast_of_ours() -> None:
    with pytest.raises(Problem, match=r"a condition is called 'P1'.*rename"):
        contrasts_between(["base", "P1"])


def test_a_scale_of_numbers_is_guessed_and_said(write: Write) -> None:
    rows = ["item,condition,label,gold"]
    rows += [f"{item},{c},{item % 11},{item % 11}" for item in range(22) for c in ("base", "x")]
    found = read_predictions(write("answers.csv", "\n".join(rows)))
    assert found.scales["answers"].names == tuple(str(number) for number in range(11))
    assert found.decisions["rank"].max() == 11
    notes = found.environment["datasets"]["answers"]["notes"]
    assert notes == ["the scale was taken to be 0 to 10, the range of the labels found"]


def test_items_that_a_condition_lacks_are_counted(write: Write) -> None:
    text = SMALL.replace("a,short,low,low\n", "")
    found = read_predictions(write("answers.csv", text), ["low", "mid", "high"])
    assert found.environment["datasets"]["answers"]["notes"] == [
        "'short' lacks 1 of 3 answers that other conditions have; "
        "only items with both answers form pairs"
    ]
    assert found.estimates.filter(metric="short", policy="strict")["n"].to_list() == [2]


def test_gold_may_be_missing(write: Write) -> None:
    rows = ["item,condition,label", "a,x,1", "a,y,2", "b,x,2", "b,y,2"]
    found = read_predictions(write("answers.csv", "\n".join(rows)))
    assert found.estimates.filter(metric="y", policy="complete")["value"].to_list() == [0.5]
    accuracy = found.estimates.filter(metric="accuracy")
    assert set(accuracy["note"]) == {"no labels"}


def test_decisions_of_a_run_may_have_been_through_a_spreadsheet(write: Write) -> None:
    rows = ["item,view,rank,n_classes", "a,base,1.0,3.0", "a,reversed,2.0,3.0", "b,base,2,"]
    found = read_predictions(write("answers.csv", "\n".join(rows)))
    assert found.decisions["n_classes"].to_list() == [3, 3, 3]


def test_probabilities_are_taken_by_class(write: Write) -> None:
    rows = ["item,condition,label,p_low,p_high", "a,x,low,0.9,0.1", "a,y,high,0.2,0.8"]
    found = read_predictions(write("answers.csv", "\n".join(rows)), ["low", "high"])
    assert found.decisions["probabilities"].to_list() == [[0.9, 0.1], [0.2, 0.8]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("item,label,gold\na,1,1\n", "no column 'condition'"),
        (
            "item,condition,label\na,x,1\na,x,2\n",
            "row 3: 'a' already has an answer under 'x', in row 2",
        ),
        ("item,condition,label\na,x,low\na,y,high\n", "pass all classes, lowest first: --scale"),
        ("item,condition,label\na,x,1\nb,x,2\n", "every row has the condition 'x'"),
        ("item,condition,label\na,x,1\na,,2\n", "row 3: the column 'condition' is empty"),
        (
            "item,condition,label,gold\na,x,1,1\na,y,2,2\n",
            "row 3: 'a' has a different gold in row 2",
        ),
        ("item,condition,label,fault\na,x,1,\na,y,2,refusd\n", "row 3: no fault named 'refusd'"),
        ("item,condition,label,fault\na,x,1,\na,y,2,error\n", "row 3: a label and the fault"),
        ("item,condition,label,repeat\na,x,1,0\na,y,2,no\n", "row 3: repeat is 'no'"),
        ("item,condition,label,p_1\na,x,1,1\na,y,2,0\n", "has the column p_1 and no p_2"),
        ("item,condition,label\na,x,1\na,y,200\n", "the labels go from 1 to 200"),
        ("item,condition,label\n", "has no rows"),
        (f"item,condition,label,seed\na,x,1,0\na,y,2,{10**20}\n", "row 3: seed is '1000"),
        ("item,view,rank,n_classes\na,x,1,3\na,y,2,few\n", "row 3: n_classes is 'few'"),
        ("item,condition,label,p_1,p_2\na,x,1,1,0\na,y,2,.9,.9\n", "row 3: p_1, p_2 add up to 1.8"),
    ],
)
def test_errors_say_which_row_and_value(write: Write, text: str, complaint: str) -> None:
    path = write("answers.csv", text)
    with pytest.raises(Problem) as error:
        read_predictions(path).estimates  # noqa: B018 - whichever comes first
    assert complaint in str(error.value)
    assert "answers.csv" in str(error.value)


def test_a_label_that_is_not_on_the_scale_names_its_row(write: Write) -> None:
    with pytest.raises(Problem, match=r"row 5: the label 'mid' is not on the scale.*--scale"):
        read_predictions(write("answers.csv", SMALL), ["low", "high"])


def test_the_command_line_measures_a_table(write: Write, cli: Cli) -> None:
    path = write("answers.csv", SMALL)
    code, out, err = cli("measure", str(path), "--scale", "low,mid,high")
    assert (code, err) == (0, "")
    assert "short" in out
    code, out, _ = cli("measure", str(path), "--scale", "low,mid,high", "--json")
    assert json.loads(out)["study"] == "answers"
    code, _, err = cli("measure", str(path))
    assert code == 2
    assert "--scale" in err


def test_without_a_base_the_first_condition_says_how_sure_and_how_right(write: Write) -> None:
    rows = ["item,condition,label,gold,level,p_low,p_high"]
    for number in range(8):
        for level in ("", "terse"):
            rows.append(f"{number},long,low,low,{level},0.{9 - number},0.{1 + number}")
            rows.append(f"{number},brief,{'high' if number > 3 else 'low'},low,{level},0.5,0.5")
    found = read_predictions(write("answers.csv", "\n".join(rows)), ["low", "high"])
    sure = measure_aspects(found.decisions, found.contrasts, ["certainty"])["certainty"]
    assert sure.filter(metric="margin_rho")["n"].to_list() == [8, 8]
    accuracy = residuals(found.decisions, found.contrasts, mode=found.study.mode)
    assert accuracy.filter(metric="accuracy")["value"].to_list() == [0.0, 0.0]


def test_every_aspect_of_a_table_can_be_shown(write: Write, cli: Cli) -> None:
    path = write("answers.csv", SMALL)
    code, _, err = cli("measure", str(path), "--scale", "low,mid,high", "--show", "all")
    assert (code, err) == (0, "")


def test_the_report_of_a_table_shows_the_texts(write: Write, cli: Cli, tmp_path: Path) -> None:
    rows = ["item,condition,label,gold,text"]
    rows += [
        f"{k},{c},{1 + (k + n) % 3},1,Sentence number {k}."
        for k in range(6)
        for n, c in enumerate("xy")
    ]
    path = write("answers.csv", "\n".join(rows))
    assert cli("report", str(path))[0] == 0
    page = (tmp_path / "answers.html").read_text(encoding="utf-8")
    assert "Sentence number 3." in page
    assert "a table of predictions contains no prompts" in page
    assert cli("report", str(path), "-o", "answers.md")[0] == 0


def test_a_scale_is_not_for_a_run(run: Run, cli: Cli) -> None:
    code, _, err = cli("measure", str(run.folder), "--scale", "1,2")
    assert code == 2
    assert "--scale is for a table" in err


def test_two_tables_are_not_one(write: Write, cli: Cli) -> None:
    one, two = write("one.csv", SMALL), write("two.csv", SMALL)
    code, _, err = cli("measure", str(one), str(two), "--scale", "low,mid,high")
    assert code == 2
    assert "one.csv is a table of predictions" in " ".join(err.split())


def test_a_table_is_checked_and_compared_like_a_run(run: Run, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "answers.csv"
    exported(run).write_csv(path)
    (tmp_path / "gate.yaml").write_text("flips: {P1: 0.9}\n", encoding="utf-8")
    scale = ("--scale", ",".join(NAMES))
    gate = ("--gate", "gate.yaml", "--json")
    told = [cli("check", str(path), *scale, *gate), cli("check", str(run.folder), *gate)]
    claims = [json.loads(out)["claims"] for _, out, _ in told]
    words = [[(claim["word"], claim["value"]) for claim in some] for some in claims]
    assert words[0] == words[1]
    assert ["next" in json.loads(out) for _, out, _ in told] == [False, False]
    open_ = json.loads(cli("check", str(path), "P1<0.001", *scale, "--json")[1])
    assert open_["next"] == [shlex.join(["flipmeter", "report", str(path), *scale])]
    _, same, _ = cli("compare", str(path), str(path), *scale, "--json")
    values = {row["value"] for row in json.loads(same)["differences"]}
    assert 0.0 in values
    assert values <= {0.0, None}


def test_a_table_is_no_run_to_select_from(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    exported(run).write_csv(path)
    with pytest.raises(
        Problem, match="a run folder is needed; tables of predictions are for measure"
    ):
        Run(path).study  # noqa: B018


@pytest.mark.parametrize(
    ("name", "content"),
    [("t.csv", ""), ("t.csv", "item,condition,label\n"), ("t.jsonl", "\n \n"), ("T.CSV", "")],
)
def test_an_empty_table_names_the_file_and_what_it_needs(
    cli: Cli, write: Write, name: str, content: str
) -> None:
    write(name, content)
    code, _, err = cli("measure", name)
    assert code == 2
    assert f"{name} has no rows; it needs at least two, each with item, condition and label" in err


def test_a_table_is_never_written_over(cli: Cli, write: Write) -> None:
    table = write("answers.csv", SMALL)
    Path("link.csv").symlink_to(table)
    for command in (
        ("measure", "answers.csv", "--scale", "low,mid,high", "--out", "link.csv"),
        ("report", "answers.csv", "--scale", "low,mid,high", "--out", "answers.csv"),
        ("check", "answers.csv", "--scale", "low,mid,high", "--junit", "./answers.csv"),
    ):
        code, _, err = cli(*command)
        assert (code, table.read_text()) == (2, SMALL)
        assert "answers.csv is an input" in err or "link.csv is an input" in err


def test_the_parts_of_a_run_are_never_written_over(run: Run, cli: Cli) -> None:
    before = run.path(DECISIONS).read_bytes()
    code, _, err = cli("measure", str(run.folder), "--out", str(run.path(DECISIONS)))
    assert (code, run.path(DECISIONS).read_bytes()) == (2, before)
    assert "use another --out" in " ".join(err.split())


def test_a_table_that_cannot_be_written_says_so(cli: Cli, write: Write) -> None:
    write("answers.csv", SMALL)
    for name in ("nowhere/out.csv", "nowhere/out.parquet"):
        command = ("measure", "answers.csv", "--scale", "low,mid,high", "--out", name)
        code, _, err = cli(*command)
        assert code == 2
        assert f"cannot write {name}" in err


def test_a_label_that_is_nan_could_not_be_read(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {
            "item": ["a", "a", "b", "b"],
            "condition": ["x", "y"] * 2,
            "label": [1.0, 2.0, float("nan"), 3.0],
        }
    )
    table.write_parquet(tmp_path / "t.parquet")
    lines = (json.dumps(row) for row in table.to_dicts())
    (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for name in ("t.parquet", "t.jsonl"):
        found = read_predictions(tmp_path / name).decisions
        assert found["rank"].to_list() == [1, 2, 0, 3]
        assert found["fault"].to_list() == ["", "", "unparsed", ""]


def test_a_table_that_no_line_of_can_be_read_says_which(write: Write) -> None:
    with pytest.raises(Problem, match=r"t\.jsonl, row 1: malformed JSON.*no row can be read"):
        read_predictions(write("t.jsonl", "item,condition,label\na,b,c\n"))
    bad = write("u.jsonl", '{"item": "a", "condition": "x", "label": 1}\n{"item"\n')
    with pytest.raises(Problem, match=r"u\.jsonl, row 2: malformed JSON"):
        read_predictions(bad)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,x,,,", "a,y,,,"], "t.csv: no row has a label in 'label'; fill it in"),
        (["a,x,1,1,3", "a,y,2,1,"], "row 2: slot is 3, but the list has 2 labels"),
        (["a,x,1,1,", "a,y,2,2,"], "row 3: 'a' has a different gold in row 2; keep one"),
    ],
)
def test_what_a_table_cannot_mean_is_said(write: Write, rows: list[str], message: str) -> None:
    path = write("t.csv", "\n".join(["item,condition,label,gold,slot", *rows]))
    with pytest.raises(Problem) as raised:
        read_predictions(path)
    assert message in str(raised.value)
