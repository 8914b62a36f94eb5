"""Torture runs with signals, faults, neighbours, full disks and damage: what is lost or paid twice?

    python benchmarks/torture.py [--seed 0] [--minutes 20] [--short] [--only ORDEAL]

A server of its own process (tests/misbehaving.py) keeps a ledger of what it answered; everything is
on loopback. `flipmeter run` is the client, in processes that are forked with its modules loaded.
Whatever happens, the tables must be those of a run that nothing happened to. The exit code is 1 if
a target was missed. `--short` is for the tests; `--only` runs one ordeal: streams (a terminal that
is closed, a `tee` that dies first, a log on a full disk), removal (of the store, during a run) or
damage.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from flipmeter.__main__ import main as flipmeter
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.run.generation import MANIFEST, read_manifest, verify
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.study.file import Study, read_study

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from full_disk import NO_DISK
from misbehaving import Process

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["__main__", "flipmeter.cli.run", "flipmeter.run.perform"])
TESTS = Path(__file__).parents[1] / "tests"
CONCURRENCY = 16
LATENCY = 0.02
TIMEOUT = 60
"""Seconds; far more than an answer takes on a busy machine: a second request is paid for again."""
FAULTS = 0.05
MANY_FAULTS = 0.52
INCOMPLETE = 4
DRAINS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_SECONDS = 0.5
SAID = "said"
FULL = "/dev/full"
Rows = list[tuple[object, ...]]
Way = Callable[["Ordeal"], int]
"""A way to stop a run; the exit code that it ends with."""
CLEAN: dict[tuple[int, int], Rows] = {}
"""Tables by the size of their study: how the server rates is a function of the prompt."""


@dataclass(frozen=True)
class Size:
    """Size of each ordeal."""

    n_items: int
    n_seeds: int
    drains: int
    kills: int
    stops: int
    neighbours: int
    faulty_items: int
    faulty_seeds: int
    damages: int
    has_disk: bool
    streams: int
    removals: int


STORE = ".flipmeter/replies.sqlite"
RUN = ("run", "study.yaml", "--store", STORE, "--anyway")

LONG = Size(180, 2, 48, 20, 20, 24, 180, 4, 50, True, 30, 6)  # 180 items x 7 views x 2 seeds
SHORT = Size(40, 1, 3, 1, 0, 2, 20, 1, 10, False, 3, 2)


@dataclass
class Outcome:
    """Result of one ordeal; None for a number that it does not have."""

    name: str
    signals: int = 0
    faulty: int = 0
    answered: int = 0
    stored: int = 0
    lost: int = 0
    lost_beyond: int = 0
    twice: int = 0
    twice_beyond: int = 0
    tables_equal: bool = True
    bad_exits: int = 0
    note: str = ""

    @property
    def told(self) -> str:
        equal = "equal" if self.tables_equal else "DIFFERENT"
        return (
            f"{self.signals} signals, {self.faulty:,} faulty, {self.answered:,} answered, "
            f"{self.stored:,} stored, {self.lost} lost, {self.twice} paid twice, tables {equal}"
        )

    @property
    def is_bad(self) -> bool:
        too_many = self.lost_beyond or self.twice_beyond or self.bad_exits
        return bool(too_many or not self.tables_equal)


class Client:
    """`flipmeter` in a process of its own, forked from one that has its modules loaded already."""

    def __init__(self, folder: Path, command: list[str], stream: str) -> None:
        self._process = FORKS.Process(target=_command, args=(folder, command, stream), daemon=True)
        self._process.start()
        self.is_draining = False

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int:
        self._process.join()
        return self._process.exitcode or 0

    def send_signal(self, number: signal.Signals) -> None:
        self.is_draining |= number in DRAINS
        if self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, number)


def _command(folder: Path, command: list[str], stream: str) -> None:
    os.chdir(folder)
    os.setsid()  # a terminal that is opened now sends its SIGHUP here
    for number in DRAINS:
        signal.signal(number, signal.SIG_DFL)  # ignored under nohup
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, name in ((1, os.devnull if stream == SAID else stream), (2, stream)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT), place)
    sys.argv = ["flipmeter", *command]
    flipmeter()


@dataclass
class Ordeal:
    """A study, its stores and folders, and the server that keeps the ledger.

    A round is a new store: on a busy machine a study may be done before all signals are sent.
    """

    place: Path
    server: Process
    study: Study
    end: float
    chance: random.Random
    outcome: Outcome
    began: int = 0
    rounds: int = 0
    codes: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.renew()

    @property
    def folder(self) -> Path:
        return self.place / f"round-{self.rounds}"

    def renew(self) -> None:
        """Begin a round: another store, other folders, a new page of the ledger."""
        self.rounds += 1
        self.folder.mkdir(parents=True)
        content = yaml.safe_dump(self.study.model_dump(mode="json"))
        (self.folder / "study.yaml").write_text(content)
        self.began = 0
        self.began = len(self.lines())

    def is_over(self, n_signals: int) -> bool:
        return self.outcome.signals >= n_signals or self.is_late

    def lines(self) -> list[tuple[bool, int]]:
        return self.server.lines()[self.began :] if self.server.log.exists() else []

    def answered(self) -> Counter[int]:
        return Counter(number for is_answer, number in self.lines() if is_answer)

    def stored(self) -> set[int]:
        with Store(self.folder / STORE) as store:
            return {number for (number,) in store.read("SELECT prompt_tokens FROM replies")}

    def start(self, out: str = "run", stream: str = SAID) -> Client:
        return Client(self.folder, [*RUN, "--out", out], stream)

    def wait_for_more(self, run: Client) -> bool:
        """Wait until a run sends and something is answered; False if it ended before."""
        before = self.server.log.stat().st_size if self.server.log.exists() else 0
        while run.poll() is None:
            if self.is_sending(run) and self.server.log.stat().st_size > before:
                time.sleep(self.chance.random() * 0.3)
                return run.poll() is None
            time.sleep(0.01)
        return False

    def is_sending(self, run: Client) -> bool:
        """Whether a process has leased something: a signal before is an ordinary end."""
        path = self.folder / STORE
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
        ):
            return bool(db.execute("SELECT 1 FROM owners WHERE pid = ?", [run.pid]).fetchone())
        return False

    def strike(self, run: Client, number: signal.Signals) -> None:
        """Send a signal; one that stops is followed by one that lets go on."""
        run.send_signal(number)
        self.outcome.signals += 1
        if number is signal.SIGSTOP:
            time.sleep(STOP_SECONDS)
            run.send_signal(signal.SIGCONT)

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.end

    def finish(self, *folders: str) -> None:
        """Run to the end; compare ledger and store, and the tables with a clean run's."""
        for out in folders or ("run",):
            while not self.is_late:
                code = self.start(out).wait()
                self.codes[code] += 1
                if code != INCOMPLETE:
                    break
        answered, stored, outcome = self.answered(), self.stored(), self.outcome
        outcome.answered += sum(answered.values())
        outcome.stored += len(stored)
        outcome.faulty += len(self.lines()) - sum(answered.values())
        outcome.twice += sum(n - 1 for n in answered.values())
        outcome.tables_equal &= all(self.is_clean(out) for out in folders or ("run",))
        outcome.lost_beyond += len(set(answered) - stored)
        outcome.note = f"rounds: {self.rounds}, exit codes: {dict(sorted(self.codes.items()))}"

    def is_clean(self, out: str) -> bool:
        try:
            return table(Run(self.folder / out)) == self.clean()
        except Problem as problem:
            self.outcome.note = str(problem)
            return False

    def clean(self) -> Rows:
        """The table that nothing happened to: another server, another store."""
        size = self.study.test_size, len(self.study.seeds)
        if size not in CLEAN:
            with Process(self.folder / "ledger-of-clean") as server, Store() as store:
                study = study_of(server.url, *size)
                CLEAN[size] = table(
                    perform(study, self.folder / "clean", store, Terms(anyway=True))
                )
        return CLEAN[size]


