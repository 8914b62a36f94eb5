"""Study file -> Condition: one YAML file is one experiment, and this is its grammar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from flipmeter.ask.limits import Budget, Price
from flipmeter.ask.names import is_in_process
from flipmeter.ask.user_code import addressed, beside
from flipmeter.checks import file_name
from flipmeter.data.files import with_demos
from flipmeter.data.load import load
from flipmeter.data.sampling import Balance, Groups
from flipmeter.data.tables import declared_order
from flipmeter.design import cell_name, factorial, levels_of
from flipmeter.documents import check_values, read_limited
from flipmeter.errors import Problem
from flipmeter.pipelines.pipeline import in_mode, open_pipeline
from flipmeter.prompt.levels import factors, label_formats
from flipmeter.prompt.parsing import check as check_extract
from flipmeter.prompt.probes import contrasts_of, expand, probes
from flipmeter.prompt.template import Template, read_template
from flipmeter.redaction import hidden
from flipmeter.registry import suggestion
from flipmeter.removed import (
    SCORED,
    as_written,
    is_removed,
    is_stored,
    plain_name,
    reading_stored,
    refusal,
    without_removed,
)
from flipmeter.study.entries import (
    STRICT,
    ActorsEntry,
    BudgetEntry,
    DecodingEntry,
    DemosEntry,
    ModelEntry,
    PanelEntry,
    PriceEntry,
    configs,
    explained,
    make_rater,
    read_mapping,
)
from flipmeter.types import Contrast, Dataset, Extract, Jury, Layout, Mode, Rater, Style

N = TypeVar("N", list[str], dict[str, int])
BUNDLED = (
    Path(__file__).parents[1] / "studies",  # in a wheel
    Path(__file__).parents[3] / "studies",  # in a checkout
)


CONFIG = "config"
"""Prefix of levels that change several factors at once."""

BUILT_IN = "built-in"
"""The level of the factor `prompt` that is not a file."""

OWN_LABELS = "values"
"""The label format of a prompt file, unless the study names another."""

_PIPELINE, _PROMPT = "pipeline", "prompt"
FACTORS = [*(field.name for field in fields(Style)), _PIPELINE]
_WORDING = ("clarity", "mood", "separator", "connector", "layout")


def check_level(factor: str, value: Any) -> None:
    """Refuse an unknown factor or level."""
    if factor not in FACTORS:
        unknown = f"no factor named '{factor}'{suggestion(factor, FACTORS)}"
        raise Problem(refusal("factor", factor) or unknown)
    if factor == _PIPELINE:
        if not (is_stored() and is_removed("pipeline", str(value))):
            open_pipeline(str(value))
    elif factor in factors:
        factors[factor][str(value)]
    elif factor == _PROMPT and not (isinstance(value, str) and value):
        raise Problem(f"prompt is {value!r}; use a prompt file, or {BUILT_IN}")
    elif factor == "shots" and not (type(value) is int and value >= 0):
        raise Problem(
            f"shots is {value!r}; it must be a number of demonstrations per class, 0 or more"
        )
    elif factor == "cardinality" and not (value is None or (type(value) is int and value >= 2)):
        raise Problem(f"cardinality is {value!r}; it must be a whole number of classes, 2 or more")
    elif factor == "layout" and value not in ("cued", "paper"):
        raise Problem(f"no layout named '{value}'; known: cued, paper")
    elif factor == "word_reversal" and value not in ("header", "flipped"):
        raise Problem(f"no word_reversal named '{value}'; known: header, flipped")


def check_levels(levels: dict[str, Any]) -> dict[str, Any]:
    for factor, value in levels.items():
        check_level(factor, value)
    return levels


def _check_variations(vary: dict[str, list[Any]]) -> dict[str, list[Any]]:
    for factor, values in vary.items():
        for value in values:
            check_level(factor, value)
    return vary


def _check_base(base: dict[str, Any]) -> dict[str, Any]:
    if _PIPELINE in base:
        raise Problem("base: a pipeline is not part of the prompt; write `pipeline:` beside it")
    return check_levels(base)


def check_probes(names: N) -> N:
    for name in names:
        if not (is_stored() and is_removed("probe", name)):
            probes[name]
    return names


def check_pipeline(name: str) -> str:
    check_level(_PIPELINE, name)
    return name


def check_answer(answer: dict[str, str]) -> dict[str, str]:
    if answer:
        check_extract(Extract(**answer))
    return answer


def _check_config(name: str) -> str:
    if any(mark in name for mark in "=,"):
        raise Problem(f"the config '{name}' has a '=' or ',' in its name; choose another")
    return name


def refuse_scored(answer: Mapping[Any, str], *, is_scored: bool) -> None:
    """Refuse probabilities of labels in a reply that does not begin with its label."""
    if answer and is_scored:
        raise Problem(
            "answer: a structured reply does not begin with its label, so labels have no "
            "probabilities; remove `scores` and pipelines that need them, or `answer`"
        )


Probes = Annotated[list[str], AfterValidator(check_probes)]
Pipeline = Annotated[str, AfterValidator(check_pipeline)]
Answer = Annotated[dict[Literal["json", "regex"], str], AfterValidator(check_answer)]
Levels = Annotated[dict[str, Any], AfterValidator(check_levels)]


@dataclass(frozen=True)
class Level:
    """Setup of a rater: the style of its prompts and its pipeline."""

    style: Style
    pipeline: str


class Study(BaseModel):
    """An experiment: models x datasets x seeds x styles x views."""

    model_config = STRICT

    name: Annotated[str, AfterValidator(file_name)] = "study"
    mode: Mode = "recommended"
    models: list[str | ModelEntry] = Field(min_length=1)
    panels: dict[str, PanelEntry] = {}
    datasets: list[str | dict[str, Any]] = Field(min_length=1)
    demos: DemosEntry | None = None
    seeds: list[NonNegativeInt] = Field([0], min_length=1)
    test_size: int = Field(200, ge=1)
    balance: Balance = "equal"
    probes: Probes = ["label_order", "demo_order", "placement"]
    probe_items: Annotated[dict[str, PositiveInt], AfterValidator(check_probes)] = {}
    aggregate_includes_base: bool = True
    repeats: int = Field(2, ge=1, le=2)
    repeat_views: list[str] = ["all"]
    prompts: dict[str, str] = {}
    criteria: list[str] = []
    base: Annotated[dict[str, Any], AfterValidator(_check_base)] = {}
    vary: Annotated[dict[str, list[Any]], AfterValidator(_check_variations)] = {}
    configs: dict[Annotated[str, AfterValidator(_check_config)], Levels] = {}
    only_on: dict[str, list[str]] = {}
    vary_models: list[str] = []
    merge: dict[int, dict[str, list[int | str]] | list[list[int | str]]] = {}
    cardinality_sample: Literal["redraw", "remap"] | None = None
    design: Literal["one-at-a-time", "factorial"] = "one-at-a-time"
    pipeline: Pipeline = "pointwise"
    scores: bool | Literal["sampled"] = False
    score_samples: int = Field(20, ge=2, lt=1000)
    answer: Answer = {}
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

    @model_validator(mode="after")
    def _known_members(self) -> Study:
        titles = [entry.name or entry.model for entry in self.entries]
        for name, panel in self.panels.items():
            if name in titles:
                raise Problem(
                    f"panels: a model is called '{name}' too; give the panel another name"
                )
            for member in panel.of:
                if member not in titles:
                    near = suggestion(member, titles)
                    raise Problem(f"panels: '{name}' has no model '{member}' to ask{near}")
        return self

    @property
    def juries(self) -> list[Jury]:
        """The panels of judges."""
        return [
            Jury(name, tuple(one.of), one.by, one.show_members) for name, one in self.panels.items()
        ]

    @field_validator("repeat_views")
    @classmethod
    def _known_views(cls, names: list[str]) -> list[str]:
        known = [view.name for view in expand(list(probes), 2)] + ["all"]
        for name in names:
            if name not in known and not is_stored():
                raise Problem(f"no view named '{name}'{suggestion(name, known)}")
        return names

    @field_validator("configs", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        """Look up configurations that are given by name."""
        if isinstance(value, Sequence) and not isinstance(value, str):
            value = dict.fromkeys(value)
        if isinstance(value, Mapping):
            return {
                name: dict(configs[name]) if changes is None else changes
                for name, changes in value.items()
            }
        return value

    @field_validator("only_on")
    @classmethod
    def _known_factors(cls, only_on: dict[str, list[str]]) -> dict[str, list[str]]:
        known = [*FACTORS, CONFIG]
        for name in only_on:
            factor = name.partition("=")[0]
            if factor not in known:
                unknown = f"only_on: no factor named '{factor}'{suggestion(factor, known)}"
                raise Problem(refusal("factor", factor) or unknown)
        return only_on

    @property
    def extract(self) -> Extract | None:
        """The place of the label in replies, None for anywhere."""
        return Extract(**self.answer) if self.answer else None

    @model_validator(mode="after")
    def _readable(self) -> Study:
        refuse_scored(self.answer, is_scored=bool(self.answer) and self.is_scored)
        for name in _named_prompts(self.base, self.vary, self.configs):
            self.template(name)
        worded = [factor for factor in _WORDING if factor in self.vary]
        if worded and self.base.get(_PROMPT, BUILT_IN) != BUILT_IN:
            raise Problem(
                f"vary: '{worded[0]}' is wording of the built-in prompt, but {self.base[_PROMPT]} "
                "has its own; vary `prompt` instead, with one file for each wording"
            )
        return self

    @property
    def style(self) -> Style:
        """The base style: the paper's baseline but for what the study names."""
        return self._styled(self.base)

    def _styled(self, named: Mapping[str, Any]) -> Style:
        """The style with these levels; a prompt that shows no demonstrations needs none."""
        layout: Layout = "paper" if self.mode == "paper" else "cued"
        style = replace(Style(layout=layout), **named)
        if style.prompt in ("", BUILT_IN):
            return replace(style, prompt="")
        template = self.template(style.prompt)
        shots = style.shots if template.has_demos else 0
        labels = named.get("label_format", OWN_LABELS)
        return replace(style, prompt=template.source, shots=shots, label_format=labels)

    def template(self, name: str) -> Template:
        """A prompt file of the study by its name."""
        if name not in self.prompts:
            raise Problem(f"no prompt file '{name}' in the study's folder; check the path")
        if not self.prompts[name].strip():
            raise Problem(f"the prompt file {name} is empty; write one, or use {BUILT_IN}")
        return read_template(self.prompts[name], name)

    def template_of(self, style: Style) -> Template | None:
        """The prompt file of a style, None for the built-in wording."""
        named = (name for name, text in self.prompts.items() if text == style.prompt)
        return self.template(next(named)) if style.prompt else None

    @property
    def at_base(self) -> dict[str, Any]:
        """The level of every factor at the base, a prompt file by its name."""
        prompt = self.base.get(_PROMPT, BUILT_IN)
        return vars(self.style) | {_PROMPT: prompt, _PIPELINE: self.pipeline}

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        return contrasts_of(self.probes, includes_base=self.aggregate_includes_base)

    @property
    def names_its_probes(self) -> bool:
        """Whether a study has other probes than those of every study and of its datasets."""
        usual = type(self).model_fields["probes"].default
        return self.probes != [*_moving_probes(self.datasets), *usual]

    @property
    def is_remapped(self) -> bool:
        """Whether fewer classes are new labels on the same items, as in the paper."""
        if self.cardinality_sample is None:
            return self.mode == "paper"
        return self.cardinality_sample == "remap"

    def groups(self, style: Style) -> Groups | None:
        """The classes that the study itself merges for a style, None for the built-in."""
        return self.merge.get(style.cardinality or 0)

    @property
    def allowance(self) -> Budget | None:
        """The budget of a run, None for no limit."""
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
        """The prices of models that the study states, by title."""
        return {e.name or e.model: e.price.price for e in self.entries if e.price}

    def _dearest(self, usd: float) -> Price:
        """The highest price of a token; models in this process cost nothing."""
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
        """Items per block, None for a run without early stopping."""
        return self.block_size if self.budget or self.until else None

    def levels(self) -> dict[str, Level]:
        """Every level by its name; the base has the empty name."""
        named = {name: self._level(changes) for name, changes in self.changes().items()}
        return {
            name: level
            for name, level in named.items()
            if level != self.base_level or not name or name.startswith(CONFIG)
        }

    def changes(self) -> dict[str, Mapping[str, Any]]:
        """The changes of every level from the base, by the study's factors.

        A prompt file brings its own labels and shots: its style differs in more than it names.
        """
        at_base, cells = self.at_base, [{k: one} for k, some in self.vary.items() for one in some]
        if self.design == "factorial":
            vary = tuple((factor, tuple(values)) for factor, values in self.vary.items())
            cells = [dict(cell) for cell in _cross_factors(tuple(at_base.items()), vary)]
        named: dict[str, Mapping[str, Any]] = {"": {}}
        named |= {cell_name(at_base, cell): cell for cell in cells}
        return named | {f"{CONFIG}={name}": changes for name, changes in self.configs.items()}

    @property
    def base_level(self) -> Level:
        return Level(self.style, in_mode(self.pipeline, self.mode))

    def _level(self, changes: Mapping[str, Any]) -> Level:
        style = {name: value for name, value in changes.items() if name != _PIPELINE}
        pipeline = changes.get(_PIPELINE, self.pipeline)
        return Level(self._styled(self.base | style), in_mode(pipeline, self.mode))

    def levels_on(self, dataset: str) -> dict[str, Level]:
        """The levels that a dataset is rated at; `only_on` may keep some from it.

        Its keys are factors, or patterns of levels as in `pipeline=pairwise*`.
        """
        return {
            name: level
            for name, level in self.levels().items()
            if all(
                dataset in datasets
                for key, datasets in self.only_on.items()
                if any(
                    fnmatchcase(one, key if "=" in key else f"{key}=*") for one in name.split(",")
                )
            )
        }

    @property
    def is_scored(self) -> bool:
        """Whether log-probabilities of the labels are requested with every reply."""
        if self.n_draws:
            return False
        return self.scores is True or any(
            plain_name(level.pipeline) in SCORED
            or (
                not is_removed(_PIPELINE, level.pipeline)
                and open_pipeline(level.pipeline).traits.needs_scores
            )
            for level in self.levels().values()
        )

    @property
    def n_draws(self) -> int:
        """Number of sampled replies for label probabilities."""
        return self.score_samples if self.scores == "sampled" else 0

    def raters(self, level: Level | None = None) -> list[Rater]:
        """The raters at a level, by default at the base."""
        level = level or self.base_level
        models = [entry.model_for(self.min_interval) for entry in self.entries]
        titles = [model.title for model in models]
        for title in titles:
            if titles.count(title) > 1:
                raise Problem(f"two models are called '{title}'; give each a `name` of its own")
        return [
            make_rater(
                *(model, level.style, level.pipeline, self.decoding),
                has_scores=self.is_scored,
                n_draws=self.n_draws,
                extract=self.extract,
                mode=self.mode,
            )
            for model in models
        ]

    def greedy_raters(self) -> list[str]:
        """The names of raters at the base that are asked for their likeliest reply."""
        return [rater.name for rater in self.raters() if rater.decoding.is_greedy]

    def limited(self, n_items: int) -> Self:
        """The study on at most this many test items."""
        limited = self.model_copy(update={"test_size": min(self.test_size, n_items)})
        if "test_size" not in self.model_fields_set:
            limited.model_fields_set.discard("test_size")  # fewer will do
        return limited

    def load(self) -> list[Dataset]:
        """Load the datasets, with the study's settings for their tasks."""
        criteria = tuple(" ".join(criterion.split()) for criterion in self.criteria)
        found = (load(spec, data_dir=self.data_dir, folder=self.folder) for spec in self.datasets)
        if self.demos is not None:
            options = self.demos.model_dump(exclude={"file"})
            found = (with_demos(one, self.folder / self.demos.file, **options) for one in found)
        return [replace(one, task=replace(one.task, criteria=criteria)) for one in found]


