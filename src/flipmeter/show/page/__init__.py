"""Findings -> page: one HTML file that opens anywhere, loads nothing and runs no foreign script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from flipmeter.show.estimate_tables import shared_warnings
from flipmeter.show.findings import Findings
from flipmeter.show.format import counted, visible
from flipmeter.show.page.configurations import configuration_views
from flipmeter.show.page.markup import choices, clipped, compare, excerpt
from flipmeter.show.page.origin import conditions_grid, datasets_grid, models_grid
from flipmeter.show.page.places import (
    no_flips,
    no_matrix,
    options_grid,
    pairs_grid,
    residual_grids,
    slices_grid,
    slots_grid,
    squares,
    systems_grid,
)
from flipmeter.show.page.rates import (
    forest_grid,
    matrix_grid,
    performance_grid,
    phase0_grid,
    seeds_grid,
)
from flipmeter.show.section import added_sections, contents
from flipmeter.show.sentences import reading_lines
from flipmeter.show.table import noted, shown
from flipmeter.types import STOPPED, UNFINISHED

HERE = Path(__file__).parent
CHART = ("plot.js", "configurations.js")
"""Scripts of the configuration view, in a page that has one: the library, then what we draw."""
THERE = {None: "unknown", True: "yes", False: "no"}
MOST_PREFERRED = 3
"""Raters whose preferred place the first screen names; a table has all."""
PLOT_STYLE = """:where(.plot) {
  --plot-background: white;
  display: block;
  height: auto;
  height: intrinsic;
  max-width: 100%;
}
:where(.plot text),
:where(.plot tspan) {
  white-space: pre;
}"""
"""The style that the library puts into every plot; the policy names it by its hash."""


def render_page(found: Findings) -> str:
    """The page. Every text in it is escaped; only our own script and style are allowed."""
    content = page_content(found)
    chart = CHART if content["configurations"] else ()
    scripts = [asset(name) for name in ("page.js", *chart)]
    style = asset("page.css")
    return (
        environment()
        .get_template("page.html")
        .render(
            policy=content_policy([style, *([PLOT_STYLE] if chart else [])], scripts),
            style=Markup(style),
            scripts=[Markup(script) for script in scripts],
            items="items.html",
            flips_at="",
            version=found.environment.get("flipmeter", ""),
            **content,
        )
    )


@cache
def environment(*packages: str) -> Environment:
    """The template environment of some packages and of the page."""
    loaders = [PackageLoader(package, ".") for package in (*packages, __package__)]
    filling = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filling.filters |= {"visible": shown, "clipped": clipped, "excerpt": excerpt}
    filling.filters |= {"noted": noted}
    return filling


@cache
def asset(name: str) -> str:
    """A file that is part of the page: page.css, page.js."""
    return (HERE / name).read_text(encoding="utf-8")


def content_policy(styles: Iterable[str], scripts: Iterable[str]) -> str:
    """The content security policy: our own texts by their hash, and nothing else."""
    style, script = (" ".join(map(hash_source, texts)) for texts in (styles, scripts))
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def hash_source(text: str) -> str:
    """The source expression of a trusted script or style in the policy."""
    found = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{found}'"


def page_content(found: Findings) -> dict[str, Any]:
    """The values of the page's templates."""
    configurations, configuration_notes = configuration_views(found)
    matrices, matrix_notes = squares(found)
    views = found.tally["view"].unique(maintain_order=True).to_list()
    return {
        "found": found,
        "facts": _facts(found),
        "sections": contents(found),
        "added": [(one.name, one.table) for one in added_sections(found)],
        "unfinished": UNFINISHED,
        "preferred": found.preferred[:MOST_PREFERRED],
        "matrix": matrix_grid(found),
        "several_datasets": found.tally["dataset"].n_unique() > 1,
        "warnings": _warnings(found),
        "readings": reading_lines(found.estimates.filter(level="")),
        "phase0": phase0_grid(found) if found.has_phase0 else None,
        "forest": forest_grid(found),
        "seeds": seeds_grid(found),
        "configurations": configurations,
        "configuration_notes": configuration_notes,
        "performance": performance_grid(found, views),
        "levels": residual_grids(found),
        "matrices": matrices,
        "no_flips": no_flips(found),
        "matrix_notes": matrix_notes if matrices else [no_matrix(found)],
        "places": [
            table
            for make in (slots_grid, options_grid, pairs_grid, systems_grid)
            if (table := make(found)) is not None
        ],
        "conditions": conditions_grid(found),
        "grid_rows": [(row, _to_item(row.key)) for row in found.grid.rows] if found.grid else [],
        "slices": [
            replace(slices_grid(rates, column, contrast), is_detail=True)
            for column, contrast, rates in found.slices
        ],
        "choices": choices(found),
        "frames": [
            (one.title, list(zip(one.views, compare(*one.texts, one.labels), strict=True)))
            for one in found.browser.frames
        ],
        "method": list(_method(found)),
        "models": models_grid(found),
        "datasets": datasets_grid(found),
        "versions": list(_versions(found)),
    }


