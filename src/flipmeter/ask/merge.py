"""Stores -> Store: of several machines, of earlier versions, of exports; all replies or none."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flipmeter.ask.export import EXPORTED, LOCK_SECONDS, PROMPT, alone, open_stored
from flipmeter.ask.family import Capability
from flipmeter.ask.rescue import CAPABILITY, ENDING
from flipmeter.ask.response import shortened
from flipmeter.ask.store import (
    INDEX,
    MEMORY,
    PAGES,
    SCHEMA,
    KeptRequest,
    Store,
    connect,
    stored_params,
)
from flipmeter.documents import JSON_BYTES, check_values, read_json, read_plain, text_lines
from flipmeter.errors import Problem
from flipmeter.files import discard
from flipmeter.types import Reply, Usage

KEY = re.compile(r"[0-9a-f]{64}")
NEEDED = EXPORTED.keys() - {PROMPT}
Row = dict[str, Any]


def store_of(path: Path, where: Path) -> Path:
    """Write an export into a new store; a row that is not one of an export is a problem."""
    with Store(where) as store:
        _add_lines(store, text_lines(path), path)
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
    _add_lines(store, content.splitlines(), path)
    with suppress(OSError):  # one that stays is taken in again, which changes nothing
        discard(path)


def _add_lines(store: Store, lines: Iterable[str | bytes], path: Path) -> None:
    """Store what the lines of a file hold, all or nothing."""
    capabilities: list[Row] = []
    with store.transaction():
        store.put_kept(_iter_kept_pairs(lines, path, capabilities))
        for row in capabilities:
            is_there = None if row["is_there"] is None else bool(row["is_there"])
            found = Capability(str(row["name"]), is_there, str(row["how"]), str(row["seen"]))
            store.note_capabilities(str(row["model"]), str(row["asked"]), [found])


def _iter_kept_pairs(
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
                yield _request(row), _kept_reply(row)
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


def _kept_reply(row: Row) -> Reply:
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


CHUNK = 20_000
"""Replies between two reports of progress."""

Progress = Callable[[int, int], None]
"""Told how many replies are copied, and how many there are."""


def convert(path: Path, on_progress: Progress | None = None) -> int:
    """Put replies into the order in which a new store keeps them; the number converted.

    The copy is made inside the file, in one transaction: a process that is killed leaves the store
    as it was. Nobody else may have the store open meanwhile.
    """
    with open_stored(path) as store:
        if store.version == SCHEMA:
            return 0
    try:
        with closing(connect(path, timeout=LOCK_SECONDS)) as db:
            alone(db)
            n_replies = _copy_replies(db, on_progress or (lambda done, all_: None))
            db.execute(PAGES)
            db.execute("VACUUM")
            return n_replies
    except sqlite3.Error as error:
        raise Problem(
            f"the reply store {path} cannot be converted ({error}); it is unchanged: if a run "
            f"or another program uses it, wait until that ends, and check that the disk has "
            f"space for two more copies"
        ) from error


def _copy_replies(db: sqlite3.Connection, on_progress: Progress) -> int:
    """Copy all replies into a table that keeps them in the order of insertion."""
    (layout,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'replies'").fetchone()
    n_replies = int(db.execute("SELECT count(*) FROM replies").fetchone()[0])
    db.execute("ALTER TABLE replies RENAME TO old_replies")
    db.execute(layout.replace("BLOB PRIMARY KEY", "BLOB NOT NULL").replace("WITHOUT ROWID", ""))
    key, n_done = b"", 0
    while n_done < n_replies:
        rows = "SELECT * FROM old_replies WHERE key > ? ORDER BY key LIMIT ?"
        n_done += db.execute(f"INSERT INTO replies {rows}", [key, CHUNK]).rowcount
        last = "SELECT key FROM replies ORDER BY rowid DESC LIMIT 1"
        (key,) = db.execute(last).fetchone()
        on_progress(n_done, n_replies)
    db.execute("DROP TABLE old_replies")
    db.execute(INDEX)
    db.execute("DELETE FROM leases")
    db.execute("DELETE FROM owners")
    db.execute(f"PRAGMA user_version={SCHEMA}")
    db.execute("COMMIT")
    return n_replies


MOST = 9
"""SQLite joins no more files than these at a time."""
SHOWN = 3
"""Number of conflicts printed."""
COLUMNS = (
    "rest, text, finish, scores, prompt_tokens, cached_tokens, completion_tokens,"
    " reasoning_tokens, seconds, checksum"
)
POINTERS = ("model", "prefix", "params", "answered_by")
"""The columns of a reply that point to a text."""

CONFLICTS = """
FROM {name}.replies AS theirs JOIN main.replies AS ours
ON substr(ours.key, 1, 12) = substr(theirs.key, 1, 12) AND ours.key = theirs.key
WHERE (ours.text != theirs.text OR ours.finish != theirs.finish
    OR ours.scores IS NOT theirs.scores) AND theirs.key NOT IN (SELECT key FROM damaged_{name})
