"""File -> study file: look at a user's data and draft a study that runs as it is."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from string import Template
from typing import Any

import yaml

from flipmeter.data import load_file, sample
from flipmeter.data.guess import (
    MOST_CLASSES,
    classes_in,
    exchangeable_columns,
    guess_label,
    guess_order,
    guess_text,
    is_number,
)
from flipmeter.data.labels import label_key, shorten
from flipmeter.data.sampling import RESERVED, RESERVED_PERCENT, Balance
from flipmeter.data.tables import Table, read_table
from flipmeter.registry import suggestion
from flipmeter.study.grid import exchange_hint
from flipmeter.types import Dataset, Problem, Scale

EMBEDDED = "local/smollm2-135m"
TEST_SIZE = 100
SHOTS = (5, 3, 2, 1, 0)
LONGEST_DEMOS = 12_000
"""Characters of demonstrations that leave the embedded model room for an item."""
LONGEST_TEXT = 16_000
RARE = 10

Ask = Callable[[str, str], str]
"""Put a question with a proposed answer to the user and return what they say."""

_DEGREES = {
    2: ("low", "high"),
    3: ("low", "medium", "high"),
    4: ("very low", "low", "high", "very high"),
    5: ("very low", "low", "medium", "high", "very high"),
}


STUDY = Template("""\
# Drafted by flipmeter init: read it, change what is wrong, then
#   flipmeter plan $out    what it would ask, and what that takes
#   flipmeter run $out     ask and measure
name: $name

# Who answers. The embedded model needs no key and is very small: it shows how measuring goes.
# Others: openrouter/ORG/NAME, openai/NAME, vllm/NAME, ollama/NAME, hf/ORG/NAME
models: [$model]

# $rows
datasets:
  - file: $file
    text: $text
    label: $label
    # Lowest first. The names stand in the prompt: call the classes what your raters call them.
    scale: $scale
    $on_bad
    # The words of the prompt: its title, what a text is called, what is judged, the two poles.
    task: $task

# How many items are rated: flipmeter check says how many a claim takes.
test_size: $test_size
balance: $balance

# What is moved: the list of labels, the order of the demonstrations, their place.
probes: [label_order, demo_order, placement]
repeats: 2  # ask some prompts twice, to know the noise

