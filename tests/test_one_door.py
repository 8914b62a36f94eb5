"""Registries: what is registered can be used, is listed, and is held to the laws of its kind."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import flipmeter
from conftest import Cli
from flipmeter.ask.endpoints import Provider
from flipmeter.ask.family import backends
from flipmeter.choose.gate import read_gate
from flipmeter.cli.list import REGISTRIES
from flipmeter.errors import Problem
from flipmeter.pipelines.aggregate import Aggregated, Aggregator, Comparisons, aggregators
from flipmeter.pipelines.averaging import Prior, batch_prior
from flipmeter.pipelines.corrections import Bias, Debiaser, debiasers
from flipmeter.pipelines.pipeline import open_pipeline, pipelines
from flipmeter.prompt.levels import factors
from flipmeter.prompt.probes import demo_orders, probes
from flipmeter.registry import Registry, about
from flipmeter.show.findings import Findings
from flipmeter.show.section import Section, sections
from flipmeter.stats.aspects import ASPECTS, Aspect, measure_aspects
from flipmeter.stats.estimates import measure
from flipmeter.stats.groups import Floats, Rows, estimates, ratio, rows_of
from flipmeter.stats.limits import GateLimit, Limit, gate_limits, hold_limits
from flipmeter.stats.metrics import Metric, added_scores, metrics, scored_by
from flipmeter.stats.panel import Panel
from flipmeter.stats.scores import NOT_COVERED, SCORES, scores
from flipmeter.types import Contrast, Decoding, Mode, Model, View
from test_measure_aspects import CONTRASTS, FRAME
from test_measure_certainty import sure

STUDY: dict[str, Any] = {
    "name": "door",
    "models": ["sim/first-slot"],
    "datasets": ["reviews"],
    "test_size": 12,
    "probes": ["label_order"],
    "repeats": 1,
    "base": {"shots": 1},
}

# --- every kind -------------------------------------------------------------------------------

APART = {"place order", "set of orders", "paradigm"} | {
    "simulated rater",
    "hf model",
    "local model",
}
"""Registries that a study does not name: what others are made of, or models by their address."""


def registries() -> dict[str, Registry[Any]]:
    """Every registry of the package but for the paper's own, by looking into all modules."""
    found: dict[str, Registry[Any]] = {}
    skipped = ("flipmeter.__main__", "flipmeter.bridge.tasks", "flipmeter.paper")
    for module in pkgutil.walk_packages(flipmeter.__path__, "flipmeter."):
        if not module.name.startswith(skipped):
            values = vars(importlib.import_module(module.name)).values()
            found |= {one.kind: one for one in values if isinstance(one, Registry)}
    return found


def test_every_registry_is_listed() -> None:
    listed = [*REGISTRIES.values(), *factors.values()]
    missing = [k for k, one in registries().items() if one not in listed and k not in APART]
    assert not missing, f"add to REGISTRIES in cli/list.py: {missing}"


@pytest.mark.parametrize("kind", [*REGISTRIES])
def test_every_part_is_listed_with_a_line_about_it(cli: Cli, kind: str) -> None:
    code, out, _ = cli("list", kind)
    assert code == 0
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:] if line.split()}
    assert [name for name in REGISTRIES[kind] if not lines.get(name)] == []


def test_a_follower_sees_parts_of_before_and_after() -> None:
    tones: Registry[str] = Registry("tone")
    tones.add("soft", "quietly")
    seen: list[tuple[str, str]] = []
    tones.follow(lambda name, part: seen.append((name, part)))
    tones.add("loud", "noisily")
    assert seen == [("soft", "quietly"), ("loud", "noisily")]


def test_a_part_that_a_follower_refuses_is_not_registered() -> None:
    tones: Registry[str] = Registry("tone")

    def refuse(name: str, part: str) -> None:
        raise Problem("no")

    tones.follow(refuse)
    with pytest.raises(Problem):
        tones.add("loud", "noisily")
    assert "loud" not in tones


