"""`flipmeter paper` through every phase on the embedded model, at a few items.

A few minutes of the real engine: `make test-paper` runs it, `make test` does not.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Cli
from flipmeter.ask.store import Store
from flipmeter.paper.claims import paper_claims
from flipmeter.paper.phases import EMBEDDED
from flipmeter.paper.sheets import WRITERS

pytestmark = pytest.mark.real
WORDS = {"holds", "fails", "not settled", "not measurable"}


def test_every_claim_is_decided_and_a_second_time_asks_nothing(cli: Cli, tmp_path: Path) -> None:
    store, folder = tmp_path / "replies.sqlite", tmp_path / "paper"
    words = ("paper", "--limit", "5", "--store", str(store), "--out", str(folder), "--json")
    code, out, err = cli(*words)
    assert code == 0, err
    claims = json.loads(out)["claims"]
    assert {one["claim"] for one in claims} == set(paper_claims)
    assert {one["rater"] for one in claims} == {EMBEDDED}
    assert {one["word"] for one in claims} <= WORDS
    measured = [one for one in claims if one["word"] != "not measurable"]
    assert len(measured) >= 5  # five items are the fewest for an interval
    suffixes = {path.suffix for path in (folder / "tables").iterdir()}
    assert suffixes == set(WRITERS)
    with Store(store) as replies:
        n_stored = len(replies)
    code, again, err = cli(*words)
    assert (code, json.loads(again)["claims"]) == (0, claims), err
    with Store(store) as replies:
        assert len(replies) == n_stored
