"""File with answers or options -> study file: a draft that moves what is compared."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shlex import quote
from string import Template, ascii_lowercase
from typing import Any

import yaml

from flipmeter.chance import n_shared
from flipmeter.data.files import load_file
from flipmeter.data.guess import (
    MOST_CLASSES,
    classes_in,
    exchangeable_columns,
    guess_id,
    guess_label,
    guess_order,
    guess_text,
    is_bare_number,
    is_text_column,
    label_names,
    usual_classes,
)
from flipmeter.data.labels import WITHIN, is_blank, label_key, read_labels, shorten
from flipmeter.data.places import by_lean, lean_of, read_exchange
from flipmeter.data.sampling import RESERVED, RESERVED_PERCENT, Balance, sample
from flipmeter.data.tables import Record, Table, check_columns, read_table
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.study.grid import exchange_hint
from flipmeter.study.sizes import DrawSizes, sizes_for
from flipmeter.types import NO_CLASS, Dataset, Places, Scale, Task

ANSWERS = ("answer", "response", "output", "completion", "reply", "candidate", "summary")
"""Common names of columns whose texts a judge compares; other twins are options of a question."""

AUTHORS = ("system", "model", "generator", "assistant")
"""Common names of columns that say which system wrote an answer, before the end of its column."""
NO_RIGHT_OPTION = "no column names the right option: everything but accuracy is measured"


@dataclass(frozen=True)
class ComparedColumns:
    """The comparison in a table: its columns, and the dataset entry for it."""

    label: str | None
    keys: dict[str, object]
    probe: str
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str | None:
        """The column of the question that is asked about what is compared, if there is one."""
        fields = self.keys.get("fields", {})
        moved = self.keys.get("exchange", ())
        assert isinstance(fields, dict)
        assert isinstance(moved, Sequence)
        others = (name for name in fields if name not in moved)
        return str(self.keys["text"]) if "text" in self.keys else next(others, None)


def guess_compared(table: Table, found: Sequence[str]) -> ComparedColumns | None:
    """The comparison of columns that look exchangeable, or of a list; None if none is clear."""
    if not found:
        return _guess_listed(table)
    if len(found) == 2 or any(word in found[0].casefold() for word in ANSWERS):
        return _judged_columns(table, tuple(found))
    return _ask_compared_columns(table, tuple(found))


def _guess_listed(table: Table) -> ComparedColumns | None:
    """The question with options of a table with one column of lists, None if there is none."""
    values = {name: [one.values.get(name) for one in table.records] for name in table.columns}
    columns = [
        name
        for name, lists in values.items()
        if lists and all(isinstance(one, list) and len(one) > 1 for one in lists)
    ]
    others = [name for name in table.columns if name not in columns and is_text_column(table, name)]
    if len(columns) != 1 or not others:
        return None
    longest = max(len(one) for one in values[columns[0]] if isinstance(one, list))
    known = {*ascii_lowercase[:longest], *map(str, range(longest + 1))}
    keys: dict[str, object] = {"text": others[0], "options": columns[0]}
    for column in _label_columns(table, (columns[0], others[0])):
        named = {label_key(value) for value in usual_classes(table, column)}
        if named <= known and not {"0", str(longest)} <= named:
            return ComparedColumns(column, keys, "option_order")
    return ComparedColumns(None, keys, "option_order", (NO_RIGHT_OPTION,))


def _judged_columns(table: Table, found: tuple[str, ...]) -> ComparedColumns:
    others = [name for name in table.columns if name not in found and is_text_column(table, name)]
    fields = {name: name for name in (*islice(others, 1), *found)}
    keys: dict[str, object] = {"fields": fields, "exchange": list(found)}
    shared = n_shared(found[0], found[1])
    ends = [name[shared:] for name in found]
    named = ([f"{word}{mark}{end}" for end in ends] for word in AUTHORS for mark in ("_", "", " "))
    if authors := next((some for some in named if {*some} <= {*table.columns}), None):
        keys["systems"] = authors  # the columns that say which system wrote each answer
    probe = "pair_order" if len(found) == 2 else "candidate_order"
    for column in _label_columns(table, (*found, *others)):
        classes = tuple(str(value).strip() for value in usual_classes(table, column))
        with suppress(Problem):
            places = read_exchange(list(found), Scale(classes), found)
            scale: object = by_lean(places, classes)
            told = {**keys, "scale": {"nominal": scale} if len(found) > 2 else scale}
            return ComparedColumns(column, told, probe, tuple(_guessed_order_note(places, classes)))
    note = "no column says which answer is better: everything but accuracy is measured"
    usual = [found[1], "tie", found[0]] if len(found) == 2 else {"nominal": list(found)}
    return ComparedColumns(None, {**keys, "scale": usual}, probe, (note,))


def _guessed_order_note(places: Places, classes: Sequence[str]) -> list[str]:
    """A note on the classes for the last field whose grades are not told apart by their words."""
    leans = [(lean_of(places, rank), name) for rank, name in enumerate(classes, 1)]
    for lean, _ in leans:
        same = [name for other, name in leans if other == lean]
        if lean < 0 and len(same) > 1 and len(places.fields) == 2:
            listed = ", ".join(f"'{name}'" for name in same)
            return [f"the order of {listed} is a guess; the scale goes from best for the last"]
    return []


def _ask_compared_columns(table: Table, found: tuple[str, ...]) -> ComparedColumns | None:
    known = {*map(label_key, found), *ascii_lowercase[: len(found)]}
    known |= {str(number) for number in range(1, len(found) + 1)}
    others = [name for name in table.columns if name not in found and is_text_column(table, name)]
    if not others:
        return None
    keys: dict[str, object] = {"text": others[0], "options": list(found)}
    for column in _label_columns(table, (*found, others[0])):
        values = usual_classes(table, column)
        if {label_key(value) for value in values} <= known:
            numbers = {str(n): name for n, name in enumerate(found, 1)}
            is_counted = all(label_key(value) in numbers for value in values)
            mapped = {int(n): name for n, name in numbers.items()}
            return ComparedColumns(
                column, {**keys, **({"labels": mapped} if is_counted else {})}, "option_order"
            )
    return ComparedColumns(None, keys, "option_order", (NO_RIGHT_OPTION,))


def _label_columns(table: Table, taken: Sequence[str]) -> Iterator[str]:
    """Columns that may say which is better, those called so first."""
    skipped = {*taken, guess_id(table, [])}
    for column in table.columns:
        if column not in skipped and 2 <= len(usual_classes(table, column)) <= MOST_CLASSES:
            yield column


EMBEDDED = "local/smollm2-135m"
TEST_SIZE = 100
LONGEST_DEMOS = 12_000
"""Characters of demonstrations that leave the embedded model room for an item."""
LONGEST_TEXT = 16_000
ABOUT_CLASSES = "Lowest first. These names appear in the prompt: use the words of your raters."
ABOUT_RANGE = "The range of scores; two that lie at most `within` apart count as the same."
MOVED = {
    "label_order": "the label list",
    "demo_order": "the order of the demonstrations",
    "placement": "their place",
}
"""The part of a prompt that each probe of a draft moves."""
RARE = 10
MOST_ODD = 5
"""Number of unknown labels listed."""

Given = Sequence[str] | Mapping[Any, float]
"""A scale as the user gives it: classes, or the two ends of a range of scores."""
Ask = Callable[[str, str], str]
"""Put a question with a proposed answer to the user and return what they say."""

STUDY = Template("""\
# Drafted by flipmeter init: read it, change what is wrong, then
#   flipmeter try $out     ask a few items and show how replies are read
#   flipmeter plan $out    requests, tokens, price and time
#   flipmeter run $out     ask the model and measure
name: $name