def test_a_part_says_what_it_is_by_its_about_or_its_docstring() -> None:
    assert about(aggregators["copeland"]) == aggregators["copeland"].about
    assert about(test_every_registry_is_listed) == ""
    assert about(lowest) == "Always the lowest class."


# --- backends ---------------------------------------------------------------------------------

NAMED = {"local": "local/smollm2-135m", "hf": "hf/qwen3-4b", "sim": "sim/honest"}
PROVIDERS = {name: family for name, family in backends.items() if isinstance(family, Provider)}
ENGINES = [name for name, family in backends.items() if family.is_self_tested]


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_vendor_has_its_own_host_or_none_and_a_server_of_your_own_is_on_this_machine(
    name: str,
) -> None:
    family = PROVIDERS[name]
    if family.needs_key:
        assert (family.base_url or "https://").startswith("https://")
    else:
        assert (family.base_url or "http://127.0.0.1").startswith("http://127.0.0.1")


@pytest.mark.parametrize("name", PROVIDERS)
def test_models_behind_an_endpoint_are_paid_take_a_key_and_are_never_called_reproducible(
    name: str,
) -> None:
    family = PROVIDERS[name]
    assert not family.is_in_process
    assert family.takes_key
    assert not family.can_be_reproducible(Model(f"{name}/x"), Decoding())


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_is_believed_to_be_reproducible_after_a_self_test_only(name: str) -> None:
    model = Model(NAMED.get(name, f"{name}/x.gguf"))
    drawn = Decoding(temperature=1.0)
    assert not backends[name].can_be_reproducible(model, drawn)
    assert {"logprobs", "completions", "seed"} <= (backends[name].capabilities or set())


def test_a_log_cannot_be_called_reproducible() -> None:
    assert not backends["inspect"].can_be_reproducible(Model("inspect/x"), Decoding())


def test_only_user_code_is_given_questions_and_only_simulations_the_data() -> None:
    assert [name for name, family in backends.items() if family.is_user_code] == ["python"]
    assert [name for name, family in backends.items() if family.is_simulated] == ["sim"]


# --- probes and orders ------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*probes])
def test_a_probe_moves_one_axis_and_holds_the_others(name: str) -> None:
    base, *others = probes[name].views(4)
    axes = {f.name for f in fields(View)} - {"name"}
    moved = {axis for axis in axes for one in others if getattr(one, axis) != getattr(base, axis)}
    assert len(moved) == 1


def test_of_the_orders_of_demonstrations_only_the_random_one_is_drawn(demos: Any) -> None:
    made = {name: {order(demos, seed) for seed in range(8)} for name, order in demo_orders.items()}
    assert [name for name, orders in made.items() if len(orders) > 1] == ["random"]


# --- aspects and metrics ------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ASPECTS])
def test_the_numbers_of_an_aspect_have_registered_words(name: str) -> None:
    table = measure_aspects(FRAME, CONTRASTS, [name])[name]
    assert table.is_empty() == (name in ("pairs", "systems"))
    stems = {metric.partition(":")[0] for metric in table["metric"]}
    assert [stem for stem in stems if stem not in metrics and ">" not in stem] == []


@pytest.fixture(scope="module")
def measured() -> dict[str, list[float]]:
    """The values of every metric on simulated raters, by its name."""
    tables = [
        measure(FRAME, CONTRASTS),
        *measure_aspects(FRAME, CONTRASTS, [*ASPECTS]).values(),
        *measure_aspects(sure(60, 1), [CONTRASTS[0]], ["certainty"]).values(),
    ]
    values: dict[str, list[float]] = defaultdict(list)
    for table in tables:
        for name, value in table.select("metric", "value").drop_nulls().iter_rows():
            values[name.partition(":")[0]].append(value)
    return values


