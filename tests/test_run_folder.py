"""A run holds itself: its folder alone gives every number, text and page, or says what is wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import flipmeter
from changed_runs import changed
from flipmeter.ask.family import backends
from flipmeter.ask.store import Store
from flipmeter.choose.select import select
from flipmeter.consent import trusting
from flipmeter.errors import Problem
from flipmeter.parquet import collected, scan_file
from flipmeter.run import generation
from flipmeter.run.folder import Run
from flipmeter.run.generation import (
    CALLS,
    DECISIONS,
    FILES,
    FORMAT,
    ITEMS,
    MANIFEST,
    OLDEST,
    PROMPTS,
    commit,
    verify,
)
from flipmeter.run.perform import perform
from flipmeter.run.rows import SCHEMAS, Column
from flipmeter.show.gather import gather
from flipmeter.show.whole import write_report
from flipmeter.study.file import read_study
from report_runs import simulated

Cli = Callable[..., tuple[int, str, str]]

SCALE = ("low", "mid", "high")
RATER = """
def by_length(question):
    \"\"\"A rater that likes what stands first, and more so for long texts.\"\"\"
    place = 0 if len(question.text) % 3 else len(question.labels) // 2
    return question.labels[place].text
"""
PROMPT = """How urgent is this ticket? {{ labels }}

{% for demo in demos %}Ticket: {{ demo.text }}
Urgency: {{ demo.label }}

{% endfor %}Ticket: {{ text }}
Urgency:"""


def tickets(folder: Path, prefix: str = "ticket") -> Path:
    """Write a file of sixty tickets."""
    rows = [f"{prefix} {k} about thing {'x' * (k * 7 % 11)},{SCALE[k % 3]}" for k in range(60)]
    path = folder / "tickets.csv"
    path.write_text("body,severity\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def study_in(folder: Path, **changes: Any) -> Path:
    """Write a study of a user's own file, beside it."""
    spec = {"file": "tickets.csv", "text": "body", "label": "severity", "scale": list(SCALE)}
    content = {
        "name": "tickets",
        "models": ["sim/first-slot?strength=6"],
        "datasets": [spec],
        "test_size": 24,
        "base": {"shots": 1},
        **changes,
    }
    path = folder / "study.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def page_of(folder: Path) -> str:
    """The report of a run folder, without the time of its making."""
    write_report(gather(Run(folder)), folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["simulated", "prompt file", "callable"])
