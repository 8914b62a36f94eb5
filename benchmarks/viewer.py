"""View a run of 1,000,000 decisions: seconds to its pages, and peak memory of the server.

    python benchmarks/viewer.py [--decisions 1000000] [--keep FOLDER]

The run folder is as `flipmeter run` writes it, but no model was asked: six raters, one dataset of
made up texts, all views, real items and real prompts; answers are drawn from seeded arrays, a
seventh of them different from the first answer, one in a hundred a fault. Beside it: reading the
whole file of decisions in a process of its own. Processor seconds are those of the server alone:
on a busy machine they tell more than the seconds on the wall.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess  # the server and the reader are programs
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import numpy as np
import polars as pl
import yaml
from goals import Goal, show_goals, show_table

from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.run.folder import Run
from flipmeter.run.generation import CALLS, CONDITIONS, DECISIONS, ITEMS, PROMPTS, STUDY, commit
from flipmeter.run.perform import write_table
from flipmeter.run.rate import panel_of, writer
from flipmeter.run.rows import CALL, DECISION, ItemTable, condition_table, prompt_table
from flipmeter.study.entries import TaskEntry
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Condition, Script

N_RATERS, N_CLASSES, N_VIEWS = 6, 5, 7
MOVED, UNREAD = 1 / 7, 1 / 100
WORDS = "the plot is thin but the acting holds it up and no one in the room was bored for long "
READ = (
    "import sys, time, polars as pl; start, cpu = time.perf_counter(), time.process_time(); "
    "pl.read_parquet(sys.argv[1]); "
    "print(time.perf_counter() - start); print(time.process_time() - cpu); "
    "print(open('/proc/self/status').read())"
)
SERVE = "from flipmeter.cli import main; main()"


# --- the run ----------------------------------------------------------------------------------


def make_study(folder: Path, n_items: int) -> Study:
    """Write the texts, and return a study of them."""
    path = folder / "texts.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "stars"])
        for k in range(n_items + 500):
            rows.writerow([f"No. {k}: {WORDS[k % 40 :]}{WORDS[: k % 53]}", 1 + k % N_CLASSES])
    scale = [str(rank) for rank in range(1, N_CLASSES + 1)]
    texts = {"file": str(path), "name": "texts", "text": "text", "label": "stars", "scale": scale}
    models = [{"model": f"sim/first-slot?strength={k + 1}", "name": f"rater-{k}"} for k in range(6)]
    return read_study(
        {
            "name": "a million",
            "models": models,
            "datasets": [texts],
            "test_size": n_items,
            "base": {"shots": 1},
        }
    )


def make_run(folder: Path, n_decisions: int) -> int:
    """Write a run folder of about so many decisions; return how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    study = make_study(folder, n_decisions // N_RATERS // N_VIEWS)
    grid, items = conditions(study), ItemTable()
    for one in grid:
        items.add(one.dataset, (*one.demos, *one.calibration, *one.items))
    recipe = yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False)
    facts = {
        "flipmeter": "benchmark",
        "contrasts": [asdict(contrast) for contrast in study.contrasts],
        "tasks": {"texts": TaskEntry.of(grid[0].task).model_dump()},
        "datasets": {"texts": {"n_items": len(grid[0].items), "notes": []}},
        "models": {},
        "reproducible": [],
    }
    with tempfile.TemporaryDirectory() as near:
        n_rows = write_conditions(grid, Path(near))
        writers = {
            STUDY: lambda path: path.write_text(recipe, encoding="utf-8"),
            ITEMS: items.table().write_parquet,
            CONDITIONS: condition_table(grid).write_parquet,
        } | {
            name: partial(write_table, pl.scan_parquet(f"{near}/{name}-*.parquet"))
            for name in (PROMPTS, CALLS, DECISIONS)
        }
        commit(folder, folder / "new", writers, study=study.name, state="complete", facts=facts)
    return n_rows


