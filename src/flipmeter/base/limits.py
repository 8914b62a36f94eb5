"""How far a file may unfold: every limit on what is read, in one place.

Honest size is hardly limited. What is limited is a small file that becomes a large one: nesting,
aliases, compression, and text that stands for more text.
"""

from __future__ import annotations

from pathlib import Path

from flipmeter.base.problem import Problem

MB = 2**20

DOCUMENT_BYTES = 16 * MB
"""A study, gate, rater card, prompt file or price file; those in use have some kilobytes."""
JSON_BYTES = 64 * MB
"""One JSON document that is read whole: a manifest, a provider's list of prices."""
JSON_VALUES = 1_000_000
"""The most values in one JSON document or line: an empty list takes 2 bytes of it and 56 here."""
NESTING = 60
"""Lists and mappings inside each other."""
YAML_VALUES = 50_000
"""The most values in a YAML file: its parser takes a kilobyte and 20 microseconds for each."""
UNFOLDED = 10
"""How many times as many values a YAML file may have once its aliases are filled in."""
NUMBER_LENGTH = 100
"""The most characters of a number in YAML: 1:0:0:0 with thousands of places takes minutes."""
LARGEST_INT = 2**63
"""What no whole number may reach, as no table could hold it."""

ROW_LENGTH = 8 * MB
"""The most characters in a row of a table, and so in a text."""
COLUMNS = 10_000
"""The most columns of a table."""
TABLE_BYTES = 32 * MB
"""A Parquet or zip file may always unpack to this much ..."""
TABLE_FACTOR = 100
"""... and to this many times its own size."""
BYTES_PER_VALUE = 16
"""What a value of a Parquet table takes at least, however well it is packed."""

PATTERN_LENGTH = 5_000
"""The most characters of a pattern that finds a label."""
PATTERN_SECONDS = 3.0
"""How long a pattern may search one reply."""


def allowed_unpacked(n_bytes: int) -> int:
    """How many bytes a packed file of this size may unpack to."""
    return max(TABLE_BYTES, TABLE_FACTOR * n_bytes)


def read_limited(path: Path, most: int = DOCUMENT_BYTES) -> bytes:
    """A file's bytes; one that is larger than `most` is refused, and no more than that is read."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Problem(f"{path} is larger than {most // MB} MB, the most such a file may have")
    return content
