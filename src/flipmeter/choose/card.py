"""Rater card: one YAML file with all that a rater needs, and the evidence for it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from flipmeter.ask.family import World
from flipmeter.ask.names import identity_of, is_simulated, without_world
from flipmeter.ask.user_code import beside
from flipmeter.checks import ordered, read_number
from flipmeter.data.load import load
from flipmeter.data.sampling import Balance, merge
from flipmeter.errors import Problem
from flipmeter.files import inside, write_output
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.prompt.probes import expand, probes
from flipmeter.prompt.template import read_template
from flipmeter.redaction import refuse_hidden
from flipmeter.registry import suggestion
from flipmeter.removed import is_stored, reading_stored, without_defaults
from flipmeter.stats.front import By
from flipmeter.stats.judge import UNREADABLE_LIMIT
from flipmeter.stats.verdict import Word
from flipmeter.study.entries import (
    STRICT,
    DecodingEntry,
    ModelEntry,
    Strict,
    TaskEntry,
    explained,
    make_rater,
    read_mapping,
)
from flipmeter.study.file import BUILT_IN, Answer, Pipeline, check_levels, refuse_scored
from flipmeter.study.grid import applicable, world
from flipmeter.types import (
    Condition,
    Dataset,
    Estimate,
    Extract,
    Item,
    Jury,
    JuryRule,
    Rank,
    Rater,
    Role,
    Scale,
    Style,
    View,
    canonical_json,
)

LABEL = "label"
HEADER = (
    "# A rater chosen by `flipmeter select`, for `flipmeter classify` and OrdinalClassifier.\n"
    "# Selections do not transfer: measure another model before you put it in here.\n"
)
UNCONFIRMED = "# Not confirmed on unseen items yet: flipmeter confirm CARD --items N\n"
CONFIRMED = "# Confirmed on {n} unseen items ({date}).\n"


BESIDE = " + "
"""Between the identities of the members of a panel."""

FlipLimit = Annotated[float, Field(gt=0, le=1)]
_NOT_ASKED: dict[str, Any] = {
    **dict.fromkeys(("selected", "confirmed", "identity"), True),
    "model": {"key"},
    "panel": {"of": {"__all__": {"key"}}},
}
"""Keys that cannot change an answer."""


class EstimateEntry(Strict):
    """A number with its interval; without a value, the note says why there is none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = Field(0, ge=0)
    note: str = ""

    @model_validator(mode="after")
    def _ordered(self) -> EstimateEntry:
        ordered(self.low, self.value, self.high, "an estimate")
        return self

    @classmethod
    def of(cls, one: Estimate) -> EstimateEntry:
        numbers = (one.value, one.low, one.high)
        value, low, high = (None if math.isnan(number) else round(number, 6) for number in numbers)
        return cls(value=value, low=low, high=high, n=one.n, note=one.note)


