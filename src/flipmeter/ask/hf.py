"""transformers in this process: models of the Hugging Face hub, of a folder, of a GGUF file."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flipmeter.ask.hf_generate import HfEngine
from flipmeter.ask.hf_loading import HfOptions, load, package_version
from flipmeter.documents import known_sha256
from flipmeter.errors import Problem
from flipmeter.registry import Registry
from flipmeter.types import Decoding, Interface, Model, Reply, Request

THINKING_TOKENS = 4096
"""The paper gives no budget, and 32 tokens do not hold one thought; a study may say otherwise."""


@dataclass(frozen=True)
class HubModel:
    """Weights on the Hugging Face hub and how they are asked.

    `architecture` is the `model_type` of transformers. `thinking` is passed to the chat template
    as `enable_thinking`, None for a template without that switch. `doubt` says what could not be
    looked up: the hub is out of reach where this was written, so no revision is pinned.
    """

    hub_id: str
    architecture: str
    about: str
    interface: Interface = "chat"
    thinking: bool | None = None
    max_tokens: int | None = None
    revision: str | None = None
    doubt: str = "revision not pinned"

    @property
    def note(self) -> str:
        """One line for a list of models."""
        return f"{self.hub_id}, {self.about} ({self.doubt})" if self.doubt else self.about


hf_models: Registry[HubModel] = Registry("hf model")

hf_models.add(
    "qwen3-8b-base",
    HubModel("Qwen/Qwen3-8B-Base", "qwen3", "base model, raw text", interface="completions"),
)
hf_models.add("qwen3-8b", HubModel("Qwen/Qwen3-8B", "qwen3", "thinking off", thinking=False))
hf_models.add(
    "qwen3-8b-thinking",
    HubModel(
        "Qwen/Qwen3-8B",
        "qwen3",
        f"thinking on, {THINKING_TOKENS} tokens; its authors advise against greedy decoding",
        thinking=True,
        max_tokens=THINKING_TOKENS,
    ),
)
hf_models.add("qwen3-4b", HubModel("Qwen/Qwen3-4B", "qwen3", "thinking off", thinking=False))
hf_models.add("gemma3-12b", HubModel("google/gemma-3-12b-it", "gemma3", "gated on the hub"))
hf_models.add(
    "ministral-3-8b",
    HubModel(
        "mistralai/Ministral-3-8B-Instruct-2512-BF16",
        "mistral3",
        "instruct, as bfloat16 (the id without -BF16 is quantised to 8 bits)",
        doubt="revision not pinned; unclear which of the two the paper used",
    ),
)
hf_models.add(
    "gemma4-12b",
    HubModel(
        "google/gemma-4-12B-it",
        "gemma4_unified",
        "thinking off",
        thinking=False,
        doubt="revision not pinned, architecture not checked",
    ),
)
hf_models.add(
    "granite-4-8b",
    HubModel(
        "ibm-granite/granite-4.1-8b",
        "granite",
        "instruct",
        doubt="revision not pinned; the paper says Granite-4-8B, the hub has 4.1 in that size",
    ),
)


GATHERING = 0.005
"""Seconds to wait for requests that belong into one batch."""
KEPT = (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja", ".gguf")


@dataclass(frozen=True)
class HfSpec:
    """An address with its options, and what the catalogue knows of it."""

    source: str
    is_folder: bool
    options: HfOptions
    entry: HubModel | None = None

    @property
    def interface(self) -> Interface:
        return self.entry.interface if self.entry else "chat"

    @property
    def is_reproducible(self) -> bool:
        """Whether equal greedy requests get equal replies: alone, and on a processor."""
        return self.options.device == "cpu" and self.options.batch_size == 1

    @property
    def identity(self) -> str:
        """Everything that can change a reply: weights, settings and engine."""
        options = self.options
        name, pin = self.source, options.revision or "main"
        if self.is_folder:
            folder = Path(self.source)
            name = "/".join(filter(None, (folder.resolve().name, options.gguf_file)))
            pin = f"sha256:{_folder_digest(folder, options.gguf_file)[:16]}"
        said = {"dtype": options.dtype, "device_map": options.device_map}
        shown = [f"{key}={value}" for key, value in said.items() if value not in (None, "auto")]
        if options.batch_size > 1:
            shown.append(f"batches of {options.batch_size}")
        made = [f"{one} {package_version(one)}" for one in ("transformers", "torch")]
        return " ".join([f"hf/{name}@{pin}", *shown, *made])

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of every request: the switch for thinking, and its token budget."""
        thinking, entry = self.options.thinking, self.entry
        if thinking is None and entry:
            thinking = entry.thinking
        sent: dict[str, Any] = {}
        if thinking is not None:
            sent["chat_template_kwargs"] = {"enable_thinking": thinking}
        if thinking:
            sent["max_tokens"] = (entry and entry.max_tokens) or THINKING_TOKENS
        return sent


