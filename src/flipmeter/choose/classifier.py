"""A rater as a scikit-learn estimator: `fit` takes the demonstrations, `predict` asks."""

from __future__ import annotations

import operator
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from flipmeter.ask.family import World
from flipmeter.ask.limits import Budget
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.ask.user_code import addressed
from flipmeter.chance import shuffled
from flipmeter.choose.card import Card, items_as_rows, read_card, write_card
from flipmeter.choose.card_rater import Labelled, at_work, check_abstention, refuse_in_parts
from flipmeter.choose.classes import Classes, as_labels, as_list, read_classes
from flipmeter.choose.select import flip_proof
from flipmeter.consent import trusting
from flipmeter.data.guess import is_number
from flipmeter.data.items import text_fault
from flipmeter.data.labels import make_task, read_span
from flipmeter.errors import BadInput, Problem
from flipmeter.files import named
from flipmeter.loops import wait_for
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.removed import without_defaults
from flipmeter.run.progress import Listener, Terms
from flipmeter.study.entries import (
    BudgetEntry,
    DecodingEntry,
    ModelEntry,
    PlacesEntry,
    PriceEntry,
    TaskEntry,
    explained,
)
from flipmeter.types import Item, Question, Rank, Style, Task, joined

E = TypeVar("E", bound=BaseModel)
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
BEYOND_NAMES = ("nominal", "values", "places")
TWO_AXES = 2


def _has_probabilities(self: OrdinalClassifier) -> bool:
    """Whether replies are asked for with the probabilities of the labels."""
    traits = open_pipeline(self._pipeline).traits
    if self.scores or self.draws or self.flip_proof or traits.needs_scores:
        return True
    raise AttributeError(
        f"the pipeline '{self._pipeline}' gives classes without probabilities; set scores=True to "
        "ask for those of the labels (the model must show them)"
    )


class _Warner(Listener):
    """Warns of what a user should know."""

    def on_note(self, text: str) -> None:
        warnings.warn(text, UserWarning, stacklevel=2)


