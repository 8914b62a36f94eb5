"""Reply stores as earlier versions of flipmeter laid them out."""

from __future__ import annotations

from flipmeter.ask.store import TABLES

BY_KEY = (
    TABLES[0]
    .replace("key BLOB NOT NULL", "key BLOB PRIMARY KEY")
    .replace("names them\n);", "names them\n) WITHOUT ROWID;"),
    *TABLES[1:],
)
"""The statements of each version, replies in the order of their keys."""
