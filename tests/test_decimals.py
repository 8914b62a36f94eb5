"""Decimal scores: a range of numbers, what counts as the same, and where scores are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import flipmeter as fm
from conftest import Cli
from flipmeter.ask.store import Store
from flipmeter.data.load import load
from flipmeter.errors import Problem
from flipmeter.prompt.parsing import parse
from flipmeter.prompt.probes import contrasts_of
from flipmeter.run.folder import check_table
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.run.rate import writer
from flipmeter.run.rows import DECISION
from flipmeter.show.gather import aspects_of, differences, flips_of, gather, summary
from flipmeter.show.item_grid import Sought
from flipmeter.show.page import render_page
from flipmeter.show.sentences import lean_text
from flipmeter.show.view.flip_pages import Flips
from flipmeter.stats.blocks import Row
from flipmeter.stats.conclude import verdict, verdicts
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions, contrasts_in
from flipmeter.types import Ask, Extract, Message, Prompt, Reply, Scale, Script, Span
from naive_verdict import Table, naive_verdict
from test_core_by_definition import as_core, random_table

Write = Callable[[str, str], Path]
TEN = Span(0, 10, 0.5)
WORDS = ("river", "stone", "lamp", "market", "winter", "paper", "cloud")


def essays(n: int = 70) -> str:
    chance = Random(5)
    rows = [
        f"e{k},{chance.choice(WORDS)} {chance.choice(WORDS)} essay {k},{chance.uniform(0, 10):.1f}"
        for k in range(n)
    ]
    return "id,essay,score\n" + "\n".join(rows) + "\n"


def rating(write: Write, **keys: Any) -> Study:
    write("essays.csv", essays())
    dataset = {"file": "essays.csv", "text": "essay", "label": "score", "id": "id"}
    dataset |= {"scale": {"from": 0, "to": 10}, "within": 0.5} | keys.pop("dataset", {})
    content: dict[str, Any] = {
        "models": ["sim/honest", "sim/recency?strength=6"],
        "datasets": [dataset],
        "test_size": 40,
        "base": {"shots": 3},
    }
    return read_study(write("study.yaml", "{}"), {**content, **keys})


def done(study: Study, folder: Path) -> Any:
    with Store() as store:
        return perform(study, folder / "run", store=store)


# --- a range ------------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [TEN, Span(0, 1, 0.05), Span(-3, 3), Span(1, 5), Span(0, 100, 5)])
def test_a_score_keeps_its_number_as_a_rank(span: Span) -> None:
    for score in np.linspace(span.low, span.high, 37).round(4).tolist():
        assert span.score(span.rank(score)) == pytest.approx(score, abs=1e-9)
    assert span.rank(span.low) == 1
    assert span.rank(span.high) == span.n_ranks
    assert [span.rank(span.low - 0.01), span.rank(span.high + 0.01)] == [0, 0]


@given(st.integers(0, 95), st.integers(0, 100))
def test_scores_exactly_as_far_apart_as_counts_as_the_same_are_the_same(
    low: int, more: int
) -> None:
    """Sums of tenths are not exact in binary: 7.8 - 7.3 must be 0.5 all the same."""
    a, b = TEN.rank(low / 10), TEN.rank(min(low + more, 100) / 10)
    is_apart = min(more, 100 - low) > 5
    assert (abs(a - b) > TEN.tolerance) == is_apart


def test_there_is_no_grid_whose_edges_flip() -> None:
    found = verdict([[4.99, 5.01], [2.49, 2.51], [7.0, 7.5], [7.0, 7.51]], within=0.5)
    assert found.value == 0.25


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"from": 0}, "add `to:`"),
        ({"from": 10, "to": 0}, "no numbers between"),
        ({"from": 0, "to": 10, "with": 1}, "did you mean 'within'"),
        ({"from": "low", "to": 10}, "from is 'low'"),
        ({"from": 0, "to": 10, "within": 10}, "within is 10"),
        ({"from": 0, "to": 10, "within": -1}, "within is -1"),
    ],
)
def test_a_range_that_is_none_is_refused(write: Write, spec: dict[str, Any], says: str) -> None:
    write("essays.csv", essays(4))
    with pytest.raises(Problem, match=re.escape(says)):
        load(
            {"file": "essays.csv", "text": "essay", "label": "score", "scale": spec},
            folder=write("x", "").parent,
        )


def test_what_counts_as_the_same_stands_in_the_scale_or_beside_it(write: Write) -> None:
    beside = rating(write).load()[0]
    inside = rating(write, dataset={"scale": {"from": 0, "to": 10, "within": 0.5}, "within": None})
    assert beside.task.scale.span == inside.load()[0].task.scale.span == TEN
    with pytest.raises(Problem, match="the scale has classes"):
        rating(write, dataset={"scale": [1, 2]}).load()


def test_a_score_outside_the_range_names_its_row(write: Write) -> None:
    write("essays.csv", essays(3) + "e9,a late essay,10.5\n")
    spec = {"file": "essays.csv", "text": "essay", "label": "score", "scale": {"from": 0, "to": 10}}
    with pytest.raises(Problem, match=r"row 5.*number from 0 to 10"):
        load(spec, folder=write("x", "").parent)


# --- reading ------------------------------------------------------------------------------------


def read(text: str, *, span: Span = TEN, how: Extract | None = None, finish: str = "stop") -> Any:
    prompt = Prompt(Script.of([Message("user", "?")]), (), (), "numbers", span)
    found = parse(Reply(text, finish), prompt, how)
    return found.fault or span.score(found.rank)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("7.5", 7.5),
        (" 7,5. ", 7.5),
        ("**8.25**", 8.25),
        ("Score: 7.5/10", 7.5),
        ("I'd give it 8 out of 10.", 8.0),
        ("10/10", 10.0),
        ("On a scale of 0 to 10, I rate it 6.5", 6.5),
        ("Rating: 4.5 (on a scale from 0 to 10)", 4.5),
        ("1. Clear\n2. Well argued\nScore: 8.5", 8.5),
        ("The answer is 7.5 because of 3 slips.", 7.5),
        ("<think>9, or 4?</think>7.25", 7.25),
        ("In 2023 it would be a 9", 9.0),
        ("between 7 and 8", "ambiguous"),
        ("7-8", "ambiguous"),
        ("11", "unparsed"),
        ("95%", "unparsed"),
        ("no idea", "unparsed"),
        ("I cannot rate this.", "refused"),
    ],
)
def test_a_score_is_read_from_a_reply(text: str, score: object) -> None:
    assert read(text) == score


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("7", "truncated"),
        ("7.", "truncated"),
        ("7.5 because", 7.5),
        ("The essay has 3", "truncated"),
    ],
)
def test_a_score_at_the_end_of_a_cut_reply_may_go_on(text: str, score: object) -> None:
    assert read(text, finish="length") == score


def test_a_score_is_read_where_a_structured_reply_has_it() -> None:
    path, pattern = Extract(json="$.score"), Extract(regex=r"\[\[(.+?)\]\]")
    assert read('{"why": "3 slips", "score": 7.5}', how=path) == 7.5
    assert read('{"score": "7.5/10"}', how=path) == 7.5
    assert read('{"score": NaN}', how=path) == "unparsed"
    assert read("I saw 3 slips: [[6.25]]", how=pattern) == 6.25


def test_negative_numbers_are_read_and_mirrored() -> None:
    span = Span(-3, 3, 0.5)
    assert read("-2.5", span=span) == read("\u22122.5", span=span) == -2.5
    prompt = Prompt(Script.of([Message("user", "?")]), (), (), "numbers", span, is_mirrored=True)
    assert span.score(parse(Reply("-2.5"), prompt).rank) == 2.5


# --- a study ------------------------------------------------------------------------------------


def test_only_the_probes_that_apply_are_asked(write: Write) -> None:
    grid = conditions(study := rating(write))
    assert "reversed" not in {one.view.name for one in grid}
    names = [contrast.name for contrast in contrasts_in(study, grid)]
    assert names == ["P2a", "P2b", "P2c", "P2", "P3a", "P3b", "P3"]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"probes": ["label_order"]}, "'label_order' reverses the list of labels"),
        ({"pipeline": "pointwise+pride"}, "needs a list of classes"),
        ({"scores": True}, "`scores` needs a list of classes"),
        ({"base": {"cardinality": 3, "shots": 0}}, "`cardinality` needs a list of classes"),
        ({"vary": {"label_format": ["letter"]}}, "label format 'letter' needs a list of classes"),
        ({"dataset": {"weights": {"low": 1}}}, "classes have frequencies"),
        ({"dataset": {"options": ["essay", "id"]}}, "an answer names an option"),
    ],
)
def test_what_needs_classes_is_refused(write: Write, keys: dict[str, Any], says: str) -> None:
    with pytest.raises(Problem, match=re.escape(says)):
        conditions(rating(write, **keys))


def test_the_prompt_asks_for_a_number_and_shows_numbers(write: Write) -> None:
    one = conditions(rating(write))[0]
    text = writer(one)(Ask(one.items[0], one.view)).text
    assert "a number from 0 (low) to 10 (high), decimals allowed" in text
    shown = re.findall(r"Label: (\S+)", text)
    assert sorted(map(float, shown)) == sorted(one.task.scale.span.score(d.rank) for d in one.demos)  # type: ignore[union-attr]


def test_a_prompt_file_is_told_the_range(write: Write) -> None:
    write("judge.txt", "Rate from {{ labels }}.\n\n{{ text }}")
    one = conditions(rating(write, prompt="judge.txt", probes=["system_user"]))[0]
    assert writer(one)(Ask(one.items[0], one.view)).text.startswith("Rate from 0 to 10.")


# --- a run --------------------------------------------------------------------------------------


@pytest.fixture
def run(write: Write, tmp_path: Path) -> Any:
    return done(rating(write), tmp_path)


def test_a_planted_pull_flips_and_an_honest_rater_does_not(run: Any) -> None:
    words = {(r, c): w for r, c, w in run.verdicts.select("rater", "contrast", "word").iter_rows()}
    assert {w for (rater, _), w in words.items() if rater == "sim/honest"} == {"stable"}
    assert words["sim/recency?strength=6", "P2b"] == "flips"


def test_direction_and_distance_are_in_units(run: Any) -> None:
    """The mean step, and MAE, by hand from the scores that the run recorded."""
    mine = run.decisions.filter(rater="sim/recency?strength=6", repeat=0)
    wide = mine.pivot("view", index="item", values="score")
    step = float((wide["descending"] - wide["random"]).mean())
    row = run.verdicts.filter(rater="sim/recency?strength=6", contrast="P2b").row(0, named=True)
    assert row["direction"] == pytest.approx(step)
    base = mine.filter(view="base")
    away = float((base["score"] - base["gold_score"]).abs().mean())
    told = run.estimates.filter(rater="sim/recency?strength=6", view="base", metric="mae")
    assert told["value"].item() == pytest.approx(away)
    severity = aspects_of(run, ["severity"])["severity"].filter(metric="difference", view="P2b")
    apart = float((wide["descending"] - wide["random"]).abs().mean())
    assert severity.filter(rater="sim/recency?strength=6")["value"].item() == pytest.approx(apart)


def test_a_flip_is_a_difference_beyond_what_counts_as_the_same(run: Any) -> None:
    mine = run.decisions.filter(rater="sim/recency?strength=6", repeat=0)
    wide = mine.pivot("view", index="item", values="score")
    apart = ((wide["descending"] - wide["random"]).abs() > 0.5 + 1e-9).sum()
    told = run.estimates.filter(
        rater="sim/recency?strength=6", metric="P2b", policy="complete"
    ).row(0, named=True)
    assert (told["k"], told["n"]) == (apart, 40)


def test_what_needs_classes_is_absent(run: Any) -> None:
    metrics = {*run.estimates["metric"]}
    assert not metrics & {"macro_f1", "macro_f1_present", "qwk", "kendall_tau_b"}
    assert {"accuracy", "pearson", "spearman", "mae", "mae_normalised"} <= metrics
    found = aspects_of(run, ["matrix", "slots", "confidence", "severity", "worst"])
    assert [found[name].is_empty() for name in ("matrix", "slots", "confidence")] == [True] * 3
    assert not {"kappa", "qwk", "alpha", "far"} & {*found["severity"]["metric"]}


def test_the_correlations_are_those_of_scipy(run: Any) -> None:
    from scipy import stats

    base = run.decisions.filter(rater="sim/honest", view="base", repeat=0)
    told = run.estimates.filter(rater="sim/honest", view="base", policy="complete")
    for name, of in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        value = of(base["score"].to_numpy(), base["gold_score"].to_numpy()).statistic
        assert told.filter(metric=name)["value"].item() == pytest.approx(value)


def test_every_page_shows_scores_and_no_ranks(run: Any) -> None:
    ranks = re.compile(r"\bclass \d|\b\d{6,8}\b(?![0-9a-f])")
    page = re.sub(r"<(style|script).*?</\1>", "", render_page(gather(run)), flags=re.DOTALL)
    shown = Console(width=160, file=StringIO())
    shown.print(*summary(run))
    told = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "accuracy, within 0.5 of gold" in page
    assert "No item flipped" not in page  # the other rater's scores move
    assert "Decimal scores have no table of classes." in page
    assert "lower scores" in told or "higher scores" in told
    assert not ranks.findall(re.sub(r"[0-9a-f]{8,}|\d{4}-\d\d-\d\d", "", told))
    flips = flips_of(run)
    assert flips["score"].null_count() == 0
    assert (flips["distance"] > 0.5).all()


def test_the_viewer_lists_the_flips_farthest_first(run: Any) -> None:
    rows = Flips(run).page(Sought(order="distance"))
    assert rows["distance"].n_unique() > 1
    assert rows["distance"].to_list() == sorted(rows["distance"], reverse=True)


def test_a_run_compared_with_itself_does_not_differ(run: Any) -> None:
    table = differences(run, run)
    assert {"accuracy", "pearson", "mae_normalised"} <= {*table["metric"]}
    assert {*table["word"]} == {"not distinguishable"}


def test_raters_that_differ_are_told_apart(write: Write, tmp_path: Path) -> None:
    first = done(rating(write, models="sim/honest"), tmp_path / "a")
    second = done(rating(write, models="sim/recency?strength=6"), tmp_path / "b")
    words = dict(differences(first, second).select("metric", "word").iter_rows())
    assert words["P2b"] == "higher"
    assert words["accuracy"] == "lower"


def test_until_settles_a_claim_about_scores(write: Write, tmp_path: Path) -> None:
    study = rating(write, models="sim/honest", until="P3a<0.20", block_size=20)
    assert done(study, tmp_path).environment["claim"]["is_decided"]


# --- the core -----------------------------------------------------------------------------------

LISTED = 2_000
STEP = 1e-7
"""The distance between two ranks on a scale from 0 to 1."""


def scored(seed: int) -> Table:
    """A random table whose replies are scores, of which some differ by no more than counts."""
    table = random_table(seed)
    far = [1, 2, 4, 7, 8]
    blocks = [
        tuple(tuple(x if x < 1 else far[x - 1] for x in view) for view in block)
        for block in table.blocks
    ]
    return replace(table, blocks=blocks, nominal=False, places=None, within=seed % 4)


@pytest.mark.parametrize("seed", range(40))
def test_a_verdict_on_scores_is_what_its_definition_says(seed: int) -> None:
    table = scored(seed)
    span, replies = Span(0, 1, (table.within or 0) * STEP), np.array(table.blocks)
    row = Row(replies[:, :, 0], replies[:, :, 1], table.clusters, table.reproducible, span=span)
    (found,) = verdicts(
        [row],
        margin=table.margin,
        alpha=table.alpha,
        unreadable_limit=table.limit,
        draws=LISTED,
    )
    naive = naive_verdict(table, most=LISTED)
    expected = as_core(naive)
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected, abs=1e-9)
    if found.p is not None and naive.p is not None:
        assert found.p == pytest.approx(naive.p)
    if naive.word:
        assert found.word == naive.word


def test_noise_alone_is_seldom_called_an_effect() -> None:
    chance, n_false = np.random.default_rng(4), 0
    for _ in range(120):
        level = chance.uniform(2, 8, 30)[:, None]
        first, again = (level + chance.normal(0, 0.5, (30, 2)) for _ in range(2))
        p = verdict(first, repeats=again, within=0.5, draws=300).p
        n_false += p is not None and p < 0.05
    assert n_false <= 12  # 6 expected; more than 12 once in a hundred times


def test_a_drift_that_repeats_hide_is_found() -> None:
    """Each view is as noisy as the other, and the second leans up: the excess is small."""
    chance = np.random.default_rng(1)
    first, again = (np.where(chance.random((150, 2)) < [0.35, 0.65], 8.0, 3.0) for _ in range(2))
    found = verdict(first, repeats=again, within=0.5)
    assert found.word == "flips"
    assert found.shift == pytest.approx(0.3, abs=0.1)
    assert "scores move one way" in found.reason
    assert found.leans == "up"


def test_answers_that_never_change_are_named_by_their_score() -> None:
    found = verdict(np.full((30, 2), 7.5), repeats=np.full((30, 2), 7.5), within=0.5)
    assert [one.text for one in found.findings if one.name == "constant answers"] == [
        "always answers 7.5"
    ]


# --- pairs --------------------------------------------------------------------------------------

JUDGE = '''
def judge(question):
    """Prefer the longer answer by its length, and what stands first by a point."""
    a, b = question.fields["a"], question.fields["b"]
    return max(-3.0, min(3.0, (len(a) - len(b)) / 4 + 1.0))


def fair(question):
    return max(-3.0, min(3.0, (len(question.fields["a"]) - len(question.fields["b"])) / 4))
'''


@pytest.mark.usefixtures("trusted")
def test_a_pair_rated_by_a_number_is_mirrored_when_it_is_swapped(
    write: Write, tmp_path: Path
) -> None:
    chance = Random(3)
    rows = [
        f"q{k},{'x' * chance.randint(4, 12)}{k},{'y' * chance.randint(4, 12)}{k}" for k in range(60)
    ]
    write("pairs.csv", "question,a,b\n" + "\n".join(rows) + "\n")
    write("judges.py", JUDGE)
    dataset = {
        "file": "pairs.csv",
        "label": None,
        "fields": {"question": "question", "a": "a", "b": "b"},
        "exchange": ["a", "b"],
        "scale": {"from": -3, "to": 3, "within": 0.5},
    }
    content = {
        "models": ["python/judges.py:judge", "python/judges.py:fair"],
        "datasets": [dataset],
        "base": {"shots": 0},
        "test_size": 60,
    }
    run = done(read_study(write("study.yaml", "{}"), content), tmp_path)
    assert [contrast.name for contrast in run.contrasts] == ["P6"]
    words = dict(run.verdicts.select("rater", "word").iter_rows())
    assert words == {"python/judges.py:judge": "flips", "python/judges.py:fair": "stable"}
    pairs = aspects_of(run, ["pairs"])["pairs"].filter(metric="first_share")
    shares = dict(pairs.select("rater", "value").iter_rows())
    assert shares["python/judges.py:judge"] > 0.6
    assert shares["python/judges.py:fair"] == 0.5
    sentences = " ".join(str(one) for one in gather(run).sentences)
    assert "towards the answer shown first" in sentences


# --- tables, cards and classifiers ----------------------------------------------------------------


def table(chance: Random) -> str:
    rows = []
    for k in range(60):
        gold = chance.uniform(2, 8)
        for view, lean in (("base", 0.0), ("other", 0.9 if k % 2 else 0.0)):
            for repeat in (0, 1):
                score = gold + lean + chance.gauss(0, 0.1)
                rows.append(f"i{k},{view},{score:.2f},{gold:.2f},{repeat}")
    return "item,condition,label,gold,repeat\n" + "\n".join(rows) + "\n"


def test_a_table_of_scores_is_measured(write: Write, cli: Cli) -> None:
    path = str(write("scores.csv", table(Random(2))))
    code, _, err = cli("measure", path)
    assert code == 2
    assert "--scale 0..10 --within 0.5" in err
    code, out, _ = cli("measure", path, "--scale", "0..10", "--within", "0.5", "--json")
    assert code == 0
    verdicts = json.loads(out)["verdicts"]
    assert [row["word"] for row in verdicts] == ["flips"]
    assert verdicts[0]["direction"] == pytest.approx(0.45, abs=0.1)
    code, _, err = cli("measure", path, "--scale", "low,high", "--within", "0.5")
    assert code == 2
    assert "--scale 0..10" in err


def test_our_own_decisions_are_read_back_as_a_table(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "decisions.parquet"
    run.decisions.write_parquet(path)
    again = fm.Run(path)
    columns = ["rater", "contrast", "word", "value", "direction"]
    first = run.verdicts.select(columns).sort("rater", "contrast")
    second = again.verdicts.select(columns).sort("rater", "contrast")
    assert second.equals(first)


def test_a_gate_holds_the_distance_in_units(run: Any, cli: Cli, write: Write) -> None:
    gate = write("gate.yaml", "mae: 3.0\naccuracy: 0.05\nflips: {P3a: 0.2}\n")
    code, out, _ = cli("check", str(run.folder), "--gate", str(gate), "--json")
    rows = {(row["rater"], row["metric"]): row for row in json.loads(out)["claims"]}
    assert rows["sim/honest", "mae"]["word"] == "met"
    assert rows["sim/honest", "mae"]["value"] < 1
    assert code in (0, 3)


def test_the_choice_becomes_a_card_that_predicts_numbers(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.folder.parent)
    choice = fm.Run(run.folder).select(max_flip={"P2b": 0.5}, by="mae")
    assert choice.card().task.span == {"from": 0.0, "to": 10.0, "within": 0.5}
    rater = choice.classifier(store=None)
    texts = run.items.filter(role="test").head(5)
    given = rater.predict(texts["text"].to_list())
    assert given.dtype == np.float64
    gold = [TEN.score(rank) for rank in texts["gold"]]
    assert np.abs(given - np.array(gold)).max() < 2


@pytest.mark.usefixtures("trusted")
def test_a_classifier_of_scores_is_fitted_on_numbers(write: Write, tmp_path: Path) -> None:
    write("rater.py", "def rate(question):\n    return len(question.text) / 4\n")
    model = f"python/{tmp_path / 'rater.py'}:rate"
    scale = {"from": 0, "to": 10, "within": 0.5}
    rater = fm.OrdinalClassifier(model, scale=scale, shots=2, store=None)
    texts = ["ab", "abcdefgh", "abcdefghijkl", "abcdefghijklmnopqrst"]
    rater.fit(texts, [0.5, 2.0, 3.0, 5.0])
    assert rater.predict([*texts, "a" * 60]).tolist()[:4] == [0.5, 2.0, 3.0, 5.0]
    assert np.isnan(rater.predict(["a" * 60])).all()
    assert rater.score(texts, [0.9, 2.0, 3.6, 5.5]) == 0.75
    rater.save(tmp_path / "card.yaml")
    again = fm.OrdinalClassifier.load(tmp_path / "card.yaml", store=None, trust=True)
    assert again.predict(texts).tolist() == [0.5, 2.0, 3.0, 5.0]


@pytest.mark.usefixtures("trusted")
def test_a_callable_that_says_no_number_is_an_error_of_that_reply(
    write: Write, tmp_path: Path
) -> None:
    write("rater.py", "def rate(question):\n    return float('nan')\n")
    study = rating(write, models="python/rater.py:rate", probes=["placement"])
    with Store() as store:
        run = perform(study, tmp_path / "run", store, Terms(anyway=True))
    assert {*run.decisions["fault"]} == {"error"}


def test_a_scale_without_names_is_a_scale() -> None:
    assert Scale((), span=TEN)
    with pytest.raises(Problem, match="not both"):
        Scale(("low", "high"), span=TEN)


def test_a_run_of_before_there_were_scores_is_read(write: Write, tmp_path: Path) -> None:
    study = read_study(
        write("study.yaml", "{}"),
        {"models": "sim/honest", "datasets": "reviews", "test_size": 20, "base": {"shots": 0}},
    )
    run = done(study, tmp_path)
    old = tmp_path / "old.parquet"
    run.decisions.drop(one.name for one in DECISION.columns if one.since > 3).write_parquet(old)
    assert check_table(old.rename(old.with_name("decisions.parquet")), format=3)


def test_mixed_studies_keep_both_kinds_apart(write: Write, tmp_path: Path) -> None:
    write("essays.csv", essays())
    spec = {"file": "essays.csv", "text": "essay", "label": "score", "id": "id"}
    decimal = {**spec, "scale": {"from": 0, "to": 10, "within": 0.5}}
    study = read_study(
        write("study.yaml", "{}"),
        {
            "models": "sim/honest",
            "datasets": [decimal, "reviews"],
            "test_size": 20,
            "base": {"shots": 2},
        },
    )
    run = done(study, tmp_path)
    by_dataset = run.estimates.filter(metric="macro_f1")["dataset"].unique().to_list()
    assert by_dataset == ["reviews"]
    assert "essays" not in run.verdicts.filter(contrast="P1", status="measured")["dataset"]
    assert render_page(gather(run))


def test_scores_that_drift_within_the_tolerance_have_no_flips_to_count() -> None:
    (contrast, *_) = contrasts_of(["placement"])
    row = {"leans": "down", "moved_up": 0, "moved_down": 0, "reason": "", "decimal": True}
    assert lean_text(row, contrast) == "drifts towards the lower scores, within the tolerance"
    flipped = lean_text({**row, "moved_down": 3}, contrast)
    assert flipped == "all 3 towards the lower scores"
    some = lean_text({**row, "moved_down": 1_200, "moved_up": 3}, contrast)
    assert some == "mostly towards the lower scores (1,200 of 1,203)"


def test_one_item_with_the_lowest_gold_is_enough_for_an_accuracy(write: Write) -> None:
    rows = [f"i{k},{view},{k}.5,{'0' if not k else ''}" for k in range(4) for view in ("x", "y")]
    path = write("few.csv", "item,condition,label,gold\n" + "\n".join(rows) + "\n")
    found = fm.Run(path, scale={"from": 0, "to": 10, "within": 1}).estimates
    accuracy = found.filter(metric="accuracy", policy="complete").select("view", "n", "value")
    assert sorted(accuracy.rows()) == [("x", 1, 1.0), ("y", 1, 1.0)]


def test_scores_that_are_all_right_leave_room_for_an_error_not_seen_yet(write: Write) -> None:
    rows = [f"i{k},{view},{k % 10},{k % 10}" for k in range(30) for view in ("x", "y")]
    path = write("right.csv", "item,condition,label,gold\n" + "\n".join(rows) + "\n")
    found = fm.Run(path, scale={"from": 0, "to": 10, "within": 0.5}).estimates
    row = found.filter(metric="pearson", view="x").row(0, named=True)
    assert row["value"] == pytest.approx(1.0)
    assert row["low"] < 0.99 < row["high"]


def test_scores_that_must_be_equal_are_told_of_a_tolerance_not_of_more_items(
    write: Write, tmp_path: Path, cli: Cli
) -> None:
    write("essays.csv", essays())
    write(
        "study.yaml",
        "{models: [sim/biased-noisy], repeats: 2, probes: [demo_order], base: {shots: 2}, "
        "datasets: [{file: essays.csv, text: essay, label: score, scale: {from: 0, to: 10}}]}",
    )
    out = " ".join(cli("run", "study.yaml", "--out", "run")[1].split())
    assert re.search(r"any difference counts now, and (9\d|100) % of repeats differ; \d+ % ", out)
    assert "differ by more than 0.5." in out
    assert "Rate more items" not in out
    assert "Add rows" not in out
    step = "run study.yaml --set datasets.0.within=0.5 --out run"
    assert f"flipmeter {step}" in out
    again = " ".join(cli(*step.split())[1].split())
    assert "any difference counts" not in again
    assert fm.Run(tmp_path / "run").source.scales["essays"].span == TEN