def test_the_values_of_a_share_and_of_a_whole_number_lie_in_their_range(
    measured: dict[str, list[float]],
) -> None:
    """Some shares are differences; nearly every metric is measured on the simulated raters."""
    assert len([name for name in metrics if measured.get(name)]) >= 45
    for name, values in measured.items():
        if name in metrics and metrics[name].is_share:
            assert all(-1 - 1e-12 <= value <= 1 + 1e-12 for value in values), name
        if name in metrics and metrics[name].is_whole:
            assert all(value >= 1 and value == int(value) for value in values), name


def test_every_score_has_words() -> None:
    assert [name for name in SCORES if name not in metrics] == []


def score_of(name: str, tables: Floats) -> Floats:
    return scored_by(name, tables[..., 1:]) if name in added_scores() else scores(tables)[name]


@pytest.mark.parametrize("name", [*SCORES, *added_scores()])
def test_a_score_of_many_tables_is_that_of_each_and_undefined_without_answers(name: str) -> None:
    drawn = np.random.default_rng(3).integers(0, 9, (6, 4, 5)).astype(np.float64)
    drawn[2, :, 1:] = 0  # nothing was read
    found = score_of(name, drawn)
    alone = [score_of(name, table) for table in drawn]
    np.testing.assert_allclose(found, alone)
    assert np.isnan(found[2]) == (name != "parse_failure")


@pytest.mark.usefixtures("door")
def test_an_aspect_of_a_plug_in_is_measured_and_shown(cli: Cli, tmp_path: Path) -> None:
    def rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
        for contrast in contrasts:
            everything = np.ones(panel.groups.n, dtype=bool)
            size = estimates("size", panel.groups.count().astype(float), n=panel.groups.count())
            yield rows_of(everything, size, contrast.name)

    ASPECTS.add("sizes", Aspect("How many items are there?", rows))
    metrics.add("size", Metric("items asked", is_share=False))
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    assert cli("run", "study.json")[0] == 0
    code, out, err = cli("measure", "runs/door", "--show", "sizes")
    assert code == 0, err
    assert "How many items are there?" in out
    assert re.search(r"items asked +│ +12", out)
    assert "How many items are there?" in cli("list", "aspects")[1]


def within_one(tables: Floats) -> Floats:
    """Share of answers at most one class off."""
    classes = np.arange(tables.shape[-1])
    is_near = np.abs(classes[:, None] - classes) <= 1
    return ratio((tables * is_near).sum(axis=(-2, -1)), tables.sum(axis=(-2, -1)))


WITHIN_ONE = Metric("within one class", needs_order=True, is_better_high=True, score=within_one)


@pytest.mark.usefixtures("door")
def test_a_score_of_a_plug_in_is_measured_in_every_view_and_shown(cli: Cli, tmp_path: Path) -> None:
    metrics.add("within_one", WITHIN_ONE)
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    assert cli("run", "study.json")[0] == 0
    assert "within one class" in cli("measure", "runs/door", "--show", "scores")[1]
    rows = json.loads(cli("measure", "runs/door", "--show", "scores", "--json")[1])["scores"]
    own = [row for row in rows if row["metric"] == "within_one"]
    assert [row["view"] for row in own] == ["base", "reversed"]
    assert {row["note"] for row in own} == {NOT_COVERED}
    assert all(0 <= row["value"] <= 1 and row["low"] is None for row in own)
    assert cli("report", "runs/door", "--out", "r.html")[0] == 0
    assert "within one class" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.search(r"within_one +within one class", cli("list", "metrics")[1])


@pytest.mark.usefixtures("door")
def test_a_score_of_a_plug_in_is_that_of_the_readable_answers_of_each_group() -> None:
    metrics.add("within_one", WITHIN_ONE)
    for key, own in FRAME.filter(repeat=0).group_by("rater", "dataset", "view"):
        found = measure(FRAME, []).filter(metric="within_one", view=key[2])
        (value,) = found.filter(rater=key[0], dataset=key[1])["value"]
        read = own.filter(pl.col("rank") > 0)
        assert value == pytest.approx(((read["rank"] - read["gold"]).abs() <= 1).mean())


