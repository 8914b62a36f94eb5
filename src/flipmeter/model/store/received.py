"""An untrusted reply store: tables only, with values of the types that we write."""

from __future__ import annotations

import sqlite3
from pathlib import Path

JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
PROGRAMS = """
SELECT count(*) FROM sqlite_master
WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'
"""
HIDDEN = """
SELECT count(*) FROM sqlite_master AS made, pragma_table_xinfo(made.name)
WHERE made.type = 'table' AND hidden
"""
LONGEST = 2**26
"""Bytes of a value: a reply is limited to less."""


def refuse_journal(path: Path) -> None:
    """Refuse, as damaged, a journal that names another file, which SQLite would then delete.

    A transaction in several files ends so; ours are in one.
    """
    journal = path.with_name(f"{path.name}-journal")
    if not journal.is_file():
        return
    with journal.open("rb") as file:
        file.seek(max(0, journal.stat().st_size - len(JOURNAL_MAGIC)))
        if file.read() == JOURNAL_MAGIC:
            raise sqlite3.DatabaseError(
                f"{journal.name} next to it belongs to another file; remove it"
            )


def refuse_programs(db: sqlite3.Connection) -> None:
    """Refuse, as damaged, a store with views, triggers or computed columns, which may never end."""
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    db.execute("PRAGMA trusted_schema=OFF")
    if db.execute(PROGRAMS).fetchone()[0] or db.execute(HIDDEN).fetchone()[0]:
        raise sqlite3.DatabaseError("it contains views, triggers or computed columns")