@lru_cache(maxsize=16)
def _cross_factors(
    base: tuple[tuple[str, Any], ...], vary: tuple[tuple[str, tuple[Any, ...]], ...]
) -> Sequence[Mapping[str, Any]]:
    """The cells of a design that varies factors together; finding them can take seconds."""
    at_base = dict(base)

    def allowed(cell: Mapping[str, Any]) -> bool:
        """Whether a prompt with these levels tells what its labels mean."""
        levels = {**at_base, **cell}
        is_silent = levels["clarity"] == "minimal" and not levels["shots"]
        return not is_silent or label_formats[levels["label_format"]].is_words

    return factorial(levels_of(at_base, dict(vary)), allowed=allowed)


def find_study(name: str) -> Path:
    """The file of a study: a path, or the name of a bundled study."""
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
    keys = study_keys(source, changes, data_dir)
    with explaining(str(source) if isinstance(source, Path) else "the study"):
        return Study(**keys)


def study_keys(
    source: Path | Mapping[str, Any], changes: Mapping[str, Any] | None, data_dir: Path | None
) -> dict[str, Any]:
    """The keys that a study file, or its content, gives a study."""
    folder = source.parent if isinstance(source, Path) else Path()
    written = content = _read_study_file(source) if isinstance(source, Path) else dict(source)
    for key, value in (changes or {}).items():
        content = _set_value(content, key.split("."), value)
    content = _follow_renames(written, content)
    _check_keys(content, "the study" if folder == Path() else str(source))
    return spelled_out({**content, "folder": folder, "data_dir": data_dir})


