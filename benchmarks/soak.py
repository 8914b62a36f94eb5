"""Perform studies for minutes while everything fails: is anything lost, and does memory grow?

    python benchmarks/soak.py [--minutes 10] [--rate 400] [--outage 20]

A server of its own process (tests/misbehaving.py) fails one request in ten. A client of its own
process performs one study after the other, each with other demonstrations, as `flipmeter run`
would; a run that ends with errors, or is stopped by a problem, is run again. In the first quarter
the client is killed with -9 three times, later the server, which comes back after `outage` seconds.
Everything keeps its usual persistence. The exit code is 1 if a reply was lost or memory grew.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import polars as pl
from rich.console import Console
from rich.table import Table

from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.study.file import Study, read_study

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from misbehaving import Process

CONCURRENCY = 64
LATENCY = 0.05
CLIENT_DEATHS = (0.08, 0.16, 0.24)
SERVER_DEATHS = (0.35, 0.7)
"""Shares of the time."""
FLAT = 0.05
"""The share by which memory may differ between the first third and the last."""
WARM_STUDIES = 3
"""Warm-up of a process before its memory is measured: everything imported, pools filled."""


class Fate(TypedDict):
    """History of a study: how often it was run, and the reasons for repeats."""

    runs: int
    faults: list[str]
    stops: list[str]


def study(number: int, url: str, rate: float) -> Study:
    """One of many studies of equal size; all their prompts are different."""
    model = {"model": "http/acme/rater", "base_url": url, "concurrency": CONCURRENCY, "timeout": 3}
    return read_study(
        {
            "models": [model],
            "datasets": ["reviews"],
            "seeds": [number],
            "test_size": 200,
            "repeats": 1,
            "base": {"shots": 1},
            "min_interval": 1 / rate,
        }
    )


# The client


def perform_until(end: float, folder: Path, url: str, rate: float) -> None:
    """Perform the studies that are not finished yet, one after the other, and say so in a file."""
    done = folder / "done.jsonl"
    number = len(done.read_text().splitlines()) if done.exists() else 0
    while time.time() < end:
        fate = _finish(study(number, url, rate), folder, number)
        with done.open("a") as lines:
            lines.write(json.dumps(fate) + "\n")
        number += 1


def _finish(asked: Study, folder: Path, number: int) -> Fate:
    """Run a study again until nothing is missing, as a user would."""
    n_runs, faults, stops = 0, list[str](), list[str]()
    while True:
        n_runs += 1
        try:
            with Store(folder / "replies.sqlite") as store:
                run = perform(asked, folder / "runs" / str(number), store)
        except Problem as problem:
            stops.append(str(problem))
            continue
        errors = run.calls.filter(pl.col("error") != "")["error"].to_list()
        if not errors:
            return {"runs": n_runs, "faults": faults, "stops": stops}
        faults += errors


# The one who looks on


@dataclass
class Soak:
    """Schedule of kills, and the observations between them."""

    folder: Path
    server: Process
    seconds: float
    rate: float
    outage: float
    began: float = field(default_factory=time.time)
    memory: list[list[tuple[int, float]]] = field(default_factory=list)
    asked_again: int = 0
    stored: set[int] = field(default_factory=set)
    n_lines: int = 0

    @property
    def server_deaths(self) -> tuple[float, ...]:
        """Times at which the server dies: only once if outages would be most of the time."""
        return SERVER_DEATHS if self.seconds > 10 * self.outage else SERVER_DEATHS[:1]

    def run(self) -> None:
        """Start the client, kill what is to be killed, and wait for the end."""
        client = self._start()
        for share in CLIENT_DEATHS:
            self._watch(client, self.began + share * self.seconds)
            client.kill()
            client.wait()
            self.check_what_is_asked_again()
            client = self._start()
        for share in self.server_deaths:
            self._watch(client, self.began + share * self.seconds)
            self.server.kill()
            self._watch(client, time.time() + self.outage)
            self.server.start()
        self._watch(client, float("inf"))
        if client.returncode:
            sys.exit(f"the client ended with {client.returncode}")
        self.check_what_is_asked_again()

    def _start(self) -> subprocess.Popen[bytes]:
        self.memory.append([])
        end = self.began + self.seconds
        named = [f"--client={self.folder}", f"--url={self.server.url}", f"--end={end}"]
        command = [sys.executable, __file__, f"--rate={self.rate}", *named]
        return subprocess.Popen(command)

    def _watch(self, client: subprocess.Popen[bytes], until: float) -> None:
        """Note once a second how many studies are done and how much memory the client has."""
        while time.time() < until and client.poll() is None:
            self.memory[-1].append((len(self.fates()), _resident(client.pid)))
            time.sleep(min(1.0, max(0.0, until - time.time())))

    def fates(self) -> list[Fate]:
        done = self.folder / "done.jsonl"
        lines = done.read_text().splitlines() if done.exists() else []
        return [json.loads(line) for line in lines]

    def check_what_is_asked_again(self) -> None:
        """Count what the server was asked since the last death that was stored before it."""
        lines = self.server.lines()
        self.asked_again += sum(number in self.stored for _, number in lines[self.n_lines :])
        self.n_lines = len(lines)
        self.stored = set(self.receipts())

    def receipts(self) -> Iterator[int]:
        with Store(self.folder / "replies.sqlite") as store:
            for (number,) in store.read("SELECT prompt_tokens FROM replies"):
                yield number

    def steady(self) -> list[float]:
        """The memory of the longest life, once it is warm."""
        life = max(self.memory, key=len)
        return [size for n_done, size in life if n_done >= life[0][0] + WARM_STUDIES]


def _resident(pid: int) -> float:
    """The resident memory of a process in MB."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return float("nan")
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    return int(found[0]) / 1024 if found else float("nan")