class SelectedOn(BaseModel):
    """The evidence for a selection: the run, the number of candidates, and the estimates.

    `held_out` was measured on items that the choice was not made on; the other estimates are those
    of the best of many, which is partly luck, with intervals that hold for all candidates together.
    Flips of the contrasts in `flip_proof` are ruled out by construction. `limits` are the contrasts
    to confirm, `probes` those that they need, and `seen` the digests of all items that the choice
    saw: rated, shown or calibrated on.
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
    n_items: int = Field(ge=0)
    n_candidates: int = Field(ge=1)
    by: By
    max_flip: dict[str, FlipLimit] = {}
    max_unreadable: FlipLimit = UNREADABLE_LIMIT
    flip_proof: list[str] = []
    limits: dict[str, FlipLimit] = {}
    probes: list[str] = []
    balance: Balance = "equal"
    merge: dict[str, list[int | str]] | list[list[int | str]] | None = None
    estimates: dict[str, EstimateEntry]
    held_out: dict[str, EstimateEntry] = {}
    held_out_chosen: list[str] = []
    cost_per_item: float = Field(ge=0)
    cost_unit: str
    is_on_front: bool
    chance_on_front: float = Field(ge=0, le=1)
    chance_chosen: float = Field(ge=0, le=1)
    warning: str = ""
    seen: str = ""

    def load(self, folder: Path, data_dir: Path | None, n_classes: int) -> Dataset:
        """The dataset as it is now, with the classes of the rater."""
        return merge(load(self.source, folder=folder, data_dir=data_dir), n_classes, self.merge)


class ConfirmedContrast(Strict):
    """The verdict on one contrast, on items that the choice did not see."""

    limit: FlipLimit
    word: Word
    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    upper: float | None = None
    unreadable: float | None = None
    n: int = 0


class ConfirmedOn(Strict):
    """The result of a confirmation; `rater` is the digest of the tested card.

    No number is corrected for the choice, which did not see these items. `attempt` counts
    confirmations of this card: each has its own chance of an error.
    """

    word: Word
    date: str
    flipmeter: str
    run: str
    n_items: int
    attempt: int = Field(1, ge=1)
    rater: str
    identity: str = ""
    contrasts: dict[str, ConfirmedContrast]
    estimates: dict[str, EstimateEntry] = Field(default_factory=dict)


class CardPanel(Strict):
    """The members of a panel of judges, all of which are asked, and how they decide."""

    of: list[ModelEntry] = Field(min_length=2)
    by: JuryRule = "majority"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name or one.model for one in self.of)


class Card(BaseModel):
    """A rater with its demonstrations, ready to use.

    A `panel` of judges is asked instead of a model, which then has only its name. `average` names
    the probes whose views are all asked and put together; `identity` is what answered when it was
    selected. `prompt` in `style` is the text of a prompt file, `answer` says where a reply has its
    label, and `score_samples` how many are drawn and counted.
    """

    model_config = STRICT

    model: ModelEntry
    panel: CardPanel | None = None
    identity: str = ""
    pipeline: Pipeline = "pointwise"
    style: dict[str, Any] = {}
    decoding: DecodingEntry = DecodingEntry()
    scores: bool = False
    score_samples: int = Field(0, ge=0, lt=1000)
    answer: Answer = {}
    average: Annotated[list[str], AfterValidator(lambda some: [n for n in some if probes[n]])] = []
    min_interval: float = Field(0.0, ge=0)
    seed: int = 0
    task: TaskEntry
    demos: list[dict[str, str]] = []
    calibration: list[dict[str, str]] = []
    selected: SelectedOn | None = None
    confirmed: ConfirmedOn | None = None

    @field_validator("model", mode="before")
    @classmethod
    def _by_address(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value

    @field_validator("style")
    @classmethod
    def _known_levels(cls, style: dict[str, Any]) -> dict[str, Any]:
        worded = {name: v for name, v in style.items() if name != "prompt" or v != BUILT_IN}
        check_levels(without_defaults(worded) if is_stored() else worded)
        if "prompt" in worded:
            read_template(worded["prompt"])
        return worded

    @model_validator(mode="after")
    def _has_label_first(self) -> Card:
        refuse_scored(self.answer, is_scored=bool(self.answer) and self.rater.is_scored)
        return self

    @property
    def members(self) -> list[ModelEntry]:
        """The models that are asked: one, or those of a panel."""
        return [self.model] if self.panel is None else self.panel.of

    @property
    def jury(self) -> Jury | None:
        """The panel of judges that decides, None where one model does."""
        if self.panel is None:
            return None
        name = self.model.name or self.model.model
        return Jury(name, self.panel.names, self.panel.by, shows_members=False)

    @property
    def rater(self) -> Rater:
        """The rater of the model, or of the first member of a panel."""
        return self._rater(self.members[0])

    def _rater(self, model: ModelEntry) -> Rater:
        style, extract = replace(Style(), **without_defaults(self.style)), Extract(**self.answer)
        return make_rater(
            *(model.model_for(self.min_interval), style, self.pipeline, self.decoding),
            has_scores=self.scores,
            n_draws=self.score_samples,
            extract=extract if self.answer else None,
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all that can change an answer."""
        content = self.model_dump(mode="json", exclude=_NOT_ASKED)
        if self.panel is None:
            del content["panel"]  # cards of before there were panels keep their digest
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()

    @property
    def is_confirmed(self) -> bool:
        """Whether exactly this rater was found stable on unseen items."""
        found = self.confirmed
        return found is not None and found.word == "stable" and found.rater == self.digest

    def condition(self) -> Condition:
        """The condition of items under the base view, without items."""
        task = self.task.task
        demos = _card_items(self.demos, task.scale, "demo")
        if open_pipeline(self.pipeline).traits.needs_demos and not demos:
            raise Problem(f"the pipeline '{self.pipeline}' compares with demos, but there are none")
        calibration = _card_items(self.calibration, task.scale, "calibration")
        (view,) = expand((), len(task.scale))
        return Condition(self.rater, "", task, self.seed, view, demos, (), calibration=calibration)

    def conditions(self) -> list[Condition]:
        """The conditions of the model, or of every member of a panel."""
        own = self.condition()
        return [replace(own, rater=self._rater(one)) for one in self.members]

    def views(self) -> tuple[View, ...]:
        """The views that are put together, the base first; the pipeline may have its own."""
        task = self.task.task
        names = applicable(self.average, self.rater, task)
        n_places = len(task.places.fields) if task.places else None
        return expand(names, len(task.scale), shots=len(self.demos), n_places=n_places)

    def world(self, folder: Path = Path(), data_dir: Path | None = None) -> World | None:
        """The knowledge of a simulated rater: the dataset that it was selected on."""
        simulated = [one.model for one in self.members if is_simulated(self._rater(one).model)]
        if not simulated:
            return None
        if self.selected is None:
            raise Problem(f"{simulated[0]} needs a dataset, but the card names none")
        return world(self.selected.load(folder, data_dir, len(self.task.scale)))

    def beside(self, folder: Path) -> Card:
        """The card with the path of its callable's file, if that stands in a folder."""
        found = [
            one.model_copy(update={"model": beside(one.model, folder)}) for one in self.members
        ]
        if self.panel is None:
            return self.model_copy(update={"model": found[0]})
        panel = self.panel.model_copy(update={"of": found})
        return self.model_copy(update={"panel": panel})

    def with_model(self, address: str) -> Card:
        """The card for another model, asked at its own address."""
        if self.panel is not None:
            raise Problem("a panel of judges has several models; change them in the card itself")
        return self.model_copy(update={"model": ModelEntry(model=address)})

    def with_average(self, names: Sequence[str]) -> Card:
        """The card with the views of other probes put together."""
        with reading_stored():
            return Card.model_validate(self.model_dump() | {"average": names})

    def warning(self, known: World | None = None) -> str:
        """A warning if the model is not the one the rater was selected on, "" if it is."""
        asked = [identity_of(self._rater(one).model, known) for one in self.members]
        before = [self.identity] if self.panel is None else self.identity.split(BESIDE)
        if not self.identity or [*map(without_world, asked)] == [*map(without_world, before)]:
            return ""
        now = BESIDE.join(asked)
        return (
            f"this rater was selected on {self.identity} and now uses {now}: a selection does not "
            "transfer to another model; run the study on it before you rely on it"
        )