def table(run: Run) -> Rows:
    """The decisions but for how long they took."""
    return run.decisions.drop("seconds").rows()


def study_of(url: str, n_items: int, n_seeds: int, timeout: float = TIMEOUT) -> Study:
    """A study whose prompts all differ, so that a line of the ledger names a request."""
    limits = {"concurrency": CONCURRENCY, "timeout": timeout}
    model = {"model": "http/acme/rater", "base_url": url, **limits}
    sizes = {"seeds": list(range(n_seeds)), "test_size": n_items}
    fixed = {"datasets": ["reviews"], "repeats": 1, "base": {"shots": 1}}
    return read_study({"models": [model], **fixed, **sizes})


# The ordeals


def drained(ordeal: Ordeal, n: int, ways: Sequence[Way]) -> None:
    """Stop one process again and again: not one answer may be without its stored reply."""
    while not ordeal.is_over(n):
        code = INCOMPLETE
        while code and not ordeal.is_over(n):
            code = ways[ordeal.outcome.signals % len(ways)](ordeal)
            ordeal.codes[code] += 1
            ordeal.outcome.bad_exits += code not in (0, INCOMPLETE)
            lost = len(set(ordeal.answered()) - ordeal.stored())
            ordeal.outcome.lost += lost
            ordeal.outcome.lost_beyond += lost
        ended(ordeal, n)
    ordeal.outcome.twice_beyond = ordeal.outcome.twice


