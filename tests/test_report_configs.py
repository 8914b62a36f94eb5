"""Transfer and choices as the verb measure shows them, on simulated raters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from changed_runs import changed
from conftest import Cli
from flipmeter.ask.store import Store
from flipmeter.run.perform import perform
from flipmeter.study.entries import configs
from flipmeter.study.file import read_study

MODELS = ["sim/first-slot", "sim/noisy"]
STUDY: dict[str, Any] = {
    "models": MODELS,
    "datasets": ["reviews"],
    "test_size": 20,
    "probes": ["label_order"],
    "repeats": 1,
    "vary": {"mood": ["indicative", "interrogative"], "shots": [3]},
    "vary_models": ["sim/noisy"],
    "base": {"shots": 1},
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one-factor levels of the second rater, with config P1 of both beside them."""
    folder = tmp_path_factory.mktemp("configs")
    joint = STUDY | {"vary": {}, "vary_models": [], "base": STUDY["base"] | dict(configs["P1"])}
    with Store(folder / "replies.sqlite") as store:
        run = perform(read_study(STUDY), folder / "run", store)
        asked = perform(read_study(joint), folder / "joint", store).decisions
    asked = asked.with_columns(level=pl.lit("config=P1"))
    together = pl.concat([run.decisions, asked], how="vertical_relaxed")
    return changed(run.folder, decisions=together).folder


@pytest.fixture
def called(run_folder: Path, cli: Cli) -> Callable[..., tuple[int, str]]:
    def call(verb: str, *options: str) -> tuple[int, str]:
        code, out, err = cli(verb, str(run_folder), *options)
        return code, out + err

    return call


Called = Callable[..., tuple[int, str]]


def test_the_verb_subtracts_a_model_from_the_others_config_by_config(called: Called) -> None:
    code, text = called("effects", "--reference", "sim/first-slot")
    assert code == 0
    assert "differ from sim/first-slot under the same config" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["sim/noisy"] in lines
    assert {line[0] for line in lines if line} >= {"baseline", "P1"}


@pytest.mark.parametrize(
    ("ending", "wanted"),
    [
        ("md", "| model | config | dataset |"),
        ("tex", r"model & config & Acc.$\uparrow$"),
        ("csv", 'transfer,P1,sim/noisy,"",accuracy,'),
    ],
)
def test_transfer_is_written_in_every_format(
    called: Called, tmp_path: Path, ending: str, wanted: str
) -> None:
    out = tmp_path / f"t.{ending}"
    assert called("effects", "--reference", "sim/first-slot", "--out", str(out))[0] == 0
    assert wanted in out.read_text(encoding="utf-8")


def test_transfer_as_parquet_holds_who_was_subtracted(called: Called, tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    called("effects", "--reference", "sim/noisy", "--out", str(out))
    found = pl.read_parquet(out).filter(table="transfer")
    assert found["against"].unique().to_list() == ["sim/noisy"]
    assert found["rater"].unique().to_list() == ["sim/first-slot"]


def test_an_unknown_reference_answers_with_the_nearest_model(called: Called) -> None:
    code, text = called("effects", "--reference", "sim/nosy")
    assert code == 2
    assert "did you mean 'sim/noisy'?" in text


def test_a_choice_is_yaml_for_a_study(called: Called) -> None:
    code, text = called("select", "--by-factor", "--by", "P1")
    assert code == 0
    assert "interactions are ignored" in text
    (document,) = yaml.safe_load_all(text)
    table = json.loads(called("effects", "--json")[1])["residuals"]
    of = {
        (row["factor"], row["level"]): row["value"]
        for row in table
        if (row["rater"], row["dataset"], row["metric"]) == ("sim/noisy", "", "P1")
    }
    moods = {level: value for (factor, level), value in of.items() if factor == "mood"}
    wanted: dict[str, Any] = {"shots": 3} if of["shots", "3"] < 0 else {}
    wanted |= {"mood": min(moods, key=moods.__getitem__)} if min(moods.values()) < 0 else {}
    assert document == {"configs": {"greedy-P1": wanted}}
    assert list(yaml.safe_load(called("select", "--by-factor")[1])) == ["configs"]


def test_a_choice_by_factor_is_the_same_for_a_machine_and_in_a_file(
    called: Called, tmp_path: Path
) -> None:
    out = tmp_path / "configs.yaml"
    content = json.loads(called("select", "--by-factor", "--json")[1])["by_factor"]
    assert called("select", "--by-factor", "--out", str(out))[0] == 0
    documents = list(yaml.safe_load_all(out.read_text(encoding="utf-8")))
    assert [one["configs"] for one in content.values()] == [one["configs"] for one in documents]
    only = json.loads(called("select", "--by-factor", "--rater", "sim/noisy", "--json")[1])
    assert list(only["by_factor"]) == ["sim/noisy"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["select", "--by-factor", "--by", "P9"], "no metric named 'P9'"),
        (["select", "--by-factor", "--max-flip", "P1=0.1"], "does not apply to --by-factor"),
    ],
)
def test_what_cannot_be_shown_is_refused(called: Called, options: list[str], wanted: str) -> None:
    code, text = called(*options)
    assert code == 2
    assert wanted in " ".join(text.split())


def test_a_run_without_configs_says_what_is_missing(cli: Cli, tmp_path: Path) -> None:
    plain = STUDY | {"vary": {}, "vary_models": [], "test_size": 5}
    with Store(tmp_path / "replies.sqlite") as store:
        perform(read_study(plain), tmp_path / "run", store)
    code, _, err = cli("effects", str(tmp_path / "run"), "--reference", "sim/noisy")
    assert code == 2
    assert "no config was asked in this run" in err
    code, _, err = cli("select", str(tmp_path / "run"), "--by-factor")
    assert code == 2
    assert "add levels under `vary:`" in " ".join(err.split())
