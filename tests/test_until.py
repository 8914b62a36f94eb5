"""Claims that are planned before a run, looked at while it goes on, and end with an exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import flipmeter as fm
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.stats.judge import read_claim
from flipmeter.stats.sequential import looks_of, mean_evidence, operating
from flipmeter.stats.watch import PowerPlan, Watch, bet_boundaries, bet_operating, plan_power
from flipmeter.types import Contrast

Cli = Callable[..., tuple[int, str, str]]
P1 = Contrast("P1", ("base", "reversed"), "label list reversed", "label_order")


def planned(claim: str, n: int, block: int = 50) -> PowerPlan:
    return plan_power(read_claim(claim), looks_of(block, n), block=block)


# Planning


def test_a_plan_says_what_the_recursion_says() -> None:
    plan = planned("P1<0.10", 200)
    assert plan.looks == (50, 100, 150, 200)
    by_rate = {round(at.rate, 3): at for at in plan.rates}
    exact = operating(plan.looks, 0.10, 0.04)
    assert by_rate[0.04].below == pytest.approx(exact.below)
    assert by_rate[0.04].mean_n == pytest.approx(exact.mean_n)
    assert by_rate[0.1].below <= 0.05
    assert by_rate[0.1].above <= 0.05
    assert by_rate[0.1].needed == (None, None)


@pytest.mark.parametrize("claim", ["P1<0.3", "P1-noise<0.2"])
def test_the_items_needed_have_the_power_they_are_named_for(claim: str) -> None:
    margin, is_bet = read_claim(claim).margin, "noise" in claim
    for at in planned(claim, 100, 25).rates:
        for power, n in zip((0.8, 0.9), at.needed, strict=True):
            if n is not None:
                looks = looks_of(25, n)
                ends = (
                    bet_operating(looks, margin, at.rate, alpha=0.05)
                    if is_bet
                    else operating(looks, margin, at.rate)
                )
                assert max(ends.below, ends.above) >= power


@pytest.mark.parametrize(("claim", "fewest"), [("P1<0.10", 29), ("P1<0.01", 299)])
def test_a_claim_is_reachable_with_as_many_items_as_it_takes(claim: str, fewest: int) -> None:
    assert planned(claim, 20).fewest == fewest
    assert planned(claim, fewest).is_reachable
    assert not planned(claim, fewest - 1).is_reachable
    assert max(planned(claim, fewest).below) == 0
    assert max(planned(claim, fewest - 1).below) == -1


@pytest.mark.parametrize("claim", ["P1<0.000001", "P1-noise<0.000001", "P1<0.999999"])
def test_a_margin_at_the_edge_is_planned_without_a_search(claim: str) -> None:
    plan = planned(claim, 60, 20)
    assert plan.is_reachable == (claim == "P1<0.999999")
    assert plan.fewest > 0


@pytest.mark.parametrize("margin", [0.05, 0.10, 0.3])
def test_betting_needs_as_many_items_as_it_says(margin: float) -> None:
    n = planned(f"P1-noise<{margin}", 20).fewest
    held = bet_boundaries(n, margin, 0.05)
    assert (held.below[-2], held.below[-1]) == (-1, 0)


def test_a_plan_by_betting_is_the_evidence_itself() -> None:
    margin, n = 0.2, 30
    held = bet_boundaries(n, margin, 0.05)
    for k in range(n + 1):
        values = np.r_[np.ones(k), np.zeros(n - k)]
        for side, stops in (("below", k <= held.below[-1]), ("above", k >= held.above[-1])):
            e = mean_evidence(values, margin, side)[-1]  # type: ignore[arg-type]
            assert (e >= 20) == stops
    ends = bet_operating((10, 20, 30), margin, margin, alpha=0.05)
    assert ends.below <= 0.05
    assert ends.above <= 0.05
    assert sum((ends.below, ends.above, ends.futile, ends.undecided)) == pytest.approx(1)


def study(**changes: Any) -> fm.Study:
    shape: dict[str, Any] = {
        "models": ["sim/honest"],
        "datasets": ["reviews"],
        "test_size": 150,
        "probes": ["label_order"],
        "base": {"shots": 1},
        "repeats": 1,
        "block_size": 25,
    }
    return fm.Study(**shape | changes)


def test_the_plan_of_a_study_has_its_looks_and_asks_nothing(tmp_path: Path) -> None:
    seen = study(test_size=60).plan(power="P1<0.10", store=tmp_path / "none.sqlite")
    (plan,) = seen.power
    assert (plan.dataset, plan.looks) == ("reviews", (25, 50, 60))
    assert "items for" in str(seen)
    assert not (tmp_path / "none.sqlite").exists()
    json.dumps(seen.as_dict())


@pytest.mark.parametrize(("repeats", "n"), [(1, 0), (2, 40)])
def test_a_plan_says_what_repeats_cost(tmp_path: Path, repeats: int, n: int) -> None:
    noisy = study(models=["sim/noisy"], test_size=20, repeats=repeats)
    seen = noisy.plan(store=tmp_path / "none.sqlite")
    assert (seen.n_repeats, seen.cost.distinct) == (n, 40 + n)
    assert "repeats to measure noise" in str(seen)
    assert seen.as_dict()["repeats"] == n


def test_a_small_file_and_a_claim_out_of_reach_are_told(cli: Cli) -> None:
    Path("s.yaml").write_text(
        "models: [sim/honest]\ndatasets: [reviews]\ntest_size: 20\nprobes: [label_order]\n",
        encoding="utf-8",
    )
    code, out, _ = cli("plan", "s.yaml", "--power", "P1<0.10")
    assert code == 0
    assert "cannot be shown with the 20 items of reviews, even if none flips" in out
    assert "it takes at least 29" in out
    assert "fewer than a block of 50" in out
    told = json.loads(cli("plan", "s.yaml", "--power", "P1<0.10", "--json")[1])["power"][0]
    assert (told["is_reachable"], told["n_items"], told["fewest"]) == (False, 20, 29)
    code, _, err = cli("run", "s.yaml", "--until", "P1<0.10")
    assert code == 2
    assert "cannot be shown with 20 items" in " ".join(err.split())
    code, _, err = cli("plan", "s.yaml", "--power", "P7<0.10")
    assert (code, "no contrast named 'P7'" in err) == (2, True)


def test_items_of_one_cluster_are_one_look(tmp_path: Path) -> None:
    rows = [f"text number {k},{'ab'[k % 2]},q{k // 4}" for k in range(80)]
    (tmp_path / "t.csv").write_text("body,grade,q\n" + "\n".join(rows) + "\n", encoding="utf-8")
    spec: dict[str, Any] = {
        "file": str(tmp_path / "t.csv"),
        "text": "body",
        "label": "grade",
        "cluster": "q",
    }
    spec |= {"scale": ["a", "b"]}
    (plan,) = study(datasets=[spec], test_size=40).plan(power="P1<0.2").power
    assert plan.n_items <= 20
    assert any("clusters" in note for note in plan.notes)


# Looking


def frame(base: list[int], turned: list[int], dataset: str = "d") -> pl.DataFrame:
    key = {"rater": "r", "dataset": dataset, "level": "", "seed": 0, "n_classes": 5, "repeat": 0}
    return pl.DataFrame(
        [
            key | {"view": view, "item": f"i{i:03}", "rank": rank, "fault": "" if rank else "x"}
            for view, ranks in (("base", base), ("reversed", turned))
            for i, rank in enumerate(ranks)
        ]
    )


def watched(*frames: pl.DataFrame, n: int = 100, claim: str = "P1<0.10", **options: Any) -> Any:
    watch = Watch(read_claim(claim), P1, {"d": looks_of(50, n), "e": (40,)}, **options)
    seen = [watch.look(frame) for frame in frames]
    return seen[-1]


def test_a_stop_and_its_interval_agree_with_the_claim() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        rate = rng.choice([0.0, 0.05, 0.1, 0.2])
        turned = np.where(rng.random(100) < rate, 4, 2).tolist()
        (one,) = watched(frame([2] * 50, turned[:50]), frame([2] * 100, turned))
        if one.word == "below":
            assert one.high < 0.10
        if one.word == "above":
            assert one.low > 0.10
        if one.word == "undecided":
            assert one.low <= 0.10 <= one.high


def test_a_rater_that_cannot_be_read_is_not_shown_to_be_below() -> None:
    (one,) = watched(frame([2] * 50, [2] * 34 + [0] * 16))
    assert (one.word, one.is_decided) == ("unreadable", False)
    (one,) = watched(frame([2] * 50, [2] * 46 + [0] * 4))
    assert (one.word, one.is_decided) == ("undecided", False)
    # Readable from then on: the share falls to its limit, and the claim is shown.
    (one,) = watched(
        frame([2] * 50, [2] * 46 + [0] * 4), frame([2] * 100, [2] * 46 + [0] * 4 + [2] * 50)
    )
    assert one.word == "below"


def test_equal_prompts_settle_nothing() -> None:
    same = frame([2] * 50, [2] * 50).with_columns(prompt=pl.col("item"))
    (one,) = watched(same)
    assert (one.word, one.is_decided, one.is_final) == ("not identified", False, True)
    assert "byte-equal" in str(one)


def test_failing_in_both_views_is_no_flip() -> None:
    (one,) = watched(frame([0] + [2] * 49, [0] + [2] * 49))
    assert (one.word, one.k, one.n) == ("below", 0, 49)


def test_a_small_dataset_is_decided_by_its_own_last_look() -> None:
    both = pl.concat([frame([2] * 50, [2] * 46 + [4] * 4), frame([2] * 40, [2] * 40, "e")])
    large, small = watched(both)
    assert (large.word, large.is_final) == ("undecided", False)
    assert (small.word, small.n) == ("below", 40)
    part = pl.concat([frame([2] * 50, [2] * 50), frame([2] * 40, [4] * 4 + [2] * 36, "e")])
    large, small = watched(part)
    assert large.word == "below"
    assert (small.word, small.is_final, small.is_decided) == ("undecided", True, False)


def test_all_flips_of_a_reproducible_rater_are_beyond_noise() -> None:
    decisions = frame([2] * 50, [2] * 50)
    (noisy,) = watched(decisions, claim="P1-noise<0.10")
    (sure,) = watched(decisions, claim="P1-noise<0.10", reproducible=["r"])
    assert (noisy.word, sure.word) == ("undecided", "below")


# Exit codes


@pytest.mark.parametrize(
    ("model", "claim", "code", "word"),
    [
        ("sim/honest", "P1<0.10", 0, "below"),
        ("sim/first-slot?strength=3", "P1<0.10", 0, "above"),
        ("sim/first-slot?strength=1", "P1<0.10", 3, "undecided"),
    ],
)
def test_a_run_until_a_claim_ends_by_whether_it_is_decided(
    cli: Cli, model: str, claim: str, code: int, word: str
) -> None:
    Path("s.yaml").write_text(
        f"models: ['{model}']\ndatasets: [reviews]\ntest_size: 150\nprobes: [label_order]\n"
        "base: {shots: 1}\nrepeats: 1\nblock_size: 25\n",
        encoding="utf-8",
    )
    found, out, err = cli("run", "s.yaml", "--until", claim, "--out", "r")
    assert found == code
    assert f": {word} (" in " ".join((out + err).split())
    run = fm.Run("r")
    assert run.claim["is_decided"] == (code == 0)
    assert [row["word"] for row in run.claim["rows"]] == [word]
    if code:
        assert not run.stopped
        assert "was not settled after 150 of 150 items" in err


def answers(path: Path, n: int, k: int, n_unread: int = 0) -> Path:
    rows = ["item,condition,label"]
    for i in range(n):
        turned = 2 if i < k else 1
        rows += [f"{i},base,1", f"{i},turned,{'' if i >= n - n_unread else turned}"]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("k", "n_unread", "code", "outcome"),
    [
        (0, 0, 0, "shown"),
        (50, 0, 1, "refuted"),
        (18, 0, 3, "open"),
        (0, 40, 1, "unreadable"),
    ],
)
def test_a_certificate_ends_by_its_outcome(
    cli: Cli, tmp_path: Path, k: int, n_unread: int, code: int, outcome: str
) -> None:
    path = str(answers(tmp_path / "a.csv", 200, k, n_unread))
    (name,) = (contrast.name for contrast in fm.Run(path, scale=["1", "2", "3"]).contrasts)
    asked = ("check", path, f"{name}<0.10", "--scale", "1,2,3")
    found, out, _ = cli(*asked)
    assert (found, outcome in out) == (code, True)
    found, out, _ = cli(*asked, "--json")
    told = json.loads(out)
    assert (found, told["outcome"]) == (code, outcome)
    assert told["certificates"][0]["outcome"] == outcome


def test_a_claim_about_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no item is asked under all views of P2c"), Store() as store:
        study(until="P2c<0.10", probes=["label_order", "demo_order"], base={"shots": 0}).run(
            tmp_path / "r", store=store, is_quiet=True
        )


def test_a_rater_without_flips_is_shown_and_one_that_always_flips_is_refuted() -> None:
    never, always = (bet_operating((200,), 0.1, rate, alpha=0.05) for rate in (0.0, 1.0))
    assert (never.below, never.above) == pytest.approx((1.0, 0.0))
    assert (always.below, always.above) == pytest.approx((0.0, 1.0))
