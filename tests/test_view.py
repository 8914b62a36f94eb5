"""The viewer over HTTP: what its pages show, that filters are right, and that nothing gets out."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from changed_runs import changed
from conftest import Cli
from flipmeter.ask.limits import Price
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.run import heartbeat
from flipmeter.run.folder import Run
from flipmeter.run.generation import DECISIONS, MANIFEST, STUDY
from flipmeter.run.heartbeat import PROGRESS, Beat, Door, Heartbeat, read_beat
from flipmeter.show.findings import Findings
from flipmeter.show.gather import differences, gather
from flipmeter.show.item_grid import Sought
from flipmeter.show.page.markup import TITLES, excerpt
from flipmeter.show.pairs import FIRST, HIGHER, LAST, LOWER
from flipmeter.show.view import folders
from flipmeter.show.view.flip_pages import KEY, PAGE, Flips
from flipmeter.show.view.folders import RunFolders
from flipmeter.show.view.server import HEADERS, Viewer
from flipmeter.types import Reply, Request
from read_html import Page
from report_runs import HOSTILE, hostile, simulated

Answer = tuple[int, str]
Look = Callable[..., Answer]


def served(root: Path, *paths: str, patience: float = 300.0, **options: Any) -> list[Answer]:
    """Ask a viewer over some folder for pages, one after the other."""

    async def run() -> list[Answer]:
        viewer = Viewer(RunFolders([root]), patience=patience)
        async with TestClient(TestServer(viewer.application())) as client:
            found = []
            for path in paths:
                async with client.request("GET", path, **options) as answer:
                    found.append((answer.status, await answer.text()))
            return found

    return asyncio.run(run())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of two raters at two levels, of another strength, and a hostile one."""
    root = tmp_path_factory.mktemp("runs")
    simulated(
        root / "several",
        name="several",
        models=["sim/first-slot?strength=5", "sim/biased-noisy"],
        seeds=[0, 1],
        test_size=30,
        vary={"label_format": ["letter"]},
    )
    unread(root / "several")
    simulated(root / "weak", name="weak", models=["sim/first-slot?strength=1"])
    simulated(root / "strong", name="strong", models=["sim/first-slot?strength=6"])
    hostile(root / "hostile")
    return root


def unread(folder: Path) -> None:
    """Make some answers of a run faults, never on both sides of a pair alike."""
    decisions = Run(folder).decisions.with_row_index("nth")
    for every, fault in ((17, "refused"), (29, "unparsed")):
        is_one = pl.col("nth") % every == 0
        decisions = decisions.with_columns(
            rank=pl.when(is_one).then(0).otherwise("rank"),
            fault=pl.when(is_one).then(pl.lit(fault)).otherwise("fault"),
        )
    changed(folder, decisions=decisions.drop("nth"))


@pytest.fixture(scope="module")
def look(runs: Path) -> Look:
    """Return a function that gives one page of the viewer over all runs."""
    return lambda path, **options: served(runs, path, **options)[0]


@pytest.fixture(scope="module")
def several(runs: Path) -> Flips:
    return Flips(Run(runs / "several"))


@pytest.fixture(scope="module")
def twin(several: Flips) -> list[dict[str, Any]]:
    return list(naive_flips(Run(several.run.folder)))


def naive_flips(run: Run) -> Iterator[dict[str, Any]]:
    """Yield every flip, found item by item in plain Python."""
    rows = [row for row in run.decisions.to_dicts() if row["repeat"] == 0]
    same = ("rater", "dataset", "level", "seed", "item")
    by_place = {(*(row[name] for name in same), row["view"]): row for row in rows}
    for contrast in run.study.contrasts:
        if len(contrast.views) != 2:
            continue
        for a in rows:
            b = by_place.get((*(a[name] for name in same), contrast.views[1]))
            if a["view"] != contrast.views[0] or b is None or a["prompt"] == b["prompt"]:
                continue
            if a["rank"] == b["rank"]:
                continue
            is_read = a["rank"] > 0 and b["rank"] > 0
            is_higher = b["rank"] > a["rank"]
            if contrast.reverses_labels:
                towards = FIRST if is_higher else LAST
            else:
                towards = HIGHER if is_higher else LOWER
            yield {
                **{name: a[name] for name in same},
                "contrast": contrast.name,
                "towards": towards if is_read else "",
                "distance": str(abs(a["rank"] - b["rank"])) if is_read else "",
                "fault": a["fault"] or b["fault"] or "none",
                "level": a["level"] or "base",
            }


