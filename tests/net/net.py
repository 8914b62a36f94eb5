"""The net, inside one process of the version that is tested: run studies, write three layers.

Nothing of the product is used but its console entry point and its public names.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

LAYERS = ("layer1", "layer2", "layer3")
CORE = ("show", "plan", "run", "prompts", "measure", "api")
"""The operations of a study that names none."""

FORMS: dict[str, tuple[tuple[str, str], ...]] = {
    "list": (("list {rest} --json", ""),),
    "show": (("show {study} {rest} --json", ""), ("try {study} --dry {rest} --json", "")),
    "try": (("try {study} {rest} --limit 2 --json", ""),),
    "examine": (("examine {rest} --json", ""), ("try {rest} --json", "")),
    "init": (("init {rest} --json", ""),),
    "plan": (("plan {study} --offline {rest} --json", ""),),
    "run": (("run {study} --out {run} {rest} --json", ""),),
    "prompts": (("cache export {run} --out prompts.jsonl {rest}", ""),),
    "store": (("cache export {rest} --out prompts.jsonl", ""),),
    "merge": (("cache merge {rest} --json", ""),),
    "batch": (("batch export {study} --out batch --json", ""),),
    "dataset": (
        ("data export {rest} --out set.csv --json", ""),
        ("list datasets {rest} --out set.csv --json", ""),
    ),
    "measure": (("measure {run} --show all {rest} --json", ""),),
    "scores": (("measure {run} {rest} --csv", ""),),
    "words": (("measure {run} {rest}", ""),),
    "report": (("report {run} --out report.{rest}", ""),),
    "check": (("check {run} {rest} --json", ""),),
    "says": (("check {run} {rest}", ""),),
    "certify": (("certify {run} {rest} --json", ""), ("check {run} {rest} --json", "")),
    "compare": (("compare {run} {rest} --json", ""),),
    "effects": (("effects {run} {rest} --json", "interactions"),),
    "residuals": (
        ("residuals {run} {rest} --json", "residuals"),
        ("effects {run} {rest} --json", "residuals"),
    ),
    "transfer": (
        ("transfer {run} --reference {rest} --json", "transfer"),
        ("effects {run} --reference {rest} --json", "transfer"),
    ),
    "phase0": (
        ("phase0 {run} --json", "phase0"),
        ("paper --phase0 --run phase0b={run} --json", "phase0"),
    ),
    "select": (("select {run} {rest} --json", ""),),
    "confirm": (("confirm {rest} --json", ""),),
    "classify": (("classify {rest} --out labelled.csv", ""),),
    "paper": (("paper {rest} --json", ""),),
    "oracle": (("oracle --json", ""),),
}
"""Operation -> its commands in different versions, each with the key of its rows; the first whose
verb there is is used."""
WRITES = {
    "prompts": "prompts.jsonl",
    "store": "prompts.jsonl",
    "dataset": "set.csv",
    "classify": "labelled.csv",
}
"""Operations that write a table, which counts instead of what they print."""

IDENTITY = ("rater", "model", "dataset", "level", "seed", "seeds", "view", "contrast", "factor",
            "metric", "policy", "term", "claim", "item", "id", "candidate", "role", "test", "first",
            "limit", "where")  # fmt: skip
"""Columns that say what a row is about; its other strings are words."""
FLEETING = re.compile(r"seconds|hours|date$|^elapsed|^flipmeter$|^python$|^platform$")


class Record:
    """What a study gave, in three layers: lines, each with the places where it stands."""

    def __init__(self) -> None:
        self.layers: dict[str, dict[str, set[str]]] = {one: defaultdict(set) for one in LAYERS}

    def put(self, layer: str, place: str, line: str) -> None:
        self.layers[layer][line].add(place)

    def rows(self, place: str, content: Any) -> None:
        """Numbers go to layer 2, words to layer 3; what a row is about goes with both."""
        for where, row in rows_in(content, place):
            flat = {name: told for name, told in flattened(row) if not FLEETING.search(name)}
            about = {name: flat.pop(name) for name in IDENTITY if name in flat}
            words = {name: told for name, told in flat.items() if is_words(told)}
            numbers = {name: told for name, told in flat.items() if name not in words}
            head = spelled(about)
            if numbers or not words:
                self.put("layer2", where, f"{head} | {spelled(numbers)}")
            if words:
                self.put("layer3", where, f"{head} | {spelled(words)}")

    def lines(self, layer: str) -> list[str]:
        told = self.layers[layer].items()
        return sorted(f"{' '.join(sorted(places))} | {line}" for line, places in told)


def rows_in(content: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a JSON value with their places; what is not in a table is a row itself."""
    if isinstance(content, list):
        for one in content:
            yield from rows_in(one if isinstance(one, dict | list) else {"": one}, place)
        return
    is_row = any(name in content for name in ("metric", "rater", "contrast", "candidate"))
    tables = {} if is_row else {name: one for name, one in content.items() if is_table(one)}
    plain = {name: one for name, one in content.items() if name not in tables}
    if plain:
        yield place, plain
    for name, one in tables.items():
        yield from rows_in(one, f"{place}.{name}")


