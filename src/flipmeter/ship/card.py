"""Rater card: one YAML file with all that a rater needs, and what it was selected on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from flipmeter.data import load, merge
from flipmeter.decide import open_pipeline
from flipmeter.model import World, identity_of, interface_of, is_callable
from flipmeter.model.backends.python import beside
from flipmeter.parse.extraction import check as check_extract
from flipmeter.probe import expand, probes
from flipmeter.prompt import read_template, unshown
from flipmeter.registry import suggestion
from flipmeter.study.entries import (
    STRICT,
    DecodingEntry,
    ModelEntry,
    Strict,
    explained,
    read_mapping,
)
from flipmeter.study.file import BUILT_IN, check_level
from flipmeter.study.grid import world
from flipmeter.types import (
    Condition,
    Decoding,
    Estimate,
    Extract,
    Item,
    Model,
    Problem,
    Rank,
    Rater,
    Role,
    Scale,
    Style,
    Task,
    View,
    canonical_json,
)

LABEL = "label"
HEADER = (
    "# A rater as `flipmeter select` chose it, for `flipmeter classify` and OrdinalClassifier.\n"
    "# A selection does not transfer: measure another model before you put it in here.\n"
)


class TaskEntry(Strict):
    """The words of the prompt, and the classes, lowest first."""

    scale: list[str] = Field(min_length=2)
    title: str
    noun: str
    aspect: str
    low: str
    high: str
    criteria: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, task: Task) -> TaskEntry:
        scale = task.scale
        words = {"title": task.title, "noun": task.noun, "aspect": task.aspect}
        poles = {"low": scale.low, "high": scale.high}
        return cls(scale=list(scale.names), **words, **poles, criteria=list(task.criteria))

    @property
    def task(self) -> Task:
        scale = Scale(tuple(self.scale), self.low, self.high)
        return Task(scale, self.title, self.noun, self.aspect, tuple(self.criteria))


class EstimateEntry(Strict):
    """A number with its interval; without a value, the note says why there is none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    note: str = ""

    @classmethod
    def of(cls, one: Estimate) -> EstimateEntry:
        numbers = (one.value, one.low, one.high)
        value, low, high = (None if math.isnan(number) else round(number, 6) for number in numbers)
        return cls(value=value, low=low, high=high, n=one.n, note=one.note)


class Evidence(BaseModel):
    """What a rater was selected on: the run, how many it was chosen from, and what is known of it.

    `held_out` was measured on items that the choice was not made on; the other estimates are those
    of the best of many, which is partly luck.
    """

    model_config = STRICT

    run: str
    study: str
    date: str
    flipmeter: str
    dataset: str
    source: str | dict[str, Any]
    digest: str
    level: str
    seeds: list[int]
    n_items: int
    n_candidates: int
    by: str
    max_flip: dict[str, float] = {}
    estimates: dict[str, EstimateEntry]
    held_out: dict[str, EstimateEntry] = {}
    held_out_chosen: list[str] = []
    cost_per_item: float
    cost_unit: str
    is_on_front: bool
    chance_on_front: float
    chance_chosen: float
    warning: str = ""