def naive_page(flips: list[dict[str, Any]], wanted: Sought) -> list[dict[str, Any]]:
    fit = [f for f in flips if all(f[name] == value for name, value in wanted.filters.items())]
    if wanted.order == "distance":
        fit.sort(key=lambda f: -int(f["distance"] or -1))
    elif wanted.order == "item":
        fit.sort(key=lambda f: f["item"])
    return fit[(wanted.page - 1) * PAGE : wanted.page * PAGE]


def key_of(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple("base" if name == "level" and not row[name] else row[name] for name in KEY)


# Flips, a page at a time


def test_there_is_some_of_everything_to_filter(twin: list[dict[str, Any]]) -> None:
    for name in set(TITLES) - {"dataset"}:
        assert len({flip[name] for flip in twin}) > 1, name
    assert len(twin) > 2 * PAGE


@given(data=st.data())
@settings(max_examples=40)
def test_a_page_is_what_looking_at_every_item_gives(
    several: Flips, twin: list[dict[str, Any]], data: st.DataObject
) -> None:
    like = data.draw(st.sampled_from(twin))
    names = data.draw(st.sets(st.sampled_from(list(TITLES)), max_size=3))
    filters = {name: like[name] for name in names if like[name]}
    order = data.draw(st.sampled_from(["", "distance", "item"]))
    wanted = Sought(filters, order, data.draw(st.integers(1, 3)))
    page = several.page(wanted).to_dicts()
    assert [key_of(row) for row in page] == [key_of(row) for row in naive_page(twin, wanted)]
    fit = [f for f in twin if all(f[name] == value for name, value in filters.items())]
    assert several.n(wanted) == len(fit)


@given(data=st.data())
@settings(max_examples=20)
def test_a_filter_says_how_many_it_would_leave(
    several: Flips, twin: list[dict[str, Any]], data: st.DataObject
) -> None:
    like = data.draw(st.sampled_from(twin))
    name = data.draw(st.sampled_from(list(TITLES)))
    wanted = Sought({name: like[name]} if like[name] else {})
    for one in TITLES:
        options = several.options(one, wanted)
        for value, n in options.items():
            assert n == several.n(Sought({**wanted.filters, one: value}))
        assert {*options} == {f[one] for f in twin} - {""}


def test_pages_in_any_order_hold_every_flip_once(
    several: Flips, twin: list[dict[str, Any]]
) -> None:
    for order in ("", "distance", "item"):
        n_pages = -(-len(twin) // PAGE)
        pages = [several.page(Sought(order=order, page=k + 1)) for k in range(n_pages + 1)]
        keys = [key_of(row) for page in pages for row in page.to_dicts()]
        assert len(keys) == len(set(keys)) == len(twin)
        assert pages[-1].is_empty()


def test_an_address_of_a_page_reads_back(several: Flips) -> None:
    wanted = Sought({"rater": "a&b=c?", "towards": FIRST}, "distance", 1)
    query = dict(part.split("=") for part in wanted.at(3).split("&"))
    assert query == {
        "rater": "a%26b%3Dc%3F",
        "towards": "first+label",
        "order": "distance",
        "page": "3",
    }


def test_the_list_of_flips_shows_texts_answers_and_where_it_is(
    look: Look, twin: list[dict[str, Any]]
) -> None:
    status, html = look("/run/several/flips?contrast=P1&order=distance")
    page = Page(html)
    n = sum(flip["contrast"] == "P1" for flip in twin)
    assert status == 200
    assert page.open == []
    assert f"1–{min(n, PAGE)} of {n} flips that match, {len(twin)} in all" in page.text
    chosen = [a for a in page.all("option") if "selected" in a]
    assert {a["value"] for a in chosen} == {"P1", "distance"}


def test_a_page_after_the_last_says_which_is_the_last(look: Look) -> None:
    assert "There is no page 99,999" in Page(look("/run/several/flips?page=99999")[1]).text


def test_a_filter_that_nothing_fits_leaves_nothing(look: Look) -> None:
    status, html = look("/run/several/flips?rater=nobody")
    assert (status, "No flip matches all filters" in html) == (200, True)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("page=0", "page '0' is not a whole number, 1 or more"),
        ("page=-1", "page '-1' is not"),
        ("page=1e9", "page '1e9' is not"),
        ("order=random", "no order 'random'; known: distance, item"),
    ],
)
def test_an_address_that_means_nothing_says_so(look: Look, query: str, said: str) -> None:
    status, html = look(f"/run/several/flips?{query}")
    assert status == 400
    assert said in Page(html).text