@dataclass(eq=False, repr=False)
class OrdinalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A language model as an ordinal classifier of texts.

    `scale` lists the classes, lowest first, or maps labels to the names that a prompt shows; whole
    numbers, ordered categoricals of pandas and Enums of polars need none. After `fit`, `scale_` has
    the classes in that order and `classes_` has them sorted, as every metric of scikit-learn
    assumes; columns of `predict_proba` follow `classes_`. With a range of decimal
    scores (`{"from": 0, "to": 10, "within": 0.5}`) predictions are numbers, NaN where there is none
    unless `unanswered` says otherwise, and `shots` are all demonstrations.

    A `panel` of judges, `{"of": [models], "by": "majority"}` or `"mean"`, is asked instead of one
    model, whose address is then only a name.

    `average` names the probes whose positions are all asked and put together: label_order,
    demo_order, placement. `flip_proof` takes the same names and rules their flips out, by the
    cheapest pipeline that does so or by the `pipeline` that is named. A text without an answer, or
    whose positions agree in less than the share `abstain_below`, is predicted as `unanswered`:
    None, which metrics refuse; a class; or a value of its own ("?", -1), which is always wrong.
    Unless it is None, probabilities without an answer are equal for all classes instead of NaN.

    `style`, `decoding`, `task`, `answer` and `budget` are mappings and `criteria` a list as in a
    study file; `task` may also say `nominal`, `values` and `places` as a card does. `draws` replies
    are drawn and counted, `min_interval` seconds lie between two calls. `store` is the file of
    replies, None for memory. `world` is for simulated raters. `trust` runs Python code that the
    model names, `trust_hosts` may be given its key. None turns any option off.
    """

    model: str | Mapping[str, Any] | Callable[[Question], Any] = "local/smollm2-135m"
    _: KW_ONLY
    panel: Mapping[str, Any] | None = None
    scale: Sequence[Any] | Mapping[Any, str] | Any = None
    task: Mapping[str, Any] | None = None
    style: Mapping[str, Any] | None = None
    shots: int | None = 5
    pipeline: str | None = "pointwise"
    average: str | Sequence[str] | None = ()
    flip_proof: str | Sequence[str] | None = ()
    scores: bool = False
    draws: int | None = 0
    answer: Mapping[str, str] | None = None
    criteria: Sequence[str] | None = ()
    decoding: Mapping[str, Any] | None = None
    calibration_size: int | None = 10
    abstain_below: float | None = None
    unanswered: Any = None
    min_interval: float | None = 0.0
    budget: Mapping[str, Any] | None = None
    batch_size: int | None = 1000
    store: str | Path | None = ".flipmeter/replies.sqlite"
    seed: int = 0
    world: World | None = None
    trust: bool = False
    trust_hosts: Sequence[str] | None = ()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.classifier_tags.poor_score = True
        return tags

    # --- fitting ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> OrdinalClassifier:  # noqa: N803 - scikit-learn's names
        """Draw the demonstrations by the seed: `shots` of each class, or as many as it has.

        Calibration items of a pipeline come from the rest.
        """
        if "shots" in (self.style or {}):
            raise BadInput("shots is in style; pass it as its own parameter")
        labels = as_labels(y)
        classes = read_classes(self.scale, y, labels)
        entry = self._task(classes)
        texts = _item_fields(X, entry.places)
        if len(texts) != len(labels):
            raise BadInput(f"{len(texts)} texts but {len(labels)} labels; give one for each")
        items = [
            Item(f"fit-{k}", text, classes.rank(label))
            for k, (text, label) in enumerate(zip(texts, labels.tolist(), strict=True), start=1)
        ]
        demos, rest = _draw_demos(items, self._whole("shots"), self._whole("seed"), classes)
        needs = open_pipeline(self._pipeline).traits
        is_calibrated = needs.calibration in ("apart", "test")
        n_calibration = self._whole("calibration_size") if is_calibrated else 0
        if needs.needs_demos and not demos:
            raise BadInput(f"the pipeline '{self._pipeline}' compares with demonstrations; shots=0")
        if len(rest) < n_calibration:
            raise BadInput(
                f"{len(rest)} of {len(texts)} texts are left after the demonstrations, too few for "
                f"calibration_size={n_calibration}; give more texts, or lower shots or this size"
            )
        self._order_classes(classes)
        card = self._card(entry.task, demos, rest[:n_calibration])
        proof = _probe_names(self.flip_proof)
        return self._begin(flip_proof(card, proof) if proof else card)

    def _order_classes(self, classes: Classes) -> None:
        """Keep the classes: sorted as metrics assume, and in the order of the scale."""
        self._named = classes
        self.scale_ = classes.labels
        self.classes_ = classes.labels[classes.columns]

    def _task(self, classes: Classes) -> TaskEntry:
        """The task: its words, and what a card knows of the classes beyond their names."""
        words = _enabled_options(self.task)
        beyond = {name: words.pop(name) for name in BEYOND_NAMES if name in words}
        if classes.values:
            beyond.setdefault("values", list(classes.values))
        told = TaskEntry.of(make_task(classes.scale, words)).model_dump()
        told |= {"criteria": as_list(self.criteria, "criteria")} | beyond
        return _validate_entry(TaskEntry, told, "task", PlacesEntry)

    def _card(self, task: Task, demos: Sequence[Item], calibration: Sequence[Item]) -> Card:
        shots, panel = self._whole("shots"), dict(self.panel or {})
        members = (
            one if isinstance(one, Mapping) else {"model": one} for one in panel.get("of", ())
        )
        content = {
            "model": addressed(self.model),
            "panel": panel | {"of": [addressed(one) for one in members]} if panel else None,
            "pipeline": self._pipeline,
            "style": _bare_number_style(task.scale.names)
            | _enabled_options(self.style)
            | {"shots": shots},
            "decoding": dict(self.decoding or {}),
            "scores": self.scores or False,
            "score_samples": self._whole("draws"),
            "answer": _enabled_options(self.answer),
            "average": _probe_names(self.average),
            "min_interval": self.min_interval or 0.0,
            "seed": self._whole("seed"),
            "task": TaskEntry.of(task),
            "demos": items_as_rows(demos, task.scale),
            "calibration": items_as_rows(calibration, task.scale),
        }
        return _validate_entry(Card, content, "the parameters", ModelEntry, DecodingEntry)

    @property
    def _pipeline(self) -> str:
        return self.pipeline or "pointwise"

    def _whole(self, name: str) -> int:
        """A parameter that is a whole number, also one of numpy's; None turns it off."""
        value = getattr(self, name)
        if value is None and name != "seed":
            return 0
        try:
            return operator.index(value)
        except TypeError:
            raise BadInput(f"{name} is {value!r}; it must be a whole number") from None

    def _begin(self, card: Card) -> OrdinalClassifier:
        check_abstention(self.abstain_below, card.views(), card.pipeline)
        self.card_ = card
        self.ledger_ = Ledger()
        self._last: dict[str, Any] = {}
        return self

    @classmethod
    def load(
        cls, path: str | Path, *, model: str | None = None, **options: Any
    ) -> OrdinalClassifier:
        """The rater of a card, fitted; `options` are those of an estimator, as `store`.

        Another model than the one it was selected on is warned of: selections do not transfer. To
        `fit` it again takes other demonstrations and keeps all else that the card says. A card has
        classes by name; `scale` may list them as the numbers that they are.
        """
        path = Path(path)
        card = read_card(path, model=model)
        known = options.pop("world", None) or card.world(path.parent)
        return cls.of(card, name=str(path), world=known, **options)

    @classmethod
    def of(cls, card: Card, *, name: str = "the card", **options: Any) -> OrdinalClassifier:
        """The rater of a card that is open already, fitted."""
        known = options.pop("world", None) or card.world()
        with trusting(bool(options.get("trust"))):
            told = card.warning(known)
        if told:
            warnings.warn(told, UserWarning, stacklevel=3)
        average = _probe_names(options.pop("average", card.average))
        scale = options.pop("scale", None) or card.task.span or list(card.task.scale)
        classes = Classes.of(scale)
        if list(classes.names) != card.task.scale or read_span(scale) != card.task.task.scale.span:
            known_scale = card.task.span or card.task.scale
            raise BadInput(f"{name} has the scale {known_scale}, but scale is {scale}")
        told_by_card = _parameters(card)
        told_by_card |= {"average": average, "scale": scale, "world": known}
        for option in options:
            if option in told_by_card:
                raise Problem(f"{name} says what {option} is; change it there, or load without")
        found = cls(**told_by_card, **options)
        found._order_classes(classes)
        return found._begin(card.with_average(average))

    def save(self, path: str | Path) -> None:
        """Write the fitted rater as a card, for `load` and `flipmeter classify`."""
        check_is_fitted(self, "card_")
        write_card(self.card_, Path(path))

    # --- predicting ---------------------------------------------------------------------------

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """The class or score of every text, `unanswered` where there is none."""
        return self._predicted(self.rate(X))

    async def apredict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """`predict` for async code."""
        return self._predicted(await self.arate(X))

    def rate(self, X: Any) -> list[Labelled]:  # noqa: N803
        """Decision, votes, calls and tokens of every text."""
        return wait_for(self.arate(X))

    async def arate(self, X: Any) -> list[Labelled]:  # noqa: N803
        """`rate` for async code."""
        check_is_fitted(self, "card_")
        fields = _item_fields(X, self.card_.task.places)
        items = [Item(f"text-{k}", one) for k, one in enumerate(fields, start=1)]
        return await self._ask(items)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """The probability of every class, in the order of `classes_`.

        A text without an answer has NaN, or equal ones where `unanswered` is not None.
        """
        found = self.rate(X)
        self._keep(found)
        n_classes = len(self._named)
        nothing = (np.nan if self.unanswered is None else 1 / n_classes,) * n_classes
        p = [(one.decision.rank and one.decision.probabilities) or nothing for one in found]
        return np.array(p, dtype=np.float64).reshape(-1, n_classes)[:, self._named.columns]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Accuracy; a text without an answer is wrong, unless `unanswered` is its class."""
        given, gold = self.predict(X), as_labels(y)
        pairs = zip(given.tolist(), gold.tolist(), strict=True)
        right = [self._named.are_same(one, other) for one, other in pairs]
        return float(np.average(right, weights=sample_weight))

    @property
    def agreement_(self) -> Floats:
        """Share of agreeing positions for every text of the last prediction."""
        check_is_fitted(self, "card_")
        return np.array([one.agreement for one in self._last.get("rated", ())], dtype=np.float64)

    @property
    def faults_(self) -> list[str]:
        """Faults of the texts of the last prediction, "" for those with a class."""
        check_is_fitted(self, "card_")
        return [one.decision.fault or "" for one in self._last.get("rated", ())]

    def _keep(self, found: list[Labelled]) -> None:
        """Keep what is known of the last texts, and warn of those that failed."""
        self._last["rated"] = found
        failed = [one for one in found if one.decision.fault == "error"]
        if failed:
            first = f"{failed[0].item.id}: {failed[0].error}"
            told = (
                f"{len(failed)} of {len(found)} texts failed ({first}); predict again to retry them"
            )
            warnings.warn(told, UserWarning, stacklevel=3)

    def _predicted(self, found: list[Labelled]) -> npt.NDArray[Any]:
        self._keep(found)
        least = self.abstain_below  # no agreement is NaN, which is not enough either
        is_sure = [least is None or one.agreement >= least for one in found]
        ranks = [one.decision.rank * sure for one, sure in zip(found, is_sure, strict=True)]
        return self._named.given(ranks, self.unanswered)

    async def _ask(self, items: Sequence[Item]) -> list[Labelled]:
        card, size = self.card_, max(1, self._whole("batch_size") or len(items))
        refuse_in_parts(card.pipeline, None if len(items) > size else len(items))
        found: list[Labelled] = []
        place = ":memory:" if self.store is None else named(Path(self.store))
        with trusting(self.trust, self.trust_hosts or ()), Store(place) as store:
            async with at_work(
                card.conditions(),
                card.views(),
                store,
                Terms(self.ledger_, _classifier_budget(self.budget, card.model), _Warner()),
                jury=card.jury,
                world=self.world,
            ) as label:
                for start in range(0, len(items), size):
                    found += await label(items[start : start + size])
        return found


def _validate_entry(
    kind: type[E], content: Mapping[str, Any], where: str, *others: type[BaseModel]
) -> E:
    """Parameters as an entry, or what is wrong with them."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise BadInput(explained(error, where, (kind, *others))) from error


