"""A store of an older version -> the same replies in the present layout, in place."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from flipmeter.model.store.export import LOCK_SECONDS, alone, open_stored
from flipmeter.model.store.store import INDEX, PAGES, SCHEMA, connect
from flipmeter.types import Problem

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
            n_replies = _copy(db, on_progress or (lambda done, all_: None))
            db.execute(PAGES)
            db.execute("VACUUM")
            return n_replies
    except sqlite3.Error as error:
        raise Problem(
            f"the reply store {path} cannot be converted ({error}); it is unchanged: if a run "
            f"or another program uses it, wait until that ends, and check that the disk has "
            f"space for two more copies"
        ) from error


def _copy(db: sqlite3.Connection, on_progress: Progress) -> int:
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