def read_held(path: Path) -> Study:
    """Read the study of a run, which holds the text of its prompt files: no other file is read."""
    content = held_content(path)
    with explaining(str(path)), reading_stored():
        return Study(**without_removed(content), folder=path.parent)


def held_content(path: Path) -> dict[str, Any]:
    """The keys of the study of a run, to be asked again."""
    content = _read_study_file(path)
    _check_keys(content, str(path))
    return as_written(content)


def _check_keys(content: Mapping[Any, Any], where: str) -> None:
    check_values(content, where)
    for key in content:
        if key in ("folder", "data_dir") or not isinstance(key, str):
            raise Problem(
                f"no key named '{key}' in a study; the data folder is named by --data-dir"
            )


@contextmanager
def explaining(where: str) -> Iterator[None]:
    """Say what is wrong with the keys of a study, and which was meant."""
    try:
        yield
    except ValidationError as error:
        kinds = (Study, ModelEntry, PanelEntry, ActorsEntry, DecodingEntry, DemosEntry, PriceEntry)
        raise Problem(explained(error, where, kinds)) from error


def spelled_out(content: Mapping[str, Any]) -> dict[str, Any]:
    """Expand the short forms of a study: `prompt` is a level, `rater` a model."""
    spelled, folder = dict(content), Path(content.get("folder") or "")
    models = spelled.get("models") or []
    listed = models if isinstance(models, list) else [models]
    if isinstance(rater := spelled.get("rater"), str) or callable(rater):
        del spelled["rater"]
        if isinstance(rater, str):  # `module.function`, `module:function` or `file.py:function`
            module, _, function = rater.rpartition(":" if ":" in rater else ".")
            rater = f"python/{module}:{function}"
        listed = [rater, *listed]
    if listed:
        spelled["models"] = [_find_callable_file(model, folder) for model in listed]
    if isinstance(spelled.get("datasets"), list):
        told = ((one, isinstance(one, Mapping) and one.get("scale")) for one in spelled["datasets"])
        orders = ((one, declared_order(scale)) for one, scale in told)  # of pandas or polars
        spelled["datasets"] = [{**one, "scale": order} if order else one for one, order in orders]
    if spelled.get("probes") is None and (moved := _moving_probes(spelled.get("datasets"))):
        spelled["probes"] = [*moved, *Study.model_fields["probes"].default]
    if _PROMPT in spelled:
        spelled = _set_value(spelled, ["base", _PROMPT], spelled.pop(_PROMPT))
    named = _named_prompts(*(spelled.get(key) for key in ("base", "vary", "configs")))
    known = spelled.get("prompts") or {}
    missing = [name for name in named if isinstance(known, Mapping) and name not in known]
    if missing:
        spelled["prompts"] = {
            **known,
            **{name: _read_prompt_file(folder / name) for name in missing},
        }
    return spelled