def test_a_report_needs_nothing_but_the_folder(tmp_path: Path, kind: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    tickets(work)
    (work / "ask.txt").write_text(PROMPT, encoding="utf-8")
    (work / "raters.py").write_text(RATER, encoding="utf-8")
    own: dict[str, dict[str, Any]] = {
        "simulated": {},
        "prompt file": {"prompt": "ask.txt", "models": ["sim/first-slot?strength=6"]},
        "callable": {"models": ["python/raters.py:by_length"], "probes": ["label_order"]},
    }
    study = read_study(study_in(work, **own[kind]))
    with Store(work / "replies.sqlite") as store, trusting(code=True):
        perform(study, work / "run", store)
    before = page_of(work / "run")
    assert "ticket" in before
    shutil.move(work / "run", tmp_path / "run")
    shutil.rmtree(work)
    assert page_of(tmp_path / "run") == before


def test_a_run_of_a_family_that_is_not_installed_here_is_measured_and_reported(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = simulated(tmp_path / "run", test_size=10, probes=["label_order"])
    verbs = (("measure",), ("report", "--out", str(tmp_path / "page.html")), ("check",))
    before = [cli(verb, str(run.folder), *options) for verb, *options in verbs]
    monkeypatch.delitem(backends._parts, "sim")
    assert [cli(verb, str(run.folder), *options) for verb, *options in verbs] == before


def test_a_data_file_edited_after_the_run_does_not_reach_its_report(tmp_path: Path) -> None:
    tickets(tmp_path)
    run = perform(read_study(study_in(tmp_path)), tmp_path / "run", Store())
    before = page_of(run.folder)
    tickets(tmp_path, prefix="never asked")
    after = page_of(run.folder)
    assert "never asked" not in after
    assert after == before


def test_a_folder_may_be_called_like_a_table(tmp_path: Path) -> None:
    run = simulated(tmp_path / "runs.csv", models=["sim/honest"], test_size=6)
    assert flipmeter.Run(run.folder).verdicts.equals(run.verdicts)


def test_a_card_is_made_from_the_folder_alone(tmp_path: Path) -> None:
    tickets(tmp_path)
    pipelines = {"vary": {"pipeline": ["pointwise+contextual", "pointwise+pride_odd"]}}
    study = read_study(study_in(tmp_path, probes=["label_order"], seeds=[3], **pipelines))
    run = perform(study, tmp_path / "run", Store())
    (tmp_path / "tickets.csv").unlink()
    for level in ("", "pipeline=pointwise+pride_odd"):
        card = select(run, level=level or "base").card()
        assert sorted(row["label"] for row in card.demos) == sorted(SCALE)
        assert bool(card.calibration) == bool(level)
        assert card.seed == 3


def test_prompts_are_the_bytes_that_were_asked(tmp_path: Path) -> None:
    with Store(tmp_path / "replies.sqlite") as store:
        run = simulated(tmp_path / "run", store, test_size=10)
        rows = store.read("SELECT key, texts.text, rest FROM replies JOIN texts ON id = prefix", [])
        sent = {key.hex(): prefix + rest for key, prefix, rest in rows}
    calls = run.calls.select("key", "prompt").unique()
    found = run.prompts(calls["prompt"].to_list())
    for key, prompt in calls.iter_rows():
        assert found[prompt] == sent[key]


def test_every_call_has_what_was_asked_replied_and_read(tmp_path: Path) -> None:
    run = simulated(tmp_path, test_size=10, scores=True)
    calls = run.calls
    assert (
        calls.select("slot", "rank", "prompt_tokens", "reply").null_count().sum_horizontal()[0] == 0
    )
    single = calls.filter(pl.col("part") == "")
    where = ["rater", "dataset", "level", "seed", "view", "repeat", "item"]
    both = run.decisions.join(single, on=where, suffix="_call")
    assert len(both) == len(run.decisions)
    assert both.filter(pl.col("rank") != pl.col("rank_call")).is_empty()
    assert both.filter(pl.col("prompt") != pl.col("prompt_call")).is_empty()
    assert all(abs(sum(shares) - 1) < 1e-9 for shares in calls["probabilities"])


def test_items_hold_every_field_and_role(tmp_path: Path) -> None:
    rows = [f"question {k},answer {k},{SCALE[k % 3]}" for k in range(40)]
    (tmp_path / "tickets.csv").write_text("q,body,severity\n" + "\n".join(rows) + "\n")
    spec = {"file": "tickets.csv", "text": "body", "label": "severity", "scale": list(SCALE)}
    with_fields = {**spec, "fields": {"question": "q"}}
    study = read_study(study_in(tmp_path, datasets=[with_fields], probes=["label_order"]))
    run = perform(study, tmp_path / "run", Store())
    items = run.items
    assert set(items["role"]) == {"test", "demo"}
    row = items.filter(role="test").row(0, named=True)
    assert json.loads(row["fields"])["question"].startswith("question")
    assert row["gold"] in (1, 2, 3)
    assert set(run.decisions["item"]) == set(items.filter(role="test")["id"])


def test_rows_of_items_are_sorted_however_many_are_made_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = simulated(tmp_path / "a", test_size=12).items
    assert together.equals(together.sort("dataset", "role", "id"))
    monkeypatch.setattr("flipmeter.run.rows.AT_ONCE", 5)
    assert simulated(tmp_path / "b", test_size=12).items.equals(together)


# Generations


def test_a_folder_holds_one_generation_and_what_names_it(tmp_path: Path) -> None:
    simulated(tmp_path, test_size=5, probes=["label_order"])
    first = json.loads((tmp_path / MANIFEST).read_text())["generation"]
    simulated(tmp_path, test_size=6, probes=["label_order"])
    second = json.loads((tmp_path / MANIFEST).read_text())["generation"]
    assert first != second
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([MANIFEST, second])
    assert sorted(path.name for path in (tmp_path / second).iterdir()) == sorted(FILES)


class Killed(BaseException):
    """What ends a process: nothing below may catch it."""


@pytest.mark.parametrize("name", FILES)
def test_a_commit_that_dies_leaves_the_run_before_it(tmp_path: Path, name: str) -> None:
    run = simulated(tmp_path, test_size=5, probes=["label_order"])
    before = run.estimates

    def die(path: Path) -> None:
        path.write_bytes(b"half of a ta")
        raise Killed

    writers: dict[str, Callable[[Path], object]] = {
        one: (die if one == name else Path.touch) for one in FILES
    }
    scratch = tmp_path / ".spill"
    with pytest.raises(Killed):
        commit(tmp_path, scratch, writers, study="other", state="complete", facts={})
    verify(tmp_path)
    assert Run(tmp_path).estimates.equals(before)


def test_a_generation_that_nobody_names_is_swept_away(tmp_path: Path) -> None:
    simulated(tmp_path, test_size=5, probes=["label_order"])
    (tmp_path / "g-0123456789ab").mkdir()
    simulated(tmp_path, test_size=5, probes=["label_order"])
    assert len(list(tmp_path.glob("g-*"))) == 1


def test_a_folder_of_the_earlier_format_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for name in ("study.yaml", "environment.json", "decisions.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(Problem) as told:
        _ = Run(tmp_path).decisions
    assert str(told.value) == (
        f"{tmp_path} was made by an earlier version; run the study again: replies are stored and "
        "nothing is paid twice"
    )


@pytest.mark.parametrize("name", [DECISIONS, ITEMS])
def test_a_folder_without_a_later_column_is_older_not_damaged(tmp_path: Path, name: str) -> None:
    run = simulated(tmp_path / "run", test_size=5, probes=["label_order"])
    verdicts = run.verdicts
    later = [one.name for one in SCHEMAS[name].columns if one.since > OLDEST]
    table = run.scan(name).collect().drop(later)
    now = changed(run.folder, None, study=None, **{name.removesuffix(".parquet"): table})
    with pytest.raises(Problem, match=f"has no column '{later[0]}'"):
        now.scan(name)
    content = {**json.loads((run.folder / MANIFEST).read_bytes()), "format": OLDEST}
    sealed = json.dumps({**content, "seal": generation._seal(content)})
    (run.folder / MANIFEST).write_text(sealed, encoding="utf-8")
    older = Run(run.folder)
    assert older.manifest.format == OLDEST
    (row,) = older.scan(name).select(later).collect().unique().rows()
    assert row == tuple(one.default for one in SCHEMAS[name].columns if one.name in later)
    assert older.verdicts.equals(verdicts)


def test_a_column_to_come_has_its_default_in_folders_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = simulated(tmp_path / "run", test_size=5, probes=["label_order"])
    mood = Column("mood", since=FORMAT + 1, default="calm")
    schema = replace(SCHEMAS[DECISIONS], columns=(*SCHEMAS[DECISIONS].columns, mood))
    monkeypatch.setitem(SCHEMAS, DECISIONS, schema)
    assert {*Run(run.folder).decisions["mood"]} == {"calm"}


def test_a_folder_of_a_later_format_asks_for_an_update(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"format": 99}')
    with pytest.raises(Problem, match="made by a later version"):
        _ = Run(tmp_path).study


@pytest.mark.parametrize("name", ["../other", "g-/x", "/g-1", "g-..", ""])
def test_a_generation_is_never_looked_for_elsewhere(tmp_path: Path, name: str) -> None:
    simulated(tmp_path, test_size=5, probes=["label_order"])
    told = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**told, "generation": name}))
    with pytest.raises(Problem, match="is not a generation"):
        _ = Run(tmp_path).decisions