"""
CAPABILITIES = """
INSERT INTO main.capabilities SELECT * FROM {name}.capabilities WHERE true
ON CONFLICT (model, asked, name) DO UPDATE
SET is_there = excluded.is_there, how = excluded.how, seen = excluded.seen
WHERE excluded.seen > seen
"""


@dataclass(frozen=True)
class Merged:
    """The contribution of one store: all replies, new ones, and those that differ from a kept one.

    A reply differs if its text, its end or its scores do; tokens and seconds may. Damaged replies
    are left out.
    """

    path: Path
    n_replies: int
    n_new: int
    n_differing: int
    n_damaged: int = 0


def merge(sources: Sequence[Path], into: Path, *, prefers_first: bool = False) -> list[Merged]:
    """Add the replies of some stores, or exports of stores, to one that may be new, all at once.

    A request with different replies is a problem, unless the first is preferred: that of `into`,
    then that of the store named first. A damaged source is refused before anything is written; if
    only some of its replies are, they are left out, and one that `into` has damaged is replaced.
    """
    is_there = into.exists()
    named = dict.fromkeys(sources)
    paths = [one for one in named if not (is_there and one.exists() and one.samefile(into))]
    if len(paths) > MOST:
        raise Problem(f"{len(paths)} stores are too many at a time; merge {MOST}, then the rest")
    with TemporaryDirectory() as folder:
        stores = []
        for n, path in enumerate(paths):
            if path.suffix == ENDING:
                stores.append(store_of(path, Path(folder) / f"{n}.sqlite"))
            else:
                open_stored(path).close()  # which brings it up to date
                stores.append(path)
        return _merge_stores(paths, stores, into, prefers_first)


def _merge_stores(
    paths: Sequence[Path], stores: Sequence[Path], into: Path, prefers_first: bool
) -> list[Merged]:
    """Merge stores that may stand for other files, by whose names they go."""
    with closing(connect(MEMORY)) as db:
        for store in stores:
            _check_mergeable(db, store)
    names = {f"s{number}": path for number, path in enumerate(paths)}
    opened = dict(zip(names, stores, strict=True))
    damaged: dict[str, list[tuple[bytes]]] = {}
    for name, path in {**opened, "main": into}.items():
        with Store(path) as found:
            damaged[name] = [(bytes.fromhex(key),) for key in found.check()]
    try:
        with closing(connect(into)) as db:
            for name, store in opened.items():
                db.execute(f"ATTACH ? AS {name}", [str(store)])
            for name, keys in damaged.items():
                db.execute(f"CREATE TEMP TABLE damaged_{name} (key BLOB PRIMARY KEY)")
                db.executemany(f"INSERT INTO damaged_{name} VALUES (?)", keys)
            db.execute("BEGIN IMMEDIATE")  # what is not committed is undone when it is closed
            merged = [
                _merge_attached(db, name, path, into, prefers_first) for name, path in names.items()
            ]
            db.execute("COMMIT")
            return merged
    except sqlite3.Error as error:
        raise Problem(
            f"the stores cannot be merged into {into} ({error}); nothing was changed: check that "
            "the disk has space and that no other program uses them"
        ) from error


def _check_mergeable(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a store of which something would be lost."""
    db.execute("ATTACH ? AS looked_at", [str(path)])
    try:
        said = [row[0] for row in db.execute("PRAGMA looked_at.integrity_check(3)")]
        texts = "SELECT id FROM looked_at.texts"
        lost = " OR ".join(f"{name} NOT IN ({texts})" for name in POINTERS)
        n_lost = db.execute(f"SELECT count(*) FROM looked_at.replies WHERE {lost}").fetchone()[0]
        if said != ["ok"] or n_lost:
            raise sqlite3.DatabaseError(
                f"{n_lost} replies without their texts" if said == ["ok"] else "; ".join(said)
            )
    except sqlite3.Error as error:
        raise Problem(
            f"the reply store {path} is damaged ({error}); nothing was merged: restore a backup, "
            "or save what .recover of sqlite3 can read"
        ) from error
    finally:
        db.execute("DETACH looked_at")