# One flip


def test_a_flip_shows_both_prompts_and_both_replies(look: Look, runs: Path) -> None:
    found = gather(Run(runs / "strong"))
    links = [a["href"] or "" for a in Page(look("/run/strong/flips")[1]).all("a")]
    address = next(link for link in links if link.startswith("/run/strong/flip?"))
    page = Page(look(address)[1])
    flip = found.browser.flips[0]
    assert len(page.classed("prompt")) == 2
    assert page.texts["mark"]
    assert flip.text in page.text
    assert [a["class"] for a in page.classed("reply")] == ["reply", "reply"]
    assert "Answers under every view" in page.text


def test_the_list_and_the_report_agree_on_flips(look: Look, runs: Path) -> None:
    found: Findings = gather(Run(runs / "strong"))
    text = Page(look("/run/strong/flips")[1]).text
    assert f"{found.browser.n_flips} flips" in text
    for flip in found.browser.flips[:PAGE]:
        assert excerpt(flip.text, 200) in text
        assert flip.item in text


def test_a_flip_that_is_none_is_not_found(look: Look) -> None:
    key = "rater=x&dataset=reviews&level=&seed=0&item=1&contrast=P1"
    status, html = look(f"/run/strong/flip?{key}")
    assert (status, "no answers to item '1' under P1 by 'x'" in Page(html).text) == (404, True)
    assert "needs rater, dataset" in Page(look("/run/strong/flip")[1]).text
    assert "not a whole number" in Page(look(f"/run/strong/flip?{key}".replace("=0", "=x"))[1]).text


# The list, the report, a comparison


def test_the_list_says_what_each_run_is(look: Look) -> None:
    status, html = look("/")
    page = Page(html)
    assert status == 200
    assert page.open == []
    for name in ("several", "weak", "strong", "hostile"):
        assert {"href": f"/run/{name}"} in page.all("a")
    for text in ("complete", "1 × flips", "sim/biased-noisy", "reviews"):
        assert text in page.text


def test_a_run_has_the_whole_report(look: Look, runs: Path) -> None:
    page = Page(look("/run/strong")[1])
    ids = [section.get("id") for section in page.all("section")]
    assert ids == [
        *("verdict", "flips", "accuracy", "where"),
        *("faults", "items", "method", "origin", "table"),
    ]
    for sentence in gather(Run(runs / "strong")).sentences:
        assert sentence.text in page.text
    assert page.open == []


