"""YAML and JSON -> values: the one reader of each, which a hostile document cannot overwhelm."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from flipmeter.base.files.reading_limits import (
    JSON_VALUES,
    LARGEST_INT,
    NESTING,
    NUMBER_LENGTH,
    ROW_LENGTH,
    UNFOLDED,
    YAML_VALUES,
)
from flipmeter.base.problem import Problem

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# What the constructors of PyYAML raise for `!!bool x`, `!!int ''`, `!!timestamp x` and their kind.
_MALFORMED = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, OverflowError)


def read_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; `where` begins every message.

    A repeated key is refused: YAML takes the last and does not say so.
    """
    try:
        _check_shape(text, where)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            _check_nodes(node, where)
            content = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except (*_MALFORMED, RecursionError) as error:
        raise Problem(f"{where} is not valid YAML: {error}") from error
    check_values(content, where, is_plain=True)
    return content


def _check_shape(text: str, where: str) -> None:
    """Refuse what nests too deeply or unfolds to too much, before anything is made of it."""
    sizes: dict[str, int] = {}
    waiting: list[list[Any]] = [["", 0]]  # the anchor and the size of each open collection
    for n_values, event in zip(count(), yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            waiting.append([event.anchor, 1])
        elif isinstance(event, yaml.AliasEvent | yaml.ScalarEvent):
            waiting[-1][1] += _size(event, sizes, where)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = waiting.pop()
            waiting[-1][1] += size
            sizes |= {anchor: size} if anchor else {}
        line = 1 + (event.start_mark.line if event.start_mark else 0)
        if len(waiting) > NESTING:
            raise Problem(f"{where}, line {line}: nested more than {NESTING} levels deep")
        if n_values > YAML_VALUES:
            raise Problem(f"{where}, line {line}: more than {YAML_VALUES:,} values; split the file")
        if waiting[-1][1] > UNFOLDED * max(n_values, 1000):
            raise Problem(f"{where}, line {line}: aliases unfold to too much; write the values out")


def _size(event: Any, sizes: dict[str, int], where: str) -> int:
    """Number of values of an alias or a scalar; a scalar may be an anchor."""
    if isinstance(event, yaml.ScalarEvent):
        sizes |= {event.anchor: 1} if event.anchor else {}
        return 1
    if event.anchor not in sizes:
        line = 1 + (event.start_mark.line if event.start_mark else 0)
        raise Problem(
            f"{where}, line {line}: no value named '*{event.anchor}' is defined before it"
        )
    return sizes[event.anchor]


def _check_nodes(root: yaml.Node | None, where: str) -> None:
    """Refuse repeated keys and numbers of endless length; a node may be reached in two ways."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        line = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            for key in _repeated(node):
                line = key.start_mark.line + 1
                raise Problem(
                    f"{where}, line {line}: '{key.value}' appears twice; keep one of them"
                )
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif node.tag in _NUMBERS and len(node.value) > NUMBER_LENGTH:
            raise Problem(f"{where}, line {line}: a number of {len(node.value):,} characters")


def _repeated(node: yaml.MappingNode) -> Iterator[yaml.ScalarNode]:
    seen = set[tuple[str, str]]()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in seen:
                yield key
            seen.add((key.tag, key.value))


def read_json(text: str | bytes, where: str) -> Any:
    """The value of a JSON text; NaN and infinities are null."""
    try:
        found = text if isinstance(text, str) else text.decode("utf-8-sig")
        check_json(found)
        return json.loads(found, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise Problem(f"{where} is not JSON ({error})") from error


def text_lines(path: Path, newline: str = "\n") -> Iterator[str]:
    """The lines of a UTF-8 file; a byte order mark is skipped, and an endless line refused."""
    # Only "\n" ends a line: a JSON text may hold U+2028 and its kind as they are.
    with path.open(encoding="utf-8-sig", newline=newline) as file:
        for number in count(1):
            line = file.readline(ROW_LENGTH + 1)
            if len(line) > ROW_LENGTH:
                raise Problem(
                    f"{path}, line {number} is longer than {ROW_LENGTH:,} characters; does the "
                    f"file have one row per line?"
                )
            if not line:
                return
            yield line


def check_json(text: str) -> None:
    """Refuse, by a ValueError, a JSON text of so many values that they would fill the memory."""
    if len(text) > JSON_VALUES and sum(map(text.count, "[{,")) > JSON_VALUES:
        raise ValueError(f"more than {JSON_VALUES:,} values")


def check_values(content: object, where: str, *, is_plain: bool = False) -> None:
    """Refuse NaN, infinities, and numbers and texts that no table or file could hold.

    Where all must be plain, so are dates and other kinds that are neither text nor number.
    """
    waiting: list[tuple[str, object, int]] = [("", content, 0)]
    n_values = 0
    while waiting:
        name, value, depth = waiting.pop()
        n_values += 1
        if depth > NESTING or n_values > UNFOLDED * YAML_VALUES:
            raise Problem(f"{where}: {name} is nested too deeply, or refers to itself")
        if isinstance(value, Mapping):
            waiting += [("a key", key, depth + 1) for key in value]
            waiting += [(f"{name}.{key!s:.60}"[:200], v, depth + 1) for key, v in value.items()]
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            waiting += [(f"{name}.{at}", one, depth + 1) for at, one in enumerate(value)]
        elif trouble := _trouble(value, is_plain):
            raise Problem(f"{where}: {name.removeprefix('.') or 'it'} {trouble}")


def _trouble(value: object, is_plain: bool) -> str:
    """The error of a single value, "" if there is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}; use a finite number, or leave it out"
    if isinstance(value, int) and abs(value) >= LARGEST_INT:
        return "is a whole number of more than 63 bits; use a smaller one"
    if isinstance(value, str) and not is_unicode(value):
        return "contains half a character (a lone surrogate, as in \\ud800); remove it"
    if not is_plain or value is None or isinstance(value, str | int | float):
        return ""
    kind = type(value).__name__
    return f"is a {kind}, which is neither text nor number; put it in quotes if it is text"


def is_unicode(text: str) -> bool:
    """Whether a text can be written down: JSON and YAML can spell halves of characters."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return False
    return True
