"""Aspects, certificates and comparisons, as a user asks for them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from flipmeter.ask.store import Store
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.study.file import read_study

Cli = Callable[..., tuple[int, str, str]]
ROWS = "".join(
    f"ticket {k} about {k * 7 % 11},{('low', 'medium', 'high')[k % 3]}\n" for k in range(90)
)
STUDY = """
name: NAME
models: ['MODEL']
datasets: [{file: tickets.csv, text: body, label: severity, scale: [low, medium, high]}]
test_size: 40
base: {shots: 2}
repeats: 2
repeat_views: [base, reversed]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the same items, by a rater that prefers the first slot and one that wavers."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "tickets.csv").write_text("body,severity\n" + ROWS, encoding="utf-8")
    for name, model in (("tilted", "sim/first-slot?strength=2"), ("noisy", "sim/noisy")):
        study = folder / f"{name}.yaml"
        study.write_text(STUDY.replace("NAME", name).replace("MODEL", model), encoding="utf-8")
        perform(read_study(study), folder / "runs" / name, Store())
    return folder


@pytest.fixture
def runs(made: Path, cli: Cli, tmp_path: Path) -> list[str]:
    """Copies of the two runs, in the folder that a test works in."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return ["runs/tilted", "runs/noisy"]


def test_every_aspect_prints_a_table(cli: Cli, runs: list[str]) -> None:
    for folder in runs:
        code, out, err = cli("measure", folder, "--show", "all")
        assert (code, err) == (0, "")
        assert "primacy: pulled" in out
        assert "excess U" in out
        assert "ordinal alpha" in out
        assert "Holm" in out


def test_aspects_come_for_a_machine_and_as_files(cli: Cli, runs: list[str]) -> None:
    _, out, _ = cli("measure", runs[0], "--show", "severity, worst", "--json")
    content = json.loads(out)
    assert {row["metric"] for row in content["severity"]} >= {"distance", "alpha"}
    _, text, _ = cli("measure", runs[0], "--show", "worst", "--csv", "--out", "all.parquet")
    assert text.startswith("aspect,rater")
    assert set(pl.read_parquet("all.parquet")["aspect"]) == {"worst"}


def test_a_first_slot_rater_is_pulled_to_the_first_slots(cli: Cli, runs: list[str]) -> None:
    content = json.loads(cli("measure", runs[0], "--show", "direction,slots", "--json")[1])
    (bias,) = (row for row in content["direction"] if row["metric"] == "slot_bias")
    assert bias["high"] < 0
    (test,) = (row for row in content["slots"] if row["metric"] == "slot_test")
    assert test["p"] < 0.01


def test_orders_of_a_pair_and_ranks_of_systems_are_named_in_words(
    cli: Cli, write: Callable[[str, str], Path]
) -> None:
    rows = [
        f"q{k},{'ab'[k % 3 == 0]},{'ab'[k % 2]},a,{['ant', 'bee', 'cat'][k % 3]},"
        f"{['bee', 'cat', 'ant'][k % 3]}"
        for k in range(30)
    ]
    header = "item,as_given,swapped,gold,system_a,system_b\n"
    write("verdicts.csv", header + "\n".join(rows) + "\n")
    code, out, _ = cli("measure", "verdicts.csv", "--show", "pairs,systems")
    lines = [line for line in out.splitlines() if line.strip()]
    assert code == 0
    for told in ("ties, as given", "accuracy, swapped", "no place is preferred, p: randomisation"):
        assert any(told in line for line in lines), told
    (place,) = (k for k, line in enumerate(lines) if "rank of ant" in line)
    ranks = "".join(lines[place : place + 2])
    assert "[1, 3]" in ranks
    assert ".000" not in ranks


def test_costs_are_read_from_a_file(
    cli: Cli, runs: list[str], write: Callable[[str, str], Path]
) -> None:
    write("costs.csv", "0,1,5\n1,0,1\n5,1,0\n")
    plain, own = (
        json.loads(cli("measure", runs[1], "--show", "worst", "--json", *more)[1])["worst"]
        for more in ((), ("--costs", "costs.csv"))
    )
    costs = [
        {row["view"]: row["value"] for row in rows if row["metric"] == "cost"}
        for rows in (plain, own)
    ]
    assert costs[0]["P1"] < costs[1]["P1"]


def test_a_claim_is_certified_or_not(cli: Cli, runs: list[str]) -> None:
    code, out, _ = cli("check", runs[0], "P1<0.05", "P2c < 30 %")
    assert code == 1
    assert "P1<0.05" in out
    assert "P2c<0.3" in out
    assert "refuted (all flips: " in " ".join(out.split())


@pytest.mark.parametrize("words", [["measure", "RUN"], ["check", "RUN", "P1<0.05"]])
def test_a_table_is_written_as_csv(cli: Cli, runs: list[str], words: list[str]) -> None:
    """Cells that are lists (findings, notes) too."""
    asked = [runs[0] if word == "RUN" else word for word in words]
    _, out, _ = cli(*asked, "--csv")
    cli(*asked, "--out", "table.csv")
    assert pl.read_csv("table.csv").height == pl.read_csv(out.encode()).height > 0


def test_a_noisy_greedy_rater_is_warned_of(runs: list[str]) -> None:
    assert Run(Path(runs[0])).warnings == {}
    (warning,) = Run(Path(runs[1])).warnings.values()
    assert "repeats differ although decoding is greedy" in warning


def test_two_runs_are_compared_item_by_item(cli: Cli, runs: list[str]) -> None:
    code, out, _ = cli("compare", *runs)
    assert code == 0
    assert "runs/noisy minus runs/tilted" in out
    same = json.loads(cli("compare", runs[0], runs[0], "--json")[1])["differences"]
    assert {row["word"] for row in same} == {"not distinguishable"}
    assert cli("compare", *runs, "--csv")[1].startswith("level,rater")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["measure", "--show", "severety"], "did you mean 'severity'"),
        (["check", "P1"], "P1<0.10"),
        (["measure", "--show", "worst", "--costs", "nowhere.csv"], "cannot read costs"),
    ],
)
def test_what_is_asked_wrongly_ends_with_2_and_a_way_out(
    cli: Cli, runs: list[str], asked: list[str], says: str
) -> None:
    code, _, err = cli(asked[0], runs[0], *asked[1:])
    assert code == 2
    assert says in " ".join(err.split())
