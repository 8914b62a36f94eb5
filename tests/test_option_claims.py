"""Claims about contrasts with several views: certificates, early stops, gates and choices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flipmeter.choose.gate import check, read_gate
from flipmeter.choose.select import select
from flipmeter.errors import Problem
from flipmeter.stats.front import read_field
from flipmeter.stats.judge import certify, read_claim
from flipmeter.stats.watch import Watch
from flipmeter.study.file import Study
from flipmeter.types import Contrast
from test_option_order import choosing, done, questions

Write = Callable[[str, str], Path]

HONEST, PARTIAL = "sim/honest?sharpness=50", "sim/first-answer?strength=3"
VIEWS = ("base", "rotated_1", "rotated_2")
P7 = Contrast("P7", VIEWS, probe="option_order", is_open=True)
ANY = Contrast("P2", VIEWS)


def two_raters(write: Write, **keys: Any) -> Study:
    return choosing(write, questions(200), models=[HONEST, PARTIAL], test_size=100, **keys)


def frame(ranks: np.ndarray[Any, Any], **columns: object) -> pl.DataFrame:
    """Decisions of one rater: items x views of classes."""
    key = {"rater": "r", "dataset": "d", "level": "", "seed": 0, "n_classes": 3, "repeat": 0}
    return pl.DataFrame(
        [
            key
            | {"view": view, "item": f"i{i:04}", "rank": int(rank), "gold": 1}
            | {"fault": "" if rank else "no label", "nominal": True, **columns}
            for i, row in enumerate(ranks)
            for view, rank in zip(VIEWS, row, strict=True)
        ]
    )


def test_a_claim_about_options_is_certified_by_the_verdict(write: Write, tmp_path: Path) -> None:
    run = done(two_raters(write), tmp_path)
    table = certify(run.panels, run.contrasts, [read_claim("P7<0.10")])
    assert dict(table.select("rater", "outcome").rows()) == {HONEST: "shown", PARTIAL: "refuted"}
    by_rater = dict(run.verdicts.select("rater", "value").rows())
    assert dict(table.select("rater", "value").rows()) == by_rater


def test_what_grows_with_the_number_of_views_is_not_claimed() -> None:
    with pytest.raises(Problem, match=r"P2 counts items on which any view differs.*P7"):
        certify(frame(np.ones((9, 3), dtype=int)), [P7, ANY], [read_claim("P2<0.10")])


def test_a_claim_about_options_ends_a_run_early(write: Write, tmp_path: Path) -> None:
    study = choosing(
        write, questions(200), models=PARTIAL, test_size=100, until="P7<0.05", block_size=20
    )
    run = done(study, tmp_path)
    assert run.decisions["item"].n_unique() < 100
    (row,) = run.environment["claim"]["rows"]
    assert row["word"] == "above"
    assert row["n"] == run.decisions["item"].n_unique()


def test_one_pair_of_views_of_each_item_counts_and_stays() -> None:
    """The third view differs on half of the items: 2 of 3 pairs differ there."""
    n = 3000
    ranks = np.ones((n, 3), dtype=int)
    ranks[::2, 2] = 2
    looks = (n // 3, 2 * n // 3, n)
    claim = read_claim("P7<0.34")
    watch = Watch(claim, P7, {"d": looks})
    (early,) = watch.look(frame(ranks[: looks[0]]))
    (later,) = watch.look(frame(ranks[: looks[1]]))
    (again,) = Watch(claim, P7, {"d": looks}).look(frame(ranks[: looks[0]]))
    assert (early.k, early.n) == (again.k, again.n)
    assert early.n == looks[0]
    assert 0 <= later.k - early.k <= later.n - early.n == looks[1] - looks[0]
    assert later.k / later.n == pytest.approx(1 / 3, abs=0.03)


def test_pairs_of_views_that_cannot_be_read_are_not_drawn() -> None:
    ranks = np.ones((200, 3), dtype=int)
    ranks[:, 1], ranks[100:, 2] = 0, 0
    ranks[:100, 2] = 2
    watch = Watch(read_claim("P7<0.30"), P7, {"d": (200,)})
    (one,) = watch.look(frame(ranks))
    assert (one.k, one.n) == (100, 100)


def test_a_gate_holds_options_by_pattern_and_without_a_file(write: Write, tmp_path: Path) -> None:
    run = done(two_raters(write), tmp_path)
    for gate in (None, read_gate({"flips": {"P*": 0.1}}), read_gate({"flips": {"P7": 0.1}})):
        claims = check(run, gate).claims.filter(metric="flips", where="P7")
        assert dict(claims.select("rater", "word").rows()) == {HONEST: "stable", PARTIAL: "flips"}


def test_drift_of_options_is_that_of_pairs_of_views(write: Write, tmp_path: Path) -> None:
    before = done(choosing(write, models=[{"model": HONEST, "name": "r"}]), tmp_path / "a")
    now = done(choosing(write, models=[{"model": PARTIAL, "name": "r"}]), tmp_path / "b")
    gate = read_gate({"drift": {"flips": {"P7": 0.05}}})
    (row,) = check(now, gate, before).claims.iter_rows(named=True)
    rates = [run.verdicts["value"][0] for run in (before, now)]
    assert row["word"] == "missed"
    assert row["value"] == pytest.approx(rates[1] - rates[0])


def test_a_choice_is_held_to_the_flips_of_options(write: Write, tmp_path: Path) -> None:
    run = done(two_raters(write), tmp_path)
    found = select(run, max_flip={"P7": 0.10})
    assert found.chosen is not None
    assert found.chosen.candidate[0] == HONEST
    rates = dict(run.verdicts.select("rater", "value").rows())
    for one in found.standings:
        assert one.flips["P7"].value == pytest.approx(rates[one.candidate[0]])
    evidence = found.card().selected
    assert evidence is not None
    assert evidence.limits == {"P7": 0.10}


def test_pairs_of_views_are_counted_by_item() -> None:
    ranks = np.array([[1, 1, 2], [1, 2, 3], [1, 0, 1], [1, 1, 1]])
    pairs = read_field(frame(ranks), [P7, ANY], cost="none").pairs
    assert pairs.asked[0].tolist() == [[3, 3, 3, 3]]
    assert pairs.read[0].tolist() == [[3, 3, 1, 3]]
    assert pairs.differ[0].tolist() == [[2, 3, 0, 0]]
