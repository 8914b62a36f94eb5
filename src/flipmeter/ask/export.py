"""Store -> what is in it: replies exported, pruned, and what they show of a model."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from glob import escape
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import polars as pl

from flipmeter.ask.store import BATCH, Store, connect
from flipmeter.errors import Problem
from flipmeter.files import discard, fresh, inside, open_output
from flipmeter.redaction import masked

LOCK_SECONDS = 2.0
PROMPT = "prompt"
EXPORTED: dict[str, pl.DataType | type[pl.DataType]] = {
    "key": pl.String,
    "model": pl.String,
    PROMPT: pl.String,
    "params": pl.String,
    "answers": pl.List(pl.String),
    "repeat": pl.Int64,
    "reply": pl.String,
    "finish": pl.String,
    "scores": pl.List(pl.Float64),
    "prompt_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
    "seconds": pl.Float64,
    "answered_by": pl.String,
    "provider": pl.String,
    "fingerprint": pl.String,
}


def open_stored(path: Path) -> Store:
    """Open a store that must be there already."""
    if not path.is_file():
        raise Problem(
            f"no reply store at {path}; pass the store of the runs with --store (default: "
            f".flipmeter/replies.sqlite)"
        )
    return Store(path)


class RequestFields(NamedTuple):
    """The fields of a request besides its prompt."""

    model: str
    params: str
    answers: tuple[str, ...]
    repeat: int


@lru_cache(maxsize=1 << 14)
def read_params(model: str, text: str) -> tuple[RequestFields, int]:
    """The fields of a stored request besides its prompt, and its anchor."""
    params, answers, repeat, anchor = json.loads(text)
    return RequestFields(model, params, tuple(answers), repeat), anchor


# --- export -----------------------------------------------------------------------------------

EXPORT_SQL = """
SELECT key, model.text, prefix.text, rest, params.text, replies.text, finish, scores,
       prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, seconds, answered.text
