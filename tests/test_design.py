"""What a study asks: fewer classes, fewer items per probe, factors on some datasets only."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.ask.store import Store
from flipmeter.data.load import load
from flipmeter.data.sampling import merge, merging_of
from flipmeter.design import cell_name, factorial, levels_of, parse_cell
from flipmeter.errors import Problem
from flipmeter.run.perform import perform
from flipmeter.show.flipped_items import flipped_pair, views_of_item
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions
from flipmeter.study.sizes import draw_sample, merged_for
from flipmeter.types import Condition, Scale, Style

SMALL: dict[str, Any] = {"models": ["sim/honest"], "datasets": ["reviews"], "test_size": 50}
FIVE = Scale(("very negative", "negative", "neutral", "positive", "very positive"))


def study(**changes: Any) -> Study:
    return read_study({**SMALL, **changes})


def golds(of: Condition) -> tuple[dict[int | None, int], dict[int | None, int]]:
    return Counter(i.gold for i in of.items), Counter(d.gold for d in of.demos)


# Fewer classes


@pytest.mark.parametrize(
    ("size", "n_items", "demos"),
    [(3, 50, {1: 10, 2: 5, 3: 10}), (2, 40, {1: 10, 2: 10})],
)
def test_remapping_keeps_items_and_demonstrations_and_changes_their_labels(
    size: int, n_items: int, demos: dict[int, int]
) -> None:
    for changes in ({"mode": "paper"}, {"cardinality_sample": "remap"}):
        full, merged = (
            conditions(study(**changes, base={"cardinality": classes}))[0]
            for classes in (None, size)
        )
        assert golds(merged)[1] == demos
        assert len(merged.items) == n_items
        kept = {item.id for item in merged.items}
        assert [i.id for i in full.items if i.id in kept] == [i.id for i in merged.items]
        assert {d.id for d in merged.demos} <= {d.id for d in full.demos}
        assert len(merged.task.scale) == size


def test_redrawing_gives_each_merged_class_its_share_and_its_demonstrations() -> None:
    for changes in ({}, {"mode": "paper", "cardinality_sample": "redraw"}):
        merged = conditions(study(**changes, base={"cardinality": 2}))[0]
        assert golds(merged) == ({1: 25, 2: 25}, {1: 5, 2: 5})


def test_items_that_remapping_drops_are_counted_and_said() -> None:
    paper = study(mode="paper", vary={"cardinality": [3, 2]})
    (reviews,) = paper.load()
    drawn = draw_sample(paper, reviews, paper.levels()["cardinality=2"].style, 0)
    assert drawn.left_out["middle class, of the test set"] == 10
    assert "10 of 50 test items belong to no merged class" in drawn.notes[-1]


def test_a_run_says_what_each_number_of_classes_left_out(tmp_path: Path) -> None:
    paper = study(mode="paper", vary={"cardinality": [2]}, probes=["label_order"], repeats=1)
    with Store() as store:
        run = perform(paper, tmp_path, store)
    assert run.warnings == {}  # a simulated rater has a table for each scale, and is the same
    told = run.environment["datasets"]
    assert {name: about["n_items"] for name, about in told.items()} == {
        "reviews": 50,
        "reviews/2": 40,
    }
    assert told["reviews/2"]["left_out"]["middle class, of the test set"] == 10
    rows = run.estimates.filter(metric="P1", policy="complete")
    assert dict(rows.select("dataset", "n").rows()) == {"reviews": 50, "reviews/2": 40}


@pytest.mark.parametrize(
    ("groups", "names", "ranks"),
    [
        (
            [[1, 2], [3], [4, 5]],
            ("negative", "neutral", "positive"),
            {1: 1, 2: 1, 3: 2, 4: 3, 5: 3},
        ),
        ({"bad": [1], "so-so": [2, 3, 4], "good": [5]}, ("bad", "so-so", "good"), None),
        ([["very negative"], ["very positive"]], ("very negative", "very positive"), {1: 1, 5: 2}),
        ([[1], [2, 3], [4, 5]], ("very negative", "negative or neutral", "positive"), None),
    ],
)
def test_a_study_says_which_classes_become_one(
    groups: Any, names: tuple[str, ...], ranks: dict[int, int] | None
) -> None:
    merging = merging_of(FIVE, len(groups), groups)
    assert merging.names == names
    assert ranks is None or merging.ranks == ranks


@pytest.mark.parametrize("remapped", ["redraw", "remap"])
def test_a_merge_map_reaches_the_prompts(remapped: str) -> None:
    ours = study(
        merge={3: {"bad": [1], "so-so": [2, 3, 4], "good": [5]}},
        base={"cardinality": 3},
        cardinality_sample=remapped,
    )
    first = conditions(ours)[0]
    assert first.task.scale.names == ("bad", "so-so", "good")
    assert golds(first)[1] == ({1: 5, 2: 15, 3: 5} if remapped == "remap" else {1: 5, 2: 5, 3: 5})
    again = read_study(yaml.safe_load(yaml.safe_dump(ours.model_dump(mode="json"))))
    assert again.model_dump() == ours.model_dump()


def test_classes_in_no_group_are_left_out_and_counted() -> None:
    reviews = load("reviews")
    ends = merge(reviews, 2, [[1], [5]])
    dropped = len(reviews.test) - len(ends.test)
    assert ends.left_out["class in no group"] == dropped > 0


def test_a_scale_that_has_the_number_of_classes_is_left_alone() -> None:
    five = study(merge={5: [[1], [2], [3], [4], [5]]}, base={"cardinality": 5})
    (reviews,) = five.load()
    assert merged_for(five, reviews, five.style) is reviews


def test_what_a_study_draws_from_a_dataset_is_drawn_once() -> None:
    reviews = load("reviews")
    three = study(base={"cardinality": 3})
    drawn = draw_sample(three, reviews, three.style, 0)
    assert draw_sample(three, reviews, three.style, 0) is drawn
    assert merged_for(three, reviews, three.style) is merged_for(three, reviews, three.style)


def test_what_was_drawn_before_is_not_drawn_for_other_sizes() -> None:
    reviews = load("reviews")
    three = study(base={"cardinality": 3})
    drawn = draw_sample(three, reviews, three.style, 0)
    for other in (
        study(base={"cardinality": 3}, test_size=6),
        study(base={"cardinality": 2}),
        study(base={"cardinality": 3}, merge={3: [[1], [2, 3, 4], [5]]}),
        study(base={"cardinality": 3, "shots": 1}),
    ):
        assert draw_sample(other, reviews, other.style, 0) != drawn
    assert draw_sample(three, reviews, three.style, 1).demos != drawn.demos


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"merge": {3: [[1, 2], [3]]}}, "does not make 3 classes"),
        ({"merge": {3: [[1, 3], [2], [4]]}}, "does not make 3 classes of neighbours"),
        ({"merge": {3: [[1], [2], [6]]}}, "merge: no class 6"),
        ({"merge": {3: [["negativ"], [3], [4]]}}, "no class 'negativ'.*did you mean 'negative'"),
        ({"merge": {3: [[1], [], [5]]}}, "does not make 3 classes"),
        ({"cardinality_sample": "redrw"}, "cardinality_sample"),
        ({"probe_items": {"placment": 3}}, "no probe named 'placment'"),
        ({"probe_items": {"placement": 0}}, "probe_items"),
        ({"only_on": {"cardinalty": ["reviews"]}}, "no factor named 'cardinalty'"),
        ({"vary_models": ["sim/honst"]}, "no model named 'sim/honst'; did you mean 'sim/honest'"),
        ({"only_on": {"mood": ["review"]}}, "no dataset named 'review'; did you mean 'reviews'"),
    ],
)
def test_a_wrong_design_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem, match=message):
        conditions(study(base={"cardinality": 3}, **changes))


# Fewer items for a probe, factors on some datasets


def test_a_probe_with_fewer_items_takes_the_first_and_contrasts_stay_paired(
    tmp_path: Path,
) -> None:
    few = study(models=["sim/last-slot"], probe_items={"placement": 12, "label_order": 30})
    grid = conditions(few)
    sizes = {c.view.name: len(c.items) for c in grid if not c.view.repeat}
    orders = {"ascending": 50, "descending": 50, "random": 50}
    assert sizes == {"base": 50, "reversed": 30, **orders, "after": 12, "split": 12}
    assert {c.items for c in grid if c.view.name == "after"} == {grid[0].items[:12]}
    with Store() as store:
        run = perform(few, tmp_path, store)
    rows = run.estimates.filter(policy="strict").to_dicts()
    n = {row["metric"]: row["n"] for row in rows if row["metric"].startswith("P")}
    assert (n["P1"], n["P2a"], n["P2"], n["P3a"], n["P3"]) == (30, 50, 50, 12, 12)
    pair = flipped_pair(run)
    assert pair is not None
    assert pair[0].name == "P1"


def test_a_view_is_shown_for_an_item_that_its_probe_does_not_ask() -> None:
    grid = conditions(study(probe_items={"placement": 2}, repeats=1))
    assert {"after", "split"} <= {name for name, _ in views_of_item(grid, 40)}


def test_a_repeat_never_has_items_that_the_view_lacks() -> None:
    grid = conditions(study(probe_items={"label_order": 7}))
    assert {len(c.items) for c in grid if c.view.name == "reversed"} == {7}


def test_a_factor_may_be_varied_on_some_datasets_only() -> None:
    both = study(
        vary={"cardinality": [3, 2], "mood": ["indicative"]},
        only_on={"cardinality": ["reviews"]},
    )
    reviews = load("reviews")
    grid = conditions(both, [reviews, replace(reviews, name="other")])
    levels = {(c.dataset, c.level) for c in grid}
    assert levels == {
        ("reviews", ""),
        ("reviews/3", "cardinality=3"),
        ("reviews/2", "cardinality=2"),
        ("reviews", "mood=indicative"),
        ("other", ""),
        ("other", "mood=indicative"),
    }


def test_one_model_may_be_varied_and_the_others_stay_at_the_base() -> None:
    two = {"models": ["sim/honest", "sim/noisy"], "vary": {"mood": ["indicative"]}}
    grid = conditions(study(**two, vary_models=["sim/noisy"]))
    levels = {(c.rater.name, c.level) for c in grid}
    assert levels == {("sim/honest", ""), ("sim/noisy", ""), ("sim/noisy", "mood=indicative")}


def test_the_aggregate_of_orders_can_leave_the_base_out() -> None:
    views = {c.name: c.views for c in study(aggregate_includes_base=False).contrasts}
    assert views["P2"] == ("ascending", "descending", "random")
    assert views["P3"] == ("base", "after", "split")
    assert views["P2c"] == ("base", "random")
    assert next(c.views[0] for c in study().contrasts if c.name == "P2") == "base"


# Cells and their names

VALUES = st.one_of(st.integers(0, 99), st.from_regex(r"[a-z_]{1,8}", fullmatch=True))


def grid(*sizes: int) -> dict[str, list[int]]:
    return {f"f{place}": list(range(size)) for place, size in enumerate(sizes)}


def test_a_factorial_has_every_allowed_cell_once_the_base_first() -> None:
    cells = factorial(grid(3, 2), allowed=lambda cell: cell != {"f0": 2, "f1": 1})
    assert cells[0] == {"f0": 0, "f1": 0}
    assert len({tuple(cell.values()) for cell in cells}) == len(cells) == 5


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({}, "needs a factor"),
        ({"mood": []}, "has no levels"),
        ({"mood": ["a", "a"]}, "more than once"),
        (grid(*[4] * 10), "vary fewer factors"),
    ],
)
def test_a_factorial_that_cannot_be_is_refused(levels: dict[str, list[Any]], words: str) -> None:
    with pytest.raises(Problem, match=words):
        factorial(levels)


def test_a_base_that_is_not_allowed_is_refused() -> None:
    with pytest.raises(Problem, match=r"the base .* is not allowed"):
        factorial(grid(3, 3), allowed=lambda cell: cell["f0"] != 0)


@given(st.dictionaries(st.sampled_from(["mood", "shots", "clarity", "own"]), VALUES))
def test_a_name_says_what_differs_and_is_read_back(cell: dict[str, Any]) -> None:
    base = {"mood": "imperative", "shots": 5, "clarity": "explicit", "own": "x"}
    changed = {name: str(value) for name, value in cell.items() if value != base[name]}
    assert parse_cell(cell_name(base, cell)) == changed


def test_names_stand_in_the_order_of_style_and_one_change_is_named_as_ever() -> None:
    base = vars(Style())
    assert cell_name(base, {"shots": 1, "label_format": "letter"}) == "label_format=letter,shots=1"
    assert cell_name(base, {"shots": 1, "label_format": "numeric"}) == "shots=1"
    assert cell_name(base, vars(Style())) == ""


@pytest.mark.parametrize("name", ["P1", "mood=a,mood=b", "=a", "mood=a=b", "mood=a,"])
def test_a_name_that_is_no_cell_is_refused(name: str) -> None:
    with pytest.raises(Problem, match="is not a cell of a design"):
        parse_cell(name)


def test_a_level_with_a_comma_has_no_name() -> None:
    with pytest.raises(Problem, match="comma"):
        cell_name({"mood": "a"}, {"mood": "b,c"})


def test_levels_begin_with_the_base_and_leave_out_what_does_not_vary() -> None:
    vary: dict[str, list[Any]] = {
        "shots": [0, 5, 1],
        "mood": ["imperative"],
        "clarity": ["minimal"],
    }
    assert levels_of(vars(Style()), vary) == {
        "clarity": ("explicit", "minimal"),
        "shots": (5, 0, 1),
    }