# The prompt: demonstrations of each class, what a label looks like (flipmeter list factors).
base: $base
decoding: {temperature: 0, max_tokens: 16}
""")


@dataclass(frozen=True)
class Draft:
    """A study file in the making: its text, and what the user should know of the data."""

    text: str
    notes: tuple[str, ...]


def draft_study(
    file: Path,
    out: Path,
    *,
    text: str | None = None,
    label: str | None = None,
    scale: Sequence[str] | None = None,
    model: str = EMBEDDED,
    ask: Ask | None = None,
) -> Draft:
    """Look at a file and write a commented study of it; what stays unsure is asked, or a Problem.

    `scale` lists the classes lowest first. Paths in the study count from the folder of `out`.
    """
    table = read_table(file)
    _refuse_one_column(table)
    text, label = _columns(table, text, label, ask)
    classes = _classes(table, label, scale, ask)
    named = _named(classes, label)
    dataset = load_file(file, text=text, label=label, scale=named, on_bad="drop")
    source = {
        "file": Path(os.path.relpath(file, out.parent)).as_posix(),
        "text": text,
        "label": label,
        "scale": named,
    }
    written = _written(out, model, dataset, source, _sized(dataset), len(table.records))
    hint = [exchange_hint(table.file, found)] if (found := exchangeable_columns(table)) else []
    return Draft(written, (*_notes(dataset), *hint))


# --- questions --------------------------------------------------------------------------------


def _refuse_one_column(table: Table) -> None:
    if len(table.columns) == 1:
        raise Problem(
            f"{table.file} has one column, {shorten(table.columns[0])}; a study needs two: texts, "
            "and the labels that people gave them"
        )


def _columns(table: Table, text: str | None, label: str | None, ask: Ask | None) -> tuple[str, str]:
    """Return the columns of text and label; the surer guess goes first and helps the other."""
    for name in (text, label):
        if name is not None and name not in table.columns:
            near = suggestion(name, list(table.columns))
            raise Problem(f"{table.file} has no column '{name}'{near}")
    texts = [text] if text else guess_text(table, label)
    labels = [label] if label else guess_label(table, texts[0] if len(texts) == 1 else None)
    if len(labels) == 1 and not text:
        texts = guess_text(table, labels[0])
    chosen = _one_of(table, "text", texts, ask)
    return chosen, _one_of(table, "label", [name for name in labels if name != chosen], ask)


def _one_of(table: Table, what: str, found: Sequence[str], ask: Ask | None) -> str:
    if len(found) == 1:
        return found[0]
    shown = ", ".join(_described(table, column) for column in found or table.columns)
    unsure = f"which column of {table.file} holds the {what}? {'It may be' if found else 'It has'}"
    if ask is None:
        raise Problem(f"{unsure} {shown}; say --{what} COLUMN")
    answer = ask(f"{unsure} {shown}", (found or table.columns)[0])
    if answer not in table.columns:
        raise Problem(f"no column '{answer}'{suggestion(answer, list(table.columns))}")
    return answer


def _described(table: Table, column: str) -> str:
    n_values = len(classes_in(table, column))
    return f"'{column}' ({n_values} different value{'s' if n_values != 1 else ''})"


def _classes(
    table: Table, label: str, scale: Sequence[str] | None, ask: Ask | None
) -> list[object]:
    """Return the classes lowest first: as told, as their words tell, or as the user answers."""
    if scale:
        return list(scale)
    found = classes_in(table, label)
    if len(found) < 2:
        only = f"only the value {shorten(found[0])}" if found else "no text or number"
        raise Problem(f"the column '{label}' of {table.file} has {only}; a scale needs two classes")
    if len(found) > MOST_CLASSES:
        some = ", ".join(shorten(value) for value in found[:3])
        raise Problem(
            f"the column '{label}' of {table.file} has {len(found)} different values ({some}, …); "
            "a scale has a few: name another column with --label, keep some with --scale "
            "lowest,…,highest, or merge them in the file first"
        )
    ordered = guess_order(found)
    if ordered:
        return ordered
    listed = ",".join(str(value).strip() for value in found)
    unsure = f"in which order are the classes of '{label}', lowest first?"
    if any("," in str(value) for value in found):
        raise Problem(f"{unsure} A name among {listed} has a comma: write it without in the file")
    if ask is None:
        raise Problem(f"{unsure} Say --scale {quote(listed)} (these are they, not in order)")
    return [part.strip() for part in ask(unsure, listed).split(",")]


def _named(classes: Sequence[object], column: str) -> list[str] | dict[Any, str]:
    """Return a scale in words: bare numbers would stand beside the numbers of the label list."""
    names = [str(value).strip() for value in classes]
    if not all(map(is_number, classes)):
        return names
    values = [_number(value) for value in classes]
    if "star" in column.lower() or any("star" in name.lower() or "★" in name for name in names):
        return {value: f"{value} star{'' if value == 1 else 's'}" for value in values}
    if len(values) in _DEGREES:
        return dict(zip(values, _DEGREES[len(values)], strict=True))
    return [str(value) for value in values]


def _number(value: object) -> int | float:
    number = float(label_key(value))
    return int(number) if number.is_integer() else number


# --- sizes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sizes:
    test_size: int
    shots: int
    balance: Balance


def _sized(dataset: Dataset) -> _Sizes:
    """Return the largest usual plan that the rows allow and the embedded model can read."""
    counts = Counter(item.gold for item in dataset.test)
    n_rows = [counts[rank] for rank in dataset.task.scale.ranks]
    for shots in SHOTS:
        have = [n - max(shots, min(RESERVED, n * RESERVED_PERCENT // 100)) for n in n_rows]
        if min(have) < 0 or not sum(have):
            continue
        equal = min(TEST_SIZE // len(have), min(have)) * len(have)
        proportional = min(TEST_SIZE, sum(have))
        is_equal = 2 * equal >= proportional
        plan = (
            _Sizes(equal, shots, "equal")
            if is_equal
            else _Sizes(proportional, shots, "proportional")
        )
        if _n_shown(dataset, plan) <= LONGEST_DEMOS:
            return plan
    raise Problem(f"{dataset.source} has too few rows to test anything; give more")


def _n_shown(dataset: Dataset, plan: _Sizes) -> int:
    """Count the characters of the demonstrations that the study would show."""
    size, balance = plan.test_size, plan.balance
    drawn = sample(dataset, test_size=size, shots=plan.shots, seed=0, balance=balance)
    return sum(len(item.text) for item in drawn.demos)


# --- the file ---------------------------------------------------------------------------------


def _notes(dataset: Dataset) -> Iterator[str]:
    """Yield what the user should know of the data before running."""
    if dataset.left_out:
        yield f"rows that are left out: {_counted(dataset.left_out)}"
    longest = max(dataset.test, key=lambda item: len(item.text))
    if len(longest.text) > LONGEST_TEXT:
        yield (
            f"the longest text ({longest.id}) has {len(longest.text):,} characters; a small model "
            "cannot read it and answers with an error: shorten it, or use a larger model"
        )
    counts = Counter(item.gold for item in dataset.test)
    if min(counts[rank] for rank in dataset.task.scale.ranks) < RARE:
        yield f"a class has few rows ({_sizes(dataset)}): its numbers will say little"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in counts.items())


def _written(
    out: Path, model: str, dataset: Dataset, source: Mapping[str, Any], plan: _Sizes, n_rows: int
) -> str:
    """Return the text of a study file, with a comment where a user will want to change a line."""
    task, scale = dataset.task, dataset.task.scale
    words = {"title": task.title, "noun": task.noun, "aspect": task.aspect}
    dropped = f"on_bad: drop  # leaves out {_counted(dataset.left_out)}"
    return STUDY.substitute(
        {name: _flow(value) for name, value in source.items()},
        out=quote(" ".join(out.name.split())),
        name=_flow(_name(dataset.name)),
        model=_flow(model),
        rows=f"{len(dataset.test):,} usable rows of {n_rows:,}: {_sizes(dataset)}",
        on_bad=dropped if dataset.left_out else "on_bad: error",
        task=_flow(words | {"low": scale.low, "high": scale.high}),
        test_size=plan.test_size,
        balance=plan.balance,
        base=_flow(_style(scale, plan)),
    )


def _sizes(dataset: Dataset) -> str:
    """Return the number of rows of each class."""
    counts, scale = Counter(item.gold for item in dataset.test), dataset.task.scale
    return ", ".join(f"{shorten(scale.name(rank))} {counts[rank]}" for rank in scale.ranks)


def _style(scale: Scale, plan: _Sizes) -> dict[str, Any]:
    # "1: 0, 2: 1, ..." would confuse anybody: bare numbers are their own labels.
    is_bare = all(map(is_number, scale.names))
    return {"shots": plan.shots} | ({"label_format": "natural_language"} if is_bare else {})


def _name(stem: str) -> str:
    """Return a name that can be a folder."""
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "study"


def _flow(value: Any) -> str:
    """Return a value as YAML in one line."""
    text = yaml.safe_dump(
        [value], default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**6
    )
    return text.strip()[1:-1]
