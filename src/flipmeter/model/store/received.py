"""A reply store that somebody else made: tables only, with values of the kinds that we write."""

from __future__ import annotations

import sqlite3

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


def refuse_programs(db: sqlite3.Connection) -> None:
    """Refuse, as damaged, a store with views, triggers or computed columns, which may never end."""
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    db.execute("PRAGMA trusted_schema=OFF")
    if db.execute(PROGRAMS).fetchone()[0] or db.execute(HIDDEN).fetchone()[0]:
        raise sqlite3.DatabaseError("it holds views, triggers or computed columns")
