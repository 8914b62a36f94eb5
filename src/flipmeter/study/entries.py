"""The entries of a study file: a model, its price, decoding, a budget, joint configurations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from flipmeter.ask.endpoints import checked_address
from flipmeter.ask.family import refuse_secrets
from flipmeter.ask.limits import Price
from flipmeter.ask.names import interface_of, is_callable
from flipmeter.data.labels import read_span, span_spec
from flipmeter.documents import read_limited, read_yaml
from flipmeter.errors import Problem
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.redaction import hidden, is_secret_name
from flipmeter.registry import Registry, nearest
from flipmeter.removed import PARTS, refusal
from flipmeter.types import (
    Actors,
    Decoding,
    Extract,
    Interface,
    JuryRule,
    Mode,
    Model,
    PlaceKind,
    Places,
    Rater,
    Scale,
    Style,
    Task,
)

TWO_CLASSES = 2
FREE = ("reasoning", "provider", "extra_body", "options")
"""Settings of a model whose fields are those of others."""
SILENT = {*FREE, "key", "base_url"}
"""Settings whose values are not shown in messages."""
STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Strict(BaseModel):
    model_config = STRICT


class PriceEntry(Strict):
    """US dollars per million tokens.

    `cached` is the price of prompt tokens that a prefix cache holds, `written` of those that it
    takes in.
    """

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)
    cached: float | None = Field(None, ge=0)
    written: float | None = Field(None, ge=0)

    @property
    def price(self) -> Price:
        return Price(self.prompt, self.completion, self.cached, self.written)


class ActorsEntry(Strict):
    """Ray actors for a model under `--on ray`: how many, and the resources of each."""

    replicas: int = Field(1, ge=1)
    num_cpus: float = Field(1.0, ge=0)
    num_gpus: float = Field(0.0, ge=0)
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
    key: str = ""
    max_tokens: int | None = Field(None, ge=1)
    reasoning: dict[str, Any] | None = None
    provider: dict[str, Any] | None = None
    extra_body: dict[str, Any] = {}
    options: dict[str, Any] = {}
    concurrency: int | None = Field(None, ge=1)
    timeout: float = Field(120.0, gt=0)
    ray: ActorsEntry = ActorsEntry()
    price: PriceEntry | None = None

    @field_validator("base_url")
    @classmethod
    def _without_secret(cls, told: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for url in (told,) if isinstance(told, str) else told or ():
            checked_address(url, "base_url")
        return told

    @field_validator("key")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        """Refuse an API key in the place of its variable, without showing it."""
        if name and not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,99}", name):
            raise Problem("key: write the name of the variable with the API key, as in MY_KEY")
        return name

    @field_validator(*FREE)
    @classmethod
    def _has_no_secret(cls, told: Any, info: ValidationInfo) -> Any:
        refuse_secrets({str(info.field_name): told})
        return told

    def model_for(self, min_interval: float) -> Model:
        sent = {"reasoning": self.reasoning, "provider": self.provider}
        extra = {name: value for name, value in sent.items() if value is not None}
        return Model(
            address=self.model,
            name=self.name,
            interface=self.interface,
            base_url=self.base_url,
            key=self.key,
            max_tokens=self.max_tokens,
            extra=extra | self.extra_body,
            options=self.options,
            concurrency=self.concurrency,
            min_interval=min_interval,
            timeout=self.timeout,
            actors=self.ray.actors,
        )


class DecodingEntry(Strict):
    """Sampling parameters; only those that are set are sent (temperature is 0 by default)."""

    temperature: float | None = Field(0.0, ge=0)
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = None
    repetition_penalty: float | None = Field(None, gt=0)
    max_tokens: int = Field(32, ge=1)
    stop: tuple[str, ...] | None = None


class PanelEntry(Strict):
    """A panel of judges: several models of the study, which decide together."""

    of: list[str] = Field(min_length=2)
    by: JuryRule = "majority"
    show_members: bool = True

    @field_validator("of")
    @classmethod
    def _named_once(cls, names: list[str]) -> list[str]:
        for name in names:
            if names.count(name) > 1:
                raise Problem(f"a panel lists '{name}' twice; list each member once")
        return names


class PlacesEntry(Strict):
    """The fields that may change places, and what each class says about them."""

    fields: list[str] = Field(min_length=2)
    forms: list[str] = []
    words: list[str] = Field(min_length=2)
    kind: PlaceKind
    noun: str

    @property
    def places(self) -> Places:
        parts = tuple(self.fields), tuple(self.forms), tuple(self.words)
        return Places(*parts, self.kind, self.noun)


class TaskEntry(Strict):
    """The words of the prompt, and the classes, lowest first; a range of numbers has a `span`."""

    scale: list[str]
    title: str
    noun: str
    aspect: str
    low: str
    high: str
    criteria: list[str] = Field(default_factory=list)
    nominal: bool = False
    values: list[str] = Field(default_factory=list)
    places: PlacesEntry | None = None
    span: dict[Literal["from", "to", "within"], float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_a_scale(self) -> TaskEntry:
        named = [self.scale, *([self.places.forms] if self.places else [])]
        if not self.span and min(map(len, named)) < TWO_CLASSES:
            raise ValueError("a scale has at least two classes, or a span")
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what a task does not have: a card keeps the digest it was confirmed under."""
        optional = ("places", "nominal", "values", "span")
        return {k: value for k, value in write(self).items() if value or k not in optional}

    @classmethod
    def of(cls, task: Task) -> TaskEntry:
        scale = task.scale
        words = {"title": task.title, "noun": task.noun, "aspect": task.aspect}
        poles = {"low": scale.low, "high": scale.high}
        places = None if task.places is None else PlacesEntry(**asdict(task.places))
        told = {"nominal": scale.nominal, "values": list(scale.values), "places": places}
        if scale.span is not None:
            told["span"] = span_spec(scale.span)
        criteria = list(task.criteria)
        return cls(scale=list(scale.names), **words, **poles, criteria=criteria, **told)

    @property
    def task(self) -> Task:
        poles, span = (self.low, self.high), read_span(self.span)
        scale = Scale(tuple(self.scale), *poles, self.nominal, tuple(self.values), span)
        places = self.places.places if self.places else None
        return Task(scale, self.title, self.noun, self.aspect, tuple(self.criteria), places)