def killed(ordeal: Ordeal, n: int) -> None:
    """Kill one process again and again: lost are at most the open requests."""
    while not ordeal.is_over(n):
        code = -signal.SIGKILL
        while code and not ordeal.is_over(n):
            code = struck(ordeal, signal.SIGKILL)
            ordeal.codes[code] += 1
            lost = len(set(ordeal.answered()) - ordeal.stored())
            ordeal.outcome.lost += lost
            ordeal.outcome.lost_beyond += max(0, lost - 2 * CONCURRENCY)
        ended(ordeal, n)
    ordeal.outcome.twice_beyond = max(0, ordeal.outcome.twice - ordeal.outcome.lost)


def struck(ordeal: Ordeal, number: signal.Signals, stream: str = SAID) -> int:
    """The exit code of a run that is struck once it has been answered something."""
    run = ordeal.start(stream=stream)
    if ordeal.wait_for_more(run):
        ordeal.strike(run, number)
    return run.wait()


def hung_up(ordeal: Ordeal) -> int:
    """The exit code of a run whose terminal is closed."""
    ours, theirs = os.openpty()
    run = ordeal.start(stream=os.ttyname(theirs))
    if ordeal.wait_for_more(run):
        ordeal.outcome.signals += 1
    for end in (theirs, ours):
        os.close(end)
    return run.wait()


def without_tee(ordeal: Ordeal) -> int:
    """The exit code of `flipmeter run 2>&1 | tee log` after Ctrl-C: `tee` dies first."""
    pipe = ordeal.folder / "pipe"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", "exec tee log <pipe >said"], cwd=ordeal.folder) as tee:
        run = ordeal.start(stream="pipe")
        is_struck = ordeal.wait_for_more(run)
        if is_struck:
            tee.kill()
            tee.wait()
            ordeal.strike(run, signal.SIGINT)
        return run.wait()


DRAINED: list[Way] = [partial(struck, number=number) for number in DRAINS]
UNHEARD: list[Way] = [
    hung_up,
    without_tee,
    *(partial(struck, number=one, stream=FULL) for one in DRAINS),
]


def removed(ordeal: Ordeal, n: int) -> None:
    """Remove or rename the folder of the store during a run: no reply may be requested twice."""
    while not ordeal.is_over(n):
        run, where = ordeal.start(), ordeal.folder / STORE
        is_struck = ordeal.wait_for_more(run)
        if is_struck and ordeal.outcome.signals % 2:
            where.parent.rename(ordeal.folder / "elsewhere")
        elif is_struck:
            shutil.rmtree(where.parent)
        ordeal.outcome.signals += is_struck
        code = run.wait()
        ordeal.codes[code] += 1
        ordeal.outcome.bad_exits += code != (INCOMPLETE if is_struck else 0)
        ended(ordeal, n)
    ordeal.outcome.twice_beyond = ordeal.outcome.twice


def ended(ordeal: Ordeal, n: int, *folders: str) -> None:
    """Run to the end, and begin another round if signals are left."""
    ordeal.finish(*folders)
    if not ordeal.is_over(n):
        ordeal.renew()


def neighbours(ordeal: Ordeal, n: int, kinds: tuple[signal.Signals, ...]) -> None:
    """Let three processes share a store, and strike one of them after the other.

    One that drains is left to it: a second signal ends it at once, as documented, and loses what
    it had under way.
    """
    outs, n_killed = [f"run-{k}" for k in range(3)], 0
    while not ordeal.is_over(n):
        runs = {out: ordeal.start(out) for out in outs}
        while not ordeal.is_over(n) and any(run.poll() != 0 for run in runs.values()):
            out = ordeal.chance.choice([out for out in outs if runs[out].poll() != 0])
            if runs[out].is_draining or runs[out].poll() is not None:
                runs[out] = restarted(ordeal, runs[out], out)
            if ordeal.wait_for_more(runs[out]):
                number = kinds[ordeal.outcome.signals % len(kinds)]
                n_killed += number is signal.SIGKILL
                ordeal.strike(runs[out], number)
        for run in runs.values():
            noted(ordeal, run.wait())
        ended(ordeal, n, *outs)
    allowed = n_killed * 2 * CONCURRENCY
    ordeal.outcome.twice_beyond = max(0, ordeal.outcome.twice - allowed)