# What is found


@dataclass(frozen=True)
class Finding:
    """One line of the table; one that is bad ends the soak with an error."""

    name: str
    value: str
    is_bad: bool = False


def replies_found(soak: Soak) -> Iterator[Finding]:
    """Compare what the runs rest on, what is stored and what the server answered."""
    calls = _calls(soak.folder / "runs", len(soak.fates()))
    wanted = set(calls["key"])
    unnamed = calls.filter(pl.col("error") == "")
    with Store(soak.folder / "replies.sqlite") as store:
        stored = store.get(wanted)
        n_stored = len(store)
    receipts, answered = list(soak.receipts()), Counter[int]()
    lines = soak.server.lines()
    for is_answer, number in lines:
        answered[number] += is_answer
    n_again = sum(n - 1 for n in answered.values() if n > 1)
    n_deaths = len(CLIENT_DEATHS) + len(soak.server_deaths)
    fates = soak.fates()
    yield Finding("studies", f"{len(fates)}")
    yield Finding("runs", f"{sum(fate['runs'] for fate in fates)}")
    yield Finding("stopped and run again", _reasons(fate["stops"] for fate in fates))
    yield Finding("distinct requests", f"{len(wanted)}", len(wanted) != len(calls))
    yield Finding("requests at the server", f"{len(lines)}")
    yield Finding("of these answered", f"{sum(answered.values())}")
    yield Finding("stored replies", f"{n_stored}", n_stored != len(set(receipts)))
    yield Finding("named faults, run again", _reasons(fate["faults"] for fate in fates))
    lost = wanted - set(stored) - set(calls.filter(pl.col("error") != "")["key"])
    yield Finding("requests with neither reply nor fault", f"{len(lost)}", bool(lost))
    both = set(stored) & set(calls.filter(pl.col("error") != "")["key"])
    yield Finding("requests with both", f"{len(both)}", bool(both))
    gone = {number for number, n in answered.items() if n} - set(receipts)
    yield Finding("answers of which no reply is stored", f"{len(gone)}", bool(gone))
    unknown = set(receipts) - set(answered)
    yield Finding("replies that no server gave", f"{len(unknown)}", bool(unknown))
    yield Finding("asked again though stored", f"{soak.asked_again}", soak.asked_again > 0)
    most = 2 * CONCURRENCY * n_deaths
    yield Finding(f"answered again after {n_deaths} deaths", f"{n_again}", n_again > most)
    differ = sum(stored[key].text != text for key, text in unnamed.select("key", "reply").rows())
    yield Finding("rows that differ from the store", f"{differ}", differ > 0)


def _calls(runs: Path, n_studies: int) -> pl.DataFrame:
    return pl.concat([Run(runs / str(number)).calls for number in range(n_studies)])


def _reasons(said: Iterable[Sequence[str]]) -> str:
    """Count messages by their beginning, without the address that all of them have."""
    bare = [
        re.sub(r"(.*) from http.*|http://[^/]*/v1:? ?", r"\1", one) for some in said for one in some
    ]
    counts = Counter(re.split(r"[^\w ]", one)[0].strip()[:40] for one in bare)
    return ", ".join([f"{len(bare)}", *(f"{n} {reason}" for reason, n in counts.most_common(6))])


def memory_found(soak: Soak) -> Iterator[Finding]:
    """Compare the memory of the client's longest life between its first third and its last."""
    sizes = soak.steady()
    if len(sizes) < 9:
        yield Finding("memory", "too short a life to say", True)
        return
    third = len(sizes) // 3
    first, last = statistics.median(sizes[:third]), statistics.median(sizes[-third:])
    slope = statistics.linear_regression(range(len(sizes)), sizes).slope * 60
    is_flat = last <= first * (1 + FLAT)
    yield Finding("memory of the client, first third", f"{first:.1f} MB")
    yield Finding("memory of the client, last third", f"{last:.1f} MB", not is_flat)
    yield Finding("slope, most", f"{slope:+.2f} MB per minute, {max(sizes):.1f} MB")
    yield Finding(f"memory over {len(sizes)} s", "flat" if is_flat else "grows", not is_flat)


def show(title: str, findings: Iterable[Finding]) -> None:
    table = Table("", "", title=title)
    table.columns[1].justify = "right"
    for finding in findings:
        table.add_row(finding.name, finding.value, style="bold red" if finding.is_bad else "")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=400, help="requests per second")
    parser.add_argument("--outage", type=float, default=20, help="seconds without the server")
    parser.add_argument("--client", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--end", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        perform_until(options.end, options.client, options.url, options.rate)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Process(folder / "server.log", 0.1, LATENCY) as server:
            soak = Soak(folder, server, 60 * options.minutes, options.rate, options.outage)
            soak.run()
        findings = [*replies_found(soak), *memory_found(soak)]
    show(f"{options.minutes:g} minutes, one request in ten fails", findings)
    sys.exit(any(finding.is_bad for finding in findings))


if __name__ == "__main__":
    main()
