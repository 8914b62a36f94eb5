"""The registry of backends: what is registered works wherever a model is named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from conftest import Cli
from flipmeter.ask.capabilities import stated
from flipmeter.ask.endpoints import base_url_of
from flipmeter.ask.family import Backend, Family, World, backends, family_of
from flipmeter.ask.prices import find_prices
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.run.batch import export_batch
from flipmeter.study.file import read_study
from flipmeter.types import Model, Reply, Request

STUDY = {
    "name": "new",
    "models": ["loud/first"],
    "datasets": ["reviews"],
    "test_size": 20,
    "probes": ["label_order"],
    "repeats": 1,
    "base": {"shots": 0},
}


class Loud:
    """Answers with the first label of the list, in capitals."""

    concurrency = 3
    is_reproducible = True

    def __init__(self, identity: str) -> None:
        self.identity = identity

    async def ask(self, request: Request) -> Reply:
        return Reply("1", "stop", model=self.identity)

    async def close(self) -> None: ...


class LoudFamily(Family):
    about = "always the first label"
    pattern = "first"

    def open(self, model: Model, world: World | None, progress: object) -> Backend:
        return Loud(self.identity_of(model))


class FarLoudFamily(LoudFamily):
    is_in_process = False


@pytest.fixture(params=[LoudFamily, FarLoudFamily])
def loud(door: None, request: pytest.FixtureRequest) -> Family:
    family: Family = request.param()
    return backends.add("loud", family)


@pytest.mark.usefixtures("loud")
@pytest.mark.parametrize(
    "words",
    [
        ["plan", "study.json"],
        ["plan", "study.json", "--offline"],
        ["try", "study.json"],
        ["run", "study.json"],
        ["try", "loud/first"],
        ["list", "models"],
    ],
    ids=" ".join,
)
def test_a_registered_backend_works_with_every_verb(
    cli: Cli, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    code, out, err = cli(*words)
    assert code == 0, err
    assert "loud/first" in out + err


def test_a_backend_without_log_probabilities_is_refused_where_they_are_needed(
    loud: Family, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "study.json").write_text(json.dumps(STUDY | {"pipeline": "pointwise+pride"}))
    code, _, err = cli("run", "study.json")
    assert code == 2
    assert "'loud/first' shows no log-probabilities" in " ".join(err.split())


def test_a_paid_backend_without_an_endpoint_has_no_price_list(door: None) -> None:
    backends.add("loud", FarLoudFamily())
    model = Model("loud/first")
    quotes = asyncio.run(find_prices([model], {}))
    assert quotes["loud/first"].price is None
    assert "no price list" in quotes["loud/first"].note


def test_a_backend_without_an_endpoint_takes_no_batch(loud: Family, tmp_path: Path) -> None:
    study = read_study(STUDY)
    with Store(tmp_path / "s.sqlite") as store, pytest.raises(Problem, match="no model of the"):
        export_batch(study, tmp_path / "batch", store)


@pytest.mark.parametrize("name", [*backends])
def test_a_backend_says_what_it_is(name: str) -> None:
    family = backends[name]
    assert family.about
    assert family.pattern or family.models()
    assert (family.capabilities is None) == (not family.is_in_process)


@pytest.mark.parametrize("name", [*backends])
def test_the_name_of_a_backend_alone_is_no_address(name: str) -> None:
    with pytest.raises(Problem, match=f"no model '{name}/': an address is family/name"):
        family_of(Model(f"{name}/"))


def test_an_unknown_backend_names_the_nearest() -> None:
    with pytest.raises(Problem, match="did you mean 'ollama'"):
        stated(Model("olama/x"))


def test_a_backend_without_an_endpoint_has_no_address() -> None:
    with pytest.raises(Problem, match="sim/honest has no endpoint; its backend is 'sim'"):
        base_url_of(Model("sim/honest"))