class DemosEntry(Strict):
    """A file of demonstrations that every prompt shows, in its order."""

    file: str
    text: str = "text"
    label: str = "label"
    labels: dict[Any, Any] | None = None
    fields: dict[str, str] | None = None
    quotes: bool | None = None


class BudgetEntry(Strict):
    """The most that one run of the command may spend; the next one continues."""

    calls: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)
    usd: float | None = Field(None, gt=0)
    price: PriceEntry | None = None


def read_mapping(path: Path, missing: str, otherwise: str) -> dict[str, Any]:
    """Read a YAML file that holds keys and values; both texts name the file and the way out."""
    try:
        text = read_limited(path).decode()
    except OSError as error:
        raise Problem(f"{missing} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not valid YAML: {error}; save it as UTF-8") from error
    content = read_yaml(text, str(path))
    if not isinstance(content, dict):
        raise Problem(otherwise)
    return content


def explained(error: ValidationError, source: str, kinds: Sequence[type[BaseModel]]) -> str:
    """The error message for a file; an unknown key is compared with those of `kinds`."""
    lines = []
    for one in error.errors():
        if one["loc"][-1:] == ("str",) and isinstance(one["input"], Mapping):
            continue  # a model may be a name too: what is wrong inside the mapping says more
        place = ".".join(str(part) for part in one["loc"] if part != ModelEntry.__name__)
        if one["type"] == "extra_forbidden":
            known = [name for kind in kinds for name in kind.model_fields]
            hint = nearest(str(one["loc"][-1]), known) if one["loc"] else ""
            lines.append(refusal("key", place) or f"no key named '{place}'{hint}")
        elif gone := PARTS.get(place, {}).get(str(one["input"])):
            lines.append(f"{place}: {one['input']} was removed; {gone}")
        else:
            is_silent = any(p in SILENT or is_secret_name(str(p)) for p in one["loc"])
            is_silent = is_silent or one["type"] == "missing"
            got = "" if is_silent else f"; got {hidden(one['input'])!r:.80}"
            lines.append(f"{place}: {one['msg']}{got}")
    return f"{source}: " + "\n".join(dict.fromkeys(lines))


