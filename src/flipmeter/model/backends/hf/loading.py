"""Hub or folder -> model and tokenizer, or a message that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flipmeter.registry import suggestion
from flipmeter.types import Problem

PLAIN_DEVICES = ("cpu", "cuda", "mps", "xpu")


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

    @property
    def device(self) -> str:
        return self.device_map or ("cuda" if has_gpu() else "cpu")


@dataclass(frozen=True)
class Loaded:
    model: Any
    tokenizer: Any
    about: str


def package_version(name: str) -> str:
    """A version; a study can be planned where the package is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


@lru_cache(maxsize=1)
def has_gpu() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def load(source: str, options: HfOptions, *, is_folder: bool) -> Loaded:
    """Load a model with its tokenizer, ready to answer."""
    hf, torch = _packages()
    where: dict[str, Any] = {"trust_remote_code": False}  # a model may come with code
    if options.revision:
        where["revision"] = options.revision
    if options.gguf_file:
        where["gguf_file"] = options.gguf_file
    dtype = options.dtype if options.dtype == "auto" else getattr(torch, options.dtype, None)
    if dtype is None:
        raise Problem(f"no dtype '{options.dtype}'; known: auto, float32, bfloat16, float16")
    device = options.device
    is_plain = device.partition(":")[0] in PLAIN_DEVICES
    spread = {} if is_plain else {"device_map": device}
    try:
        tokenizer = hf.AutoTokenizer.from_pretrained(source, **where)
        model = _model(hf, source, where, {"dtype": dtype, **spread})
        model = model.to(device) if is_plain else model
    except Exception as error:  # hub, tokenizer and weights each fail in many ways of their own
        raise _explained(source, options, is_folder, error) from error
    model.eval()
    commit = ""  # that of the hub
    if not is_folder:
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(source, "config.json", revision=options.revision)
        commit = Path(path).parent.name if isinstance(path, str) else ""
    return Loaded(model, tokenizer, f"{device} {model.dtype} {commit}".strip())


def _packages() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise Problem(
            f"hf/… models need transformers and torch ({error}); pip install 'flipmeter[hf]'"
        ) from error
    return transformers, torch


def _model(hf: Any, source: str, where: Mapping[str, Any], how: Mapping[str, Any]) -> Any:
    """Load as a language model, or by its text side a model that also sees images."""
    config = hf.AutoConfig.from_pretrained(source, **where)
    known = hf.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    kind = hf.AutoModelForCausalLM
    if config.model_type not in known:
        kind = hf.AutoModelForImageTextToText
    return kind.from_pretrained(source, **where, **how)


def _explained(source: str, options: HfOptions, is_folder: bool, error: Exception) -> Problem:
    said = " ".join(str(error).split())[:300]
    if is_folder:
        name = Path(source) / (options.gguf_file or "")
        return Problem(f"transformers cannot load {name} ({said}); is it a model's folder?")
    if "does not recognize this architecture" in said:
        return Problem(f"this transformers does not support {source} yet: {said}")
    return Problem(
        f"cannot get {source} from the Hugging Face hub ({said}); without access to the "
        f"hub, download it elsewhere (hf download {source} --local-dir FOLDER) and use "
        f"the folder: hf/./FOLDER"
    )
