"""The entries of a study file: a model, its price, decoding, a budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flipmeter.model import Price
from flipmeter.registry import suggestion
from flipmeter.types import Actors, Interface, Model, Problem, Scale, Task

STRICT = ConfigDict(extra="forbid", frozen=True)


class Strict(BaseModel):
    model_config = STRICT


class PriceEntry(Strict):
    """US dollars per million tokens; `cached` is for prompt tokens that a prefix cache holds."""

    prompt: float = Field(ge=0, allow_inf_nan=False)
    completion: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(None, ge=0, allow_inf_nan=False)

    @property
    def price(self) -> Price:
        return Price(self.prompt, self.completion, self.cached)


class ActorsEntry(Strict):
    """What `--on ray` makes of a model: so many actors, each with resources of its own."""

    replicas: int = Field(1, ge=1)
    num_cpus: float = Field(1.0, ge=0, allow_inf_nan=False)
    num_gpus: float = Field(0.0, ge=0, allow_inf_nan=False)
    resources: dict[str, float] = {}
    patience: float = Field(120.0, gt=0)

    @property
    def actors(self) -> Actors:
        return Actors(**self.model_dump())


class ModelEntry(Strict):
    """A model with its own name and overrides."""

    model: str
    name: str = ""
    interface: Interface | None = None
    base_url: str | tuple[str, ...] | None = None
    max_tokens: int | None = Field(None, ge=1)
    reasoning: dict[str, Any] | None = None
    provider: dict[str, Any] | None = None
    extra_body: dict[str, Any] = {}
    options: dict[str, Any] = {}
    concurrency: int | None = Field(None, ge=1)
    timeout: float = Field(120.0, gt=0)
    ray: ActorsEntry = ActorsEntry()
    price: PriceEntry | None = None

    def model_for(self, min_interval: float) -> Model:
        sent = {"reasoning": self.reasoning, "provider": self.provider}
        extra = {name: value for name, value in sent.items() if value is not None}
        return Model(
            address=self.model,
            name=self.name,
            interface=self.interface,
            base_url=self.base_url,
            max_tokens=self.max_tokens,
            extra=extra | self.extra_body,
            options=self.options,
            concurrency=self.concurrency,
            min_interval=min_interval,
            timeout=self.timeout,
            actors=self.ray.actors,
        )


class DecodingEntry(Strict):
    """Sampling parameters; what is not named is not sent (temperature is 0 unless named)."""

    temperature: float | None = Field(0.0, ge=0)
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = None
    repetition_penalty: float | None = Field(None, gt=0)
    max_tokens: int = Field(32, ge=1)
    stop: tuple[str, ...] | None = None


class TaskEntry(Strict):
    """The words of the prompt, and the classes, lowest first."""

    scale: list[str] = Field(min_length=2)
    title: str
    noun: str
    aspect: str
    low: str
    high: str
    criteria: list[str] = Field(default_factory=list)
    nominal: bool = False

    @classmethod
    def of(cls, task: Task) -> TaskEntry:
        scale = task.scale
        words = {"title": task.title, "noun": task.noun, "aspect": task.aspect}
        poles = {"low": scale.low, "high": scale.high}
        names, criteria = list(scale.names), list(task.criteria)
        return cls(scale=names, **words, **poles, criteria=criteria, nominal=scale.nominal)

    @property
    def task(self) -> Task:
        scale = Scale(tuple(self.scale), self.low, self.high, self.nominal)
        return Task(scale, self.title, self.noun, self.aspect, tuple(self.criteria))


class DemosEntry(Strict):
    """A file of demonstrations that every prompt shows, in its order."""

    file: str
    text: str = "text"
    label: str = "label"
    labels: dict[Any, Any] | None = None
    fields: dict[str, str] | None = None
    quotes: bool | None = None


class BudgetEntry(Strict):
    """The most that one run of the command may spend; it stops before, and the next goes on."""

    calls: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)
    usd: float | None = Field(None, gt=0)
    price: PriceEntry | None = None


def read_mapping(path: Path, missing: str, otherwise: str) -> dict[str, Any]:
    """Read a YAML file that holds keys and values; both texts name the file and the way out.

    A key that stands twice is a problem: YAML takes the last and does not say so.
    """
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        for key in _repeated(node):
            line = key.start_mark.line + 1
            raise Problem(f"{path}, line {line}: '{key.value}' stands twice; leave one of them")
        content = None if node is None else loader.construct_document(node)
    except OSError as error:
        raise Problem(f"{missing} ({error.strerror})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Problem(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise Problem(otherwise)
    return content


def _repeated(root: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    """Yield every key that stands in its mapping before; a node may be reached by two ways."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
            continue
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        names = [(key.tag, key.value) for key in keys]
        yield from (key for at, key in enumerate(keys) if names[at] in names[:at])
        waiting += [value for _, value in node.value]


def explained(error: ValidationError, source: str, kinds: Sequence[type[BaseModel]]) -> str:
    """Say what is wrong with a file; a key that is not there is held against those of `kinds`."""
    lines = []
    for one in error.errors():
        if one["loc"][-1:] == ("str",) and isinstance(one["input"], Mapping):
            continue  # a model may be a name too: what is wrong inside the mapping says more
        place = ".".join(str(part) for part in one["loc"] if part != ModelEntry.__name__)
        if one["type"] == "extra_forbidden":
            known = [name for kind in kinds for name in kind.model_fields]
            near = suggestion(str(one["loc"][-1]), known) if len(one["loc"]) else ""
            hint = near if "did you mean" in near else ""
            lines.append(f"no key named '{place}'{hint}")
        else:
            got = "" if one["type"] == "missing" else f"; got {one['input']!r:.80}"
            lines.append(f"{place}: {one['msg']}{got}")
    return f"{source}: " + "\n".join(dict.fromkeys(lines))