def test_a_run_that_is_made_again_is_read_again(runs: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    shutil.copytree(runs / "weak", root / "one")
    before = served(root, "/run/one", "/run/one/flips")
    shutil.rmtree(root / "one")
    shutil.copytree(runs / "strong", root / "one")
    after = served(root, "/run/one", "/run/one/flips")
    assert "weak · flipmeter" in before[0][1]
    assert "strong · flipmeter" in after[0][1]
    assert before[1] != after[1]


def test_a_large_run_is_measured_elsewhere_while_its_flips_are_read(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "SMALL", 10)
    folders.summarise.cache_clear()
    (_, soon), (_, flips) = served(runs, "/run/weak", "/run/weak/flips", patience=0.01)
    assert "Preparing the report" in soon
    assert "flips" in flips
    assert "Verdict" in served(runs, "/run/weak", patience=3_000)[0][1]
    assert "on its page" in served(runs, "/")[0][1]
    folders.summarise.cache_clear()


def test_a_comparison_is_that_of_the_verb(look: Look, runs: Path) -> None:
    page = Page(look("/compare?first=weak&second=strong")[1])
    table = differences(Run(runs / "weak"), Run(runs / "strong"))
    for row in table.drop_nulls("value").to_dicts():
        assert f"{row['value']:+.1f}" in page.text
    assert "strong minus weak" in page.text
    assert page.open == []


def test_runs_that_cannot_be_compared_say_why(look: Look) -> None:
    status, html = look("/compare?first=several&second=weak")
    assert (status, "the runs share no rater" in Page(html).text) == (400, True)
    assert look("/compare?first=several&second=nothing")[0] == 404
    assert "Compare two runs" in look("/compare")[1]


# What must not happen


def pages_of(root: Path, run: str) -> list[str]:
    first = ["/", f"/run/{run}", f"/run/{run}/flips", f"/compare?first={run}&second={run}"]
    found = [html for _, html in served(root, *first)]
    links = [str(a["href"]) for a in Page(found[2]).all("a") if "/flip?" in str(a["href"])]
    return found + [html for _, html in served(root, *links)]


def test_no_text_becomes_markup(runs: Path) -> None:
    pages = [Page(html) for html in pages_of(runs, "hostile")]
    assert len(pages) > 8
    for page in pages:
        assert page.open == []
        assert {"img", "iframe", "object", "base", "style"}.isdisjoint(t for t, _ in page.tags)
        assert all(str(a.get("src", "")).startswith("/assets/") for a in page.all("script"))
        assert all(a.get("http-equiv") is None for a in page.all("meta"))
        for _, attributes in page.tags:
            assert not [name for name in attributes if name.startswith("on")]
            assert str(attributes.get("href", "/"))[0] in "/#d"
    text = "".join(page.text for page in pages)
    assert HOSTILE["image"] in text
    assert "‹U+202E›" in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/run/nothing",
        "/run/%252e%252e",
        "/run/..%2fsecret",
        "/run/several%2f..%2f..%2fsecret",
        "/run/%2fetc%2fpasswd",
        "/assets/server.py",
        "/assets/..%2fserver.py",
        "/assets/%2e%2e/view/server.py",
        "/assets/page.html",
        "/run/several/decisions.parquet",
        "/run/several/../../secret/study.yaml",
    ],
)
def test_nothing_but_runs_can_be_asked_for(look: Look, runs: Path, path: str) -> None:
    shutil.copytree(runs / "weak", runs.parent / "secret", dirs_exist_ok=True)
    status, html = look(path)
    assert status == 404
    assert "cannot be shown" in html


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_sent(runs: Path, method: str) -> None:
    async def run() -> int:
        viewer = Viewer(RunFolders([runs]))
        async with (
            TestClient(TestServer(viewer.application())) as client,
            client.request(method, "/") as answer,
        ):
            return answer.status

    assert asyncio.run(run()) == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("localhost:1234", 200),
        ("[::1]:5", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:80", 403),
    ],
)
def test_a_foreign_name_is_refused(look: Look, host: str, status: int) -> None:
    assert look("/assets/view.js", headers={"Host": host})[0] == status