@pytest.mark.usefixtures("door")
def test_a_score_that_needs_an_order_has_no_value_where_classes_have_none() -> None:
    metrics.add("within_one", WITHIN_ONE)
    nominal = FRAME.with_columns(nominal=pl.lit(value=True))
    assert "within_one" not in [*measure(nominal, [])["metric"]]


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize(
    ("score", "says"),
    [
        (lambda tables: tables[None]["gone"], "the metric 'mine' failed: IndexError"),
        (lambda tables: tables, "the metric 'mine' has the shape .*; expected one number a table"),
    ],
    ids=["raises", "shape"],
)
def test_a_score_that_fails_is_named(score: Any, says: str) -> None:
    metrics.add("mine", Metric("mine", score=score))
    with pytest.raises(Problem, match=says):
        measure(FRAME, [])


# --- gate limits --------------------------------------------------------------------------------

OF_VIEWS = [name for name, limit in gate_limits.items() if limit.bad is not None]


@pytest.mark.parametrize(
    "name", [name for name in gate_limits if gate_limits[name].bad is not None]
)
def test_a_limit_of_views_is_met_by_perfect_answers_and_missed_by_unread_ones(name: str) -> None:
    n = 200
    rows = {"rater": "r", "dataset": "d", "level": "", "seed": 0, "view": "base", "repeat": 0}
    frame = pl.DataFrame(
        {"item": [f"i{k}" for k in range(n)], "gold": [1 + k % 3 for k in range(n)]}
    )
    frame = frame.with_columns(**{key: pl.lit(one) for key, one in rows.items()}, n_classes=3)
    limit = Limit(name, "base", 0.5)
    for rank, word in ((pl.col("gold"), "met"), (pl.lit(0), "missed")):
        held = hold_limits(frame.with_columns(rank=rank), (), {("r", "d", ""): [limit]})
        assert held["word"].to_list() == [word]


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize(("bound", "code"), [(0.9, 0), (0.0001, 1)])
def test_a_limit_of_a_plug_in_is_a_key_of_a_gate(
    cli: Cli, tmp_path: Path, bound: float, code: int
) -> None:
    (tmp_path / "study.json").write_text(json.dumps(STUDY | {"test_size": 60}))
    assert cli("run", "study.json")[0] == 0
    (tmp_path / "gate.yaml").write_text(f"low: {bound}\n")
    found, _, err = cli("check", "runs/door", "--gate", "gate.yaml")
    assert found == 2
    assert "no key named 'low'" in err
    gate_limits.add("low", GateLimit("the largest share in the two lowest classes", LOW))
    found, out, err = cli("check", "runs/door", "--gate", "gate.yaml")
    assert found == code, err
    assert f"low < {100 * bound:.1f} %" in out


LOW = pl.col("rank") <= 2


@pytest.mark.usefixtures("door")
def test_a_share_of_a_plug_in_is_below_1() -> None:
    gate_limits.add("low", GateLimit("the largest share in the two lowest classes", LOW))
    with pytest.raises(Problem, match="low is 3; a share is below 1"):
        read_gate({"low": 3})


@pytest.mark.usefixtures("door")
def test_a_limit_that_fails_is_named() -> None:
    gate_limits.add("lost", GateLimit("a column that no decision has", pl.col("nowhere") > 1))
    limits = {("r", "five", ""): [Limit("lost", "base", 0.5)]}
    with pytest.raises(Problem, match=r"the gate limit 'lost' failed: ColumnNotFoundError"):
        hold_limits(FRAME, (), limits)


# --- report sections ----------------------------------------------------------------------------

HOSTILE = "<b>a|b</b>[bold]"


@pytest.fixture
def reported(door: None, cli: Cli, tmp_path: Path) -> Cli:
    """The command line beside a run, with a section of a plug-in registered."""

    def table(found: Findings) -> pl.DataFrame:
        return pl.DataFrame({"rater|": [HOSTILE, found.name], "items": [12, None]})

    def empty(found: Findings) -> None:
        return None

    sections.add("who", Section("Who [rated] <this>?", "the raters | by <name>", table))
    sections.add("none", Section("Nothing here", "never shown", empty))
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    assert cli("run", "study.json")[0] == 0
    return cli