def write_conditions(grid: Sequence[Condition], folder: Path) -> int:
    """Write the rows of one condition after the other; return how many decisions there are."""
    rng = np.random.default_rng(0)
    digests: dict[tuple[str, int], list[str]] = {}
    heads: set[str] = set()
    first: dict[str, np.ndarray] = {}
    n_rows = 0
    for number, condition in enumerate(grid):
        where = (condition.view.name, condition.view.repeat)
        if where not in digests:
            scripts = scripts_of(condition)
            digests[where] = [script.digest[:16] for script in scripts]
            shown = prompt_table(scripts).filter(~pl.col("digest").is_in(list(heads)))
            heads |= {*shown.filter(head="")["digest"]}
            shown.write_parquet(folder / f"{PROMPTS}-{number:04}.parquet")
        base = first.setdefault(condition.rater.name, np.zeros(0, dtype=np.int64))
        ranks, is_unread = draw(rng, condition, base)
        if not len(base):
            first[condition.rater.name] = ranks
        decisions = decision_rows(condition, ranks, is_unread, digests[where])
        decisions.write_parquet(folder / f"{DECISIONS}-{number:04}.parquet")
        call_rows(decisions, n_rows).write_parquet(folder / f"{CALLS}-{number:04}.parquet")
        n_rows += len(decisions)
    return n_rows


def scripts_of(condition: Condition) -> list[Script]:
    """Every prompt of a condition; raters of one style share them."""
    asks = open_pipeline(condition.rater.pipeline).asks(panel_of(condition), {})
    write = writer(condition)
    return [write(ask).script for ask in asks]