def test_every_answer_has_the_policy(runs: Path) -> None:
    async def run() -> list[dict[str, str]]:
        viewer = Viewer(RunFolders([runs]))
        async with TestClient(TestServer(viewer.application())) as client:
            found = []
            for path in ("/", "/run/nothing", "/assets/page.css", "/nowhere", "/run/weak/progress"):
                async with client.get(path) as answer:
                    found.append(dict(answer.headers))
            return found

    for headers in asyncio.run(run()):
        assert {name: headers.get(name) for name in HEADERS} == HEADERS
    assert "default-src 'none'" in HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


# Folders that are not as they should be


def test_an_empty_folder_says_how_to_begin(tmp_path: Path) -> None:
    status, html = served(tmp_path, "/")[0]
    assert (status, "No runs yet" in html) == (200, True)


def test_a_folder_that_is_not_there_is_refused(cli: Cli) -> None:
    code, _, said = cli("view", "nowhere")
    assert code == 2
    assert "no folder nowhere;" in said


def test_a_run_folder_itself_can_be_viewed(runs: Path) -> None:
    assert list(RunFolders([runs / "weak"]).entries()) == ["weak"]
    assert set(RunFolders([runs / "weak", runs / "strong"]).entries()) == {"weak", "strong"}


def test_runs_of_one_name_are_told_apart(runs: Path, tmp_path: Path) -> None:
    for place in ("a", "b"):
        shutil.copytree(runs / "weak", tmp_path / place / "same run")
    names = list(RunFolders([tmp_path]).entries())
    assert len(set(names)) == 2
    assert all(name.startswith("same-run-") for name in names)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (DECISIONS, b"PAR1 not really"),
        (DECISIONS, b""),
        (STUDY, b"models: ["),
        (STUDY, b"name: nothing else\n"),
        (MANIFEST, b"{"),
        (MANIFEST, b'{"format": 2}'),
    ],
)
def test_a_damaged_run_says_so_and_leaves_the_others_alone(
    runs: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    for one in ("weak", "bad"):
        shutil.copytree(runs / "weak", tmp_path / one)
    bad = tmp_path / "bad"
    (bad / MANIFEST if name == MANIFEST else Run(bad).path(name)).write_bytes(content)
    paths = ("/", "/run/bad", "/run/bad/flips", "/run/weak/flips")
    (listed, html), (status, _), (_, _), (good, _) = served(tmp_path, *paths)
    assert (listed, good) == (200, 200)
    assert status in (400, 500)
    assert "damaged" in html
    assert "1 × inconclusive" in html or "1 × flips" in html


def test_a_run_of_the_earlier_format_says_so(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "decisions.parquet").touch()
    (_, listed), (status, html) = served(tmp_path, "/", "/run/old")
    assert "made by an earlier version" in listed
    assert (status, "made by an earlier version" in html) == (400, True)


# A run in progress


def beat(**changes: Any) -> Beat:
    """Return a beat of this process, which is alive."""
    usual = Beat(
        study="going <b>on</b>",
        pid=os.getpid(),
        host=platform.node(),
        started=time.time() - 60,
        seen=time.time(),
        planned=2_000,
        stored=300,
        asked=200,
        failed=3,
        retried=7,
        per_second=12.5,
        prompt_tokens=40_000,
        completion_tokens=1_000,
        usd=0.1234,
        is_dearest=False,
        decided=150,
        faults={"refused": 4},
        doors=[Door("http://127.0.0.1:1/<v1>", 3, 4, 32, True, 2.4)],
    )
    return replace(usual, **changes)


def put(folder: Path, one: Beat) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROGRESS).write_text(json.dumps(asdict(one)), encoding="utf-8")


