"""GGUF file -> the formats of its weights, read from its head alone."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

MAGIC = b"GGUF"
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Number of bytes of a value of each type; texts and lists state their own."""
TEXT, LIST = 8, 9
NAMES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0"}


def tensor_types(path: Path) -> frozenset[str]:
    """The formats of all weights, none for a file that is no GGUF file.

    The package `gguf` reads the whole vocabulary for this, which takes seconds for some models.
    """
    try:
        with path.open("rb") as file:
            return _Head(file, path.stat().st_size).types()
    except (OSError, OverflowError, RecursionError, ValueError, KeyError, struct.error):
        return frozenset()


class _Head:
    """The head of a GGUF file, little-endian, read value by value."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    def types(self) -> frozenset[str]:
        if self._file.read(4) != MAGIC:
            raise ValueError("not a GGUF file")
        _, n_tensors, n_fields = self._take("<IQQ")
        for _ in range(n_fields):
            self._pass_text()
            self._pass_value(self._take("<I")[0])
        return frozenset(self._tensor() for _ in range(n_tensors))

    def _tensor(self) -> str:
        self._pass_text()
        (n_dimensions,) = self._take("<I")
        self._pass(8 * n_dimensions)
        kind, _ = self._take("<IQ")
        return NAMES.get(kind, f"type {kind}")

    def _take(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._file.read(struct.calcsize(layout)))

    def _pass(self, n_bytes: int) -> None:
        """Go on behind some bytes, which a damaged file may not have."""
        if self._file.seek(n_bytes, 1) > self._size:
            raise ValueError("the file ends inside its header")

    def _pass_text(self) -> None:
        self._pass(self._take("<Q")[0])

    def _pass_value(self, kind: int) -> None:
        if kind == TEXT:
            self._pass_text()
        elif kind == LIST:
            inner, n = self._take("<IQ")
            if inner in SIZES:
                self._pass(n * SIZES[inner])
            else:
                for _ in range(n):
                    self._pass_value(inner)
        else:
            self._pass(SIZES[kind])
