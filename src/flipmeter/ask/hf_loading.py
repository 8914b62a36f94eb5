"""Hub or folder -> model and tokenizer; request -> tokens by its chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flipmeter.ask.label_scores import Tree, ending, written
from flipmeter.chance import n_shared
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.types import Head, Message, Request

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
    hf, torch = _import_hf_packages()
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
        model = _load_model(hf, source, where, {"dtype": dtype, **spread})
        model = model.to(device) if is_plain else model
    except Exception as error:  # hub, tokenizer and weights each fail in many ways of their own
        raise _explain_load_error(source, options, is_folder, error) from error
    model.eval()
    commit = ""  # that of the hub
    if not is_folder:
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(source, "config.json", revision=options.revision)
        commit = Path(path).parent.name if isinstance(path, str) else ""
    return Loaded(model, tokenizer, f"{device} {model.dtype} {commit}".strip())


def _import_hf_packages() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise Problem(
            f"hf/… models need transformers and torch ({error}); pip install 'flipmeter[hf]'"
        ) from error
    return transformers, torch


def _load_model(hf: Any, source: str, where: Mapping[str, Any], how: Mapping[str, Any]) -> Any:
    """Load as a language model, or by its text side a model that also sees images."""
    config = hf.AutoConfig.from_pretrained(source, **where)
    known = hf.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    kind = hf.AutoModelForCausalLM
    if config.model_type not in known:
        kind = hf.AutoModelForImageTextToText
    return kind.from_pretrained(source, **where, **how)


def _explain_load_error(
    source: str, options: HfOptions, is_folder: bool, error: Exception
) -> Problem:
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


BREAK = "\n\n"
MARK = "\u0001"
THOUGHTS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel>thought", "<channel|>"),
)
TAIL = 16
"""The end of a thought is looked for in so many last tokens: a marker may be spelt in several."""


@dataclass(frozen=True)
class Prompted:
    """A prompt as text and tokens; the first `n_head` tokens are those of the shared head."""

    text: str
    ids: list[int]
    n_head: int

    @property
    def opens_thought(self) -> bool:
        """Whether the template has begun a thought that the model must end."""
        return any(self.text.rstrip().endswith(start) for start, _ in THOUGHTS)


class Wording:
    """The conversion of requests and replies by a tokenizer."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.tokenizer = tokenizer
        self._name = name
        self._heads: dict[tuple[Head, str], tuple[str, list[int]]] = {}
        self._tree = lru_cache(maxsize=1024)(self._grow)

    def prompted(
        self, request: Request, interface: str, template: Mapping[str, Any] | None = None
    ) -> Prompted:
        """The prompt of a request: whole, in tokens, with the length of its head.

        The whole text is cut into tokens and compared with the head's: a token may reach over the
        end of the head, and cutting the two parts alone would then give other tokens.
        """
        is_chat, template = interface == "chat", template or {}
        text = self._text(request.script.messages, is_chat, template)
        start, head_ids = self._head(request.script.head, is_chat, template)
        ids = self.encode(text, is_chat)
        n_head = n_shared(ids, head_ids) if text.startswith(start) else 0
        return Prompted(text, ids, min(n_head, len(ids) - 1))

    def encode(self, text: str, is_chat: bool) -> list[int]:
        """The tokens of a text; a chat template writes its special tokens itself."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=not is_chat)["input_ids"]
        if not ids:
            raise Problem(f"the prompt is empty: {self._name} has no token to read")
        return ids

    def written(self, prompt: Prompted, answers: tuple[str, ...]) -> Tree[int]:
        """The ways to write answers after a prompt, in tokens."""
        return self._tree(answers, ending(prompt.text))

    def _grow(self, answers: tuple[str, ...], end: str) -> Tree[int]:
        def encode(text: str) -> list[int]:
            ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            return ids

        return written(answers, end, encode)

    def decode(self, ids: Sequence[int], *, with_special: bool = False) -> str:
        text = self.tokenizer.decode(
            list(ids), skip_special_tokens=not with_special, clean_up_tokenization_spaces=False
        )
        return str(text)

    def _head(
        self, head: Head, is_chat: bool, template: Mapping[str, Any]
    ) -> tuple[str, list[int]]:
        """The text and the tokens that all prompts behind a head begin with."""
        key = head, f"{is_chat}{sorted(template.items())}"
        if key not in self._heads:
            messages = (*head.before, Message(head.role, head.start + MARK))
            start, found, _ = self._text(messages, is_chat, template).partition(MARK)
            ids = self.encode(start, is_chat) if found and start else []
            self._heads = {key: (start, ids)}  # requests come sorted by head
        return self._heads[key]

    def _text(self, messages: Sequence[Message], is_chat: bool, template: Mapping[str, Any]) -> str:
        if not is_chat:
            return BREAK.join(message.content for message in messages)
        if not self.tokenizer.chat_template:
            raise Problem(
                f"{self._name} has no chat template; set `interface: completions` for raw text"
            )
        import jinja2

        said = [{"role": message.role, "content": message.content} for message in messages]
        try:
            text = self.tokenizer.apply_chat_template(
                said, tokenize=False, add_generation_prompt=True, **template
            )
        except (ValueError, TypeError, RuntimeError, jinja2.TemplateError) as error:
            raise Problem(f"the chat template of {self._name} fails: {error}") from error
        return str(text)


@dataclass
class Said:
    """The tokens of one reply while it is made, and where its thought ends."""

    wording: Wording
    prompt: Prompted
    stops: tuple[str, ...]
    ids: list[int] = field(default_factory=list)
    finish: str = ""
    n_thought: int = 0

    def __post_init__(self) -> None:
        self._is_thinking = self.prompt.opens_thought

    def add(self, token: int) -> None:
        """Take one more token; a stop counts only outside of a thought."""
        self.ids.append(token)
        tail = self.wording.decode(self.ids[-TAIL:], with_special=True)
        if not self.n_thought and any(end in tail for _, end in THOUGHTS):
            self.n_thought, self._is_thinking = len(self.ids), False
        elif not self.n_thought and len(self.ids) <= TAIL:
            begun = any(tail.lstrip().startswith(start) for start, _ in THOUGHTS)
            self._is_thinking = self._is_thinking or begun
        if self.stops and not self._is_thinking and self._cut() is not None:
            self.finish = "stop"

    @property
    def text(self) -> str:
        """The text after the reasoning, up to a stop."""
        if self._is_thinking:
            return ""
        return self._answer()[: self._cut()]

    @property
    def n_reasoning(self) -> int:
        return len(self.ids) if self._is_thinking else self.n_thought

    def _answer(self) -> str:
        answer = self.wording.decode(self.ids[self.n_thought :])
        return answer.lstrip() if self.n_thought else answer

    def _cut(self) -> int | None:
        """Index of the first stop, None if there is none yet."""
        answer = self._answer()
        places = [answer.find(stop) for stop in self.stops if stop in answer]
        return min(places, default=None)
