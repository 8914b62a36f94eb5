"""Logs of promptfoo and lm-eval -> a table of predictions, which is measured like any other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from flipmeter.data.labels import shorten
from flipmeter.data.tables import Record, read_table
from flipmeter.documents import JSON_BYTES, read_json, read_limited
from flipmeter.errors import Problem
from flipmeter.prompt.parsing import read_scores, read_slots
from flipmeter.registry import suggestion
from flipmeter.types import Span, canonical_json

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
"""Output of an lm-eval filter whose pattern found nothing."""
_FAILED = 2
"""The failure reason of promptfoo for an error other than a failed assertion."""


@dataclass(frozen=True)
class Named:
    """The user's settings for a log: the variables of item, condition and gold, and the filter."""

    item: str | None = None
    condition: str | None = None
    gold: str | None = None
    filter: str | None = None


@dataclass(frozen=True)
class LoggedReply:
    """The answer of a model to an item, or a fault."""

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
    shown: dict[str, list[str]] = {}
    named = named or Named()
    for path in paths:
        is_promptfoo = path.suffix == ".json"
        replies = _promptfoo(path, named) if is_promptfoo else _lm_eval(path, named, shown)
        for reply in replies:
            whose = (reply.item, reply.condition, reply.model)
            label, fault = (
                ("", reply.fault) if reply.fault else _read_logged_label(reply.text, scale)
            )
            rows.append((*whose, counts[whose], label, reply.gold, fault))
            counts[whose] += 1
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _read_logged_label(text: str, scale: Sequence[str] | Span) -> tuple[str, str]:
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


def _log_value_text(value: object) -> str:
    """A value of a log as text; other values as JSON."""
    return value if isinstance(value, str) else "" if value is None else canonical_json(value)


# --- promptfoo --------------------------------------------------------------------------------


def _promptfoo(path: Path, named: Named) -> Iterator[LoggedReply]:
    results, prompts = _promptfoo_results(path)
    items: dict[str, str] = {}
    names: dict[tuple[str, str], str] = {}
    # results stand in the order in which they came in
    for place, row in sorted(enumerate(results, 1), key=lambda one: _test_and_prompt(one[1])):
        where = f"{path}, result {place}"
        told = row.get("vars")
        if not isinstance(told, dict):
            raise Problem(f"{where} has no vars; write the log with promptfoo eval -o FILE.json")
        variables = {k: v for k, v in told.items() if not k.startswith("__")}
        prompt = str(_nested_value(row, "prompt", "label") or ""), _template(prompts, row)
        if prompt not in names:
            name = _prompt_name(*prompt) or f"prompt {len(names) + 1}"
            names[prompt] = f"{name} {len(names) + 1}" if name in names.values() else name
        own = {k: v for k, v in variables.items() if k != named.condition}
        output, error = (_nested_value(row, "response", key) for key in ("output", "error"))
        has_failed = row.get("failureReason") == _FAILED or bool(error)
        number = items.setdefault(canonical_json(own), f"test {len(items) + 1}")
        yield LoggedReply(
            item=_test_variable(variables, named.item, number, where),
            condition=_test_variable(variables, named.condition, names[prompt], where),
            model=_provider(row.get("provider")),
            text=_log_value_text(output),
            gold=_test_variable(variables, named.gold, _expected_value(row), where),
            fault="error" if has_failed or output is None else "",
        )


def _test_and_prompt(row: Mapping[str, Any]) -> tuple[int, int]:
    """The places of test and prompt in the evaluation."""
    test, prompt = (row.get(key) for key in ("testIdx", "promptIdx"))
    return (test if isinstance(test, int) else 0, prompt if isinstance(prompt, int) else 0)


def _template(prompts: object, row: Mapping[str, Any]) -> str:
    """The text of a result's prompt before its variables are filled in, "" if it is not told."""
    place = row.get("promptIdx")
    if not isinstance(prompts, list) or not isinstance(place, int):
        return ""
    return str(_nested_value(prompts[place], "raw") or "") if 0 <= place < len(prompts) else ""


def _promptfoo_results(path: Path) -> tuple[list[dict[str, Any]], object]:
    """The results in an output of promptfoo, and its prompts."""
    try:
        content = read_json(read_limited(path, JSON_BYTES), str(path))
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror or error}") from error
    found = _nested_value(content, "results", "results")
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise Problem(
            f"{path} is not promptfoo output: no list at results.results; write one with "
            "promptfoo eval -o FILE.json"
        )
    if not found:
        raise Problem(f"{path} has no results; did the evaluation run?")
    return found, _nested_value(content, "results", "prompts")