class Config(dict[str, Any]):
    """Levels by factor, as `Style` has them, and a sentence; what is not named stays at the base.

    `replace(style, **configs["A"])` is the style of A.
    """

    def __init__(self, levels: Mapping[str, Any], about: str) -> None:
        super().__init__(levels)
        self.about = about


configs: Registry[Config] = Registry("config")

configs.add(
    "A",
    Config(
        {
            "label_format": "neutral_id",
            "shots": 0,
            "clarity": "ordinal_explicit",
            "mood": "indicative",
        },
        "accuracy; without demonstrations there is no P2 and no P3",
    ),
)
configs.add("P1", Config({"shots": 3, "mood": "indicative"}, "few flips when labels are reversed"))
configs.add(
    "P2a",
    Config(
        {
            "label_format": "natural_language",
            "shots": 1,
            "clarity": "minimal",
            "mood": "indicative",
        },
        "few flips between random and ascending demonstrations",
    ),
)
configs.add(
    "P2b",
    Config(
        {"label_format": "neutral_id", "shots": 1, "mood": "indicative"},
        "few flips between random and descending demonstrations",
    ),
)
configs.add(
    "P3a",
    Config(
        {
            "label_format": "neutral_id",
            "shots": 3,
            "clarity": "minimal",
            "separator": "tab",
            "connector": "space",
            "mood": "interrogative",
        },
        "few flips between demonstrations before and after the query",
    ),
)
configs.add(
    "P3b",
    Config(
        {
            "label_format": "neutral_id",
            "shots": 1,
            "clarity": "minimal",
            "connector": "newline_tab",
        },
        "few flips between demonstrations before and around the query",
    ),
)


def make_rater(
    model: Model,
    style: Style,
    pipeline: str,
    decoding: DecodingEntry,
    *,
    has_scores: bool = False,
    n_draws: int = 0,
    extract: Extract | None = None,
    mode: Mode = "recommended",
) -> Rater:
    """A rater that asks for scores if told or if its pipeline uses them, unless it draws instead.

    A callable gives its label itself: nothing is extracted from what it says.
    """
    needs_scores = has_scores or open_pipeline(pipeline).traits.needs_scores
    if is_reasoned(style) and needs_scores and not n_draws:
        raise Problem(
            "clarity 'reasoned': a reply does not begin with its label, so labels have no "
            "probabilities; leave out `scores` and pipelines that need them, or ask for the label "
            "alone (clarity: explicit)"
        )
    how = extract or (LAST_LABEL if is_reasoned(style) else None)
    return Rater(
        *(model, style, pipeline, _decoding(decoding, model, style, pipeline, mode)),
        is_scored=needs_scores and not n_draws,
        n_draws=n_draws,
        extract=None if is_callable(model) else how,
    )


LAST_LABEL = Extract(regex=r"(?is).*\blabel\b\W*?[:=]\s*(?P<label>[^\n]+)")
"""The place of the label in a reply that begins with reasoning."""
LONGEST_REASONS = 1024
"""Tokens of a reply with reasons, unless a study says how many."""


def is_reasoned(style: Style) -> bool:
    """Whether the built-in prompt asks for reasons before the label."""
    return style.clarity == "reasoned" and not style.prompt


ENDS_IN_A_QUESTION = ("pairwise", "listwise_compare", "listwise_relabel")
"""Paradigms whose prompt ends in a question: raw text answers it in a new line."""


def _decoding(
    entry: DecodingEntry, model: Model, style: Style, pipeline: str, mode: Mode
) -> Decoding:
    """Stop raw text at the end of its line, unless set otherwise or in paper mode.

    A raw-text model goes on after its label with one more example. Behind a question it begins
    with a line break, and a stop there would leave nothing to read. A pipeline that draws needs a
    temperature.
    """
    told, traits = entry.model_dump(), open_pipeline(pipeline).traits
    if is_reasoned(style) and told["max_tokens"] == DecodingEntry().max_tokens:
        told["max_tokens"] = LONGEST_REASONS
    if told["stop"] is None:
        is_raw = interface_of(model) == "completions" and not is_reasoned(style)
        is_cued = traits.paradigm not in ENDS_IN_A_QUESTION
        told["stop"] = ("\n",) if is_raw and is_cued and mode == "recommended" else ()
    found = Decoding(**{**told, "stop": tuple(told["stop"])})
    if traits.temperature and found.is_greedy:
        return replace(found, temperature=traits.temperature, top_k=None)
    return found
