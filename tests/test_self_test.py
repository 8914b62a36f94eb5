"""Reproducible is a measurement: engines are tested once, and asked accordingly."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.ask import capabilities as testing
from flipmeter.ask.capabilities import learn_reproducible, recall_reproducible, self_test
from flipmeter.ask.family import Backend, Capability
from flipmeter.ask.llama import BATCH, SMALLEST, _n_kept, engine, is_plain
from flipmeter.ask.names import former_identity_of, identity_of, open_backend
from flipmeter.ask.store import Store
from flipmeter.ask.weights import tensor_types
from flipmeter.run.perform import perform
from flipmeter.run.preview import plan_first_round, preview
from flipmeter.study.file import Study, read_study
from flipmeter.types import Model, Reply, Request
from tiny_gguf import MIXED, PLAIN, random_model

pytestmark = pytest.mark.long

EMBEDDED = Model("local/smollm2-135m")
Files = Callable[[str], Path]
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder, made = tmp_path_factory.mktemp("gguf"), dict[str, Path]()

    def file(name: str) -> Path:
        if name not in made:
            made[name] = random_model(folder / f"{name}.gguf", name)
        return made[name]

    return file


def put_to_test(model: Model, start: Callable[[], Backend] | None = None) -> Capability:
    return asyncio.run(self_test(model, start or partial(open_backend, model)))


# Formats


@pytest.mark.real
@pytest.mark.parametrize("name", [*MIXED, *PLAIN])
def test_the_formats_people_use_are_reproducible(name: str, files: Files) -> None:
    found = put_to_test(Model(f"llamacpp/{files(name)}"))
    assert found.is_there, found.how


@pytest.mark.real
def test_the_embedded_model_is_reproducible(
    self_tested: Callable[[Path], None], tmp_path: Path
) -> None:
    self_tested(tmp_path / "replies.sqlite")
    with Store(tmp_path / "replies.sqlite") as store:
        found = recall_reproducible(EMBEDDED, store)
    assert found.is_there, found.how
    assert "43 replies to 11 prompts" in found.how


@pytest.mark.real
@pytest.mark.parametrize("name", MIXED)
def test_no_split_of_a_prompt_moves_a_bit(name: str, files: Files) -> None:
    """Whatever of a prompt the engine holds already: 1 to 60 words of it, followed by others."""
    model = Model(f"llamacpp/{files(name)}")
    words = [f"word{n}" if n % 3 else "and" for n in range(60)]
    ask = partial(testing._request, model, identity_of(model))
    whole = ask(" ".join(words))

    async def go() -> list[Reply]:
        backend = open_backend(model)
        replies = [await backend.ask(whole)]
        for n in [*range(1, 12), *range(20, 50, 9), *range(56, 61)]:
            await backend.ask(ask("nothing in common"))
            await backend.ask(ask(" ".join([*words[:n], "otherwise"])))
            replies.append(await backend.ask(whole))
        await backend.close()
        return replies

    first, *others = asyncio.run(go())
    assert first.scores is not None
    assert [reply.scores for reply in others] == [first.scores] * len(others)


@pytest.mark.real
def test_only_a_changed_computation_changes_a_key(files: Files) -> None:
    """What was stored of plain formats stays stored."""
    plain, mixed = Model(f"llamacpp/{files('F16')}"), Model(f"llamacpp/{files('Q4_K_M')}")
    assert engine().endswith("without flash attention")
    assert identity_of(EMBEDDED).endswith(f" {engine()}")
    assert identity_of(plain).endswith(f" {engine()}")
    assert (former_identity_of(EMBEDDED), former_identity_of(plain)) == (None, None)
    assert identity_of(mixed).endswith(f" {engine()} or repacking, batches from 8 tokens")
    assert f"{former_identity_of(mixed)} or repacking, batches from 8 tokens" == identity_of(mixed)


@pytest.mark.real
def test_formats_are_read_from_the_head_of_a_file(files: Files) -> None:
    assert tensor_types(files("F16")) == {"F32", "F16"}
    assert not is_plain(files("Q5_K_M"))


NESTED = struct.pack("<IQ", 9, 1) * 5_000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"no weights at all",
        b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**64 - 1),
        b"GGUF" + struct.pack("<IQQQI", 3, 0, 1, 0, 9) + NESTED,
        b"GGUF" + struct.pack("<IQQQI", 3, 0, 1, 0, 99),
    ],
)
def test_a_file_without_a_readable_head_has_no_formats(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(content)
    assert tensor_types(file) == frozenset()


@given(st.integers(0, 1200), st.integers(1, 1600))
def test_no_prompt_leaves_a_small_batch(n_usable: int, n_tokens: int) -> None:
    n_kept = _n_kept(min(n_usable, n_tokens), n_tokens)
    n_last = (n_tokens - n_kept) % BATCH
    assert 0 <= n_kept < n_tokens
    assert n_last == 0 or n_last >= SMALLEST or n_tokens < SMALLEST
    assert min(n_usable, n_tokens) - n_kept <= 2 * SMALLEST or n_tokens < BATCH + SMALLEST


# The self-test


class Wobbly:
    """Scores every n-th request a hair otherwise."""

    concurrency, is_reproducible, identity = 1, True, "wobbly"

    def __init__(self, every: int) -> None:
        self._every, self._n = every, 0

    async def ask(self, request: Request) -> Reply:
        self._n += 1
        return Reply("1", scores=(-1.0, -2.0 - 1e-9 * (self._n % self._every == 0), -3.0))

    async def close(self) -> None: ...


@pytest.mark.parametrize(("every", "is_there"), [(7, False), (1000, True)])
def test_a_last_bit_that_moves_is_found(every: int, is_there: bool) -> None:
    found = put_to_test(EMBEDDED, lambda: Wobbly(every))
    assert found.is_there is is_there
    assert ("differ" in found.how) is not is_there


def test_another_reply_after_a_restart_is_found() -> None:
    class Reborn(Wobbly):
        n_lives = 0

        def __init__(self) -> None:
            super().__init__(1000)
            Reborn.n_lives += 1

        async def ask(self, request: Request) -> Reply:
            return replace(await super().ask(request), text=str(Reborn.n_lives))

    assert put_to_test(EMBEDDED, Reborn).is_there is False
    assert Reborn.n_lives == 2


def test_an_engine_that_cannot_answer_is_not_judged(tmp_path: Path) -> None:
    class Broken(Wobbly):
        async def ask(self, request: Request) -> Reply:
            return Reply(error="out of memory")

    with Store(tmp_path / "r.sqlite") as store:
        made = learn_reproducible(EMBEDDED, store, open_one=lambda *_, **__: Broken(1))
        assert asyncio.run(made).is_there is None
        assert recall_reproducible(EMBEDDED, store).how == testing.NOT_TESTED


def test_an_engine_is_tested_once_for_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_one(*_: object, **__: object) -> Backend:
        opened.append(1)
        return Wobbly(1000)

    with Store(tmp_path / "r.sqlite") as store:
        for _ in range(2):
            found = asyncio.run(learn_reproducible(EMBEDDED, store, open_one=open_one))
            assert found.is_there
        assert len(opened) == 2
        asyncio.run(learn_reproducible(EMBEDDED, store, open_one=open_one, anew=True))
        assert len(opened) == 4
        monkeypatch.setenv("OMP_NUM_THREADS", "97")
        assert recall_reproducible(EMBEDDED, store).is_there is None
        monkeypatch.undo()
        monkeypatch.setattr(testing, "processor", lambda: "another")
        assert recall_reproducible(EMBEDDED, store).is_there is None


def test_an_outcome_counts_for_every_store_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "cache_folder", lambda: tmp_path)
    with Store() as store:
        asyncio.run(learn_reproducible(EMBEDDED, store, open_one=lambda *_, **__: Wobbly(1000)))
    with Store() as another:
        assert recall_reproducible(EMBEDDED, another).is_there
        monkeypatch.setenv("OMP_NUM_THREADS", "97")
        assert recall_reproducible(EMBEDDED, another).is_there is None
        monkeypatch.delenv("OMP_NUM_THREADS")
        (kept,) = tmp_path.glob("self-tests/*.json")
        kept.write_text("{damaged")
        assert recall_reproducible(EMBEDDED, another).how == testing.NOT_TESTED


def test_only_engines_in_this_process_are_tested(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        assert recall_reproducible(Model("sim/honest"), store).is_there
        assert recall_reproducible(Model("sim/honest?noise=0.1"), store).is_there is False
        assert recall_reproducible(Model("vllm/some"), store).is_there is False


# Who uses it


def study(**changes: Any) -> Study:
    return read_study(
        {
            "models": ["local/smollm2-135m"],
            "datasets": ["reviews"],
            "test_size": 30,
            "probes": ["label_order", "demo_order"],
            "base": {"label_format": "natural_language", "cardinality": 3, "shots": 1},
            "decoding": {"max_tokens": 2},
        }
        | changes
    )


def plant(store: Store, is_there: bool) -> None:
    found = Capability("reproducible", is_there, "self-test: planted", "2026-01-01")
    store.note_capabilities(identity_of(EMBEDDED), testing._machine(), [found])


def n_repeats(store: Store) -> dict[str, int]:
    grid = plan_first_round(study(), store).grid
    return {one.view.name: len(one.items) for one in grid if one.view.repeat}


def test_all_views_are_repeated_unless_an_engine_is_shown_reproducible() -> None:
    with Store() as store:
        untested = n_repeats(store)
        plant(store, False)
        failed = n_repeats(store)
        plant(store, True)
        passed = n_repeats(store)
    assert set(untested) > {"base", "reversed", "ascending", "descending"}
    assert set(untested.values()) == {30}
    assert failed == untested
    assert passed == {"base": 20, "reversed": 20}


def test_a_sampling_rater_is_never_taken_for_reproducible() -> None:
    with Store() as store:
        plant(store, True)
        sampling = study(decoding={"max_tokens": 2, "temperature": 1.0})
        grid = plan_first_round(sampling, store).grid
    assert {len(one.items) for one in grid if one.view.repeat} == {30}


def test_a_plan_says_what_is_known_and_loads_no_weights(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"nothing that could be loaded")
    same = {"model": f"llamacpp/{tmp_path / 'a.gguf'}"}
    planned = study(
        models=[{**same, "name": "text"}, {**same, "name": "chat", "interface": "chat"}]
    )
    with Store() as store:
        (note,) = preview(planned, store, is_offline=True).forecasts[0].notes
    assert "not yet tested" in note
    assert "fewer requests" in note


@pytest.mark.parametrize(("is_there", "said"), [(True, "few items"), (False, "every view")])
def test_a_plan_says_what_a_self_test_found(is_there: bool, said: str) -> None:
    with Store() as store:
        plant(store, is_there)
        (forecast,) = preview(study(), store, is_offline=True).forecasts
    assert said in forecast.notes[0]
    assert "planted" in forecast.notes[0]


@pytest.mark.real
def test_a_plan_counts_stored_replies_of_the_former_computation(files: Files) -> None:
    planned = study(models=[f"llamacpp/{files('Q4_K_M')}"], test_size=5, repeats=1)
    former = former_identity_of(Model(planned.raters()[0].model.address))
    assert former is not None
    with Store() as store:
        requests = plan_first_round(planned, store).plan.requests[:7]
        store.put_many([(replace(r, model=former), Reply("1")) for r in requests])
        notes = preview(planned, store, is_offline=True).forecasts[0].notes
    assert any(note.startswith("7 stored replies have other settings") for note in notes)


@pytest.mark.real
def test_a_run_tests_its_engine_first_and_records_the_outcome(tmp_path: Path, files: Files) -> None:
    asked = study(models=[f"llamacpp/{files('Q4_K_M')}"], test_size=3, probes=["label_order"])
    name = asked.raters()[0].name
    with Store(tmp_path / "r.sqlite") as store:
        run = perform(asked, tmp_path / "run", store)
        model = asked.raters()[0].model
        assert recall_reproducible(model, store).is_there
    known = run.environment["capabilities"][model.title]["reproducible"]
    assert known["is_there"]
    assert "bit-identical" in known["how"]
    assert run.environment["reproducible"] == [name]


@pytest.mark.real
def test_a_run_on_an_engine_that_failed_says_so(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        plant(store, False)
        run = perform(study(test_size=3, probes=["label_order"]), tmp_path / "run", store)
    assert run.environment["reproducible"] == []
    assert "not reproducible (self-test: planted)" in run.warnings["local/smollm2-135m"]


def test_examine_shows_the_outcome_of_the_self_test(tmp_path: Path, cli: Cli) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        plant(store, True)
    where = ("--store", str(tmp_path / "r.sqlite"))
    code, out, _ = cli("try", "local/smollm2-135m", "--json", *where)
    assert code == 0
    known = json.loads(out)["capabilities"]
    assert known["seed"]["is_there"]
    assert known["reproducible"] == {
        "is_there": True,
        "how": "self-test: planted",
        "seen": "2026-01-01",
    }