FROM replies
JOIN texts AS model ON model.id = replies.model
JOIN texts AS prefix ON prefix.id = replies.prefix
JOIN texts AS params ON params.id = replies.params
JOIN texts AS answered ON answered.id = replies.answered_by
"""
BEFORE = re.compile(r"(?:system|user|assistant)\x1f([^\x1e]*)\x1e")


def export(
    store: Store, out: Path, keys: Iterable[str] | None = None, *, has_prompts: bool = True
) -> int:
    """Write requests with their replies, row by row, and return how many; None means all.

    `params` is JSON text; `scores` are by answer, with None for minus infinity. Without prompts no
    text of the data is written unless a reply repeats it.
    """
    if out.suffix not in (".jsonl", ".parquet"):
        raise Problem(f"cannot write {out}: the name must end in .jsonl or .parquet")
    inside(out)
    try:
        with fresh(out) as lines:
            rows = stored_rows(store, keys)
            n_rows = _write_lines(lines, rows, has_prompts)
            if not n_rows:
                raise Problem(f"none of the wanted replies is in {store.path}; nothing is written")
            if out.suffix == ".parquet":
                _turn_to_parquet(lines, has_prompts)
    except OSError as error:
        raise Problem(f"cannot write {out} ({error}); use another file") from error
    return n_rows


def stored_rows(store: Store, keys: Iterable[str] | None = None) -> Iterator[dict[str, object]]:
    """Yield each stored request with its reply, all or those of some keys in their order.

    Damaged replies are left out; damaged texts that replies share are a problem.
    """
    store.check()
    known = (row[0].hex() for row in store.read("SELECT key FROM replies"))
    yield from whole_rows(store, known if keys is None else dict.fromkeys(keys))


def whole_rows(store: Store, keys: Iterable[str]) -> Iterator[dict[str, object]]:
    """Yield requests with their replies by distinct keys, but for damaged replies."""
    wanted = iter(keys)
    while batch := list(islice(wanted, BATCH)):
        found = {row[0].hex(): row for row in store.rows_of(EXPORT_SQL, batch)}
        whole = store.among(batch)
        yield from (_export_row(found[key]) for key in batch if key in found and key in whole)


def _export_row(row: Sequence[Any]) -> dict[str, object]:
    key, model, prefix, rest, params, text, finish, scores, *numbers, answered = row
    ask, _ = read_params(model, params)
    values = (
        key.hex(),
        model,
        _prompt_text(prefix, rest),
        ask.params,
        list(ask.answers),
        ask.repeat,
        text,
        finish,
        scores if scores is None else [_finite_or_none(part) for part in scores.split(",") if part],
        *numbers,
        *answered.split("\x1f"),
    )
    return dict(zip(EXPORTED, values, strict=True))


def _prompt_text(prefix: str, rest: str) -> str:
    """The prompt as it is shown: the messages in their order, a blank line between."""
    before, place = [], 0
    while found := BEFORE.match(prefix, place):
        before.append(found[1])
        place = found.end()
    return "\n\n".join([*before, prefix[place:] + rest])


def _finite_or_none(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _write_lines(path: Path, rows: Iterable[dict[str, object]], has_prompts: bool) -> int:
    n_rows = 0
    with open_output(path) as file:
        for row in rows:
            told = {name: row[name] for name in row if has_prompts or name != PROMPT}
            file.write(f"{masked(json.dumps(told, ensure_ascii=False))}\n".encode())
            n_rows += 1
    return n_rows


def _turn_to_parquet(lines: Path, has_prompts: bool) -> None:
    """Rewrite a file of JSON lines as Parquet, a chunk at a time."""
    schema = {name: kind for name, kind in EXPORTED.items() if has_prompts or name != PROMPT}
    table = lines.with_name(lines.name + ".new")
    try:
        pattern = escape(str(lines.absolute()))  # polars takes a path for a pattern here
        pl.scan_ndjson(pattern, schema=schema).sink_parquet(table)
        table.replace(lines)
    finally:
        discard(table)


# --- prune ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pruned:
    """The replies that a store keeps and loses when only some runs count."""

    n_kept: int
    n_removed: int


def plan_prune(store: Store, keys: Collection[str]) -> Pruned:
    """The replies to remove if only these keys are kept; nothing is changed."""
    n_kept = len(store.among(keys))
    return Pruned(n_kept, len(store) - n_kept)


def prune(path: Path, keys: Collection[str]) -> Pruned:
    """Remove every reply except those of these keys and free the space; damaged ones go too.

    The store is locked alone: another program remembers texts that would go, and what it stores
    next would point nowhere.
    """
    with open_stored(path) as store:
        kept = store.among(keys)
    if not kept:
        raise Problem(
            f"none of the kept runs has a reply in {path}; nothing was removed: pass their "
            f"store with --store, or delete the file to remove everything"
        )
    try:
        with closing(connect(path, timeout=LOCK_SECONDS)) as db:
            alone(db)
            db.execute("CREATE TEMP TABLE kept (key BLOB PRIMARY KEY)")
            db.executemany("INSERT INTO kept VALUES (?)", ([bytes.fromhex(key)] for key in kept))
            others = "DELETE FROM replies WHERE key NOT IN (SELECT key FROM kept)"
            n_removed = db.execute(others).rowcount
            pointers = ("model", "prefix", "params", "answered_by")
            used = " UNION ".join(f"SELECT {pointer} FROM replies" for pointer in pointers)
            db.execute(f"DELETE FROM texts WHERE id NOT IN ({used})")
            n_kept = int(db.execute("SELECT count(*) FROM replies").fetchone()[0])
            db.execute("COMMIT")
            db.execute("VACUUM")
            return Pruned(n_kept, n_removed)
    except sqlite3.Error as error:
        raise Problem(
            f"the reply store {path} cannot be pruned ({error}); if a run or another program "
            f"uses it, wait until that ends, and check that the disk has space for a copy"
        ) from error


def alone(db: sqlite3.Connection) -> None:
    """Lock a store against everybody else until it is closed, and begin a transaction."""
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
    # Leaving WAL fails while anybody else has the store open, and the lock is kept from here on.
    db.execute("PRAGMA journal_mode=DELETE")
    db.execute("BEGIN EXCLUSIVE")


MOST_REPLIES = 1000
MOST_ROWS = 200_000
"""Number of rows searched in a large store; keys are hashes, so any prefix is a sample."""

_REPLIES = """
SELECT (SELECT length(text) FROM texts WHERE id = prefix) + length(rest), prompt_tokens, seconds
FROM (SELECT model, prefix, rest, prompt_tokens, seconds FROM replies ORDER BY key LIMIT ?)
WHERE model = ? LIMIT ?
"""
# Not a join: SQLite would then copy the inner rows before it looks at the first.


@dataclass(frozen=True)
class Observed:
    """Statistics of stored replies; `n_counted` of them have prompt tokens."""

    n_replies: int = 0
    n_counted: int = 0
    characters: int = 0
    prompt_tokens: int = 0
    median_seconds: float | None = None

    @property
    def characters_per_token(self) -> float | None:
        return self.characters / self.prompt_tokens if self.prompt_tokens else None


def observe(store: Store, identities: Iterable[str]) -> Observed:
    """Look at some replies of what answers under these identities, a thousand of each at most."""
    rows = [
        row
        for identity in identities
        for (model,) in store.read("SELECT id FROM texts WHERE text = ?", [identity])
        for row in store.read(_REPLIES, [MOST_ROWS, model, MOST_REPLIES])
    ]
    # Replies that were exported without their prompts have tokens and no characters.
    counted = [(characters, tokens) for characters, tokens, _ in rows if tokens and characters]
    return Observed(
        len(rows),
        len(counted),
        sum(characters for characters, _ in counted),
        sum(tokens for _, tokens in counted),
        median(seconds for _, _, seconds in rows) if rows else None,
    )
