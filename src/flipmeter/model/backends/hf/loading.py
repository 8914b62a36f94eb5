"""Hub or folder -> model and tokenizer, or a message that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flipmeter.types import Problem

PLAIN_DEVICES = ("cpu", "cuda", "mps", "xpu")


@dataclass(frozen=True)
class Place:
    """The location of weights and the options to load them."""

    source: str
    is_folder: bool
    revision: str | None = None
    dtype: str = "auto"
    device_map: str | None = None
    gguf_file: str | None = None


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


def load(place: Place) -> Loaded:
    """Load a model with its tokenizer, ready to answer."""
    hf, torch = _packages()
    where: dict[str, Any] = {"trust_remote_code": False}  # a model may come with code
    if place.revision:
        where["revision"] = place.revision
    if place.gguf_file:
        where["gguf_file"] = place.gguf_file
    dtype = place.dtype if place.dtype == "auto" else getattr(torch, place.dtype, None)
    if dtype is None:
        raise Problem(f"no dtype '{place.dtype}'; known: auto, float32, bfloat16, float16")
    device = place.device_map or ("cuda" if has_gpu() else "cpu")
    is_plain = device.partition(":")[0] in PLAIN_DEVICES
    spread = {} if is_plain else {"device_map": device}
    try:
        tokenizer = hf.AutoTokenizer.from_pretrained(place.source, **where)
        model = _model(hf, place.source, {**where, "dtype": dtype, **spread})
        model = model.to(device) if is_plain else model
    except Exception as error:  # hub, tokenizer and weights each fail in many ways of their own
        raise _explained(place, error) from error
    model.eval()
    return Loaded(model, tokenizer, f"{device} {model.dtype} {_commit(place)}".strip())


def _commit(place: Place) -> str:
    """The commit of the hub that was loaded, "" if there is none."""
    from huggingface_hub import try_to_load_from_cache

    if place.is_folder:
        return ""
    path = try_to_load_from_cache(place.source, "config.json", revision=place.revision)
    return Path(path).parent.name if isinstance(path, str) else ""


def _packages() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise Problem(
            f"hf/… models need transformers and torch ({error}); pip install 'flipmeter[hf]'"
        ) from error
    return transformers, torch


def _model(hf: Any, source: str, options: Mapping[str, Any]) -> Any:
    """Load as a language model, or by its text side a model that also sees images."""
    named = ("revision", "gguf_file", "trust_remote_code")
    where = {name: options[name] for name in named if name in options}
    config = hf.AutoConfig.from_pretrained(source, **where)
    known = hf.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    kind = hf.AutoModelForCausalLM
    if config.model_type not in known:
        kind = hf.AutoModelForImageTextToText
    return kind.from_pretrained(source, **options)


def _explained(place: Place, error: Exception) -> Problem:
    said = " ".join(str(error).split())[:300]
    if place.is_folder:
        name = Path(place.source) / (place.gguf_file or "")
        return Problem(f"transformers cannot load {name} ({said}); is it a model's folder?")
    if "does not recognize this architecture" in said:
        return Problem(f"this transformers does not support {place.source} yet: {said}")
    return Problem(
        f"cannot get {place.source} from the Hugging Face hub ({said}); without access to the "
        f"hub, download it elsewhere (hf download {place.source} --local-dir FOLDER) and use "
        f"the folder: hf/./FOLDER"
    )
