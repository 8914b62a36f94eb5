"""Logs of promptfoo and lm-eval -> a table of predictions, which is measured like any other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from flipmeter.base.files.documents import read_json
from flipmeter.base.files.reading_limits import JSON_BYTES, read_limited
from flipmeter.data.labels import shorten
from flipmeter.data.tables import Record, read_table
from flipmeter.parse.answer import read_slots
from flipmeter.parse.decimals import read_scores
from flipmeter.registry import suggestion
from flipmeter.types import Problem, Span, canonical_json

SCHEMA = pl.Schema(
    {
        "item": pl.String,
        "condition": pl.String,
        "model": pl.String,
        "repeat": pl.Int64,
        "label": pl.String,
        "gold": pl.String,
        "fault": pl.String,
    }
)
LONGEST_NAME = 60
_HEAD = 4096
_SAMPLES = re.compile(r"samples_(?P<task>.+?)_\d{4}-\d\d-\d\dT.*")
_NO_MATCH = "[invalid]"
"""What a filter of lm-eval writes where its pattern found nothing."""
_FAILED = 2
"""The failure reason of promptfoo for an error that is no failed assertion."""


@dataclass(frozen=True)
class Named:
    """What a user says of a log: which variables are item, condition and gold, which filter."""

    item: str | None = None
    condition: str | None = None
    gold: str | None = None
    filter: str | None = None


@dataclass(frozen=True)
class LoggedReply:
    """What a model said of an item; a fault is why there is nothing to read."""

    item: str
    condition: str
    model: str
    text: str
    gold: str = ""
    fault: str = ""


def is_of_other_tool(path: Path) -> bool:
    """Whether a log is one of promptfoo (.json) or lm-eval (.jsonl), and not one of Inspect."""
    if path.suffix != ".json":
        return path.suffix == ".jsonl"
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror or error}") from error
    return re.search(rb'"eval"\s*:', head) is None


def predictions_of(
    paths: Sequence[Path], named: Named | None = None, scale: Sequence[str] | Span = ()
) -> pl.DataFrame:
    """The table of predictions in some logs: one answer a row.

    With a `scale` the label, or the score, is looked for in the reply; otherwise the reply is it.
    The same item asked again in the same condition is a repeat.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    rows = []
    for path in paths:
        read = _promptfoo if path.suffix == ".json" else _lm_eval
        for reply in read(path, named or Named()):
            whose = (reply.item, reply.condition, reply.model)
            label, fault = ("", reply.fault) if reply.fault else _label(reply.text, scale)
            rows.append((*whose, counts[whose], label, reply.gold, fault))
            counts[whose] += 1
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _label(text: str, scale: Sequence[str] | Span) -> tuple[str, str]:
    """The label of a reply and why there is none."""
    if isinstance(scale, Span):
        found = {scale.name(rank) for rank in read_scores(text, scale)}
    elif not scale:
        return text.strip(), "" if text.strip() else "unparsed"
    else:
        found = {scale[slot - 1] for slot in read_slots(text, tuple(scale))}
    if len(found) == 1:
        return found.pop(), ""
    return "", "ambiguous" if found else "unparsed"


def _written(value: object) -> str:
    """A value of a log as text: what is no text is JSON."""
    return value if isinstance(value, str) else "" if value is None else canonical_json(value)


# --- promptfoo --------------------------------------------------------------------------------


def _promptfoo(path: Path, named: Named) -> Iterator[LoggedReply]:
    items: dict[str, str] = {}
    prompts: dict[str, str] = {}
    for place, row in enumerate(_results(path), 1):
        where = f"{path}, result {place}"
        told = row.get("vars")
        if not isinstance(told, dict):
            raise Problem(f"{where} has no vars; write the log with promptfoo eval -o FILE.json")
        variables = {k: v for k, v in told.items() if not k.startswith("__")}
        label = str(_inside(row, "prompt", "label") or "")
        prompt = prompts.setdefault(label, _prompt_name(label, len(prompts) + 1))
        own = {k: v for k, v in variables.items() if k != named.condition}
        number = items.setdefault(canonical_json(own), f"test {len(items) + 1}")
        yield LoggedReply(
            item=_variable(variables, named.item, number, where),
            condition=_variable(variables, named.condition, prompt, where),
            model=_provider(row.get("provider")),
            text=_written(_inside(row, "response", "output")),
            gold=_variable(variables, named.gold, _asserted(row), where),
            fault=_promptfoo_fault(row),
        )


def _results(path: Path) -> list[dict[str, Any]]:
    try:
        content = read_json(read_limited(path, JSON_BYTES), str(path))
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror or error}") from error
    found = _inside(content, "results", "results")
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise Problem(
            f"{path} is no output of promptfoo: no list at results.results; write one with "
            "promptfoo eval -o FILE.json"
        )
    if not found:
        raise Problem(f"{path} has no results; did the evaluation run?")
    return found