def _nested_value(value: object, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _prompt_name(label: str, template: str) -> str:
    """The name in a label; promptfoo writes "NAME: FILE: TEXT", "FILE: TEXT", NAME or TEXT."""
    if label == template:
        return ""
    name = label.removesuffix(f": {template}")
    if name != label:
        told, _, file = name.rpartition(": ")
        name = told if told and Path(file).suffix else name
    elif "\n" in label:
        name = label.partition(": ")[0]
    return name if len(name) <= LONGEST_NAME and "\n" not in name and "{{" not in name else ""


def _provider(value: object) -> str:
    if isinstance(value, Mapping):
        return str(value.get("label") or value.get("id") or "model")
    return str(value or "model")


def _test_variable(
    variables: Mapping[str, object], name: str | None, otherwise: str, where: str
) -> str:
    if name is None:
        return otherwise
    if name not in variables:
        raise Problem(f"{where} has no variable '{name}'{suggestion(name, list(variables))}")
    return _log_value_text(variables[name]).strip()


def _expected_value(row: Mapping[str, Any]) -> str:
    """The expected value of the one assertion on the whole output, "" if there is none."""
    told = _nested_value(row, "testCase", "assert")
    asserts = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    equal = [one.get("value") for one in asserts if one.get("type") in ("equals", "iequals")]
    return _log_value_text(equal[0]).strip() if len(equal) == 1 else ""


# --- lm-eval ----------------------------------------------------------------------------------


def _lm_eval(path: Path, named: Named, shown: dict[str, list[str]]) -> Iterator[LoggedReply]:
    """The replies in samples; `shown` has the options of a document as the first log has them."""
    found = read_table(path, needs="a sample of lm-eval").records
    records = _of_filter(path, [_lm_eval_sample(path, record) for record in found], named.filter)
    texts = [_option_texts(record) for _, record in records]
    names = texts
    if len({tuple(sorted(one)) for one in texts}) > 1:
        names = [
            _option_places(own, shown.setdefault(str(record["doc_id"]), own))
            for (_, record), own in zip(records, texts, strict=True)
        ]
    said = [
        _chosen_option(record["filtered_resps"], own, where)
        for (where, record), own in zip(records, names, strict=True)
    ]
    golds = _gold_labels([record for _, record in records], said, texts, names)
    task = _SAMPLES.fullmatch(path.stem)
    for (_, record), text, gold in zip(records, said, golds, strict=True):
        yield LoggedReply(
            item=str(record["doc_id"]),
            condition=task["task"] if task else path.stem,
            model=path.absolute().parent.name or "model",
            text=text,
            gold=gold,
            fault="unparsed" if text == _NO_MATCH else "",
        )


def _option_places(texts: list[str], first: list[str]) -> list[str]:
    """The places of options, from 1, in the first log that shows them."""
    whole = first if sorted(first) == sorted(texts) else texts
    return [str(whole.index(text) + 1) for text in texts]


def _lm_eval_sample(path: Path, record: Record) -> tuple[str, Mapping[str, Any]]:
    where = f"{path}, row {record.row}"
    if record.fault:
        raise Problem(f"{where}: {record.fault}")
    for key in ("doc_id", "target", "filtered_resps"):
        if key not in record.values:
            raise Problem(
                f"{where} has no '{key}', so it is not an lm-eval sample; write them with "
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


def _option_texts(record: Mapping[str, Any]) -> list[str]:
    """The texts that were weighed against each other, none where a reply was generated."""
    said, told = record["filtered_resps"], record.get("arguments")
    if not (isinstance(said, list) and said and all(isinstance(one, list) for one in said)):
        return []
    if not isinstance(told, Mapping) or len(told) != len(said) or len(said) < 2:
        return []
    return [str(_nested_value(told, f"gen_args_{k}", "arg_1")).strip() for k in range(len(said))]


def _chosen_option(said: object, names: Sequence[str], where: str) -> str:
    """The choice of the greatest log-probability, or the generated text."""
    first = said[0] if isinstance(said, list) and said else said
    if not names:
        first = first[0] if isinstance(first, list) and first else first
        return _log_value_text(first)
    try:
        weights = [float(one[0]) for one in said]  # type: ignore[attr-defined]
    except (TypeError, ValueError, LookupError) as error:
        raise Problem(
            f"{where}: filtered_resps contains {shorten(said)}; a choice needs log-probabilities"
        ) from error
    return names[max(range(len(weights)), key=weights.__getitem__)]


def _gold_labels(
    records: Sequence[Mapping[str, Any]],
    said: Sequence[str],
    texts: Sequence[Sequence[str]],
    names: Sequence[Sequence[str]],
) -> list[str]:
    """The true classes; a target among choices is the text of one, or its place from 0.

    Where both can be meant ("2" among 1, 2 and 3) lm-eval's own accuracy decides for the file.
    """
    told = [str(record["target"]).strip() for record in records]
    rows = list(zip(told, texts, names, strict=True))
    by_text = [own[shown.index(one)] if one in shown else "" for one, shown, own in rows]
    places = [int(one) if one.isdecimal() and len(one) < 4 else -1 for one in told]
    by_place = [
        own[place] if 0 <= place < len(own) else ""
        for place, (_, _, own) in zip(places, rows, strict=True)
    ]
    first, second = sorted(
        (by_text, by_place), key=lambda golds: _gold_agreement(golds, records, said)
    )
    return [b or a or one for a, b, one in zip(first, second, told, strict=True)]


def _gold_agreement(
    golds: Sequence[str], records: Sequence[Mapping[str, Any]], said: Sequence[str]
) -> tuple[int, int]:
    """Number of samples that agree with their accuracy under these classes, and number with one."""
    rows = zip(records, said, golds, strict=True)
    agree = sum((text == gold) == (record.get("acc") == 1) for record, text, gold in rows)
    return agree, sum(map(bool, golds))
