"""Files of every kind, damaged in every way: a reader gives a result or one message.

`make fuzz` tries thousands; here are a few of each, the same every time.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bounded import bounded
from flipmeter.ask.batch import (
    MANIFEST,
    REQUESTS,
    BatchEntry,
    read_batch,
    read_results,
    write_batch,
)
from flipmeter.ask.merge import merge
from flipmeter.ask.prices import read_prices
from flipmeter.ask.store import Store
from flipmeter.bridge.logs import open_log
from flipmeter.choose.card import read_card, write_card
from flipmeter.choose.gate import read_gate
from flipmeter.choose.select import select
from flipmeter.data.files import load_file
from flipmeter.data.tables import stream_rows
from flipmeter.errors import Problem
from flipmeter.prompt.parsing import check as check_extract
from flipmeter.prompt.parsing import extract
from flipmeter.prompt.template import Template
from flipmeter.run.folder import Run
from flipmeter.run.generation import CALLS, DECISIONS, ITEMS, _seal
from flipmeter.run.heartbeat import PROGRESS, read_beat
from flipmeter.run.perform import perform
from flipmeter.run.predictions import read_predictions
from flipmeter.study.file import read_study
from flipmeter.types import Extract, Item, Message, Reply, Request, Scale, Script, Task

FEW = 12
EXAMPLES = int(os.environ.get("FLIPMETER_FUZZ", FEW))
fuzz = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= FEW,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

STUDY: dict[str, Any] = {
    "name": "fuzzed",
    "models": [{"model": "sim/honest", "name": "h", "price": {"prompt": 1, "completion": 2}}],
    "datasets": ["reviews"],
    "seeds": [0, 1],
    "test_size": 6,
    "probes": ["label_order", "placement"],
    "probe_items": {"placement": 3},
    "base": {"shots": 1, "label_format": "digits", "cardinality": 3},
    "vary": {"shots": [0, 1], "mood": ["imperative"]},
    "configs": {"mine": {"shots": 1}},
    "merge": {3: [[1, 2], [3], [4, 5]]},
    "decoding": {"temperature": 0, "max_tokens": 4, "stop": ["x"]},
    "budget": {"calls": 10, "usd": 1.0},
    "until": "P1<0.3",
    "margin": 0.1,
}
GATE: dict[str, Any] = {
    "flips": {"P1": 0.1, "P*": 0.2},
    "excess": 0.1,
    "accuracy": 0.5,
    "mae": 1.0,
    "faults": 0.1,
    "alpha": 0.05,
    "view": "base",
    "drift": {"flips": 0.1, "accuracy": 0.1},
    "rules": [{"rater": "h*", "level": "", "faults": 0.2}],
}
PRICES: dict[str, Any] = {
    "data": [{"id": "a/b", "pricing": {"prompt": "0.1", "completion": "0.2", "request": "0"}}]
}
PROMPT = """--- system
{% for label in labels %}{{ loop.index }}: {{ label.text|upper }}{% endfor %}
--- user
{% for demo in demos %}{{ demo.text }} = {{ demo.label }} {% endfor %}
{{ text|replace("a", "b")|truncate(50) }} {{ "%s" % text }} {{ 2 ** 3 }} {{ text ~ "x" * 3 }}
"""
ROWS = [
    {"item": f"i{n}", "condition": view, "label": n % 3 + 1, "gold": 2, "text": f"text {n}"}
    for n in range(6)
    for view in ("base", "reversed")
]

NUMBERS = (-1, 0, 1, 3, 2**62, 10**30, 1e308, -1e-300, 0.5, float("nan"), float("inf"))
WORDS = ("", " ", "x", "x" * 300, "../x", "/etc/passwd", "\0", "💥", "1e9", "P1", "sim/?", "base")
SIGNS: tuple[Any, ...] = (
    "{{ x }}",
    "a:b",
    "=,",
    "*",
    [],
    [[]],
    [None],
    {},
    {"a": None},
    {"": {}},
    ["x", 1],
)
NASTY = st.sampled_from([None, True, False, *NUMBERS, *WORDS, *SIGNS])
"""Values that are none, or mean something else."""


def paths_of(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree of lists and mappings."""
    yield path
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from paths_of(value, (*path, key))


@st.composite
def changed(draw: st.DrawFn, tree: Any) -> Any:
    """A tree with one to three of its values replaced, removed or put where they do not belong."""
    found = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        places = [path for path in paths_of(found) if path]
        if not places:
            break
        *way, last = draw(st.sampled_from(places))
        inner = found
        for step in way:
            inner = inner[step]
        how = draw(st.sampled_from(["replace", "remove", "add"]))
        if how == "replace":
            inner[last] = copy.deepcopy(draw(NASTY))
        elif how == "remove":
            del inner[last]
        elif isinstance(inner, dict):
            inner[draw(st.sampled_from(["x", "", *STUDY, *GATE]))] = copy.deepcopy(draw(NASTY))
    return found


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes that are cut off, flipped, repeated or mixed with others."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(found) - 1)))
        how = draw(st.sampled_from(["cut", "flip", "insert", "remove", "repeat"]))
        if how == "cut":
            del found[at:]
        elif how == "flip" and found:
            found[at] ^= draw(st.integers(1, 255))
        elif how == "insert":
            found[at:at] = draw(
                st.binary(max_size=8) | st.sampled_from([b'"', b"{", b"\n", b"&a *a"])
            )
        elif how == "remove":
            del found[at : at + draw(st.integers(1, 50))]
        else:
            found[at:at] = found[at : at + 200] * draw(st.integers(1, 20))
    return bytes(found)