class Card(BaseModel):
    """A rater with its very demonstrations, ready to be asked.

    `average` names the probes whose views are all asked and put together; `identity` is what
    answered when it was selected. `prompt` in `style` is the text of a prompt file, `answer` says
    where a reply has its label, and `score_samples` how many are drawn and counted.
    """

    model_config = STRICT

    model: ModelEntry
    identity: str = ""
    pipeline: str = "pointwise"
    style: dict[str, Any] = {}
    decoding: DecodingEntry = DecodingEntry()
    scores: bool = False
    score_samples: int = Field(0, ge=0, lt=1000)
    answer: dict[Literal["json", "regex"], str] = {}
    average: list[str] = []
    min_interval: float = Field(0.0, ge=0)
    seed: int = 0
    task: TaskEntry
    demos: list[dict[str, str]] = []
    calibration: list[dict[str, str]] = []
    selected: Evidence | None = None

    @field_validator("model", mode="before")
    @classmethod
    def _by_address(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value

    @field_validator("pipeline")
    @classmethod
    def _known_pipeline(cls, name: str) -> str:
        open_pipeline(name)
        return name

    @field_validator("style")
    @classmethod
    def _known_levels(cls, style: dict[str, Any]) -> dict[str, Any]:
        worded = {name: v for name, v in style.items() if name != "prompt" or v != BUILT_IN}
        for name, value in worded.items():
            check_level(name, value)
        if "prompt" in worded:
            read_template(worded["prompt"])
        return worded

    @field_validator("answer")
    @classmethod
    def _readable_answer(cls, answer: dict[str, str]) -> dict[str, str]:
        if answer:
            check_extract(Extract(**answer))
        return answer

    @model_validator(mode="after")
    def _has_label_first(self) -> Card:
        if self.answer and self.rater.is_scored:
            raise Problem(
                "answer: a structured reply does not begin with its label, so that labels have no "
                "probabilities; leave out `scores` and pipelines that need them, or `answer`"
            )
        return self

    @field_validator("average")
    @classmethod
    def _known_probes(cls, names: list[str]) -> list[str]:
        for name in names:
            probes[name]
        return names

    @property
    def rater(self) -> Rater:
        is_scored = self.scores or open_pipeline(self.pipeline).traits.needs_scores
        model = self.model.model_for(self.min_interval)
        extract = Extract(**self.answer) if self.answer and not is_callable(model) else None
        return Rater(
            *(model, replace(Style(), **self.style), self.pipeline, self._decoding(model)),
            is_scored=is_scored and not self.score_samples,
            n_draws=self.score_samples,
            extract=extract,
        )

    def _decoding(self, model: Model) -> Decoding:
        """Return the decoding; raw text stops at the end of the line unless told otherwise."""
        entry = self.decoding.model_dump()
        if entry["stop"] is None:
            entry["stop"] = ("\n",) if interface_of(model) == "completions" else ()
        return Decoding(**entry)

    @property
    def digest(self) -> str:
        """Return the SHA-256 of all that can change an answer."""
        content = self.model_dump(mode="json", exclude={"selected", "identity"})
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()

    def condition(self) -> Condition:
        """Return how items are asked under the base view; it has none yet."""
        task = self.task.task
        demos = _items(self.demos, task.scale, "demo")
        if open_pipeline(self.pipeline).traits.needs_demos and not demos:
            raise Problem(f"the pipeline '{self.pipeline}' compares with demos, and there are none")
        calibration = _items(self.calibration, task.scale, "calibration")
        (view,) = expand((), len(task.scale))
        return Condition(self.rater, "", task, self.seed, view, demos, (), calibration=calibration)

    def views(self) -> tuple[View, ...]:
        """Return the views that are put together, the base first; the pipeline may have its own."""
        rater = self.rater
        fixed = open_pipeline(self.pipeline).traits.consumes | unshown(rater.style)
        if interface_of(rater.model) == "completions":
            fixed |= {"system_user"}
        names = [name for name in self.average if name not in fixed]
        return expand(names, len(self.task.scale), shots=len(self.demos))

    def world(self, folder: Path = Path(), data_dir: Path | None = None) -> World | None:
        """Return what a simulated rater knows: the dataset that it was selected on."""
        if not self.model.model.startswith("sim/"):
            return None
        if self.selected is None:
            raise Problem(f"{self.model.model} knows only a dataset, and the card names none")
        dataset = load(self.selected.source, folder=folder, data_dir=data_dir)
        return world(merge(dataset, len(self.task.scale)))

    def beside(self, folder: Path) -> Card:
        """Return the card with the path of its callable's file, if that stands in a folder."""
        found = self.model.model_copy(update={"model": beside(self.model.model, folder)})
        return self.model_copy(update={"model": found})

    def with_model(self, address: str) -> Card:
        """Return the card for another model, asked at its own address."""
        return self.model_copy(update={"model": ModelEntry(model=address)})

    def warning(self, known: World | None = None) -> str:
        """Say that the model is not the one the rater was selected on, "" if it is."""
        asked = identity_of(self.rater.model, known)
        if not self.identity or _who(asked) == _who(self.identity):
            return ""
        return (
            f"this rater was selected on {self.identity} and is now asked of {asked}: a selection "
            "does not transfer to another model, run the study there before you rely on it"
        )


def _who(identity: str) -> str:
    """Return an identity without what a simulated rater knows: it has a table for each dataset."""
    return identity.partition("@")[0] if identity.startswith("sim/") else identity


def items_as_rows(items: Sequence[Item], scale: Scale) -> list[dict[str, str]]:
    """Write items as a card has them: their fields, and the name of their class if it is known."""
    return [
        dict(item.fields) | ({LABEL: scale.name(item.gold)} if item.gold else {}) for item in items
    ]


def _items(rows: Sequence[Mapping[str, str]], scale: Scale, role: Role) -> tuple[Item, ...]:
    for number, row in enumerate(rows, start=1):
        if not row.get("text", "").strip():
            raise Problem(f"{role} {number} of the card has no text; write one, or take it out")
    return tuple(
        Item(
            f"{role}-{number}",
            {name: text for name, text in row.items() if name != LABEL},
            _rank(row.get(LABEL), scale, f"{role} {number}", is_needed=role == "demo"),
            role,
        )
        for number, row in enumerate(rows, start=1)
    )


def _rank(name: str | None, scale: Scale, where: str, *, is_needed: bool) -> Rank | None:
    if name in scale.names:
        return scale.names.index(name) + 1
    if name is None and not is_needed:
        return None
    if name is None:
        raise Problem(f"{where} of the card has no label; every demonstration needs one")
    raise Problem(f"{where} of the card has the label '{name}'{suggestion(name, [*scale.names])}")


def style_entry(style: Style) -> dict[str, Any]:
    """Write a style as a card has it: every factor that is set, a prompt file as its text."""
    return {name: value for name, value in asdict(style).items() if value not in (None, "")}


def read_card(path: Path, *, model: str | None = None) -> Card:
    """Read a rater card, for another model if one is named."""
    way_out = f"write one: flipmeter select RUN --out {quote(str(path))}"
    content = read_mapping(
        path, f"no rater card {path}; {way_out}", f"{path} holds no rater card; {way_out}"
    )
    try:
        card = Card.model_validate(content)
        card.condition()
    except ValidationError as error:
        kinds = (Card, ModelEntry, DecodingEntry, TaskEntry, Evidence)
        raise Problem(explained(error, f"{path} is no rater card", kinds)) from error
    except Problem as problem:
        raise Problem(f"{path} is no rater card: {problem}") from problem
    return card.beside(path.parent) if model is None else card.with_model(model)


def write_card(card: Card, path: Path) -> None:
    """Write a rater card; a file that is no card is not written over."""
    content = card.model_dump(mode="json")  # an explicit null is an answer: "not sent"
    content["model"] = card.model.model_dump(mode="json", exclude_defaults=True)
    if card.selected is not None:
        content["selected"] = card.selected.model_dump(mode="json", exclude_none=True)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    try:
        if path.is_file():  # to read a pipe, as /dev/stdout may be, would never end
            _refuse_other(path)
        path.write_text(HEADER + text, encoding="utf-8")
    except OSError as error:
        raise Problem(f"cannot write {path} ({error.strerror}); name another with --out") from error


def _refuse_other(path: Path) -> None:
    """Refuse to write over a file that is neither empty, nor begins as a card, nor is one."""
    found = path.read_bytes()
    if not found or found.startswith(HEADER.partition("\n")[0].encode()):
        return
    try:
        read_card(path)
    except Problem:
        raise Problem(
            f"{path} is there already and is no rater card; name another with --out"
        ) from None