def draw(
    rng: np.random.Generator, condition: Condition, base: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw answers: near the gold class at first, then mostly what they were at first."""
    gold = np.array([item.gold for item in condition.items])
    n = len(gold)
    usual = np.clip(gold + rng.integers(-1, 2, n), 1, N_CLASSES) if not len(base) else base[:n]
    beside = np.clip(usual + rng.choice([-2, -1, 1, 2], n), 1, N_CLASSES)
    ranks = np.where(rng.random(n) < MOVED, beside, usual)
    return ranks, rng.random(n) < UNREAD


def decision_rows(
    condition: Condition, ranks: np.ndarray, is_unread: np.ndarray, digests: list[str]
) -> pl.DataFrame:
    n = len(ranks)
    read = np.where(is_unread, 0, ranks)
    slots = [condition.view.slot_of(int(rank)) if rank else 0 for rank in read]
    known = {
        "rater": [condition.rater.name] * n,
        "dataset": [condition.dataset] * n,
        "level": [condition.level] * n,
        "seed": [condition.seed] * n,
        "view": [condition.view.name] * n,
        "repeat": [condition.view.repeat] * n,
        "item": [item.id for item in condition.items],
        "gold": [item.gold for item in condition.items],
        "rank": read,
        "slot": slots,
        "fault": np.where(is_unread, "unparsed", ""),
        "tie_decided": [False] * n,
        "degenerate": [False] * n,
        "prompt": digests,
        "n_classes": [N_CLASSES] * n,
        "labels": ["identifiers"] * n,
        "n_calls": [1] * n,
        "prompt_tokens": [300] * n,
        "completion_tokens": [1] * n,
    }
    table = DECISION.whole(pl.LazyFrame(known)).collect()
    return table.select(DECISION.kinds.names()).cast(DECISION.kinds)


def call_rows(decisions: pl.DataFrame, start: int) -> pl.DataFrame:
    """A call for every decision; its key is a number that nothing is stored under."""
    known = decisions.select(
        *("rater", "dataset", "level", "seed", "view", "repeat", "item"),
        role=pl.lit("test"),
        asked_view=pl.col("view"),
        part=pl.lit(""),
        key=pl.int_range(start, start + pl.len()).hash(0).cast(pl.String).str.pad_start(64, "0"),
        prompt=pl.col("prompt"),
        reply=pl.col("slot").cast(pl.String),
        finish=pl.lit("stop"),
    )
    absent = {name: kind for name, kind in CALL.kinds.items() if name not in known.columns}
    blank = [
        pl.lit("" if kind == pl.String else None, dtype=kind).alias(name)
        for name, kind in absent.items()
    ]
    return known.with_columns(blank).select(CALL.kinds.names())


# --- looking at it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Took:
    """Seconds and memory of a step."""

    what: str
    seconds: float
    cpu: float | None = None
    mebibytes: float | None = None


def peak(status: str) -> float:
    """The most memory that a process had, in MiB, from its status file."""
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def read_whole(path: Path) -> Took:
    command = [sys.executable, "-c", READ, str(path)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, cpu, status = told.split("\n", 2)
    return Took("reading all decisions", float(seconds), float(cpu), peak(status))


def cpu_of(pid: int) -> float:
    """The processor seconds of a process so far, without those of its children."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def viewing(folder: Path) -> Iterator[tuple[str, int]]:
    """Start the viewer; give its address and process."""
    command = [sys.executable, "-c", SERVE, "view", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
        process.terminate()


def get(address: str) -> tuple[str, float]:
    start = time.perf_counter()
    with urlopen(address) as answer:
        html = answer.read().decode()
    return html, time.perf_counter() - start


def look(address: str, pid: int, run: str) -> Iterator[Took]:
    """Open pages as a person would, each for the first time."""
    status = Path(f"/proc/{pid}/status")
    flips, items = (f"{address}run/{run}/{what}" for what in ("flips", "items"))
    narrow = f"?rater=rater-3&contrast=P1&distance=2&towards={quote('first label')}"
    found = grid = ""
    for what, url in (
        ("the list of runs", address),
        ("the run, its report begun", f"{address}run/{run}"),
        ("the first flips", flips),
        ("filtered flips", flips + narrow),
        ("flips, farthest first", f"{flips}?order=distance"),
        ("the last flips", f"{flips}?page=2000"),
        ("flips with a text", f"{flips}?q=No.+123"),
        ("the grid of items", f"{items}"),
        ("its second page", f"{items}?page=2"),
        ("the grid, one rater and contrast", f"{items}?rater=rater-3&contrast=P1"),
        ("items with a text", f"{items}?q=No.+123"),
        ("slices, begun", f"{address}run/{run}/slices?by=length"),
    ):
        before = cpu_of(pid)
        html, seconds = get(url)
        found = html if what == "filtered flips" else found
        grid = html if what == "its second page" else grid
        yield Took(what, seconds, cpu_of(pid) - before, peak(status.read_text()))
    for what, kind, html in (
        ("one flip with its prompts", "flip", found),
        ("one item", "item", grid),
    ):
        link = re.search(rf'href="(/run/[^"]*/{kind}\?[^"]*)"', html)
        assert link is not None
        before = cpu_of(pid)
        _, seconds = get(address.rstrip("/") + link[1].replace("&amp;", "&"))
        yield Took(what, seconds, cpu_of(pid) - before, peak(status.read_text()))
    start = time.perf_counter()
    while "P1 by length" not in get(f"{address}run/{run}/slices?by=length&contrast=P1")[0]:
        time.sleep(0.5)
    yield Took("slices, from here on", time.perf_counter() - start)
    start = time.perf_counter()
    while 'id="verdict"' not in get(f"{address}run/{run}")[0]:
        time.sleep(0.5)
    yield Took("the whole report, from here on", time.perf_counter() - start)


def measure(folder: Path, n_decisions: int) -> None:
    n = make_run(folder / "big", n_decisions)
    whole = read_whole(Run(folder / "big").path(DECISIONS))
    with viewing(folder) as (address, pid):
        alone = peak(Path(f"/proc/{pid}/status").read_text())
        start = Took("the server alone", 0.0, cpu_of(pid), alone)
        found = [start, *look(address, pid, "big"), whole]
    heads = ("what", "seconds", "processor s", "peak MiB")
    rows = []
    for took in found:
        cpu = "" if took.cpu is None else f"{took.cpu:.2f}"
        mebibytes = "" if took.mebibytes is None else f"{took.mebibytes:.0f}"
        rows.append((took.what, f"{took.seconds:.2f}", cpu, mebibytes))
    show_table(f"{n:,} decisions", heads, rows)
    by_name = {took.what: took for took in found}
    what = f"viewer, {n:,} decisions"
    most = max(took.mebibytes or 0.0 for took in found[:-1])
    show_goals(
        [
            Goal(f"{what}: list of runs, s", by_name["the list of runs"].seconds, "<=", 1),
            Goal(f"{what}: first flips, s", by_name["the first flips"].seconds, "<=", 2),
            Goal(f"{what}: filtered flips, s", by_name["filtered flips"].seconds, "<=", 1),
            Goal(f"{what}: grid of items, s", by_name["the grid of items"].seconds, "<=", 2),
            Goal(f"{what}: one item, s", by_name["one item"].seconds, "<=", 2),
            Goal(f"{what}: peak memory of the server, MiB", most, "<=", 300),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000, help="about how many")
    parser.add_argument("--keep", type=Path, help="leave the run in this folder")
    options = parser.parse_args()
    if options.keep is not None:
        measure(options.keep, options.decisions)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.decisions)


if __name__ == "__main__":
    main()