def _to_item(key: tuple[str, str]) -> Markup:
    """The link from an item to its flips on the page."""
    query = urlencode({"dataset": visible(key[0]), "item": visible(key[1])})
    return Markup('href="#each" data-query="{}"').format(query)


def _warnings(found: Findings) -> dict[str, str]:
    """The warnings without the one that the page shows at its top: that the run was stopped."""
    told = {
        rater: [one for one in remarks if one.code != STOPPED]
        for rater, remarks in found.warnings.items()
    }
    return shared_warnings({rater: remarks for rater, remarks in told.items() if remarks})


def _facts(found: Findings) -> str:
    parts = [
        counted(found.tally[name].n_unique(), what)
        for name, what in (("rater", "model"), ("dataset", "dataset"), ("seed", "seed"))
    ]
    n_levels = found.tally["level"].n_unique() - 1
    parts += [counted(n_levels, "level") + " besides the base"] if n_levels else []
    parts += [counted(found.n_items, "item")]
    return " · ".join(
        [*parts, counted(int(found.tally["n"].sum()), "decision"), f"mode {found.mode}"]
    )


def _method(found: Findings) -> Iterator[tuple[str, str]]:
    """Yield what each kind of number is, so that none stands on the page without its method."""
    is_paper = found.mode == "paper"
    test = "McNemar's corrected chi-square, halved" if is_paper else "McNemar's mid-p, one-sided"
    yield "Mode", f"{found.mode}; it sets the tests, the layout of prompts and the residuals"
    yield "Flip", "an item whose class is not the same under all views of a contrast"
    yield (
        "Policies",
        "complete leaves out a pair with a fault on either side; strict treats a fault as a class "
        "of its own. Tables by seed are complete. Verdicts, sentences and the forest count "
        "readable pairs; unreadable ones are a share of their own",
    )
    yield (
        "Intervals",
        "95 %, over items, each with its seeds, repeats and copies: Clopper-Pearson for one pair "
        "each, Korn-Graubard for more" + ("; by seed Wilson" if is_paper else ""),
    )
    yield "Noise", "how often a view disagrees with its own repeat, over the views asked twice"
    yield "Against noise", f"by seed {test}; in verdicts an exact randomisation test within items"
    yield (
        "Verdict",
        "unreadable: the share of unreadable pairs is above the limit, by its lower 95 % bound. "
        "flips: an effect beyond noise (without repeats: a direction, or a rate above the "
        f"margin), estimated above the margin of {100 * found.margin:g} %. stable: one-sided 95 % "
        "bounds are below it, on the rate or, where every view was repeated, on the excess over "
        "noise and on the change of class shares. inconclusive: none of these",
    )
    yield "Direction", "'mostly' or 'all': flips go one way more often than by chance, at 5 %"
    yield (
        "Residuals",
        "level minus base in points; "
        + (
            "mean and population SD over datasets, each side on its own items"
            if is_paper
            else "both on the items they share, 95 % interval over items"
        ),
    )
    yield (
        "Seeds",
        "one item with all its seeds counts once in verdicts; each seed counts separately in "
        "the tables",
    )


def _versions(found: Findings) -> Iterator[tuple[str, str]]:
    about = found.environment
    for name in ("flipmeter", "python", "platform"):
        yield name, str(about.get(name, "not recorded"))
    for name, version in about.get("packages", {}).items():
        yield name, str(version)
    asked = {
        name.replace("_", " "): n
        for name, n in about.get("asked", {}).items()
        if isinstance(n, int)
    }
    yield "requests of the last run", ", ".join(f"{n:,} {name}" for name, n in asked.items())
    for rater, known in about.get("capabilities", {}).items():
        told = (
            f"{name}: {THERE[one.get('is_there')]} ({one.get('how', '')})"
            for name, one in known.items()
        )
        yield f"{rater} can", "; ".join(told) or "nothing was examined"