def hf_spec(model: Model) -> HfSpec:
    """Read an address: hf/ORG/NAME, hf/NAME of the catalogue, hf/./FOLDER or hf//FOLDER."""
    name, options = model.own_name, HfOptions.of(model.options)
    if name.startswith((".", "/")):
        return HfSpec(name, True, options)
    if "/" in name:
        return HfSpec(name, False, options)
    entry = hf_models[name]
    if options.revision is None and entry.revision:
        options = replace(options, revision=entry.revision)
    return HfSpec(entry.hub_id, False, options, entry)


Waiting = tuple[Request, asyncio.Future[Reply]]


class HfBackend:
    """One model, loaded when it is first asked; one request at a time, or batches by option."""

    parameters = frozenset({*vars(Decoding())})

    def __init__(self, spec: HfSpec) -> None:
        self.identity = spec.identity
        self.concurrency = spec.options.batch_size
        self.is_reproducible = spec.is_reproducible
        self._spec = spec
        self._engine: HfEngine | None = None
        self._lock = threading.Lock()
        self._waiting: list[Waiting] = []
        self._worker: asyncio.Task[None] | None = None

    async def ask(self, request: Request) -> Reply:
        if self.concurrency == 1:
            return (await asyncio.to_thread(self._answer, [request]))[0]
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, reply))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await reply

    async def close(self) -> None:
        with self._lock:
            self._engine = None

    def _answer(self, requests: Sequence[Request]) -> list[Reply]:
        with self._lock:
            if self._engine is None:
                spec = self._spec
                loaded = load(spec.source, spec.options, is_folder=spec.is_folder)
                self._engine = HfEngine(loaded, f"hf/{spec.source}")
            return self._engine.answer(requests)

    def _batch(self) -> list[Waiting]:
        """Take the first of those that wait, and others that differ in what follows their head."""
        kinds = [(one.script.head, one.params, one.answers) for one, _ in self._waiting]
        some = [one for kind, one in zip(kinds, self._waiting, strict=True) if kind == kinds[0]]
        batch = some[: self.concurrency]
        self._waiting = [one for one in self._waiting if one not in batch]
        return batch

    async def _work(self) -> None:
        """Answer what waits, batch by batch, until nothing waits."""
        try:
            while self._waiting:
                await asyncio.sleep(GATHERING)
                batch = self._batch()
                try:
                    replies = await asyncio.to_thread(self._answer, [one for one, _ in batch])
                except Exception as error:
                    for waiting in (one for _, one in batch if not one.done()):
                        waiting.set_exception(error)
                else:
                    for (_, waiting), reply in zip(batch, replies, strict=True):
                        if not waiting.done():
                            waiting.set_result(reply)
        finally:
            self._worker = None


def _folder_digest(folder: Path, gguf_file: str | None) -> str:
    """The SHA-256 of the names and contents of the files that make a model."""
    if not folder.is_dir():
        raise Problem(f"no folder {folder}; write a model's folder as hf/./FOLDER or hf//FOLDER")
    if gguf_file and not (folder / gguf_file).is_file():
        raise Problem(f"no file '{gguf_file}' in {folder}; set the option gguf_file")
    files = [folder / gguf_file] if gguf_file else sorted(folder.iterdir())
    whole = hashlib.sha256()
    for file in files:
        if file.is_file() and file.suffix in KEPT:
            whole.update(f"{file.name} {known_sha256(file.resolve())}\n".encode())
    return whole.hexdigest()