@pytest.mark.parametrize("name", [ITEMS, PROMPTS, CALLS, DECISIONS])
def test_a_file_changed_behind_the_back_of_a_run_is_refused_by_name(
    tmp_path: Path, name: str
) -> None:
    run = simulated(tmp_path, test_size=5, probes=["label_order"])
    path = run.path(name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(Problem, match=rf"{name} is damaged \(its content has changed"):
        verify(tmp_path)
    with pytest.raises(Problem, match=re.escape(name)):
        Run(tmp_path).scan(name)


def test_a_file_that_is_missing_or_cut_is_refused_at_opening(tmp_path: Path) -> None:
    run = simulated(tmp_path, test_size=5, probes=["label_order"])
    run.path(CALLS).write_bytes(run.path(CALLS).read_bytes()[:-1])
    with pytest.raises(Problem, match=rf"{CALLS} is damaged \(.* bytes instead of"):
        _ = Run(tmp_path).manifest


def test_contrasts_are_those_of_the_run_whatever_is_registered(tmp_path: Path) -> None:
    run = simulated(tmp_path, test_size=5, probes=["label_order"])
    told = [dict(one, name="P77", probe="elsewhere") for one in run.environment["contrasts"]]
    other = changed(tmp_path, {"contrasts": told})
    assert [contrast.name for contrast in other.contrasts] == ["P77"]
    assert set(other.verdicts["contrast"]) == {"P77"}


def test_check_verifies_every_file(tmp_path: Path, cli: Cli) -> None:
    run = simulated(tmp_path / "run", test_size=5, probes=["label_order"])
    assert cli("check", str(run.folder), "--verify")[0] in (0, 1, 3)
    path = run.path(PROMPTS)  # which no gate reads
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(bytes(content))
    assert cli("check", str(run.folder))[0] in (0, 1, 3)
    code, _, err = cli("check", str(run.folder), "--verify")
    assert (code, "prompts.parquet is damaged" in " ".join(err.split())) == (2, True)


def test_a_run_being_read_outlives_the_next(tmp_path: Path) -> None:
    first = simulated(tmp_path, test_size=5, probes=["label_order"])
    assert first.manifest.state == "complete"
    simulated(tmp_path, test_size=6, probes=["label_order"])
    assert first.decisions["item"].n_unique() == 5
    assert Run(tmp_path).decisions["item"].n_unique() == 6
    del first
    simulated(tmp_path, test_size=7, probes=["label_order"])
    assert len(list(tmp_path.glob("g-*"))) == 1


# Size


def test_a_call_of_a_25_shot_study_takes_at_most_400_bytes(tmp_path: Path) -> None:
    run = simulated(tmp_path, test_size=100, base={"shots": 5})
    n_bytes = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert n_bytes / len(run.calls) <= 400


def test_every_query_of_a_table_ends_in_one_place() -> None:
    source = Path(flipmeter.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\.collect\(", path.read_text("utf-8"))
    }
    # Data files have messages of their own, and spilled rows are ours.
    assert found == {"parquet.py", "data/tables.py", "run/spill.py"}


def test_a_damaged_page_is_named_whichever_query_reads_it(tmp_path: Path) -> None:
    run = simulated(tmp_path, test_size=5, probes=["label_order"])
    path = run.path(ITEMS)
    content = bytearray(path.read_bytes())
    content[40:60] = bytes(20)
    path.write_bytes(content)
    with pytest.raises(Problem, match=rf"{re.escape(str(path))} is damaged"):
        scan_file(path).pipe(collected, "streaming")