def as_yaml(tree: Any) -> bytes:
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode(errors="replace")


def holds(read: Callable[[], object]) -> None:
    """A result or one message, soon and in little memory: anything else is a failure."""
    with bounded(), suppress(Problem):
        read()


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


# --- what people write ------------------------------------------------------------------------


def study_whole(path: Path) -> None:
    found = read_study(path)
    found.levels()
    found.raters()
    found.allowance  # noqa: B018 - a property that may raise


@fuzz
@given(content=changed(STUDY).map(as_yaml) | damaged(as_yaml(STUDY)))
def test_a_study(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        holds(lambda: study_whole(put(Path(name), "study.yaml", content)))


@fuzz
@given(content=changed(GATE).map(as_yaml) | damaged(as_yaml(GATE)))
def test_a_gate(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        holds(lambda: read_gate(put(Path(name), "gate.yaml", content)))


@fuzz
@given(content=changed(PRICES).map(as_yaml) | damaged(json.dumps(PRICES).encode()))
def test_a_price_list(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        holds(lambda: read_prices(put(Path(name), "prices.yaml", content)))


@fuzz
@given(source=damaged(PROMPT.encode()))
def test_a_prompt_file(source: bytes) -> None:
    item, task = Item("i", {"text": "A text."}, 1), Task(Scale(("low", "high")))
    holds(lambda: Template(source.decode(errors="replace"), "p.txt").check(item, task))


@fuzz
@given(
    pattern=st.text("ab.*+?()[]{}|\\^$12<>:=!P", max_size=20),
    text=st.text("ab12 \n", max_size=300),
)
def test_a_pattern(pattern: str, text: str) -> None:
    def read() -> None:
        for how in (Extract(regex=pattern), Extract(json=pattern)):
            with suppress(Problem):
                check_extract(how)
                extract(text, how)

    holds(read)


# --- tables -----------------------------------------------------------------------------------


def in_format(rows: list[dict[str, Any]], ending: str) -> bytes:
    table = pl.DataFrame(rows, infer_schema_length=None, strict=False)
    file = io.BytesIO()
    if ending == ".parquet":
        table.write_parquet(file)
    elif ending == ".jsonl":
        file.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    else:
        table.write_csv(file, separator="\t" if ending == ".tsv" else ",")
    return file.getvalue()


TABLES = [".csv", ".tsv", ".jsonl", ".parquet"]


@pytest.mark.parametrize("ending", TABLES)
@fuzz
@given(data=st.data())
def test_a_table(ending: str, data: st.DataObject) -> None:
    content = data.draw(damaged(in_format(ROWS, ending)))
    if ending == ".jsonl" and data.draw(st.booleans()):
        rows = data.draw(changed(ROWS))
        content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    with tempfile.TemporaryDirectory() as name:
        path = put(Path(name), f"t{ending}", content)
        scale = data.draw(st.sampled_from([[], ["1", "2", "3"], ["low", "high"]]))
        holds(lambda: load_file(path, text="text", label="label", scale=scale))
        holds(lambda: list(stream_rows(path, ["text"])))
        holds(lambda: read_predictions(path, scale).verdicts)


# --- what flipmeter writes --------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small run of a rater that likes the first class shown."""
    study = {
        "models": "sim/first-slot?strength=1",
        "datasets": "reviews",
        "test_size": 8,
        "probes": ["label_order"],
        "base": {"shots": 0},
    }
    return perform(read_study(study), tmp_path_factory.mktemp("fuzz") / "run", Store())


@pytest.fixture(scope="module")
def card(run: Run) -> bytes:
    path = run.folder.parent / "rater.yaml"
    write_card(select(run).card(), path)
    return path.read_bytes()


def everything(folder: Path) -> None:
    found = Run(folder)
    for name in ("study", "estimates", "verdicts", "warnings", "items", "conditions", "tasks"):
        getattr(found, name)
    found.prompts(found.calls["prompt"].to_list()[:3])


def signed(folder: Path) -> None:
    """Make the manifest say that the files are as they were written."""
    content = json.loads((folder / "run.json").read_bytes())
    for name, record in content["files"].items():
        found = (folder / content["generation"] / name).read_bytes()
        record |= {"n_bytes": len(found), "sha256": hashlib.sha256(found).hexdigest()}
    sealed(folder, content)


def sealed(folder: Path, content: Any) -> None:
    """Write a manifest as a stranger can: with a seal that fits, if it is a mapping."""
    if isinstance(content, dict):
        with suppress(TypeError, ValueError):
            content["seal"] = _seal(content)
    (folder / "run.json").write_text(json.dumps(content))


@fuzz
@given(data=st.data())
def test_a_manifest(run: Run, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(run.folder, Path(name) / "run"))
        known = (run.folder / "run.json").read_bytes()
        if data.draw(st.booleans()):
            sealed(folder, data.draw(changed(json.loads(known))))
        else:
            put(folder, "run.json", data.draw(damaged(known)))
        holds(lambda: everything(folder))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_items", "8"),
        ("n_items", -1),
        ("n_available", " "),
        ("n_available", [10]),
        ("weights", {"a": 1}),
        ("weights", ["x"]),
        ("left_out", [1]),
        ("notes", "a note"),
        ("digest", 5),
    ],
)
def test_a_dataset_described_by_a_stranger(run: Run, tmp_path: Path, key: str, value: Any) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / "run"))
    content = json.loads((folder / "run.json").read_bytes())
    content["facts"]["datasets"]["reviews"][key] = value
    sealed(folder, content)
    with pytest.raises(Problem, match=rf"run\.json is damaged \(datasets\.reviews\.{key}"):
        everything(folder)


