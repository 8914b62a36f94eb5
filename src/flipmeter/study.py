"""Study file -> Condition: one YAML file is one experiment, and this is its grammar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, PositiveInt, ValidationError, field_validator

from flipmeter.configs import configs
from flipmeter.data import Balance, Groups, load
from flipmeter.decide import in_mode, open_pipeline
from flipmeter.design import cell_name, factorial, fractional, levels_of
from flipmeter.entries import (
    STRICT,
    ActorsEntry,
    BudgetEntry,
    DecodingEntry,
    ModelEntry,
    PriceEntry,
)
from flipmeter.model import (
    Budget,
    Price,
    interface_of,
    is_in_process,
)
from flipmeter.probe import contrasts_of, expand, probes
from flipmeter.prompt import factors, label_formats
from flipmeter.registry import suggestion
from flipmeter.types import (
    Contrast,
    Dataset,
    Decoding,
    Layout,
    Mode,
    Model,
    Problem,
    Rater,
    Style,
)

BUNDLED = (
    Path(__file__).parent / "studies",  # in a wheel
    Path(__file__).parents[2] / "studies",  # in a checkout
)


@dataclass(frozen=True)
class Level:
    """How a rater is set up: the style of its prompts and the pipeline behind them."""

    style: Style
    pipeline: str


class Study(BaseModel):
    """What is asked of whom: models x datasets x seeds x styles x views."""

    model_config = STRICT

    name: str = "study"
    mode: Mode = "recommended"
    models: list[str | ModelEntry] = Field(min_length=1)
    datasets: list[str | dict[str, Any]] = Field(min_length=1)
    seeds: list[int] = Field([0], min_length=1)
    test_size: int = Field(200, ge=1)
    balance: Balance = "equal"
    probes: list[str] = ["label_order", "demo_order", "placement"]
    probe_items: dict[str, PositiveInt] = {}
    aggregate_includes_base: bool = True
    repeats: int = Field(2, ge=1, le=2)
    repeat_views: list[str] = ["base", "reversed"]
    base: dict[str, Any] = {}
    vary: dict[str, list[Any]] = {}
    configs: dict[str, dict[str, Any]] = {}
    only_on: dict[str, list[str]] = {}
    vary_models: list[str] = []
    merge: dict[int, dict[str, list[int | str]] | list[list[int | str]]] = {}
    cardinality_sample: Literal["redraw", "remap"] | None = None
    design: Literal["one-at-a-time", "fractional", "factorial"] = "one-at-a-time"
    cells: int | None = Field(None, ge=2)
    pipeline: str = "pointwise"
    scores: bool = False
    calibration_size: int = Field(10, ge=1)
    decoding: DecodingEntry = DecodingEntry()
    min_interval: float = Field(0.0, ge=0)
    budget: BudgetEntry | None = None
    until: str | None = None
    block_size: int = Field(50, ge=1)
    margin: float = Field(0.10, gt=0, lt=1)
    folder: Path = Field(Path(), exclude=True)
    data_dir: Path | None = Field(None, exclude=True)

    @field_validator("models", "datasets", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | Mapping) else value

    @field_validator("probes")
    @classmethod
    def _known_probes(cls, names: list[str]) -> list[str]:
        for name in names:
            probes[name]
        return names

    @field_validator("probe_items")
    @classmethod
    def _known_limited(cls, limits: dict[str, int]) -> dict[str, int]:
        cls._known_probes(list(limits))
        return limits

    @field_validator("repeat_views")
    @classmethod
    def _known_views(cls, names: list[str]) -> list[str]:
        known = [view.name for view in expand(list(probes), 2)] + ["all"]
        for name in names:
            if name not in known:
                raise Problem(f"no view named '{name}'{suggestion(name, known)}")
        return names

    @field_validator("pipeline")
    @classmethod
    def _known_pipeline(cls, name: str) -> str:
        open_pipeline(name)
        return name

    @field_validator("base")
    @classmethod
    def _known_levels(cls, base: dict[str, Any]) -> dict[str, Any]:
        for name, value in base.items():
            check_level(name, value)
        return base

    @field_validator("vary")
    @classmethod
    def _known_variations(cls, vary: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for name, values in vary.items():
            for value in values:
                check_level(name, value)
        return vary

    @field_validator("configs", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        """Look up configurations that are only named."""
        if isinstance(value, Sequence) and not isinstance(value, str):
            return {name: dict(configs[name]) for name in value}
        if isinstance(value, Mapping):
            return {
                name: dict(configs[name]) if changes is None else changes
                for name, changes in value.items()
            }
        return value

    @field_validator("configs")
    @classmethod
    def _known_configs(cls, named: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, changes in named.items():
            if any(mark in name for mark in "=,"):
                raise Problem(f"the config '{name}' has a '=' or ',' in its name; choose another")
            cls._known_levels(changes)
        return named

    @field_validator("only_on")
    @classmethod
    def _known_factors(cls, only_on: dict[str, list[str]]) -> dict[str, list[str]]:
        known = [*_factors(), CONFIG]
        for name in only_on:
            factor = name.partition("=")[0]
            if factor not in known:
                raise Problem(f"only_on: no factor named '{factor}'{suggestion(factor, known)}")
        return only_on

    @property
    def style(self) -> Style:
        """Return the base style: the paper's baseline but for what the study names."""
        layout: Layout = "paper" if self.mode == "paper" else "cued"
        return replace(Style(layout=layout), **self.base)

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        return contrasts_of(self.probes, includes_base=self.aggregate_includes_base)

    @property
    def is_remapped(self) -> bool:
        """Say whether fewer classes are new labels on the same items, as in the paper."""
        if self.cardinality_sample is None:
            return self.mode == "paper"
        return self.cardinality_sample == "remap"

    def groups(self, style: Style) -> Groups | None:
        """Return the classes that the study itself merges for a style, None for the built-in."""
        return self.merge.get(style.cardinality or 0)

    @property
    def allowance(self) -> Budget | None:
        """Return the budget of a run, None for no limit."""
        if self.budget is None:
            return None
        limits = self.budget.calls, self.budget.tokens, self.budget.usd
        price = self.budget.price.price if self.budget.price else None
        if price is None and self.budget.usd is not None:
            price = self._dearest(self.budget.usd)
        return Budget(*limits, price)

    @property
    def entries(self) -> list[ModelEntry]:
        return [ModelEntry(model=m) if isinstance(m, str) else m for m in self.models]

    @property
    def prices(self) -> dict[str, Price]:
        """Return what the study says that its models cost, by title."""
        return {e.name or e.model: e.price.price for e in self.entries if e.price}

    def _dearest(self, usd: float) -> Price:
        """Return the most that a token of any model costs; those in this process cost nothing."""
        prices = [entry.price for entry in self.entries if entry.price]
        for entry in self.entries:
            if entry.price is None and not is_in_process(entry.model_for(self.min_interval)):
                raise Problem(
                    f"a budget of ${usd:g} needs the price of '{entry.name or entry.model}'; add "
                    "`price: {prompt: …, completion: …}` to the model or to the budget: "
                    "dollars per million tokens"
                )
        return Price(
            max((price.prompt for price in prices), default=0.0),
            max((price.completion for price in prices), default=0.0),
        )

    @property
    def block(self) -> int | None:
        """Return how many items are finished at a time, None for a run that cannot stop early."""
        return self.block_size if self.budget or self.until else None

    def levels(self) -> dict[str, Level]:
        """Return every level by its name; the base has the empty name."""
        named = {"": self.base_level}
        at_base = vars(self.style) | {_PIPELINE: self.pipeline}
        named |= {cell_name(at_base, cell): self._level(cell) for cell in self._cells(at_base)}
        for name, changes in self.configs.items():
            named[f"{CONFIG}={name}"] = self._level(changes)
        return {
            name: level
            for name, level in named.items()
            if level != self.base_level or not name or name.startswith(CONFIG)
        }

    def _cells(self, at_base: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Return what is varied together, each cell as its factors' values."""
        if self.design == "one-at-a-time":
            return [{factor: value} for factor, values in self.vary.items() for value in values]
        vary = tuple((factor, tuple(values)) for factor, values in self.vary.items())
        return _crossed(self.design, tuple(at_base.items()), vary, self.cells, self.seeds[0])

    @property
    def base_level(self) -> Level:
        return Level(self.style, in_mode(self.pipeline, self.mode))

    def _level(self, changes: Mapping[str, Any]) -> Level:
        style = {name: value for name, value in changes.items() if name != _PIPELINE}
        pipeline = changes.get(_PIPELINE, self.pipeline)
        return Level(replace(self.style, **style), in_mode(pipeline, self.mode))

    def levels_on(self, dataset: str) -> dict[str, Level]:
        """Return the levels that a dataset is rated at; `only_on` may keep some from it.

        Its keys are factors, or patterns of levels as in `pipeline=pairwise*`.
        """
        return {
            name: level
            for name, level in self.levels().items()
            if all(
                dataset in datasets
                for key, datasets in self.only_on.items()
                if any(_is_meant(key, part) for part in name.split(","))
            )
        }

    @property
    def is_scored(self) -> bool:
        """Say whether every reply is asked for with the log-probabilities of the labels."""
        pipelines = (open_pipeline(level.pipeline) for level in self.levels().values())
        return self.scores or any(pipeline.traits.needs_scores for pipeline in pipelines)

    def raters(self, level: Level | None = None) -> list[Rater]:
        """Return the raters at a level, at the base unless told."""
        level = level or self.base_level
        models = [entry.model_for(self.min_interval) for entry in self.entries]
        titles = [model.title for model in models]
        for title in titles:
            if titles.count(title) > 1:
                raise Problem(f"two models are called '{title}'; give each a `name` of its own")
        is_scored = self.is_scored
        return [
            Rater(model, level.style, level.pipeline, self._decoding(model), is_scored)
            for model in models
        ]

    def _decoding(self, model: Model) -> Decoding:
        """Return the decoding; raw text stops at the end of the line unless the paper is followed.

        A raw-text model goes on after its label with one more example.
        """
        entry = self.decoding.model_dump()
        stop = entry.pop("stop")
        if stop is None:
            is_raw = interface_of(model) == "completions"
            stop = ("\n",) if is_raw and self.mode == "recommended" else ()
        return Decoding(**entry, stop=tuple(stop))

    def limited(self, n_items: int) -> Study:
        """Return the study on at most this many test items."""
        return self.model_copy(update={"test_size": min(self.test_size, n_items)})

    def load(self) -> list[Dataset]:
        """Read the datasets."""
        return [load(spec, data_dir=self.data_dir, folder=self.folder) for spec in self.datasets]


CONFIG = "config"
"""What the name of a level begins with that changes several factors at once."""

_PIPELINE = "pipeline"


@lru_cache(maxsize=16)
def _crossed(
    design: str,
    base: tuple[tuple[str, Any], ...],
    vary: tuple[tuple[str, tuple[Any, ...]], ...],
    n_cells: int | None,
    seed: int,
) -> Sequence[Mapping[str, Any]]:
    """Return the cells of a design that varies factors together; finding them can take seconds."""
    at_base = dict(base)

    def has_meaning(cell: Mapping[str, Any]) -> bool:
        """Say whether a prompt tells what its labels mean."""
        at = {**at_base, **cell}
        is_silent = at["clarity"] == "minimal" and not at["shots"]
        return not is_silent or label_formats[at["label_format"]].is_words

    levels = levels_of(at_base, dict(vary))
    if design == "factorial":
        return factorial(levels, allowed=has_meaning)
    return fractional(levels, n_cells, seed=seed, allowed=has_meaning)


def _is_meant(key: str, level: str) -> bool:
    """Say whether a factor, or a pattern of levels, is meant by a key of `only_on`."""
    return fnmatchcase(level, key if "=" in key else f"{key}=*")


def _factors() -> list[str]:
    return [*(field.name for field in fields(Style)), _PIPELINE]


def check_level(factor: str, value: Any) -> None:
    """Refuse a factor or level that there is not."""
    known = _factors()
    if factor not in known:
        raise Problem(f"no factor named '{factor}'{suggestion(factor, known)}")
    if factor == _PIPELINE:
        open_pipeline(str(value))
    elif factor in factors:
        factors[factor][str(value)]
    elif factor == "shots" and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise Problem(f"shots is {value!r}; it is a number of demonstrations per class, 0 or more")
    elif factor == "cardinality" and value is not None and not isinstance(value, int):
        raise Problem(f"cardinality is {value!r}; it is a whole number of classes, 2 or more")
    elif factor == "layout" and value not in ("cued", "paper"):
        raise Problem(f"no layout named '{value}'; there are: cued, paper")
    elif factor == "word_reversal" and value not in ("header", "flipped"):
        raise Problem(f"no word_reversal named '{value}'; there are: header, flipped")


def find_study(name: str) -> Path:
    """Return the file of a study: a path, or the name of one that comes with the package."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    known = {file.stem: file for folder in BUNDLED for file in sorted(folder.glob("*.yaml"))}
    if name not in known:
        raise Problem(f"no study file or bundled study '{name}'{suggestion(name, list(known))}")
    return known[name]


def read_study(
    source: Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    data_dir: Path | None = None,
) -> Study:
    """Read a study file (or its content) with some keys changed: `base.shots` reaches inside."""
    folder = source.parent if isinstance(source, Path) else Path()
    content = _content(source) if isinstance(source, Path) else dict(source)
    for key, value in (changes or {}).items():
        content = _changed(content, key.split("."), value)
    for key in content:
        if key in ("folder", "data_dir") or not isinstance(key, str):
            raise Problem(
                f"no key named '{key}' in a study; the data folder is named by --data-dir"
            )
    try:
        return Study(**content, folder=folder, data_dir=data_dir)
    except ValidationError as error:
        raise Problem(
            _explained(error, str(source) if folder != Path() else "the study")
        ) from error


def _content(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise Problem(f"no study file {path}; write one, or try: flipmeter demo")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Problem(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise Problem(f"{path} holds no study; it needs at least `models:` and `datasets:`")
    return content


def _changed(content: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    inner = content.get(first) or {}
    if rest and not isinstance(inner, Mapping):
        raise Problem(f"cannot set '{'.'.join(path)}': '{first}' is {inner!r}, not a mapping")
    return {**content, first: _changed(inner, rest, value) if rest else value}


def _explained(error: ValidationError, source: str) -> str:
    lines = []
    for one in error.errors():
        if one["loc"][-1:] == ("str",) and isinstance(one["input"], Mapping):
            continue  # a model may be a name too: what is wrong inside the mapping says more
        place = ".".join(str(part) for part in one["loc"] if part != ModelEntry.__name__)
        if one["type"] == "extra_forbidden":
            kinds = (Study, ModelEntry, ActorsEntry, DecodingEntry, PriceEntry)
            known = [name for kind in kinds for name in kind.model_fields]
            near = suggestion(str(one["loc"][-1]), known) if len(one["loc"]) else ""
            hint = near if "did you mean" in near else ""
            lines.append(f"no key named '{place}'{hint}")
        else:
            lines.append(f"{place}: {one['msg']}; got {one.get('input')!r:.80}")
    return f"{source}: " + "\n".join(dict.fromkeys(lines))