def test_a_run_in_progress_can_be_watched(tmp_path: Path) -> None:
    put(tmp_path / "now", beat())
    (_, listed), (status, html), (_, told) = served(tmp_path, "/", "/run/now", "/run/now/progress")
    page = Page(html)
    assert status == 200
    for text in (
        "500 of 2,000, 300 were stored",
        "12.5 per second, 2.0 min left",
        "40,000 + 1,000 tokens; $0.1234",
        "3 after retries, 7 retried",
        "4 refused",
        "http://127.0.0.1:1/<v1>",
        "pauses 2 s; throttled",
    ):
        assert text in page.text
    assert "running since" in listed
    facts = json.loads(told)
    assert (facts["is_alive"], facts["done"], facts["planned"]) == (True, 500, 2_000)
    assert facts["facts"]["faults"] == "4 refused"


def test_a_killed_process_is_seen_as_such(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    put(tmp_path / "killed", beat(pid=gone.pid))
    put(tmp_path / "silent", beat(host="elsewhere", seen=time.time() - 3_600))
    put(tmp_path / "elsewhere", beat(host="elsewhere"))
    alive = {name: read_beat(tmp_path / name) for name in ("killed", "silent", "elsewhere")}
    assert {name: one and one.is_alive for name, one in alive.items()} == {
        "killed": False,
        "silent": False,
        "elsewhere": True,
    }
    assert "killed: last heartbeat at" in Page(served(tmp_path, "/run/killed")[0][1]).text


def test_a_beat_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert read_beat(tmp_path) is None
    (tmp_path / PROGRESS).write_text('{"pid": "x"}', encoding="utf-8")
    assert read_beat(tmp_path) is None


def test_a_run_leaves_beats_while_it_lasts_and_none_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.001)
    beats: list[Beat] = []

    def watch(request: Request, reply: Reply) -> None:
        if len(beats) < 3:
            time.sleep(0.01)
            beats.extend(filter(None, [read_beat(tmp_path / "run")]))

    run = simulated_watching(tmp_path / "run", watch)
    assert len(beats) == 3
    assert beats[0].planned >= len(run.decisions)
    assert (beats[0].pid, beats[0].study) == (os.getpid(), "simulated")
    assert beats[0].doors[0].limit >= beats[0].doors[0].in_use
    assert not (tmp_path / "run" / PROGRESS).exists()


def simulated_watching(folder: Path, watch: Callable[[Request, Reply], None]) -> Run:
    from flipmeter.run.perform import perform
    from flipmeter.run.progress import Terms
    from flipmeter.study.file import read_study

    content = {"name": "simulated", "models": ["sim/honest"], "datasets": ["reviews"]}
    study = read_study({**content, "test_size": 20, "base": {"shots": 1}})
    terms = Terms()
    terms.listener.on_reply = watch  # type: ignore[method-assign, assignment]
    return perform(study, folder, Store(), terms)


def test_a_run_that_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.001)

    def fail(request: Request, reply: Reply) -> None:
        while read_beat(tmp_path / "run") is None:
            time.sleep(0.001)
        raise Problem("enough")

    with pytest.raises(Problem, match="enough"):
        simulated_watching(tmp_path / "run", fail)
    assert not (tmp_path / "run").exists()


def test_the_cost_is_that_of_the_dearest_model(tmp_path: Path) -> None:
    ledger = Ledger(prompt_tokens=1_000_000, completion_tokens=500_000)
    with Heartbeat(tmp_path, "x", ledger, [Price(1.0, 2.0), Price(3.0, 1.0)]) as running:
        one = running._beat()
    assert (one.usd, one.is_dearest) == (4.0, True)
    with Heartbeat(tmp_path, "x", ledger) as running:
        assert running._beat().usd is None


def test_faults_are_counted_lot_by_lot(tmp_path: Path) -> None:
    running = Heartbeat(tmp_path, "x", Ledger())
    for _ in range(2):
        running.settle(pl.DataFrame({"fault": ["", "refused", "error", "refused"]}))
    assert running.decided == 8
    assert running.faults == {"refused": 4, "error": 2}
