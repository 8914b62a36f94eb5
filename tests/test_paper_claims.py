"""Claims of the paper, decided on planted answers: each must hold, fail, or say what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import polars as pl
import pytest

from flipmeter.paper.claims import Decided, DecidedPart, Part, decide_claim, paper_claims
from flipmeter.paper.evidence import Phase, PhaseRuns
from flipmeter.prompt.probes import contrasts_of
from flipmeter.stats.differences import Asserted, Relation, all_asserted, asserted, some_asserted
from flipmeter.stats.estimates import measure
from flipmeter.stats.judge import verdicts
from flipmeter.stats.residuals import absolutes
from flipmeter.types import Contrast, Mode
from hand_made import group

N = 100
CONTRASTS = contrasts_of(["label_order", "demo_order", "placement"])
VIEWS = {
    "P1": ("base", "reversed"),
    "P2a": ("random", "ascending"),
    "P2b": ("random", "descending"),
    "P3a": ("base", "after"),
    "P3b": ("base", "split"),
}
OPPOSITE: dict[Relation, Relation] = {
    "up": "down",
    "down": "up",
    "same": "up",
    "not up": "up",
    "not down": "down",
}
SHARES: dict[Relation, float] = {
    "up": 0.9,
    "down": 0.1,
    "same": 0.5,
    "not up": 0.5,
    "not down": 0.5,
}


@dataclass(frozen=True)
class Planted:
    """Answers that were written down, measured as those of a run are."""

    decisions: pl.DataFrame
    contrasts: tuple[Contrast, ...] = CONTRASTS

    @cached_property
    def estimates(self) -> pl.DataFrame:
        return measure(self.decisions, self.contrasts)

    @cached_property
    def verdicts(self) -> pl.DataFrame:
        return verdicts(self.decisions, self.contrasts)


def answers(shares: Mapping[str, float], *, n_classes: int = 5, **key: Any) -> pl.DataFrame:
    """Write answers with these accuracies and flip rates, one half unless named.

    Items that are right and items that flip are not the same ones, so that nothing is tied.
    """
    gold = [place % n_classes + 1 for place in range(N)]
    right = [place * 37 % N < N * shares.get("accuracy", 0.5) for place in range(N)]
    base = [g if ok else (g + 1) % n_classes + 1 for g, ok in zip(gold, right, strict=True)]
    shown = {"base": base, "random": base}
    for step, (name, (_, view)) in enumerate(VIEWS.items()):
        flips = [(place * 61 + 13 * step) % N < N * shares.get(name, 0.5) for place in range(N)]
        moved = [b % n_classes + 1 if flip else b for b, flip in zip(base, flips, strict=True)]
        shown[view] = moved
    return group(base, gold=gold, views=shown, n_classes=n_classes, **key)


def levels_of(parts: Mapping[str, Mapping[str, Relation]]) -> pl.DataFrame:
    """Write the base, and each level with its metrics moved."""
    frames = [answers({})]
    for level, moved in parts.items():
        shares = {metric: SHARES[relation] for metric, relation in moved.items()}
        if "spearman" in moved:
            shares["accuracy"] = SHARES[moved["spearman"]]
        factor, _, value = level.partition("=")
        size = int(value) if factor == "cardinality" else 5
        name = f"d/{size}" if size != 5 else "d"
        frames.append(answers(shares, level=level, dataset=name, n_classes=size))
    return pl.concat(frames)


def planted(parts: tuple[Part, ...], *, is_opposite: bool = False) -> pl.DataFrame:
    moved: dict[str, dict[str, Relation]] = {}
    for part in parts:
        relation = OPPOSITE[part.relation] if is_opposite else part.relation
        moved.setdefault(part.level, {})[part.metric] = relation
    return levels_of(moved)


def word_of(name: str, phase: Phase, decisions: pl.DataFrame, rater: str = "r") -> str:
    return decide_claim(name, PhaseRuns({phase: Planted(decisions)}), rater).word


MADE_OF_PARTS = [name for name, claim in paper_claims.items() if claim.parts]
OTHERS = [name for name, claim in paper_claims.items() if not claim.parts]


def test_every_claim_that_is_not_made_of_parts_has_tests_of_its_own() -> None:
    assert sorted(OTHERS) == [
        "accuracy-is-not-stability",
        "every-probe-flips",
        "flips-beyond-noise",
        "hidden-tokens-and-noise",
        "no-aggregator-helps",
        "only-fewer-classes",
        "transfer-is-uneven",
    ]


@pytest.mark.parametrize("name", MADE_OF_PARTS)
def test_a_claim_holds_where_all_its_numbers_are_planted(name: str) -> None:
    claim = paper_claims[name]
    assert word_of(name, claim.phase, planted(claim.parts)) == "holds"


@pytest.mark.parametrize("name", MADE_OF_PARTS)
def test_a_claim_fails_where_the_opposite_is_planted(name: str) -> None:
    claim = paper_claims[name]
    assert word_of(name, claim.phase, planted(claim.parts, is_opposite=True)) == "fails"


@pytest.mark.parametrize("name", MADE_OF_PARTS)
def test_a_claim_whose_levels_were_not_asked_is_not_measurable(name: str) -> None:
    claim = paper_claims[name]
    decisions = levels_of({"connector=newline_tab": {"accuracy": "up"}})
    decided = decide_claim(name, PhaseRuns({claim.phase: Planted(decisions)}), "r")
    assert decided.word == "not measurable"
    assert "not asked" in decided.reason


@pytest.mark.parametrize("name", ["every-probe-flips", "words-raise-p1", "no-aggregator-helps"])
def test_a_claim_without_its_phase_says_so(name: str) -> None:
    claim = paper_claims[name]
    decided = decide_claim(name, PhaseRuns({}, {claim.phase: "no key for its models"}), "r")
    assert (decided.word, decided.reason) == ("not measurable", "no key for its models")


@pytest.mark.parametrize("name", ["every-probe-flips", "words-raise-p1", "no-aggregator-helps"])
def test_a_claim_says_what_and_where_in_sentences(name: str) -> None:
    claim = paper_claims[name]
    assert claim.says.endswith(".")
    assert claim.where


def test_a_claim_that_was_measured_in_part_shows_what_was() -> None:
    parts = (
        DecidedPart("cardinality=2: accuracy rises", "holds", "+44.0 [4.0, 74.0] (n = 16)"),
        DecidedPart("cardinality=2: P2a falls", "not measurable", "not asked"),
    )
    decided = Decided("not measurable", parts)
    assert decided.measured == parts[:1]
    assert "accuracy rises: +44.0 [4.0, 74.0] (n = 16) (holds)" in decided.reason
    assert "not measured: 1 of 2 parts" in decided.reason


def test_the_reason_names_the_number_that_decides() -> None:
    decisions = levels_of({"label_format=natural_language": {"P1": "up"}})
    decided = decide_claim("words-raise-p1", PhaseRuns({"phase1": Planted(decisions)}), "r")
    assert decided.reason.startswith("label_format=natural_language: P1 rises: +40.0 [")


# --- assertions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "relation", "word"),
    [
        (1, 9, "up", "holds"),
        (-9, 2, "up", "fails"),
        (-9, 9, "up", "not settled"),
        (1, 2, "up", "holds"),
        (-9, -1, "down", "holds"),
        (-2, 9, "down", "fails"),
        (-4, 4, "same", "holds"),
        (6, 9, "same", "fails"),
        (-9, -6, "same", "fails"),
        (-4, 9, "same", "not settled"),
        (-9, 2, "not up", "holds"),
        (1, 9, "not up", "fails"),
        (-9, -1, "not down", "fails"),
        (-2, 9, "not down", "holds"),
    ],
)
def test_an_interval_decides_an_assertion(
    low: float, high: float, relation: Relation, word: str
) -> None:
    assert asserted(low, high, relation) == word


def test_what_has_no_interval_is_not_measurable() -> None:
    assert asserted(None, None, "up") == "not measurable"


def test_one_failure_refutes_all_and_one_success_shows_some() -> None:
    assert all_asserted(["holds", "not measurable", "fails"]) == "fails"
    assert all_asserted(["holds", "not measurable", "not settled"]) == "not measurable"
    assert some_asserted(["fails", "holds", "not settled"]) == "holds"
    assert some_asserted(["fails", "fails"]) == "fails"
    assert all_asserted([]) == some_asserted([]) == "not measurable"


@pytest.mark.parametrize("name", ["every-probe-flips", "words-raise-p1", "no-aggregator-helps"])
@pytest.mark.parametrize("views", [["reversed"], ["base"], ["base", "random", "reversed", "after"]])
def test_a_claim_about_answers_that_nobody_can_read_has_a_word(name: str, views: list[str]) -> None:
    is_lost = pl.col("view").is_in(views)
    frame = planted(paper_claims[name].parts or paper_claims["words-raise-p1"].parts)
    rank = pl.when(is_lost).then(0).otherwise("rank").cast(frame["rank"].dtype)
    lost = frame.with_columns(rank=rank)
    assert word_of(name, paper_claims[name].phase, lost) in get_args(Asserted)


# --- claims that are not made of parts ----------------------------------------------------------


def greedy(flips: Mapping[str, float]) -> pl.DataFrame:
    base = answers({**dict.fromkeys(VIEWS, 0.0), **flips})
    again = base.with_columns(repeat=pl.lit(1, dtype=base["repeat"].dtype))
    return pl.concat([base, again])


def test_every_probe_flips_where_all_views_differ_beyond_repeats() -> None:
    decisions = greedy(dict.fromkeys(VIEWS, 0.6))
    assert word_of("every-probe-flips", "phase0a", decisions) == "holds"


def test_one_stable_probe_refutes_that_every_probe_flips() -> None:
    decisions = greedy({"P1": 0.6, "P2a": 0.6, "P2b": 0.6})
    evidence = PhaseRuns({"phase0a": Planted(decisions)})
    decided = decide_claim("every-probe-flips", evidence, "r")
    assert decided.word == "fails"
    assert decided.reason.startswith("placement")


def test_a_probe_without_a_readable_pair_is_not_measurable_and_says_so() -> None:
    decisions = greedy(dict.fromkeys(VIEWS, 0.6))
    is_lost = pl.col("view").is_in(["after", "split"])
    rank = pl.when(is_lost).then(0).otherwise("rank").cast(decisions["rank"].dtype)
    evidence = PhaseRuns({"phase0a": Planted(decisions.with_columns(rank=rank))})
    decided = decide_claim("every-probe-flips", evidence, "r")
    assert decided.word == "not measurable"
    assert {part.text: part.number for part in decided.parts}["placement"] == (
        "no pair of replies could be read"
    )


def test_flips_beyond_noise_hold_where_repeats_agree_and_views_do_not() -> None:
    assert word_of("flips-beyond-noise", "phase0b", greedy({"P1": 0.6})) == "holds"


def test_flips_beyond_noise_fail_for_a_stable_rater() -> None:
    assert word_of("flips-beyond-noise", "phase0b", greedy({})) == "fails"


def test_hidden_tokens_need_five_models() -> None:
    decided = decide_claim(
        "hidden-tokens-and-noise", PhaseRuns({"phase0b": Planted(greedy({}))}), "r"
    )
    assert decided.word == "not measurable"
    assert "5 models" in decided.reason


@pytest.mark.parametrize(("sign", "word"), [(1, "holds"), (-1, "fails")])
def test_hidden_tokens_go_with_noise_over_models(sign: int, word: str) -> None:
    """Seven models whose noise rises or falls with the tokens that they write."""
    frames = []
    for place in range(7):
        first = answers({}, rater=f"r{place}")
        moved = pl.when(pl.int_range(pl.len()) % N < 10 * place + 5).then(pl.col("rank") % 5 + 1)
        again = first.with_columns(
            moved.otherwise(pl.col("rank")).alias("rank"),
            repeat=pl.lit(1, dtype=first["repeat"].dtype),
        )
        tokens = pl.lit(float(10 + sign * place))
        frames += [
            frame.with_columns(completion_tokens=tokens, reasoning_tokens=tokens)
            for frame in (first, again)
        ]
    assert word_of("hidden-tokens-and-noise", "phase0b", pl.concat(frames), "r0") == word


def test_another_level_that_improves_both_refutes_the_only_one() -> None:
    better: dict[str, Relation] = {"accuracy": "up", **dict.fromkeys(VIEWS, "down")}
    decisions = levels_of({"shots=3": better, "mood=indicative": {"accuracy": "down"}})
    evidence = PhaseRuns({"phase1": Planted(decisions)})
    decided = decide_claim("only-fewer-classes", evidence, "r")
    assert decided.word == "fails"
    assert decided.reason.startswith("shots=3")


def test_the_only_one_holds_where_every_other_level_is_worse_in_something() -> None:
    decisions = levels_of({"shots=3": {"accuracy": "down"}, "mood=indicative": {"P1": "up"}})
    assert word_of("only-fewer-classes", "phase1", decisions) == "holds"


def test_accuracy_and_a_flip_rate_that_rise_together_are_misaligned() -> None:
    decisions = levels_of({"shots=0": {"accuracy": "up", "P1": "up"}})
    assert word_of("accuracy-is-not-stability", "phase1", decisions) == "holds"


def test_levels_that_improve_or_spoil_both_are_not_misaligned() -> None:
    better: dict[str, Relation] = {"accuracy": "up", **dict.fromkeys(VIEWS, "down")}
    worse: dict[str, Relation] = {"accuracy": "down", **dict.fromkeys(VIEWS, "up")}
    decisions = levels_of({"shots=3": better, "shots=0": worse})
    assert word_of("accuracy-is-not-stability", "phase1", decisions) == "fails"


RULES = [
    f"pipeline=pairwise+{rule}"
    for rule in ("majority_vote", "mean_score", "weighted_sum", "copeland", "bradley_terry")
]


def test_an_aggregator_that_costs_nothing_refutes_that_none_helps() -> None:
    harm: dict[str, Relation] = {"accuracy": "down", "P1": "up"}
    decisions = levels_of(
        {**dict.fromkeys(RULES, harm), RULES[3]: {"accuracy": "up", "P1": "down"}}
    )
    assert word_of("no-aggregator-helps", "phase2a", decisions) == "fails"


def test_no_aggregator_helps_where_each_costs_accuracy_or_stability() -> None:
    decisions = levels_of({rule: {"accuracy": "down"} for rule in RULES})
    assert word_of("no-aggregator-helps", "phase2a", decisions) == "holds"


def two_models(accuracy: float, p1: float) -> pl.DataFrame:
    frames = [
        answers(
            {} if rater == "first" else {"accuracy": accuracy, "P1": p1}, rater=rater, level=level
        )
        for level in ("", "config=A")
        for rater in ("first", "second")
    ]
    return pl.concat(frames)


@pytest.mark.parametrize("rater", ["first", "second"])
def test_transfer_is_uneven_where_one_number_rises_and_one_falls(rater: str) -> None:
    assert word_of("transfer-is-uneven", "phase2b", two_models(0.9, 0.1), rater) == "holds"


def test_transfer_is_even_where_the_second_model_is_the_first() -> None:
    assert word_of("transfer-is-uneven", "phase2b", two_models(0.5, 0.5), "second") == "fails"


def test_transfer_needs_a_second_model() -> None:
    decisions = two_models(0.9, 0.1).filter(rater="first")
    evidence = PhaseRuns({"phase2b": Planted(decisions)})
    assert "second model" in decide_claim("transfer-is-uneven", evidence, "first").reason


# --- absolute numbers ---------------------------------------------------------------------------


def test_absolute_numbers_are_what_was_planted() -> None:
    decisions = levels_of({"config=A": {"accuracy": "up", "P3b": "down"}})
    table = absolutes(decisions, CONTRASTS, mode="paper")
    found = {
        (row["level"], row["metric"]): row["value"] for row in table.filter(dataset="").to_dicts()
    }
    assert found["baseline", "accuracy"] == 0.5
    assert found["A", "accuracy"] == 0.9
    assert found["A", "P3b"] == 0.1


@pytest.mark.parametrize(("mode", "has_interval"), [("paper", False), ("recommended", True)])
def test_absolute_numbers_have_an_interval_in_the_recommended_mode(
    mode: Mode, has_interval: bool
) -> None:
    table = absolutes(levels_of({}), CONTRASTS, mode=mode)
    assert (table.filter(metric="accuracy")["low"][0] is not None) == has_interval


def test_the_sd_of_absolute_numbers_is_over_datasets() -> None:
    frames = [
        answers({"accuracy": share}, dataset=name) for name, share in (("a", 0.4), ("b", 0.8))
    ]
    table = absolutes(pl.concat(frames), CONTRASTS, mode="paper")
    row = table.filter(dataset="", metric="accuracy").row(0, named=True)
    assert (row["value"], row["dataset_sd"]) == (pytest.approx(0.6), pytest.approx(0.2))


def test_unreadable_answers_are_counted_beside_absolute_numbers() -> None:
    table = absolutes(group([1, 0, 2, 2], gold=[1, 1, 2, 2]), CONTRASTS)
    (row,) = table.filter(metric="accuracy", dataset="d").select("n", "failed").unique().rows()
    assert row[1] == 1