def is_table(told: Any) -> bool:
    return isinstance(told, dict) or (
        isinstance(told, list) and any(isinstance(one, dict) for one in told)
    )


def flattened(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a row by their paths; what is missing is left out."""
    for name, told in row.items():
        if isinstance(told, dict):
            yield from flattened(told, f"{before}{name}.")
        elif isinstance(told, list) and any(isinstance(one, dict) for one in told):
            yield from flattened({str(k): one for k, one in enumerate(told)}, f"{before}{name}.")
        elif told is not None and told != [] and told != "":
            yield f"{before}{name}", told


def is_words(told: Any) -> bool:
    return isinstance(told, str) or (isinstance(told, list) and any(map(is_words, told)))


def spelled(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={short(told)}" for name, told in sorted(row.items()))


def short(told: Any) -> str:
    """A value in ten digits: the last ones differ between machines."""
    if isinstance(told, float):
        return "nan" if math.isnan(told) else f"{0.0 if abs(told) < 1e-12 else told:.10g}"
    if isinstance(told, list | tuple):
        return f"[{','.join(map(short, told))}]"
    return normal(str(told)).replace("\n", "\\n")


def spelt(told: Any) -> str:
    return json.dumps(told, ensure_ascii=False)


def normal(text: str) -> str:
    """A text without what differs between two runs of the same."""
    text = re.sub(r"\b20\d\d-\d\d-\d\d(T[\d:.+Z]+)?\b", "DATE", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST", text)
    text = re.sub(r"\b[\d.,]+ (seconds?|minutes?|ms|s|hours?)\b", "TIME", text)
    text = re.sub(r"\bg-[0-9a-f]{12}\b", "GENERATION", text)
    text = text.replace(f"{Path.cwd()}/", "").replace(str(HERE), "NET")
    return re.sub(r"[ \t│┃─━┏┓┗┛┡┩└┘┌┐├┤╭╮╰╯═╡╞╪┼┴┬]+", " ", text).strip()


def read_rows(text: str) -> list[dict[str, Any]]:
    """The rows of a CSV, their cells as JSON would have them."""
    rows = csv.DictReader(io.StringIO(text))
    return [{name: cell(told) for name, told in row.items()} for row in rows]


def cell(told: str | None) -> Any:
    try:
        found = json.loads(told or "null")
    except ValueError:
        return told
    return float(found) if isinstance(found, int) and not isinstance(found, bool) else found


class Product:
    """The installed version: its console entry point, called in this process."""

    def __init__(self) -> None:
        code, told, _ = self.call(["--help"])
        assert code == 0, told
        self.verbs = set(re.findall(r"^│ ([a-z0-9]+) ", told, re.MULTILINE))

    def call(self, argv: Sequence[str]) -> tuple[int, str, str]:
        from flipmeter.__main__ import main

        out, err = io.StringIO(), io.StringIO()
        sys.argv = ["flipmeter", *argv]
        code = 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return code, out.getvalue(), err.getvalue()

    def form(self, operation: str) -> tuple[str, str]:
        """The form of an operation in this version."""
        known = [form for form in FORMS[operation] if form[0].split()[0] in self.verbs]
        return known[0] if known else FORMS[operation][-1]


def perform(product: Product, step: str, record: Record, study: str) -> None:
    """Do one step of a study, `operation[@RUN,RUN] REST`, and record what it gave."""
    head, _, rest = step.partition(" ")
    operation, _, runs = head.partition("@")
    if operation in PYTHON:
        PYTHON[operation](record, (runs or "run").split(","), rest)
        return
    template, key = product.form(operation)
    words = shlex.split(template.replace("{rest}", rest).replace("{study}", study))
    named = (runs or "run").split(",")
    argv = [
        word.replace("{run}", run)
        for word in words
        for run in (named if "{run}" in word else named[:1])
    ]
    code, out, err = product.call(argv)
    place = step.replace(" ", "_")
    record.put("layer3", place, f"exit {code}")
    for line in filter(None, map(normal, err.splitlines())):
        record.put("layer3", f"{place}.stderr", line)
    for path in sorted(Path("batch").glob("*-00*.json*")) if operation == "batch" else ():
        for row in path.read_text(encoding="utf-8").splitlines():
            record.put("layer1", f"batch {path.name}", normal(row))
    written = WRITES.get(operation) or (f"report.{rest}" if operation == "report" else "")
    if code in (0, 1, 3, 4) and written and Path(written).is_file():
        put_file(record, place, Path(written))
    elif "--json" in argv and out.startswith(("{", "[")):
        found = json.loads(out)
        if operation in ("show", "try") and "prompts" in found:
            for view, text in found.pop("prompts").items():
                record.put("layer1", place, f"prompt {view} | {spelt(text)}")
        record.rows(operation if not runs else head, found.get(key, {}) if key else found)
    elif "--csv" in argv:
        record.rows(head, read_rows(out))
    else:
        put_text(record, place, out)


def put_file(record: Record, place: str, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.name == "prompts.jsonl":
        for row in map(json.loads, text.splitlines()):
            key = "with a port" if Path("server").exists() else row.pop("key")
            kept = [name for name in sorted(row) if name != "key" and not FLEETING.search(name)]
            told = {name: row[name] for name in kept}
            record.put("layer1", "requests", f"{key} | {normal(spelt(told))}")
    elif path.suffix == ".csv":
        record.rows(place, read_rows(text))
    else:
        put_text(record, place, re.sub(r"<(script|style).*?</\1>|<[^>]+>", "\n", text, flags=re.S))


def put_text(record: Record, place: str, text: str) -> None:
    """The lines of a text, each with the line before it left out: a set is enough."""
    for line in filter(None, map(normal, text.splitlines())):
        record.put("layer3", place, line)


# --- the public names -----------------------------------------------------------------------------


def api(record: Record, runs: Sequence[str], rest: str) -> None:
    """The frames of `fm.Run`, in layer 1 decisions and calls."""
    import flipmeter as fm

    scale = rest.split(",") if rest and ".." not in rest else ()
    run = fm.Run(*runs, **({"scale": scale} if scale else {}))
    for name in ("decisions", "calls"):
        put_frame(record, name, getattr(run, name))
    for name in ("verdicts", "estimates", "flips", "items"):
        record.rows(name, getattr(run, name).to_dicts())
    record.rows("headline", [{"": line} for line in run.headline])


def api_more(record: Record, runs: Sequence[str], rest: str) -> None:
    """Methods of `fm.Run` that moved: by their old names, or as keys of a new one."""
    import flipmeter as fm

    run = fm.Run(*runs)
    ways: dict[str, Callable[[], Any]] = {
        "residuals": lambda: run.residuals(),
        "effects": lambda: run.effects(),
        "transfer": lambda: run.transfer(rest),
        "certify": lambda: (run.certify if hasattr(run, "certify") else run.check)("P1 < 0.10"),
        "aspects.direction": lambda: run.aspects("direction"),
    }
    for name, way in ways.items():
        try:
            record.rows(name, way().to_dicts())
        except (fm.Problem, AttributeError) as problem:
            record.put("layer3", f"api.{name}", normal(str(problem)))


def put_frame(record: Record, name: str, frame: Any) -> None:
    """A frame by groups: a line of every column, items in their order; constants once."""
    keys = [key for key in GROUPS if key in frame.columns]
    columns = [one for one in frame.columns if one not in (*keys, "seconds")]
    rows = sorted(frame.to_dicts(), key=lambda row: [str(row[key]) for key in (*keys, "item")])
    for row in rows if Path("server").exists() else ():
        row.pop("key", None)  # it holds the port
    columns = [one for one in columns if not rows or one in rows[0]]
    values = {one: {short(row[one]) for row in rows} for one in columns}
    constant = {one: min(told) for one, told in values.items() if len(told) == 1}
    told = {one: value for one, value in constant.items() if value not in ("None", "", "[]")}
    record.put("layer1", name, f"all | {spelled(told)} rows={len(rows)}")
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[" ".join(f"{key}={row[key]}" for key in keys)].append(row)
    for group, members in groups.items():
        for one in columns:
            if one not in constant:
                line = " ".join(short(row[one]) for row in members)
                record.put("layer1", name, f"{group} | {one}: {line}")


GROUPS = ("rater", "dataset", "level", "seed", "view", "repeat", "role")


def classifier(record: Record, runs: Sequence[str], rest: str) -> None:
    """Predictions of a rater card, and of a classifier fitted here: `classifier CARD`."""
    import flipmeter as fm

    texts = list(fm.Run(*runs).items["text"][:12])
    rater = fm.OrdinalClassifier.load(rest)
    record.put("layer1", "classifier.predict", short([str(one) for one in rater.predict(texts)]))
    shares = rater.predict_proba(texts).tolist() if hasattr(rater, "predict_proba") else []
    for text, row in zip(texts, shares, strict=bool(shares)):
        record.put("layer1", "classifier.predict_proba", f"{text[:30]} | {short(row)}")


def arrays(record: Record, runs: Sequence[str], rest: str) -> None:
    """The statistics on plain arrays, wherever this version has them."""
    import flipmeter as fm

    named = hasattr(fm, "stats")
    homes = [fm.stats] if named else [import_module(f"flipmeter.{one}") for one in HOMES]
    for name, arguments, options in ARRAYS:
        function = next(getattr(home, name) for home in homes if hasattr(home, name))
        found = function(*arguments, **options)
        told = found.tolist() if hasattr(found, "tolist") else found
        told = spelled(vars(told)) if hasattr(told, "__dict__") else short(told)
        record.put("layer2", f"stats.{name}", f"{str(arguments)[:40]} {options} | {told}")


HOMES = ("measure", "measure.statistics.formulas", "decide")
LABELS = (1, 1, 2, 2, 3, 3, 4, 4)
OUTCOMES = [Random(k).choices((-1, 0, 1), k=8) for k in range(12)]
AGGREGATORS = ("majority_vote", "mean_score", "weighted_sum", "copeland", "bradley_terry")
ARRAYS: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("wilson", (17, 200), {}),
    ("wilson", (0, 9), {}),
    ("mcnemar", (15, 5), {}),
    ("flip_rate", ([1, 2, 3, 0], [1, 3, 3, 2]), {}),
    ("cochran_q", ([[1, 0, 1], [0, 0, 1], [1, 0, 0], [1, 1, 1]],), {}),
    *((one, (OUTCOMES, LABELS, 4), {}) for one in AGGREGATORS),
    *((one, (OUTCOMES, LABELS, 4), {"mode": "paper"}) for one in AGGREGATORS),
)
PYTHON: dict[str, Callable[[Record, Sequence[str], str], None]] = {
    "api": api,
    "api_more": api_more,
    "classifier": classifier,
    "arrays": arrays,
}


def work(studies: Path, out: Path, only: Sequence[str], seed: int | None) -> None:
    """Run studies in some order, each in a folder of its own below the current one."""
    os.fsync = lambda fd: None  # a disk takes milliseconds to confirm a write
    told: dict[str, Any] = yaml.safe_load((studies / "studies.yaml").read_text(encoding="utf-8"))
    names = [name for name in told if not only or name in only]
    if seed is not None:
        Random(seed).shuffle(names)
    product, top = Product(), Path.cwd()
    for name in names:
        entry, record = told[name], Record()
        folder = top / name
        folder.mkdir()
        os.chdir(folder)
        from files import prepare

        with prepare(entry.get("files", ()), studies) as url:
            study = json.loads(json.dumps(entry.get("study", {})).replace("URL", url))
            Path("study.yaml").write_text(yaml.safe_dump({"name": name, **study}, sort_keys=False))
            for step in entry.get("steps", CORE):
                try:
                    perform(product, step, record, "study.yaml")
                except Exception as error:
                    record.put(
                        "layer3", step, f"CRASH {type(error).__name__}: {normal(str(error))}"
                    )
        os.chdir(top)
        for layer in LAYERS:
            (out / layer).mkdir(parents=True, exist_ok=True)
            text = "".join(f"{line}\n" for line in record.lines(layer))
            (out / layer / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    where, into, chosen, order = sys.argv[1:]
    only = chosen.split(",") if chosen else ()
    work(Path(where), Path(into), only, int(order) if order else None)
