"""Stores -> Store: the replies of several machines in one, all of them or none."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from flipmeter.model.backends.response import shortened
from flipmeter.model.store.export import open_stored
from flipmeter.model.store.exported import store_of
from flipmeter.model.store.rescue import ENDING
from flipmeter.model.store.store import MEMORY, Store, connect
from flipmeter.types import Problem

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
            _check(db, store)
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
            merged = [_add(db, name, path, into, prefers_first) for name, path in names.items()]
            db.execute("COMMIT")
            return merged
    except sqlite3.Error as error:
        raise Problem(
            f"the stores cannot be merged into {into} ({error}); nothing was changed: check that "
            "the disk has space and that no other program uses them"
        ) from error


def _check(db: sqlite3.Connection, path: Path) -> None:
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


def _add(db: sqlite3.Connection, name: str, path: Path, into: Path, prefers_first: bool) -> Merged:
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
        raise Problem(_said(db.execute(some).fetchall(), n_differing, path, into))
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


def _said(some: Sequence[tuple[str, str, str]], n_all: int, path: Path, into: Path) -> str:
    shown = [
        f"{key[:12].lower()}: {shortened(ours)[:40]!r} and {shortened(theirs)[:40]!r}"
        for key, ours, theirs in some
    ]
    more = f" and {n_all - len(some):,} more" if n_all > len(some) else ""
    return (
        f"{n_all:,} requests have a different reply in {path} than in {into} or a store named "
        f"before it ({'; '.join(shown)}{more}); nothing was merged: --prefer first keeps the first"
    )
