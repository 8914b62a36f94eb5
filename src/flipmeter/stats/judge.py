"""Panel -> verdicts: the rows of every contrast, and claims about them, through the one core."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from flipmeter.checks import share
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.stats.blocks import NOT_ASKED, Row, placed, shown_alike
from flipmeter.stats.conclude import Margins, On, conclude
from flipmeter.stats.frame import Decisions
from flipmeter.stats.groups import Booleans, Ints, joined
from flipmeter.stats.panel import Compared, Panel, Status, compared, shown_once
from flipmeter.stats.reading import Panels, panels_of, read_panel
from flipmeter.stats.verdict import Verdict, little_label_mass, not_identified
from flipmeter.types import ALPHA, JUDGED, Contrast

DRAWS = 2000
UNREADABLE_LIMIT = 0.05
LITTLE_MASS = 0.5
"""Below this share of the probability on labels, what is said of them rests on little."""

Key = tuple[str, str, str]
"""Rater, dataset and level."""

NUMBERS = (
    *("value", "low", "high", "p", "noise", "excess", "excess_upper", "shift_upper"),
    *("unreadable", "unreadable_low", "unreadable_high", "size", "upper", "lower", "rate_upper"),
    *("shift", "excess_low", "excess_high", "noise_low", "noise_high", "if_same", "if_different"),
    *("p_excess", "p_direction", "direction", "margin", "alpha"),
    *("p_flips", "p_stable"),
    *("weighted", "weighted_low", "weighted_high", "weighted_upper"),
    *("weighted_excess", "weighted_excess_upper"),
)
COUNTS = ("n_clusters", "n_needed", "n_pairs", "moved_up", "moved_down")
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seeds": pl.List(pl.Int64),
    "contrast": pl.String,
    "status": pl.String,
    "word": pl.String,
    "reason": pl.String,
    "findings": pl.List(pl.String),
    "notes": pl.List(pl.String),
    "bound_on": pl.String,
    "is_reproducible": pl.Boolean,
    "leans": pl.String,
    "up_is_first": pl.Boolean,
    "decimal": pl.Boolean,
    "unreadable_by_view": pl.List(pl.Float64),
    **dict.fromkeys(NUMBERS, pl.Float64),
    **dict.fromkeys(COUNTS, pl.Int64),
}
"""`notes` are the sentences of the findings. Where answers are `decimal` scores, `direction` is in
their units."""


@dataclass(frozen=True)
class ContrastRow:
    """One contrast of one rater, seeds pooled: what the core is given, or why there is nothing.

    `up_is_first` says what moving up means where answers are swapped: towards the one shown first,
    or the second; None where nothing is. `n_available` items of the dataset could be rated.
    """

    key: Key
    contrast: Contrast
    seeds: tuple[int, ...]
    status: Status
    note: str
    row: Row | None
    label_mass: float | None = None
    up_is_first: bool | None = None
    n_available: int | None = None


def contrast_rows(panel: Panel, contrast: Contrast, *, pool: bool = True) -> Iterator[ContrastRow]:
    """Yield the replies of every rater, dataset and level under the views of a contrast.

    Seeds of an item are one cluster. What was never answered is not asked; what could not be read
    is. `pool=False` yields every seed by itself.
    """
    found = compared(panel, contrast)
    pairs, repeats = (replies_under(panel, contrast, repeat) for repeat in (0, 1))
    masses = [panel.label_mass.get((view, 0)) for view in contrast.views]
    for key, groups in _pool_seeds(panel, pool).items():
        status, measured = _pooled_seeds(found, groups)
        seeds = tuple(panel.keys["seed"][group] for group in groups)
        first = groups[0]
        rater, dataset, level = (str(part) for part in key[:3])
        here = ContrastRow(
            (rater, dataset, level), contrast, seeds, found.status[first], found.note[first], None
        )
        if not measured:
            yield here
            continue
        items = found.items if status == "measured" else found.proved
        mine = items & np.isin(panel.groups.of, measured)
        notes = "; ".join(dict.fromkeys(found.note[g] for g in measured if found.note[g]))
        row = Row(
            pairs[mine],
            repeats[mine] if (repeats[mine] != NOT_ASKED).any() else None,
            panel.cluster[mine],
            bool(panel.reproducible[measured].all()),
            nominal := bool(panel.nominal[measured].all()),
            class_places(panel, contrast, mine) if nominal else None,
            gold=panel.gold[mine],
            weights=panel.weights.get(dataset),
            names=panel.scales.get(dataset, ()),
            by_construction="" if status == "measured" else notes,
            span=panel.units.spans[measured[0]],
        )
        mass = np.concatenate([one[mine] for one in masses if one is not None] or [np.zeros(0)])
        known = mass[~np.isnan(mass)]
        share = float(known.mean()) if known.size else None
        up = up_is_first(panel, contrast, mine) if contrast.swaps_answers else None
        have = panel.available.get(dataset)
        here = replace(here, label_mass=share, up_is_first=up, n_available=have)
        noted = notes if status == "measured" else ""  # otherwise the verdict's own reason
        yield replace(here, status=status, note=noted, row=row)


def _pool_seeds(panel: Panel, pool: bool) -> dict[tuple[object, ...], list[int]]:
    """The groups that a verdict is about: the seeds of a rater, dataset and level, or each."""
    pools: dict[tuple[object, ...], list[int]] = {}
    for group, key in enumerate(panel.keys.iter_rows()):
        pools.setdefault(key[:3] if pool else key, []).append(group)
    return pools


def n_judged(panel: Panel, contrasts: Sequence[Contrast], pool: bool = True) -> int:
    """Number of rows of some contrasts that get a verdict."""
    pools = _pool_seeds(panel, pool).values()
    found = (compared(panel, contrast) for contrast in contrasts)
    return sum(bool(_pooled_seeds(one, groups)[1]) for one in found for groups in pools)


def _pooled_seeds(found: Compared, groups: Sequence[int]) -> tuple[Status, list[int]]:
    """The seeds that a verdict pools: those that were measured, else those proved to agree."""
    for wanted in JUDGED:
        some = [group for group in groups if found.status[group] == wanted]
        if some:
            return found.status[some[0]], some
    return found.status[groups[0]], []


def replies_under(panel: Panel, contrast: Contrast, repeat: int = 0) -> Ints:
    """Classes of every item under the views of a contrast, as the core counts them.

    Items not asked are -1, and so are requests that were never answered.
    """
    found = shown_once(panel, contrast, repeat)
    for at, view in enumerate(contrast.views):
        errors = panel.errors.get((view, repeat))
        if errors is not None:
            found[errors, at] = NOT_ASKED
    return found


def up_is_first(panel: Panel, contrast: Contrast, items: Booleans) -> bool | None:
    """Whether the higher classes are for the answer that the second view shows first."""
    given = (contrast.views[0], 0)
    ranks, places = panel.classes(given)[items], panel.places.chosen[given][items]
    first, second = (ranks[(places == place) & (ranks > 0)] for place in (1, 2))
    if not len(first) or not len(second):
        told = ranks[places > 0], places[places > 0]
        middle = (panel.n_classes[panel.groups.of[items]].max(initial=1) + 1) / 2
        return None if not len(told[0]) else bool((told[0][0] < middle) == (told[1][0] == 1))
    return bool(first.mean() < second.mean())


def class_places(panel: Panel, contrast: Contrast, items: Booleans) -> Ints | None:
    """The slots of the classes of some items under each view; None where they are not recorded.

    Items with the same number of places are shown alike.
    """
    known = panel.places.n[items] > 0
    where = panel.places.chosen if known.any() else panel.slots
    given = np.stack([where[view, 0][items] for view in contrast.views], axis=1)
    if not given.any():
        return None
    classes = np.stack([panel.classes((view, 0))[items] for view in contrast.views], axis=1)
    n_classes = int(panel.n_classes[panel.groups.of[items]].max(initial=1))
    table = np.zeros((*given.shape, n_classes), dtype=np.int64)
    runs = [(view, 0) for view in contrast.views]
    gold = np.broadcast_to(panel.gold[items, None], classes.shape)
    for size in np.unique(panel.places.n[items]).tolist():
        own, alike = panel.places.n[items] == size, None
        if size:  # answers and gold both say where a class stood
            told = np.concatenate([classes[own], gold[own]])
            places = (panel.places.chosen, panel.places.right)
            where_told = [np.stack([of[run][items][own] for run in runs], axis=1) for of in places]
            if int(told.max()) <= size:
                alike = shown_alike(told, np.concatenate(where_told), size)
        found = placed(given[own], classes[own], classes[own]) if alike is None else alike
        table[own, :, : found.shape[-1]] = found
    return table


def judge(
    decisions: Decisions | Panel | Panels,
    contrasts: Sequence[Contrast],
    *,
    reproducible: Collection[str] = (),
    margin: float = 0.10,
    alpha: float = ALPHA,
    unreadable_limit: float = UNREADABLE_LIMIT,
    on: On = "",
    pool: bool = True,
) -> list[tuple[ContrastRow, Verdict]]:
    """The verdict on every contrast of every rater, dataset and level."""
    limits = Margins(margin, alpha, unreadable_limit, on)
    found = _iter_verdicts(panels_of(decisions, reproducible), contrasts, limits, pool=pool)
    return sorted(found, key=lambda one: (one[0].key, one[0].seeds))  # contrasts keep their order


def _iter_verdicts(
    panels: Iterable[Panel], contrasts: Sequence[Contrast], limits: Margins, *, pool: bool = True
) -> Iterator[tuple[ContrastRow, Verdict]]:
    """Verdicts one after the other: the replies behind one are held while it is made."""
    n_rows = sum(n_judged(panel, contrasts, pool) for panel in panels)
    for panel in panels:
        for contrast in contrasts:
            yield from judged(panel, contrast, limits, n_rows, pool=pool)


def judged(
    panel: Panel, contrast: Contrast, limits: Margins, n_rows: int, *, pool: bool = True
) -> Iterator[tuple[ContrastRow, Verdict]]:
    """Verdicts on one contrast of a panel, among `n_rows` that are given at once."""
    for row in contrast_rows(panel, contrast, pool=pool):
        if row.row is None:
            yield row, not_identified(row.note)
        else:
            found = conclude(row.row, limits, draws=DRAWS, among=n_rows)
            reason = found.reason  # with what only the run knows
            if found.n_needed is not None and row.n_available is not None:
                # Several items may be one cluster.
                per_item = len(row.seeds) * found.n_clusters / found.n_pairs
                reason += f" ({row.key[1]} has {round(row.n_available * per_item):,})"
            if row.label_mass is not None and row.label_mass < LITTLE_MASS:
                found = found.with_findings(little_label_mass(row.label_mass))
            yield row, replace(found, reason=joined(reason, row.note))


def verdicts(
    decisions: Decisions | Panel | Panels,
    contrasts: Sequence[Contrast],
    *,
    reproducible: Collection[str] = (),
    margin: float = 0.10,
    alpha: float = ALPHA,
    unreadable_limit: float = UNREADABLE_LIMIT,
) -> pl.DataFrame:
    """A row of evidence for every contrast of every rater, dataset and level, seeds pooled.

    `status` tells a contrast that was measured from one that could not be.
    """
    limits = Margins(margin, alpha, unreadable_limit)
    return as_table(_iter_verdicts(panels_of(decisions, reproducible), contrasts, limits))


def as_table(rows: Iterable[tuple[ContrastRow, Verdict]]) -> pl.DataFrame:
    """Verdicts as one frame, sorted by rater, dataset, level and seeds; contrasts keep their order.

    The replies behind a row are let go of as it is written.
    """
    records = [
        {
            **found.record(),
            "notes": [finding.text for finding in found.findings],
            **dict(zip(("rater", "dataset", "level"), row.key, strict=True)),
            "seeds": list(row.seeds),
            "contrast": row.contrast.name,
            "status": row.status,
            "up_is_first": row.up_is_first,
            "decimal": row.row is not None and row.row.span is not None,
        }
        for row, found in rows
    ]
    records.sort(
        key=lambda one: tuple(one[name] for name in ("rater", "dataset", "level", "seeds"))
    )
    return pl.DataFrame(records, schema=SCHEMA, orient="row")


CLAIM = re.compile(r"\s*([\w.]+?)\s*(-\s*noise)?\s*<\s*([\d.]+)\s*(%?)\s*")


OUTCOMES = {"stable": "shown", "flips": "refuted", "inconclusive": "open"}
"""The outcome of a claim for each verdict: they answer different questions."""


def overall_outcome(outcomes: Iterable[str]) -> str:
    """The outcome of several claims: one that is refuted decides, and all must be shown."""
    found = set(outcomes)
    worst = ("refuted", "unreadable", "open", "not identified")
    return next((one for one in worst if one in found), "shown" if found else "open")


@dataclass(frozen=True)
class Claim:
    """The flips of a contrast are fewer than a margin; all of them, or those beyond noise."""

    contrast: str
    margin: float
    beyond_noise: bool = False

    @property
    def on(self) -> On:
        return "excess" if self.beyond_noise else "rate"

    def __str__(self) -> str:
        return f"{self.contrast}{'-noise' if self.beyond_noise else ''}<{self.margin:g}"


def read_claim(text: str) -> Claim:
    """Read "P1<0.10", "P1 < 10 %" or "P1-noise<0.05"."""
    found = CLAIM.fullmatch(text)
    if not found:
        raise Problem(f"cannot read the claim '{text}'; write P1<0.10, or P1-noise<0.05")
    name, noise, number, percent = found.groups()
    try:
        margin = float(number) / (100 if percent else 1)
    except ValueError:
        raise Problem(f"cannot read the margin '{number}' of '{text}'; write P1<0.10") from None
    share(margin, f"the margin of '{text}'")
    return Claim(name, margin, beyond_noise=noise is not None)


def claimed(contrast: str, contrasts: Sequence[Contrast]) -> Contrast:
    """The contrast that a claim names, which must be one that gets a verdict."""
    known = {one.name: one for one in contrasts if one.is_judged}
    if contrast in known:
        return known[contrast]
    near = (
        suggestion(contrast, list(known)) if known else "; the run has no contrast with a verdict"
    )
    if contrast in {one.name for one in contrasts}:
        raise Problem(
            f"{contrast} counts items on which any view differs, which grows with the number of "
            f"views, so no claim can be made about it{near}"
        )
    raise Problem(f"no contrast named '{contrast}'{near}")


def certify(
    decisions: Decisions | Panel | Panels,
    contrasts: Sequence[Contrast],
    claims: Sequence[Claim],
    *,
    reproducible: Collection[str] = (),
    alpha: float = ALPHA,
) -> pl.DataFrame:
    """Test claims on every rater, dataset and level by one-sided bounds.

    `outcome` is `shown`, `refuted`, `open`, `unreadable` or `not identified`.
    """
    if not claims:
        raise Problem("no claim to certify; write P1<0.10")
    named = {claim: claimed(claim.contrast, contrasts) for claim in claims}
    read = decisions if isinstance(decisions, Panels) else read_panel(decisions, reproducible)
    tables = [
        as_table(judge(read, [contrast], margin=claim.margin, alpha=alpha, on=claim.on)).select(
            pl.lit(str(claim)).alias("claim"),
            pl.col("word").replace(OUTCOMES).alias("outcome"),
            pl.exclude("word"),
        )
        for claim, contrast in named.items()
    ]
    return pl.concat(tables)