def _merge_attached(
    db: sqlite3.Connection, name: str, path: Path, into: Path, prefers_first: bool
) -> Merged:
    whole = f"FROM {name}.replies AS r WHERE key NOT IN (SELECT key FROM damaged_{name})"
    db.execute(
        "DELETE FROM main.replies WHERE key IN (SELECT key FROM damaged_main)"
        f" AND key IN (SELECT key {whole})"
    )
    db.execute(f"DELETE FROM damaged_main WHERE key IN (SELECT key {whole})")
    conflicts = CONFLICTS.format(name=name)
    n_differing = int(db.execute(f"SELECT count(*) {conflicts}").fetchone()[0])
    if n_differing and not prefers_first:
        some = f"SELECT hex(ours.key), ours.text, theirs.text {conflicts} ORDER BY 1 LIMIT {SHOWN}"
        raise Problem(_conflict_message(db.execute(some).fetchall(), n_differing, path, into))
    db.execute(
        f"INSERT OR IGNORE INTO main.texts(text, checksum) SELECT text, checksum FROM {name}.texts"
    )
    db.execute(f"CREATE TEMP TABLE of_{name} (theirs INTEGER PRIMARY KEY, ours INTEGER NOT NULL)")
    both = f"{name}.texts AS theirs JOIN main.texts AS ours USING (text)"
    db.execute(f"INSERT INTO of_{name} SELECT theirs.id, ours.id FROM {both}")
    mapped = ", ".join(
        f"(SELECT ours FROM of_{name} WHERE theirs = r.{pointer})" for pointer in POINTERS
    )
    added = db.execute(
        f"INSERT OR IGNORE INTO main.replies (key, {', '.join(POINTERS)}, {COLUMNS})"
        f" SELECT key, {mapped}, {COLUMNS} {whole}"
    )
    db.execute(CAPABILITIES.format(name=name))
    n_replies = int(db.execute(f"SELECT count(*) FROM {name}.replies").fetchone()[0])
    n_damaged = int(db.execute(f"SELECT count(*) FROM damaged_{name}").fetchone()[0])
    return Merged(path, n_replies, added.rowcount, n_differing, n_damaged)


def _conflict_message(
    some: Sequence[tuple[str, str, str]], n_all: int, path: Path, into: Path
) -> str:
    shown = [
        f"{key[:12].lower()}: {shortened(ours)[:40]!r} and {shortened(theirs)[:40]!r}"
        for key, ours, theirs in some
    ]
    more = f" and {n_all - len(some):,} more" if n_all > len(some) else ""
    return (
        f"{n_all:,} requests have a different reply in {path} than in {into} or a store named "
        f"before it ({'; '.join(shown)}{more}); nothing was merged: --prefer first keeps the first"
    )