# The model. The embedded one needs no API key and is very small: good for a first try.
# Others: openrouter/ORG/NAME, openai/NAME, vllm/NAME, ollama/NAME, hf/ORG/NAME
models: [$model]

# $rows
$rest
decoding: {temperature: 0, max_tokens: 16}
""")
RATED = Template("""\
datasets:
  - file: $file
    text: $text
    label: $label$id
    # $about_scale
    scale: $scale
    $on_bad
    # The wording of the prompt: title, name of a text, aspect that is rated, the two poles.
    task: $task

# How many items to rate; flipmeter check says how many a claim needs.
test_size: $test_size
balance: $balance

# What changes position: $moved.
probes: $probes
repeats: 2  # ask some prompts twice, to measure noise

# The prompt: few-shot demonstrations per class, label format (flipmeter list factors).
base: $base""")
COMPARED = Template("""\
# The fields named below change places; labels are exchanged with them, a tie stays.
datasets:
  - $source

test_size: $test_size
balance: proportional
probes: [$probe]
repeats: 2  # ask some prompts twice, to measure noise
base: {shots: 0, label_format: letter}""")


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
    scale: Given | None = None,
    unlabelled: bool = False,
    model: str = EMBEDDED,
    ask: Ask | None = None,
) -> Draft:
    """Draft a commented study for a file; ask for what it does not show, or raise a Problem.

    `scale` lists the classes lowest first, or gives the ends of a range of decimal scores. A file
    without labels, or one that is `unlabelled` whatever its columns look like, gives a study that
    measures everything but accuracy. Paths in the study count from the folder of `out`.
    """
    table = read_table(file, needs="a text")
    found = exchangeable_columns(table)
    if scale is None and not unlabelled:
        compared = guess_compared(table, found)
        is_meant = compared and text in (None, compared.text) and label in (None, compared.label)
        if compared is not None and is_meant:
            return _draft_compared(file, out, table, compared, model)
    text, label = _choose_columns(table, text, label, scale, unlabelled, ask)
    source: dict[str, Any] = {
        "text": text,
        "label": label,
        "id": guess_id(table, [text, label or ""]),
    }
    if isinstance(scale, Mapping):
        source["scale"], words = {**scale, WITHIN: 0}, {}
    else:
        source["scale"] = [_class_value(value) for value in _find_classes(table, label, scale, ask)]
        words = _task_words(text, label, source["scale"])
    dataset = load_file(file, **source, task=words, on_bad="drop")
    source["file"] = Path(os.path.relpath(file, out.parent)).as_posix()
    rest = _rated_keys_text(dataset, source, _usual_draw_sizes(dataset))
    written = _render_study(out, model, dataset, len(table.records), rest)
    hint = [exchange_hint(table.file, found)] if found else []
    what = "scores of the range" if isinstance(scale, Mapping) else "one of the classes"
    why = f"no column holds {what} given" if scale else "there is no column of labels"
    unlabelled_note = (
        f"{table.file}: {why}; the study measures flips, noise and direction, and no accuracy "
        "(--label COLUMN names the labels if there are any)"
    )
    odd = _odd_labels(table, label, dataset) if label else [unlabelled_note]
    return Draft(written, (*odd, *_dataset_notes(dataset), *hint))


def _draft_compared(
    file: Path, out: Path, table: Table, compared: ComparedColumns, model: str
) -> Draft:
    """A study of judges or of questions with options, which moves what is compared."""
    named = guess_id(table, [])
    keys = {**compared.keys, "label": compared.label, **({"id": named} if named else {})}
    dataset = load_file(file, **keys, on_bad="drop")  # type: ignore[arg-type]
    source = {"file": Path(os.path.relpath(file, out.parent)).as_posix(), **keys}
    if dataset.left_out:
        source["on_bad"] = "drop"
    rest = COMPARED.substitute(
        source="\n    ".join(f"{name}: {_yaml_in_line(value)}" for name, value in source.items()),
        test_size=min(TEST_SIZE, len(dataset.test)),
        probe=compared.probe,
    )
    text = _render_study(out, model, dataset, len(table.records), rest)
    left_out = (
        [f"rows that are left out: {_reason_counts_text(dataset.left_out)}"]
        if dataset.left_out
        else []
    )
    return Draft(text, (*compared.notes, *left_out))


# --- questions --------------------------------------------------------------------------------


def _choose_columns(
    table: Table,
    text: str | None,
    label: str | None,
    scale: Given | None,
    unlabelled: bool,
    ask: Ask | None,
) -> tuple[str, str | None]:
    """The columns of text and label; the better guess is made first and helps the other."""
    if unlabelled and label:
        raise Problem(f"--unlabelled and --label {label} contradict each other; pass one of them")
    check_columns(table.file, [name for name in (text, label) if name is not None], table.columns)
    texts = [text] if text else guess_text(table, label)
    sure = texts[0] if len(texts) == 1 else None
    labels = [label] if label else [] if unlabelled else _may_be_labels(table, sure, scale)
    if len(labels) == 1 and not text:
        texts = guess_text(table, labels[0])
    chosen = _one_of(table, "text", texts, ask)
    labels = [name for name in labels if name != chosen]
    if not labels and (unlabelled or scale or not {*label_names(table)} - {chosen}):
        return chosen, None
    return chosen, _one_of(table, "label", labels, ask)


def _may_be_labels(table: Table, text: str | None, scale: Given | None) -> list[str]:
    """The columns that may hold the labels; where a scale is given, those that use it."""
    if scale is None:
        return guess_label(table, text)
    given = scale if isinstance(scale, Mapping) else [_class_value(value) for value in scale]
    reader, taken = read_labels(given), guess_id(table, [])
    shares = {
        column: sum(reader.rank(one) != NO_CLASS for one in found) / max(1, len(found))
        for column in table.columns
        if column not in (text, taken)
        for found in [classes_in(table, column)]
    }
    named = [column for column in label_names(table) if shares.get(column)]
    return named if len(named) == 1 else [c for c, share in shares.items() if share >= 0.5]


def _one_of(table: Table, what: str, found: Sequence[str], ask: Ask | None) -> str:
    if len(found) == 1:
        return found[0]
    sizes = {column: len(classes_in(table, column)) for column in found or table.columns}
    shown = ", ".join(
        f"'{column}' ({n} different value{'s' if n != 1 else ''})" for column, n in sizes.items()
    )
    if ask is None:
        or_none = ", or --unlabelled" if what == "label" else ""
        raise Problem(
            f"cannot tell which column of {table.file} contains the {what}; pass --{what} COLUMN"
            f"{or_none}; {'candidates' if found else 'columns'}: {shown}"
        )
    answer = ask(f"Which column contains the {what}? {shown}", (found or table.columns)[0])
    if answer not in table.columns:
        raise Problem(f"no column '{answer}'{suggestion(answer, list(table.columns))}")
    return answer


def _find_classes(
    table: Table, label: str | None, scale: Sequence[str] | None, ask: Ask | None
) -> list[object]:
    """The classes, lowest first: as given, as inferred from their names, or as the user answers."""
    if scale:
        return list(scale)
    if label is None:
        return _ask_for_classes(
            "Which classes should the texts be rated on, lowest first?",
            "low,medium,high",
            f"{table.file} has no labels; pass the classes, lowest first, as in --scale "
            "low,medium,high, or --label COLUMN if a column has labels",
            ask,
        )
    found = [*table.orders.get(label, ())] or usual_classes(table, label)
    _refuse_no_scale(table, label, found)
    ordered = found if label in table.orders else guess_order(found)
    if ordered:
        return ordered
    listed = ",".join(str(value).strip() for value in found)
    unsure = f"cannot infer the order of the classes of '{label}'"
    if any("," in str(value) for value in found):
        raise Problem(f"{unsure}, and a name has a comma ({listed}); remove commas from the names")
    problem = (
        f"{unsure}; pass --scale, lowest first; classes found: {quote(listed)}; if the column "
        "has no labels, pass another --label or --unlabelled"
    )
    return _ask_for_classes(
        f"Order of the classes of '{label}', lowest first?", listed, problem, ask
    )


def _ask_for_classes(question: str, proposed: str, problem: str, ask: Ask | None) -> list[object]:
    if ask is None:
        raise Problem(problem)
    return [part.strip() for part in ask(question, proposed).split(",")]


def _refuse_no_scale(table: Table, label: str, found: Sequence[object]) -> None:
    if len(found) < 2:
        only = f"only the value {shorten(found[0])}" if found else "no text or number"
        raise Problem(
            f"the column '{label}' of {table.file} has {only}; a scale needs two classes: pass "
            "another --label, or --unlabelled and --scale lowest,…,highest"
        )
    if len(found) > MOST_CLASSES:
        some = ", ".join(shorten(value) for value in found[:3])
        raise Problem(
            f"the column '{label}' of {table.file} has {len(found)} different values ({some}, …); "
            "a scale has a few classes: pass another --label, keep some with --scale "
            "lowest,…,highest, merge classes in the file, or pass the range of scores (--scale "
            "0..10)"
        )


def _class_value(value: object) -> str | int | float:
    """A class as the file writes it; numbers stay numbers, which are their own labels."""
    if not is_bare_number(value):
        return str(value).strip()
    number = float(label_key(value))
    return int(number) if number.is_integer() else number


def _task_words(text: str, label: str | None, scale: Sequence[object]) -> dict[str, str]:
    """The vocabulary of a prompt, from the column names, which are in the language of the data."""
    column = label or "class"
    plain = read_labels(list(scale), column=column).task
    if plain.title == Task.title:
        return {}
    noun, aspect = (" ".join(name.replace("_", " ").split()) for name in (text, column))
    words = {"noun": noun[:1].upper() + noun[1:]}
    if plain.aspect.casefold() == aspect.casefold() and label:
        words |= {"aspect": aspect, "title": aspect[:1].upper() + aspect[1:]}
    return words


# --- sizes ------------------------------------------------------------------------------------


def _usual_draw_sizes(dataset: Dataset) -> DrawSizes:
    """The largest usual plan that the rows allow and the embedded model can read."""
    if not _is_labelled(dataset):
        return DrawSizes(min(TEST_SIZE, len(dataset.test)), "equal", 0)
    counts = Counter(item.gold for item in dataset.test)
    ranks = dataset.task.scale.ranks
    n_rows = [counts[rank] for rank in ranks] or [len(dataset.test)]  # scores are one class

    def rows(shots: int, balance: Balance) -> int:
        have = [n - max(shots, min(RESERVED, n * RESERVED_PERCENT // 100)) for n in n_rows]
        if min(have) < 0 or sum(have) < shots * len(have):
            return 0
        equal = min(TEST_SIZE // len(have), min(have)) * len(have)
        return equal if balance == "equal" else sum(have)

    for plan in sizes_for(rows, TEST_SIZE):
        size, balance = plan.test_size, plan.balance
        drawn = sample(dataset, test_size=size, shots=plan.shots, seed=0, balance=balance)
        if sum(len(item.text) for item in drawn.demos) <= LONGEST_DEMOS:
            return plan
    raise Problem(f"{dataset.source} has too few rows to measure anything; add some")


def _is_labelled(dataset: Dataset) -> bool:
    return any(item.gold for item in dataset.test)


# --- the file ---------------------------------------------------------------------------------


def _odd_labels(table: Table, label: str, dataset: Dataset) -> Iterator[str]:
    """Yield what stands in the label column and is not a class, each with its first row."""
    reader = read_labels(dataset.task.scale, column=label)
    found: dict[str, list[Record]] = {}
    for record in table.records:
        raw = record.values.get(label)
        if raw is not None and not is_blank(str(raw)) and not reader.rank(raw):
            found.setdefault(label_key(raw), []).append(record)
    for key, records in islice(found.items(), MOST_ODD):
        more = f" and {len(records) - 1:,} more" if len(records) > 1 else ""
        near = suggestion(key, list(reader.task.scale.names))
        yield f"{shorten(records[0].values[label])} in row {records[0].row}{more}{near}"
    if len(found) > MOST_ODD:
        yield f"{len(found) - MOST_ODD:,} more values of '{label}' are not on the scale"


def _dataset_notes(dataset: Dataset) -> Iterator[str]:
    """Yield what the user should know of the data before running."""
    if dataset.left_out:
        yield f"rows that are left out: {_reason_counts_text(dataset.left_out)}"
    longest = max(dataset.test, key=lambda item: len(item.text))
    if len(longest.text) > LONGEST_TEXT:
        yield (
            f"the longest text ({longest.id}) has {len(longest.text):,} characters; a small model "
            "cannot read it and answers with an error: shorten it, or use a larger model"
        )
    counts = Counter(item.gold for item in dataset.test)
    ranks = dataset.task.scale.ranks if _is_labelled(dataset) else ()
    if min((counts[rank] for rank in ranks), default=RARE) < RARE:
        yield f"a class has few rows ({_class_sizes_text(dataset)}): its numbers will be imprecise"


def _reason_counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in counts.items())


def _render_study(out: Path, model: str, dataset: Dataset, n_rows: int, rest: str) -> str:
    return STUDY.substitute(
        out=quote(" ".join(out.name.split())),
        # A name that can be a folder.
        name=_yaml_in_line(re.sub(r"[^\w.-]+", "-", dataset.name).strip("-.") or "study"),
        model=_yaml_in_line(model),
        rows=f"{len(dataset.test):,} usable rows of {n_rows:,}: {_class_sizes_text(dataset)}",
        rest=rest,
    )


def _rated_keys_text(dataset: Dataset, source: Mapping[str, Any], plan: DrawSizes) -> str:
    """The keys about rated texts, with a comment where a user will want to change a line."""
    task, scale = dataset.task, dataset.task.scale
    probes = [*([] if scale.span else ["label_order"])]
    probes += ["demo_order", "placement"] if plan.shots else []
    words = {"title": task.title, "noun": task.noun, "aspect": task.aspect}
    dropped = f"on_bad: drop  # leaves out {_reason_counts_text(dataset.left_out)}"
    column = source["id"]
    # "1: 0, 2: 1, ..." would confuse anybody: bare numbers are their own labels.
    is_bare = scale.span is None and all(map(is_bare_number, scale.names))
    return RATED.substitute(
        {name: _yaml_in_line(value) for name, value in source.items()}
        | {"id": "" if column is None else f"\n    id: {_yaml_in_line(column)}"},
        on_bad=dropped if dataset.left_out else "on_bad: error",
        task=_yaml_in_line(words | {"low": scale.low, "high": scale.high}),
        test_size=plan.test_size,
        balance=plan.balance,
        about_scale=ABOUT_RANGE if scale.span else ABOUT_CLASSES,
        moved=", ".join(MOVED[probe] for probe in probes),
        probes=_yaml_in_line(probes),
        base=_yaml_in_line({"shots": plan.shots} | ({"label_format": "values"} if is_bare else {})),
    )


def _class_sizes_text(dataset: Dataset) -> str:
    """The number of rows of each class."""
    if not _is_labelled(dataset):
        return "no labels"
    counts, scale = Counter(item.gold for item in dataset.test), dataset.task.scale
    if scale.span is not None:
        known = [rank for rank in counts if rank]
        return f"scores from {scale.name(min(known))} to {scale.name(max(known))}"
    return ", ".join(f"{shorten(scale.name(rank))} {counts[rank]}" for rank in scale.ranks)


def _yaml_in_line(value: Any) -> str:
    """A value as YAML in one line."""
    text = yaml.safe_dump(
        [value], default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**6
    )
    return text.strip()[1:-1]