def _moving_probes(datasets: Any) -> list[str]:
    """The probes that move what datasets declare exchangeable, unless a study names its own."""
    listed = datasets if isinstance(datasets, list) else [datasets]
    found = [one for one in listed if isinstance(one, Mapping)]
    exchanged = [one["exchange"] for one in found if one.get("exchange")]
    fields = [one.get("fields") if isinstance(one, Mapping) else one for one in exchanged]
    sizes = {len(one) for one in fields if isinstance(one, Sequence)}
    is_declared = {
        "pair": 2 in sizes,
        "candidates": any(size > 2 for size in sizes),
        "options": any(one.get("options") for one in found),
    }
    usual = {probes[name].moves: name for name in reversed([*probes])}
    return [usual[kind] for kind, is_there in is_declared.items() if is_there]  # type: ignore[index]


def _find_callable_file(model: Any, folder: Path) -> Any:
    """A model with the path of its callable's file beside the study, called as before."""
    if (handed_over := addressed(model)) is not model:
        return handed_over
    entry = model if isinstance(model, Mapping) else {"model": model}
    address = entry.get("model")
    found = beside(address, folder) if isinstance(address, str) else address
    if found == address:
        return model
    return {**entry, "model": found, "name": entry.get("name") or address}


def _named_prompts(base: Any, vary: Any, configs: Any) -> list[str]:
    """The names of prompt files, each once; other mistakes are reported later."""
    levels = configs.values() if isinstance(configs, Mapping) else ()
    single = [one.get(_PROMPT) for one in (base, *levels) if isinstance(one, Mapping)]
    several = vary.get(_PROMPT) if isinstance(vary, Mapping) else ()
    named = [*single, *(several if isinstance(several, list) else ())]
    return [n for n in dict.fromkeys(named) if isinstance(n, str) and n not in ("", BUILT_IN)]