def _inside(value: object, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _prompt_name(label: str, number: int) -> str:
    """The name of a prompt; promptfoo calls one without a name by its whole text."""
    is_name = 0 < len(label) <= LONGEST_NAME and "\n" not in label and "{{" not in label
    return label if is_name else f"prompt {number}"


def _provider(value: object) -> str:
    if isinstance(value, Mapping):
        return str(value.get("label") or value.get("id") or "model")
    return str(value or "model")


def _variable(variables: Mapping[str, object], name: str | None, otherwise: str, where: str) -> str:
    if name is None:
        return otherwise
    if name not in variables:
        raise Problem(f"{where} has no variable '{name}'{suggestion(name, list(variables))}")
    return _written(variables[name]).strip()


def _asserted(row: Mapping[str, Any]) -> str:
    """What the one assertion expects that compares the whole output, "" if there is none."""
    told = _inside(row, "testCase", "assert")
    asserts = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    equal = [one.get("value") for one in asserts if one.get("type") in ("equals", "iequals")]
    return _written(equal[0]).strip() if len(equal) == 1 else ""


def _promptfoo_fault(row: Mapping[str, Any]) -> str:
    has_failed = row.get("failureReason") == _FAILED or bool(_inside(row, "response", "error"))
    return "error" if has_failed or _inside(row, "response", "output") is None else ""


# --- lm-eval ----------------------------------------------------------------------------------


def _lm_eval(path: Path, named: Named) -> Iterator[LoggedReply]:
    records = _of_filter(path, [_sample(path, record) for record in _records(path)], named.filter)
    choices = [_choices(record) for _, record in records]
    is_shared = len({tuple(sorted(one)) for one in choices}) == 1
    found = _SAMPLES.fullmatch(path.stem)
    for (where, record), texts in zip(records, choices, strict=True):
        names = texts if is_shared else [str(place) for place in range(1, len(texts) + 1)]
        text = _chosen(record["filtered_resps"], names, where)
        yield LoggedReply(
            item=str(record["doc_id"]),
            condition=found["task"] if found else path.stem,
            model=path.absolute().parent.name or "model",
            text=text,
            gold=_target(str(record["target"]).strip(), texts, names),
            fault="unparsed" if text == _NO_MATCH else "",
        )


def _records(path: Path) -> tuple[Record, ...]:
    return read_table(path, needs="a sample of lm-eval").records


def _sample(path: Path, record: Record) -> tuple[str, Mapping[str, Any]]:
    where = f"{path}, row {record.row}"
    if record.fault:
        raise Problem(f"{where}: {record.fault}")
    for key in ("doc_id", "target", "filtered_resps"):
        if key not in record.values:
            raise Problem(
                f"{where} has no '{key}', so it is no sample of lm-eval; write them with "
                "lm-eval run --log_samples --output_path FOLDER"
            )
    return where, record.values


def _of_filter(
    path: Path, records: list[tuple[str, Mapping[str, Any]]], name: str | None
) -> list[tuple[str, Mapping[str, Any]]]:
    """The samples of one filter: a log has every document once for each."""
    there = list(dict.fromkeys(str(record.get("filter", "none")) for _, record in records))
    if name is None and len(there) > 1:
        raise Problem(f"{path} has the filters {', '.join(there)}; choose one with --filter")
    if name is not None and name not in there:
        raise Problem(f"{path} has no filter '{name}'{suggestion(name, there)}")
    wanted = name or there[0]
    return [one for one in records if str(one[1].get("filter", "none")) == wanted]


def _choices(record: Mapping[str, Any]) -> list[str]:
    """The texts that were weighed against each other, none where a reply was generated."""
    said, told = record["filtered_resps"], record.get("arguments")
    if not (isinstance(said, list) and said and all(isinstance(one, list) for one in said)):
        return []
    if not isinstance(told, Mapping) or len(told) != len(said) or len(said) < 2:
        return []
    return [str(_inside(told, f"gen_args_{k}", "arg_1")).strip() for k in range(len(said))]


def _chosen(said: object, names: Sequence[str], where: str) -> str:
    """The choice of the greatest log-probability, or the generated text."""
    first = said[0] if isinstance(said, list) and said else said
    if not names:
        first = first[0] if isinstance(first, list) and first else first
        return _written(first)
    try:
        weights = [float(one[0]) for one in said]  # type: ignore[attr-defined]
    except (TypeError, ValueError, LookupError) as error:
        raise Problem(
            f"{where}: filtered_resps holds {shorten(said)}; a choice needs log-probabilities"
        ) from error
    return names[max(range(len(weights)), key=weights.__getitem__)]


def _target(target: str, texts: Sequence[str], names: Sequence[str]) -> str:
    """The true class; among choices it is told by its text or by its place from 0."""
    if target in texts:
        return names[texts.index(target)]
    is_place = target.isdecimal() and len(target) < 4 and int(target) < len(names)
    return names[int(target)] if is_place else target