def test_a_section_stands_on_the_page_before_the_method(reported: Cli, tmp_path: Path) -> None:
    assert reported("report", "runs/door", "--out", "r.html")[0] == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert "&lt;b&gt;a|b&lt;/b&gt;[bold]" in page
    ids = re.findall(r'<section id="([\w-]+)"', page)
    assert ids.index("items") < ids.index("who") < ids.index("method")
    assert 'href="#who"' in page
    assert "Nothing here" not in page


def test_a_section_stands_in_markdown(reported: Cli, tmp_path: Path) -> None:
    assert reported("report", "runs/door", "--out", "r.md")[0] == 0
    text = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert "### Who \\[rated\\] \\<this\\>?" in text
    assert "| \\<b\\>a\\|b\\</b\\>\\[bold\\] | 12 |" in text
    assert "| door |  |" in text
    assert "Nothing here" not in text


def test_a_section_stands_in_the_terminal(reported: Cli) -> None:
    _, out, _ = reported("measure", "runs/door")
    assert "Who [rated] <this>?" in out
    assert HOSTILE in out
    assert "Nothing here" not in out


def test_a_section_that_fails_is_named(door: None, cli: Cli, tmp_path: Path) -> None:
    def broken(found: Findings) -> pl.DataFrame:
        raise KeyError("gone")

    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    assert cli("run", "study.json")[0] == 0
    sections.add("broken", Section("Broken", "fails", broken))
    code, _, err = cli("report", "runs/door", "--out", "r.md")
    assert code == 2
    assert "the report section 'broken' failed: KeyError: 'gone'" in " ".join(err.split())


def test_every_section_of_the_page_is_in_its_templates() -> None:
    folder = Path(flipmeter.__file__).parent / "show" / "page"
    templates = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.html"))
    assert [name for name in sections if f'<section id="{name}"' not in templates] == []


# --- pairwise+NAME and pointwise+NAME -----------------------------------------------------------


def lowest(compared: Comparisons, mode: Mode) -> Aggregated:
    """Always the lowest class."""
    n_items = len(compared.outcomes)
    return Aggregated(np.ones(n_items, dtype=np.int64), *(np.zeros(n_items, dtype=bool),) * 3)


def ask_nothing(panel: Any) -> list[Any]:
    return []


def flat(panel: Any, heard: Any) -> Prior:
    return batch_prior(np.full((2, panel.n_classes), 1 / panel.n_classes))


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize(
    ("registry", "part", "pipeline"),
    [
        (aggregators, Aggregator(lowest, "the lowest class"), "pairwise+mine"),
        (debiasers, Debiaser("nothing", Bias(ask_nothing, flat)), "pointwise+mine"),
    ],
    ids=["aggregator", "debiaser"],
)
def test_a_pipeline_follows_from_what_it_ends_in(
    cli: Cli, tmp_path: Path, registry: Registry[Any], part: Any, pipeline: str
) -> None:
    study = STUDY | {"pipeline": pipeline}
    (tmp_path / "study.json").write_text(json.dumps(study))
    code, _, err = cli("run", "study.json")
    assert code == 2
    assert f"no pipeline named '{pipeline}'" in " ".join(err.split())
    registry.add("mine", part)
    assert part.about in open_pipeline(pipeline).traits.about
    code, _, err = cli("run", "study.json")
    assert code == 0, err
    assert pipeline in cli("list", "pipelines")[1]


@pytest.mark.usefixtures("door")
def test_an_aggregator_whose_pipeline_exists_is_refused() -> None:
    pipelines.add("pairwise+mine", lambda mode: open_pipeline("pointwise"))
    with pytest.raises(Problem, match="already a pipeline named 'pairwise\\+mine'"):
        aggregators.add("mine", Aggregator(lowest, "the lowest class"))
    assert "mine" not in aggregators