def items_as_rows(items: Sequence[Item], scale: Scale) -> list[dict[str, str]]:
    """Write items as a card has them: their fields, and the name of their class if it is known."""
    return [
        dict(item.fields) | ({LABEL: scale.name(item.gold)} if item.gold else {}) for item in items
    ]


def _card_items(rows: Sequence[Mapping[str, str]], scale: Scale, role: Role) -> tuple[Item, ...]:
    for number, row in enumerate(rows, start=1):
        if not row.get("text", "").strip():
            raise Problem(f"{role} {number} of the card has no text; add one, or remove the entry")
    return tuple(
        Item(
            f"{role}-{number}",
            {name: text for name, text in row.items() if name != LABEL},
            _card_label_rank(row.get(LABEL), scale, f"{role} {number}", is_needed=role == "demo"),
            role,
        )
        for number, row in enumerate(rows, start=1)
    )


def _card_label_rank(name: str | None, scale: Scale, where: str, *, is_needed: bool) -> Rank | None:
    if scale.span is not None and name is not None:
        number = read_number(name)
        if number is None or not scale.span.rank(number):
            raise Problem(
                f"{where} of the card has the label '{name}'; it must be a number from "
                f"{scale.span.low:g} to {scale.span.high:g}"
            )
        return scale.span.rank(number)
    if name in scale.names:
        return scale.names.index(name) + 1
    if name is None and not is_needed:
        return None
    if name is None:
        raise Problem(f"{where} of the card has no label; every demonstration needs one")
    raise Problem(f"{where} of the card has the label '{name}'{suggestion(name, [*scale.names])}")


def read_card(path: Path, *, model: str | None = None) -> Card:
    """Read a rater card, for another model if one is named."""
    card = read_as_written(path)
    return card.beside(path.parent) if model is None else card.with_model(model)


def read_as_written(path: Path) -> Card:
    """Read a rater card whose paths count from its folder, as they stand in the file."""
    way_out = f"write one: flipmeter select RUN --out {quote(str(path))}"
    content = read_mapping(
        path, f"no rater card {path}; {way_out}", f"{path} is not a rater card; {way_out}"
    )
    try:
        with reading_stored():
            card = Card.model_validate(content)
        card.condition()
    except ValidationError as error:
        kinds = (Card, ModelEntry, DecodingEntry, TaskEntry, SelectedOn, ConfirmedOn)
        raise Problem(explained(error, f"{path} is not a rater card", kinds)) from error
    except Problem as problem:
        raise Problem(f"{path} is not a rater card: {problem}") from problem
    return card


def write_card(card: Card, path: Path) -> None:
    """Write a rater card; a file that is not a card is never overwritten."""
    content = card.model_dump(mode="json")  # an explicit null is an answer: "not sent"
    content["model"] = card.model.model_dump(mode="json", exclude_defaults=True)
    if card.panel is None:
        del content["panel"]
    else:
        members = [one.model_dump(mode="json", exclude_defaults=True) for one in card.panel.of]
        content["panel"] = {"by": card.panel.by, "of": members}
    if card.selected is not None:
        content["selected"] = card.selected.model_dump(mode="json", exclude_none=True)
    del content["confirmed"]
    if card.confirmed is not None:
        content["confirmed"] = card.confirmed.model_dump(mode="json", exclude_none=True)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    refuse_hidden(f"the card {path}", text)
    inside(path)
    status = UNCONFIRMED if card.selected is not None else ""
    if card.confirmed is not None and card.is_confirmed:
        status = CONFIRMED.format(n=card.confirmed.n_items, date=card.confirmed.date)
    try:
        if path.is_file():  # reading a pipe, as /dev/stdout may be, would wait forever
            found = path.read_bytes()
            if found and not found.startswith(HEADER.partition("\n")[0].encode()):
                try:
                    read_card(path)
                except Problem:
                    why = f"{path} already exists and is not a rater card; use another --out"
                    raise Problem(why) from None
        write_output(path, HEADER + status + text)
    except OSError as error:
        raise Problem(f"cannot write {path} ({error.strerror}); use another --out") from error