def _enabled_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of a mapping that are not turned off."""
    return {name: value for name, value in (options or {}).items() if value is not None}


def _probe_names(probes: str | Sequence[str] | None) -> list[str]:
    return [probes] if isinstance(probes, str) else list(probes or ())


def _bare_number_style(names: Sequence[str]) -> dict[str, str]:
    """The style of bare numbers, which are their own labels: "1: 0, 2: 1" would confuse."""
    is_bare = bool(names) and all(map(is_number, names))
    return {"label_format": "natural_language"} if is_bare else {}


def _parameters(card: Card) -> dict[str, Any]:
    """The parameters of an estimator from a card."""
    # A card that does not say so means the default of all cards, not ours for numbers.
    usual = dict.fromkeys(_bare_number_style(card.task.scale), Style.label_format)
    style = usual | without_defaults(card.style)
    sizes = {"calibration_size": len(card.calibration)} if card.calibration else {}
    return {
        "model": card.model.model_dump(exclude_defaults=True),
        "panel": card.panel and card.panel.model_dump(exclude_defaults=True),
        "task": card.task.model_dump(exclude={"scale", "criteria", "span"}),
        "criteria": card.task.criteria,
        "shots": style.pop("shots", Style.shots),
        "style": style,
        "pipeline": card.pipeline,
        "scores": card.scores,
        "draws": card.score_samples,
        "answer": card.answer,
        "decoding": card.decoding.model_dump(),
        "min_interval": card.min_interval,
        "seed": card.seed,
        **sizes,
    }


def _classifier_budget(budget: Mapping[str, Any] | None, model: ModelEntry) -> Budget | None:
    if budget is None:
        return None
    entry = _validate_entry(BudgetEntry, dict(budget), "budget", PriceEntry)
    price = entry.price or model.price
    return Budget(entry.calls, entry.tokens, entry.usd, price.price if price else None)


# --- texts ---------------------------------------------------------------------------


def _draw_demos(
    items: Sequence[Item], shots: int, seed: int, classes: Classes
) -> tuple[list[Item], list[Item]]:
    """Draw the demonstrations, in an order blind to their class, and return them and the rest.

    The draw depends on the seed and the texts alone; of equal texts the first counts.
    """
    if shots < 0:
        raise BadInput(f"shots is {shots}; show 0 or more demonstrations of each class")
    distinct = list({item.text: item for item in reversed(items)}.values())
    n_seen: Counter[Rank | None] = Counter()
    demos: list[Item] = []
    rest: list[Item] = []
    for item in shuffled(distinct, "demos", seed, name=lambda one: one.text):
        own = classes.stratum(item)
        n_seen[own] += 1
        (demos if n_seen[own] <= shots else rest).append(item)
    return list(shuffled(demos, "base order", seed, name=lambda one: one.text)), rest


def _item_fields(X: Any, places: PlacesEntry | None) -> list[dict[str, str]]:  # noqa: N803
    """The fields of every item: a text, or a mapping where a rater compares fields."""
    if places is None:
        return [{"text": text} for text in _check_item_texts(X)]
    if not all(isinstance(one, Mapping) for one in X):
        raise BadInput(
            f"the rater compares {', '.join(places.fields)}; give a list of mappings, each with "
            "these fields and those of the prompt (of a data frame: its to_dicts() or "
            "to_dict('records'))"
        )
    found = []
    for number, one in enumerate(X):
        told = {str(name): str(value).strip() for name, value in one.items()}
        for name in places.fields[:2]:
            if not told.get(name):
                raise BadInput(
                    f"item {number} has no '{name}'; the rater compares {', '.join(places.fields)}"
                )
        found.append(told if "text" in told else told | {"text": joined(told)})
    return found


def _check_item_texts(X: Any) -> list[str]:  # noqa: N803
    """One text per item; a column of them is one too."""
    array = np.asarray(X, dtype=object)
    if array.ndim == TWO_AXES and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise BadInput(f"give a list of texts, one for each item; got shape {array.shape}")
    for place, text in enumerate(array.tolist()):
        if fault := text_fault("text", text):
            raise BadInput(f"text {place}: {fault[1]}")
    return [text.strip() for text in array.tolist()]