@fuzz
@given(data=st.data())
def test_a_table_of_a_run_whose_digest_is_right(run: Run, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from([DECISIONS, CALLS, ITEMS]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(run.folder, Path(name) / "run"))
        path = folder / run.manifest.generation / file
        if data.draw(st.booleans()):
            path.write_bytes(data.draw(damaged(path.read_bytes())))
        else:
            altered(pl.read_parquet(path), data).write_parquet(path)
        signed(folder)
        holds(lambda: everything(folder))


def altered(table: pl.DataFrame, data: st.DataObject) -> pl.DataFrame:
    """A table with a value of a column replaced, rows doubled or a column left out."""
    column = data.draw(st.sampled_from(table.columns))
    how = data.draw(st.sampled_from(["value", "rows", "drop", "none", "text"]))
    if how == "rows":
        return pl.concat([table, table])
    if how == "drop":
        return table.drop(column)
    if how == "none":
        return table.head(0)
    if how == "text":
        return table.with_columns(pl.lit("x").alias(column))
    kind = table.schema[column]
    nasty: list[Any] = ["", "x", None] if kind == pl.String else [-1, 0, 1, 99, 2**62, None]
    value = data.draw(st.sampled_from(nasty))
    if isinstance(kind, pl.List):
        return table.with_columns(pl.lit([value] * 3, dtype=pl.List(pl.Float64)).alias(column))
    is_changed = pl.int_range(pl.len()) % data.draw(st.integers(1, 3)) == 0
    new = pl.lit(value).cast(kind, strict=False)
    return table.with_columns(pl.when(is_changed).then(new).otherwise(column).alias(column))


@fuzz
@given(data=st.data())
def test_a_rater_card(card: bytes, data: st.DataObject) -> None:
    content = data.draw(changed(yaml.safe_load(card)).map(as_yaml) | damaged(card))
    with tempfile.TemporaryDirectory() as name:
        holds(lambda: read_card(put(Path(name), "rater.yaml", content)).views())


@fuzz
@given(content=st.binary(max_size=50) | damaged(b'{"study": "s", "pid": 1, "seen": 2.5}'))
def test_a_beat(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        put(Path(name), PROGRESS, content)
        holds(lambda: read_beat(Path(name)))


REQUEST = Request("m", Script.of([Message("user", "Rate this.")], 4), "{}", ("1", "2"))


@fuzz
@given(data=st.data())
def test_a_store(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "s.sqlite"
        with Store(path) as store:
            store.put(REQUEST, Reply("1", "stop", scores=(-0.1, -2.0)))
        path.write_bytes(data.draw(damaged(path.read_bytes())))

        def read() -> None:
            with Store(path) as store:
                store.get([REQUEST.key])
                len(store)

        holds(read)
        holds(lambda: merge([path], Path(name) / "all.sqlite"))


@fuzz
@given(data=st.data())
def test_the_results_of_a_batch(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "batch"
        write_batch(folder, [BatchEntry("gpt", REQUEST)], {"format": 1})
        reply = {"choices": [{"message": {"content": "1"}, "finish_reason": "stop"}]}
        row = {"custom_id": REQUEST.key, "response": {"status_code": 200, "body": reply}}
        result = data.draw(changed(row).map(lambda one: json.dumps(one).encode()))
        put(folder, "results.jsonl", data.draw(st.just(result) | damaged(result)))
        known = read_batch(folder)
        holds(lambda: read_results([folder / "results.jsonl"], known))
        own = data.draw(st.sampled_from([MANIFEST, REQUESTS]))
        put(folder, own, data.draw(damaged((folder / own).read_bytes())))
        holds(lambda: read_batch(folder))


@fuzz
@given(content=st.binary(max_size=200) | damaged(b"PK\x03\x04" + bytes(60)))
def test_a_log_of_inspect(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        holds(lambda: open_log(put(Path(name), "log.eval", content)))