def _read_prompt_file(path: Path) -> str:
    try:
        return read_limited(path).decode("utf-8-sig")
    except OSError as error:
        raise Problem(
            f"cannot read the prompt file {path} ({error.strerror}); check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise Problem(f"the prompt file {path} is not UTF-8; save it as UTF-8") from error


def _read_study_file(path: Path) -> dict[str, Any]:
    return read_mapping(
        path,
        f"no study file {path}; write one (flipmeter init), or try flipmeter demo",
        f"{path} is not a study; it needs at least `models:` and `datasets:`",
    )


def _set_value(content: Any, path: Sequence[str], value: Any) -> Any:
    """Content with one value changed; a number reaches into a list, as in `datasets.0.within`."""
    if not path:
        return value
    first, *rest = path
    if isinstance(content, list) and first.isdecimal() and int(first) < len(content):
        place = int(first)
        return [*content[:place], _set_value(content[place], rest, value), *content[place + 1 :]]
    if not isinstance(content or {}, Mapping):
        raise Problem(
            f"cannot set '{'.'.join(path)}' in {hidden(content)!r:.80}, which is not a mapping"
        )
    return {**(content or {}), first: _set_value((content or {}).get(first), rest, value)}


def _follow_renames(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The keys after a change, with those that name models and datasets brought into line.

    `vary_models` means the models that stand where the varied ones stood. `only_on` keeps its
    datasets that are still there, and does not concern datasets that the study did not have.
    """
    followed = dict(after)
    for key, names in (("vary_models", "models"), ("only_on", "datasets")):
        is_left = after.get(key) and after.get(key) == before.get(key)
        if not is_left or after.get(names) == before.get(names):
            continue
        old, new = _listed_titles(before.get(names)), _listed_titles(after.get(names))
        told = before[key]
        if key == "vary_models":
            followed[key] = [now for was, now in zip(old, new, strict=False) if was in told]
        else:
            followed[key] = {
                factor: [name for name in new if name in allowed or name not in old]
                for factor, allowed in told.items()
            }
    return followed


def _listed_titles(listed: Any) -> list[str]:
    """The names of models or datasets: texts, or mappings that have a title."""
    titles = []
    for one in listed if isinstance(listed, list) else [listed] if listed else []:
        told = one if isinstance(one, Mapping) else {"name": one}
        named = (told[key] for key in ("name", "model", "catalog", "hub") if told.get(key))
        titles.append(str(next(named, Path(str(told.get("file", ""))).stem)))
    return titles
