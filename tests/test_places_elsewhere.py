"""Pairs and options by other roads: batch files, and the viewer over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flipmeter.ask.store import Store
from flipmeter.run.batch import export_batch, import_batch
from flipmeter.run.perform import perform
from flipmeter.study.file import Study
from misbehaving import MODEL, Behaviour, answer, receipt, says, serving
from read_html import Page
from test_batch import handed_in, inputs, tables
from test_batch import write as write_rows
from test_decimals import rating
from test_option_order import choosing
from test_pair_order import judge
from test_view import served

Write = Callable[[str, str], Path]
Make = Callable[..., Study]

ROADS = pytest.mark.parametrize("make", [judge, choosing])


def letters(body: Any) -> Behaviour:
    """Answer with one of two letters, by the whole prompt."""
    return says(answer("AB"[receipt(body) % 2]))


def scores(body: Any) -> Behaviour:
    """Answer with a decimal score, by the whole prompt."""
    return says(answer(f"Score: {receipt(body) % 101 / 10}"))


@pytest.mark.parametrize(
    ("make", "replies"), [(judge, letters), (choosing, letters), (rating, scores)]
)
def test_a_batch_of_moved_places_is_a_live_run(
    write: Write, tmp_path: Path, make: Make, replies: Callable[[Any], Behaviour]
) -> None:
    folder = tmp_path / "batch"
    with serving(replies) as server, Store(tmp_path / "replies.sqlite") as store:
        models = [{"model": f"http/{MODEL}", "base_url": server.url, "name": "acme"}]
        study = make(write, models=models, test_size=9)
        done = export_batch(study, folder, store)
        write_rows(folder / "output.jsonl", handed_in(server.url, inputs(folder, done)))
        found = import_batch([folder], store)
        assert (found.errors, found.n_left) == ((), 0)
        run = perform(study, tmp_path / "run", store)
        live = perform(study, tmp_path / "live", Store())
    assert run.environment["asked"]["asked"] == 0
    assert set(run.decisions["fault"]) == {""}
    assert tables(run) == tables(live)


@ROADS
def test_moved_places_can_be_viewed_and_compared(write: Write, tmp_path: Path, make: Make) -> None:
    for name, model in (("strong", "sim/first-answer?strength=6"), ("weak", "sim/honest")):
        study = make(write, models=[{"model": model, "name": "r"}], name=name, test_size=30)
        with Store() as store:
            run = perform(study, tmp_path / "runs" / name, store)
    (contrast,) = (one.name for one in run.contrasts)
    addresses = ("/run/strong", "/run/strong/flips", "/compare?first=strong&second=weak")
    pages = served(tmp_path / "runs", *addresses)
    assert [status for status, _ in pages] == [200, 200, 200]
    whole, flips, both = (Page(html) for _, html in pages)
    assert contrast in whole.text
    assert contrast in both.text
    links = [a["href"] or "" for a in flips.all("a")]
    shown = [link for link in links if link.startswith("/run/strong/flip?")]
    ((status, _),) = served(tmp_path / "runs", shown[0])
    assert status == 200
