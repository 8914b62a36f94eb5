"""transformers in this process: models of the Hugging Face hub, of a folder, of a GGUF file."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from flipmeter.model.backends.hf.generate import HfEngine
from flipmeter.model.backends.hf.loading import Place, has_gpu, load, package_version
from flipmeter.model.backends.hf.presets import THINKING_TOKENS, HubModel, hf_models
from flipmeter.registry import suggestion
from flipmeter.types import Decoding, Interface, Model, Problem, Reply, Request

GATHERING = 0.005
"""Seconds to wait for requests that belong into one batch."""
KEPT = (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja", ".gguf")


@dataclass(frozen=True)
class HfOptions:
    """The `options` of a model in a study.

    `device_map` is a device (`cpu`, `cuda:1`) or a way to spread a model over several (`auto`);
    without it a GPU is used if there is one. `thinking` switches a chat template that can think.
    """

    revision: str | None = None
    dtype: str = "auto"
    device_map: str | None = None
    gguf_file: str | None = None
    thinking: bool | None = None
    batch_size: int = 1

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> HfOptions:
        """Check the options of a study."""
        kinds = {one.name: str(one.type) for one in fields(cls)}
        for name, value in said.items():
            if name not in kinds:
                raise Problem(f"no option named '{name}'{suggestion(name, [*kinds])}")
            if value is not None and type(value).__name__ not in kinds[name]:
                raise Problem(f"option {name} is {value!r}; it must be {kinds[name]}")
        options = cls(**{name: value for name, value in said.items() if value is not None})
        if options.batch_size < 1:
            raise Problem(f"option batch_size is {options.batch_size}; it must be 1 or more")
        return options


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
        device = self.options.device_map or ("cuda" if has_gpu() else "cpu")
        return device == "cpu" and self.options.batch_size == 1

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

    @property
    def place(self) -> Place:
        options = self.options
        return Place(
            self.source,
            self.is_folder,
            options.revision,
            options.dtype,
            options.device_map,
            options.gguf_file,
        )


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
        self._queue = _Queue()

    async def ask(self, request: Request) -> Reply:
        if self.concurrency == 1:
            return (await asyncio.to_thread(self._answer, [request]))[0]
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._queue.waiting.append((request, reply))
        if self._queue.worker is None:
            self._queue.worker = asyncio.create_task(self._work())
        return await reply

    async def close(self) -> None:
        with self._lock:
            self._engine = None

    def _answer(self, requests: Sequence[Request]) -> list[Reply]:
        with self._lock:
            if self._engine is None:
                self._engine = HfEngine(load(self._spec.place), f"hf/{self._spec.source}")
            return self._engine.answer(requests)

    async def _work(self) -> None:
        """Answer what waits, batch by batch, until nothing waits."""
        try:
            while self._queue.waiting:
                await asyncio.sleep(GATHERING)
                batch = self._queue.take(self.concurrency)
                try:
                    replies = await asyncio.to_thread(self._answer, [one for one, _ in batch])
                except Exception as error:
                    _fail(batch, error)
                else:
                    for (_, waiting), reply in zip(batch, replies, strict=True):
                        if not waiting.done():
                            waiting.set_result(reply)
        finally:
            self._queue.worker = None


Waiting = tuple[Request, asyncio.Future[Reply]]


@dataclass
class _Queue:
    """Requests that wait for a batch, and the model for them."""

    waiting: list[Waiting] = field(default_factory=list)
    worker: asyncio.Task[None] | None = None

    def take(self, n: int) -> list[Waiting]:
        """Take the first and those that go with it."""
        first = self.waiting[0][0]
        kin = [one for one in self.waiting if _kind(one[0]) == _kind(first)]
        batch = kin[:n]
        self.waiting = [one for one in self.waiting if one not in batch]
        return batch


def _kind(request: Request) -> tuple[Any, ...]:
    return request.script.head, request.params, request.answers


def _fail(batch: Sequence[Waiting], error: Exception) -> None:
    for _, waiting in batch:
        if not waiting.done():
            waiting.set_exception(error)


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
            stat = file.stat()
            digest = _file_digest(file.resolve(), stat.st_size, stat.st_mtime_ns)
            whole.update(f"{file.name} {digest}\n".encode())
    return whole.hexdigest()


@lru_cache(maxsize=256)
def _file_digest(path: Path, size: int, changed: int) -> str:
    """The SHA-256 of a file; size and time of change tell when to look again."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