def restarted(ordeal: Ordeal, run: Client, out: str) -> Client:
    noted(ordeal, run.wait())
    return ordeal.start(out)


def noted(ordeal: Ordeal, code: int) -> None:
    """Count an exit code; a signal may come when a process has nothing more to send."""
    ordeal.codes[code] += 1
    too_early = (128 + signal.SIGINT, *(-number for number in DRAINS))
    ordeal.outcome.bad_exits += code not in (0, INCOMPLETE, -signal.SIGKILL, *too_early)


def faulty(ordeal: Ordeal) -> None:
    """Ask a server that fails more often than it answers."""
    ordeal.finish()
    ordeal.outcome.twice_beyond = ordeal.outcome.twice


def full(ordeal: Ordeal) -> None:
    """Run on a disk that others fill; see tests/full_disk.py."""
    outcome, disk = ordeal.outcome, ordeal.folder / "disk"
    disk.mkdir()
    unshare = shutil.which("unshare")
    if unshare is None:
        outcome.note = "skipped: no unshare here, which gives a disk of our own"
        return
    paths = map(str, (disk, ordeal.folder / "study.yaml", ordeal.server.log))
    done = subprocess.run(
        [unshare, "-rm", sys.executable, str(TESTS / "full_disk.py"), *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == NO_DISK or "unshare" in done.stderr:
        outcome.note = "skipped: no disk can be mounted here"
        return
    if done.returncode:
        outcome.tables_equal, outcome.note = False, done.stderr[-300:]
        return
    told = json.loads(done.stdout)
    outcome.answered, outcome.stored = told["again"]["paid"], told["again"]["stored"]
    outcome.lost = outcome.lost_beyond = told["filled"]["lost"]
    outcome.twice = outcome.twice_beyond = told["again"]["twice"]
    outcome.tables_equal = ordeal.is_clean("run")
    outcome.note = f"sent without room: {told['no room']['sent']}"
    outcome.lost_beyond += told["no room"]["sent"]


# Damage

Damage = Callable[[Path, random.Random], None]


def cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(content))


def blank(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    at = chance.randrange(len(content))
    path.write_bytes(content[:at] + b"\0" * min(4096, len(content) - at) + content[at + 4096 :])


def scramble(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(path.stat().st_size))


def remove(path: Path, chance: random.Random) -> None:
    path.unlink()


DAMAGES: tuple[Damage, ...] = (cut, flip, blank, scramble, remove)


def damaged(ordeal: Ordeal, n: int) -> None:
    """Damage copies of a store and a folder: a refusal by name, or the same table."""
    ordeal.finish()
    expected = table(Run(ordeal.folder / "run"))
    counts: Counter[str] = Counter()
    for number in range(n):
        if ordeal.is_late:
            break
        copy = ordeal.folder / f"copy-{number}"
        harm = DAMAGES[number // 2 % len(DAMAGES)]
        tell = _damaged_folder if number % 2 else _damaged_store
        told = tell(ordeal, copy, harm, expected)
        counts[told] += 1
        ordeal.outcome.tables_equal &= told in ("refused", "equal")
        shutil.rmtree(copy)
    ordeal.outcome.note = ", ".join(f"{k} {what}" for what, k in counts.most_common())
    ordeal.outcome.twice = ordeal.outcome.twice_beyond = 0  # what was damaged is paid again


def _damaged_folder(ordeal: Ordeal, copy: Path, harm: Damage, expected: Rows) -> str:
    shutil.copytree(ordeal.folder / "run", copy)
    inside = sorted((copy / read_manifest(copy).generation).iterdir())
    path = ordeal.chance.choice([copy / MANIFEST, *inside])
    harm(path, ordeal.chance)
    try:
        verify(copy)
        return "equal" if table(Run(copy)) == expected else f"{path.name} differs"
    except Problem as problem:
        return "refused" if path.name in str(problem) else f"{path.name} is not named"


def _damaged_store(ordeal: Ordeal, copy: Path, harm: Damage, expected: Rows) -> str:
    copy.mkdir()
    path = Path(shutil.copy(ordeal.folder / STORE, copy))
    harm(path, ordeal.chance)
    try:
        with Store(path) as store:
            run = perform(ordeal.study, copy / "run", store, Terms(anyway=True))
        return "equal" if table(run) == expected else "a damaged store changed the table"
    except Problem as problem:
        return "refused" if path.name in str(problem) else "a damaged store is not named"


# All of them


def outcomes(folder: Path, size: Size, seed: int, seconds: float) -> Iterator[Outcome]:
    chance, end = random.Random(seed), time.monotonic() + seconds
    everything = (*DRAINS, signal.SIGSTOP)
    with Process(folder / "ledger", FAULTS, LATENCY) as server:

        def ordeal(name: str, n_items: int = size.n_items, n_seeds: int = size.n_seeds) -> Ordeal:
            study = study_of(server.url, n_items, n_seeds)
            place = folder / name.replace(" ", "-")
            return Ordeal(place, server, study, end, chance, Outcome(name))

        one = ordeal("drain")
        drained(one, size.drains, DRAINED)
        yield one.outcome
        one = ordeal("streams")
        drained(one, size.streams, UNHEARD)
        yield one.outcome
        one = ordeal("removal")
        removed(one, size.removals)
        yield one.outcome
        one = ordeal("kill -9")
        killed(one, size.kills)
        yield one.outcome
        one = ordeal("three processes")
        neighbours(one, size.neighbours, everything)
        yield one.outcome
        if size.stops:
            one = ordeal("three, one killed")
            neighbours(one, size.stops, (*everything, signal.SIGKILL))
            yield one.outcome
        one = ordeal("damage", 20, 1)
        damaged(one, size.damages)
        yield one.outcome
    if size.has_disk:
        with Process(folder / "ledger-of-disk", 0.0, LATENCY) as server:
            one = ordeal("full disk", 60, 1)
            full(one)
            yield one.outcome
    with Process(folder / "ledger-of-faults", MANY_FAULTS, 0.0) as server:
        one = ordeal("faults", size.faulty_items, size.faulty_seeds)
        faulty(one)
        yield one.outcome


ORDEALS = ("streams", "removal", "damage")


def alone(name: str, folder: Path, size: Size, seed: int, seconds: float) -> Iterator[Outcome]:
    """One ordeal."""
    ordeals: dict[str, Callable[[Ordeal], None]] = {
        "streams": lambda one: drained(one, size.streams, UNHEARD),
        "removal": lambda one: removed(one, size.removals),
        "damage": lambda one: damaged(one, size.damages),
    }
    with Process(folder / "ledger", FAULTS, LATENCY) as server:
        n_items, n_seeds = (20, 1) if name == "damage" else (size.n_items, size.n_seeds)
        study, end = study_of(server.url, n_items, n_seeds), time.monotonic() + seconds
        one = Ordeal(folder / name, server, study, end, random.Random(seed), Outcome(name))
        ordeals[name](one)
        yield one.outcome


def show(found: list[Outcome]) -> None:
    names = ("signals", "faulty", "answered", "stored", "lost", "lost_beyond", "twice")
    heads = [
        "ordeal",
        "signals",
        "faulty replies",
        "answered",
        "stored",
        "lost",
        "lost beyond those under way",
        "paid twice",
        "tables equal",
        "",
    ]
    shown = Table(
        *heads, title="Targets: 0 lost and 0 paid twice but for what kill -9 had under way"
    )
    for one in found:
        counts = [f"{getattr(one, name):,}" for name in names]
        style = "bold red" if one.is_bad else ""
        equal = "yes" if one.tables_equal else "NO"
        shown.add_row(one.name, *counts, equal, one.note, style=style)
    totals = [f"{sum(getattr(one, name) for one in found):,}" for name in names]
    all_equal = "yes" if all(one.tables_equal for one in found) else "NO"
    shown.add_row("all", *totals, all_equal, "", style="bold")
    Console(width=None if sys.stdout.isatty() else 150).print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--short", action="store_true", help="a minute's worth, for the tests")
    parser.add_argument("--only", choices=ORDEALS, help="one ordeal alone")
    options = parser.parse_args()
    ordeals = partial(alone, options.only) if options.only else outcomes
    size = SHORT if options.short else LONG
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name:
        for one in ordeals(Path(name), size, options.seed, 60 * options.minutes - 60):
            found.append(one)
            print(f"{one.name}: done, {one.told}", file=sys.stderr, flush=True)
    show(found)
    wanted = size.drains + size.kills + size.neighbours + size.stops + size.streams
    n_signals = sum(one.signals for one in found)
    if not (options.short or options.only) and n_signals < min(100, wanted):
        sys.exit(f"only {n_signals} signals were sent in the time")
    sys.exit(any(one.is_bad for one in found))


if __name__ == "__main__":
    main()
