"""An export -> a store: replies that were written as JSON lines, by the keys of their requests."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from flipmeter.base.files.atomic import discard
from flipmeter.base.files.documents import check_values, read_json, text_lines
from flipmeter.base.files.reading_limits import JSON_BYTES, read_plain
from flipmeter.model.backends.backend import Capability
from flipmeter.model.store.export import EXPORTED, PROMPT
from flipmeter.model.store.rescue import CAPABILITY
from flipmeter.model.store.store import KeptRequest, Store, stored_params
from flipmeter.types import Problem, Reply, Usage

KEY = re.compile(r"[0-9a-f]{64}")
NEEDED = EXPORTED.keys() - {PROMPT}
Row = dict[str, Any]


def store_of(path: Path, where: Path) -> Path:
    """Write an export into a new store; a row that is not one of an export is a problem."""
    with Store(where) as store:
        _add(store, text_lines(path), path)
    return where


def take_in(path: Path, store: Store) -> None:
    """Move what a rescue file holds into its store."""
    try:
        content = read_plain(path, JSON_BYTES)
    except FileNotFoundError:
        return  # another process has just taken it in
    except OSError as error:
        raise Problem(
            f"cannot read {path} ({error}), replies saved for {store.path}; move it away"
        ) from error
    _add(store, content.splitlines(), path)
    with suppress(OSError):  # one that stays is taken in again, which changes nothing
        discard(path)


def _add(store: Store, lines: Iterable[str | bytes], path: Path) -> None:
    """Store what the lines of a file hold, all or nothing."""
    capabilities: list[Row] = []
    with store.transaction():
        store.put_kept(_pairs(lines, path, capabilities))
        for row in capabilities:
            is_there = None if row["is_there"] is None else bool(row["is_there"])
            found = Capability(str(row["name"]), is_there, str(row["how"]), str(row["seen"]))
            store.note_capabilities(str(row["model"]), str(row["asked"]), [found])


def _pairs(
    lines: Iterable[str | bytes], path: Path, capabilities: list[Row]
) -> Iterator[tuple[KeptRequest, Reply]]:
    """Yield requests with their replies, and set rows about models apart."""
    for number, line in enumerate(lines, 1):
        place = f"{path}, line {number}"
        row = read_json(line, place)
        check_values(row, place)
        try:
            if row.keys() == {*CAPABILITY}:
                capabilities.append(row)
            else:
                yield _request(row), _reply(row)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Problem(
                f"{place} is not a row of `flipmeter cache export` ({error}); nothing was merged"
            ) from error


def _request(row: Row) -> KeptRequest:
    if absent := sorted(NEEDED - row.keys()):
        raise ValueError(f"no '{absent[0]}'")
    if not KEY.fullmatch(row["key"]):
        raise ValueError(f"key {row['key']!r}")
    answers = tuple(str(one) for one in row["answers"])
    params = stored_params(str(row["params"]), answers, int(row["repeat"]), 0)
    return KeptRequest(row["key"], str(row["model"]), "", str(row.get(PROMPT, "")), params)


def _reply(row: Row) -> Reply:
    counts = ("prompt", "cached", "completion", "reasoning")
    used = (row[f"{name}_tokens"] for name in counts)
    scores = row["scores"]  # an export has no minus infinity
    return Reply(
        text=str(row["reply"]),
        finish=str(row["finish"]),
        scores=None
        if scores is None
        else tuple(-math.inf if value is None else float(value) for value in scores),
        usage=Usage(*(None if n is None else int(n) for n in used)),
        seconds=float(row["seconds"]),
        model=str(row["answered_by"]),
        provider=str(row["provider"]),
        fingerprint=str(row["fingerprint"]),
    )
