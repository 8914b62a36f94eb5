"""Study -> Condition: the grid of an experiment, every rater on every dataset, seed and view."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from flipmeter.ask.family import World
from flipmeter.ask.names import (
    can_be_reproducible,
    interface_of,
    is_callable,
    is_simulated,
    is_tested,
)
from flipmeter.ask.sim import latent_scores, latents, worth_of
from flipmeter.chance import draw, shuffled
from flipmeter.data.guess import guess_exchangeable
from flipmeter.data.sampling import Sample
from flipmeter.errors import Problem
from flipmeter.pipelines.averaging import NULL_TEXTS
from flipmeter.pipelines.pipeline import Asked, open_pipeline
from flipmeter.prompt.pointwise import shows_places, unshown
from flipmeter.prompt.probes import expand, probes, shown_in
from flipmeter.registry import suggestion
from flipmeter.study.file import Level, Study
from flipmeter.study.sizes import draw_sample, fitted, merged_for
from flipmeter.types import Condition, Contrast, Dataset, Item, Model, Rater, Task

REPEATED_ITEMS = 20
"""Repeated items of a rater that is shown to be reproducible: a check, not an estimate."""


POINTWISE = ("pointwise", "windows")
"""The paradigms that ask about one item in the words of a style."""


def conditions(
    study: Study, datasets: Sequence[Dataset] | None = None, shown: Collection[Model] = ()
) -> list[Condition]:
    """The grid: every rater on every dataset, seed and view, at every level.

    `shown` are the models that a self-test has shown to be reproducible: they repeat a few items.
    """
    grid: list[Condition] = []
    datasets = study.load() if datasets is None else datasets
    study = fitted(study, datasets)
    _check_study(study, datasets)
    # As many for all, so that a contrast has the same views everywhere: equal prompts are one.
    n_places = max((len(d.task.places.fields) for d in datasets if d.task.places), default=1)
    for dataset in datasets:
        for name, level in study.levels_on(dataset.name).items():
            _check_level(study, name, level, dataset)
            for seed in study.seeds:
                merged = merged_for(study, dataset, level.style)
                drawn = draw_sample(study, dataset, level.style, seed)
                for rater in _raters_at_level(study, level, name):
                    refuse_words(rater)
                    settled = is_settled(rater, shown)
                    grid += _iter_conditions(
                        study, rater, merged, seed, drawn, name, n_places, settled
                    )
    return grid


def contrasts_in(study: Study, grid: Sequence[Condition]) -> tuple[Contrast, ...]:
    """The contrasts of a study about the views that a grid has.

    Where answers or options change places, or scores are numbers, the probes of every study that
    cannot be asked of them are left out, as the study does not name them.
    """
    views = {condition.view.name for condition in grid}
    found = shown_in(study.contrasts, views)
    is_usual = any(one.task.places is None and one.task.scale.span is None for one in grid)
    if study.names_its_probes or is_usual:
        return found
    return tuple(one for one in found if views.intersection(one.views) - {"base"})


def unmoved_notes(study: Study, grid: Sequence[Condition]) -> Iterator[str]:
    """Notes on what could change places and does not, and on prompts in which nothing does."""
    views: dict[tuple[str, str], set[str]] = {}
    for one in grid if study.probes else ():
        views.setdefault((one.rater.name, one.dataset), set()).add(one.view.name)
    for rater, name in (key for key, seen in views.items() if len(seen) == 1):
        yield (
            f"{rater} on {name}: its prompt shows nothing that the probes move (a label list, "
            "demonstrations, declared fields), so that flips cannot be measured"
        )
    for name, one in {condition.dataset: condition for condition in grid}.items():
        places = one.task.places
        if places is not None:
            if not any(probes[probe].moves == places.kind for probe in study.probes):
                known = next(probe for probe in probes if probes[probe].moves == places.kind)
                yield f"{name}: {', '.join(places.fields)} never change places; add probe {known}"
            continue
        fields = dict.fromkeys(field for item in one.items for field in item.fields)
        texts = {field: [item.fields.get(field, "") for item in one.items] for field in fields}
        if found := guess_exchangeable(texts):
            yield exchange_hint(name, found)


def exchange_hint(name: str, found: Sequence[str]) -> str:
    """A hint that fields look like answers for a judge to compare, and how to declare them."""
    return (
        f"{name}: {' and '.join(found)} look like answers that a judge compares, and they never "
        f"change places; to measure that, declare them: exchange: [{', '.join(found)}]"
    )


_DECLARED: dict[str, str] = {
    "pair": "swaps two fields that a dataset declares (exchange: [a, b])",
    "candidates": "moves three or more fields that a dataset declares (exchange: [a, b, c])",
    "options": "moves the options that a dataset declares (options: [a, b, c, d])",
}


def _refuse_first(cases: Iterable[tuple[object, str]]) -> None:
    """Refuse the first case that holds, for its reason."""
    for why in (why for is_so, why in cases if is_so):
        raise Problem(why)


def _check_study(study: Study, datasets: Sequence[Dataset]) -> None:
    """Refuse names and probes that do not fit the datasets."""
    names = [dataset.name for dataset in datasets]
    kinds = {dataset.task.places.kind for dataset in datasets if dataset.task.places}
    repeats: dict[str, tuple[Sequence[object], str]] = {
        "datasets": (names, "give each a `name`"),
        "seeds": (study.seeds, "list each seed once"),
    }
    label_order = study.names_its_probes and "label_order" in study.probes
    _refuse_first(
        (listed.count(one) > 1, f"{what}: {one!r} appears more than once; {remedy}")
        for what, (listed, remedy) in repeats.items()
        for one in listed
    )
    _refuse_first(
        (name not in names, f"only_on: no dataset named '{name}'{suggestion(name, names)}")
        for allowed in study.only_on.values()
        for name in allowed
    )
    _refuse_first(
        (
            kind not in {None, *kinds},
            f"the probe '{name}' {_DECLARED.get(kind or '')}, but no dataset of the study does",
        )
        for name, kind in ((name, probes[name].moves) for name in study.probes)
    )
    if label_order and all(dataset.task.scale.span for dataset in datasets):
        raise Problem(
            "the probe 'label_order' reverses the list of labels, but a range of numbers has none; "
            "leave it out, or list the classes: scale: [0, 1, 2]"
        )
    for jury, dataset in product(study.juries, datasets):
        scale = dataset.task.scale
        if scale.nominal and jury.by == "mean":
            raise Problem(
                f"panels: '{jury.name}' takes the mean, but the classes of '{dataset.name}' have "
                "no order; use by: majority"
            )
        if scale.span is not None and jury.by == "majority":
            raise Problem(
                f"panels: '{jury.name}' takes the majority of the judges, but the scale of "
                f"'{dataset.name}' is a range of numbers; use by: mean"
            )


def _check_level(study: Study, name: str, level: Level, dataset: Dataset) -> None:
    """Refuse a level at which a dataset cannot be asked about."""
    style, traits = level.style, open_pipeline(level.pipeline).traits
    pipeline = f"the pipeline '{level.pipeline}'"
    _refuse_first(
        [
            (
                traits.needs_demos and not style.shots,
                f"{pipeline} compares with demonstrations, but "
                f"{f'level {name}' if name else 'the study'} has 0 shots; use at least 1",
            ),
            (
                study.block and traits.calibration == "batch",
                f"{pipeline} needs all items at once, but a run with a `budget` or `until` goes "
                "block by block; remove these settings, or the pipeline",
            ),
        ]
    )
    if template := study.template_of(style):
        if traits.paradigm not in POINTWISE:
            raise Problem(
                f"{pipeline} has its own wording ({traits.paradigm}); a prompt file such as "
                f"{template.name} goes with pipelines that ask about one item: pointwise"
            )
        template.check(dataset.test[0], dataset.task)
    if dataset.task.scale.nominal:
        needs_order = {
            pipeline: traits.needs_order,
            "the clarity 'ordinal_explicit'": style.clarity == "ordinal_explicit",
            "a `cardinality` without `merge`": style.cardinality and study.groups(style) is None,
        }
        _refuse_first(
            (
                is_asked,
                f"{what} needs classes in an order, but the scale of '{dataset.name}' is nominal; "
                "leave it out, or list the classes from lowest to highest",
            )
            for what, is_asked in needs_order.items()
        )
    if dataset.task.scale.span is not None:
        needs_classes = {
            pipeline: not traits.takes_numbers,
            "`scores`": study.scores is not False,
            "a `cardinality`": style.cardinality,
            f"the label format '{style.label_format}'": (
                style.label_format != study.style.label_format
            ),
        }
        _refuse_first(
            (
                is_asked,
                f"{what} needs a list of classes, but the scale of '{dataset.name}' is a range of "
                "numbers; leave it out, or list the classes: scale: [0, 1, 2]",
            )
            for what, is_asked in needs_classes.items()
        )
    _check_places(level, dataset)


def _check_places(level: Level, dataset: Dataset) -> None:
    """Refuse a pipeline that is not made for what a dataset shows: single texts, pairs, lists."""
    traits, places = open_pipeline(level.pipeline).traits, dataset.task.places
    pipeline = f"the pipeline '{level.pipeline}'"
    turns, fields = traits.turns, ", ".join(places.fields if places else ())
    _refuse_first(
        [
            (
                traits.moves and (places is None or places.kind != traits.moves),
                f"{pipeline} is for a pair of fields that may change places, but {dataset.name} "
                "declares none (exchange: [a, b]); use pointwise there (only_on)",
            ),
            (
                places and traits.paradigm not in POINTWISE,
                f"{pipeline} is about single texts, but {dataset.name} has {fields} to choose "
                "from; use pointwise, orbit(places:rotations), or one of the pair pipelines",
            ),
            (
                turns and turns.places and places is None,
                f"{pipeline} moves answers or options, but {dataset.name} declares none "
                "(exchange: [a, b], or options: [a, b, c])",
            ),
            (
                turns and turns.labels and "label_order" in unshown(level.style, dataset.task),
                f"{pipeline} reorders a list of labels, but prompts about {dataset.name} show "
                "none; use orbit(places:rotations) or orbit(demos:reversal)",
            ),
        ]
    )


def refuse_words(rater: Rater) -> None:
    """Refuse prompts for a callable: it is given the item itself."""
    paradigm = open_pipeline(rater.pipeline).traits.paradigm
    if is_callable(rater.model) and (rater.style.prompt or paradigm != "pointwise"):
        what = "a prompt file" if rater.style.prompt else f"the pipeline '{rater.pipeline}'"
        raise Problem(
            f"{rater.model.address} is given questions, not prompts, but {what} is for prompts; "
            "leave it out, or use another model"
        )


def _raters_at_level(study: Study, level: Level, name: str) -> list[Rater]:
    """The raters at a level: all at the base, elsewhere those that are varied."""
    raters = study.raters(level)
    names = [rater.name for rater in raters]
    for title in study.vary_models:
        if title not in names:
            near = suggestion(title, names)
            raise Problem(f"vary_models: no model named '{title}'{near}; [] varies all of them")
    varied = study.vary_models or names
    return [rater for rater in raters if not name or rater.name in varied]


def _iter_conditions(
    study: Study,
    rater: Rater,
    dataset: Dataset,
    seed: int,
    drawn: Sample,
    level: str,
    n_places: int,
    settled: bool,
) -> Iterator[Condition]:
    n_classes = len(dataset.task.scale)
    traits = open_pipeline(rater.pipeline).traits
    is_few = settled and "all" in study.repeat_views  # a check, not an estimate
    views = expand(
        applicable(study.probes, rater, dataset.task),
        n_classes,
        shots=rater.style.shots,
        repeats=study.repeats,
        repeated=["base", "reversed"] if is_few else study.repeat_views,
        n_places=n_places,
    )
    limits = _item_limits_by_view(study, n_classes)
    calibration = drawn.calibration if traits.calibration == "apart" else ()
    if traits.calibration == "test":
        some = shuffled(drawn.test, "calibration", seed, name=lambda item: item.text)
        calibration = some[: study.calibration_size]
    for view in views:
        items = drawn.test
        if traits.calibration != "batch":  # another batch would be another rater
            items = items[: limits.get(view.name)]
            items = items[:REPEATED_ITEMS] if view.repeat and settled else items
        yield Condition(
            rater, dataset.name, dataset.task, seed, view, drawn.demos, items, level, calibration
        )


def applicable(names: Iterable[str], rater: Rater, task: Task) -> list[str]:
    """The probes whose views a rater is asked about a task: their axis has a place in its prompts.

    An axis that a pipeline declares not to matter is asked too, which takes no further request.
    """
    names = list(names)
    places = task.places
    moved = places.kind if places and shows_places(rater.style, task) else None
    fixed = open_pipeline(rater.pipeline).traits.consumes | unshown(rater.style, task)
    if interface_of(rater.model) == "completions":
        fixed |= {"system_user"}  # raw text has no speakers: both views would be one prompt
    return [name for name in names if name not in fixed and probes[name].moves in (None, moved)]


def is_settled(rater: Rater, shown: Collection[Model]) -> bool:
    """Whether a rater is known to decide alike each time; one that counts draws does not."""
    if rater.n_draws or not can_be_reproducible(rater.model, rater.decoding):
        return False
    return rater.model in shown or not is_tested(rater.model)


def _item_limits_by_view(study: Study, n_classes: int) -> dict[str, int]:
    """The most items of each view; the base, which all probes share, has them all."""
    shown: dict[str, list[int]] = {}
    for name in study.probes:
        for view in probes[name].views(n_classes)[1:]:
            limit = study.probe_items.get(name, study.test_size)
            shown.setdefault(view.name, []).append(limit)
    return {view: max(limits) for view, limits in shown.items()}


def worlds(
    study: Study, datasets: Sequence[Dataset], grid: Sequence[Condition]
) -> dict[str, World]:
    """The knowledge of simulated raters by dataset: the latent score of every text."""
    if not any(is_simulated(rater.model) for rater in study.raters()):
        return {}
    merged = {}  # with every number of classes that the styles of the study use
    for dataset in datasets:
        styles = [level.style for level in study.levels_on(dataset.name).values()]
        for style in {style.cardinality: style for style in styles}.values():
            found = merged_for(study, dataset, style)
            merged[found.name] = found
    nulls: dict[str, set[str]] = {}  # what pipelines show in the place of an item
    for one in grid:
        nobody = Asked((), one.view, one.demos, one.calibration, one.seed)
        asks = open_pipeline(one.rater.pipeline).asks(nobody, {})
        texts = (ask.item.text for ask in asks if ask.item.role == "null")
        nulls.setdefault(one.dataset, set()).update(texts)
    return {name: world(d, nulls.get(name, ())) for name, d in merged.items()}


def world(dataset: Dataset, null_texts: Iterable[str] = ()) -> World:
    """The latent score of every text that may be asked, content-free ones too, and the classes.

    An unlabelled text gets a random class, so that a study can be rehearsed on it.
    """
    known = (*dataset.pool, *dataset.test, *(dataset.demos or ()))
    items = [item for item in known if item.gold and item.text.strip()]
    labelled = {item.text for item in items}
    others = [item for item in known if item.text.strip() and item.text not in labelled]
    nulls = [Item(text, {"text": text}, role="null") for text in {*NULL_TEXTS, *null_texts}]
    scale = dataset.task.scale
    n_ranks = scale.span.n_ranks if scale.span else len(scale)
    items += [replace(one, gold=1 + int(draw("class", one.text) * n_ranks)) for one in others]
    if scale.span is not None:
        if dataset.task.places:
            raise Problem(
                f"{dataset.name}: a simulated rater gives no numbers for a pair of answers; use "
                "classes (scale: [b, tie, a]), or a callable (python/...)"
            )
        return World(latent_scores(items, scale.span), (), span=scale.span)
    worth = worth_of([*known, *nulls], dataset.task) if dataset.task.places else None
    return World(latents([*items, *nulls], scale), scale.names, worth)


def base_conditions(grid: Sequence[Condition]) -> list[Condition]:
    """The first rater, dataset, seed and level of a grid, all its views."""
    first = grid[0]
    return [
        condition
        for condition in grid
        if (condition.rater, condition.dataset, condition.seed, condition.level)
        == (first.rater, first.dataset, first.seed, first.level)
    ]
