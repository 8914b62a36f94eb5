"""Fill a reply store to 10^7 replies: bytes a reply beside its payload, and the rate of inserts.

    python benchmarks/store.py [--largest 7] [--batch 64] [--characters 600]

The replies are those of a study: texts of `--characters` behind a few shared heads, stored in
transactions of `--batch`, as an engine with so many connections does. The payload is what the rows
take without pages and indexes, as SQLite counts it. The rate is in replies per second of CPU over
the last tenth of each size, less the time to make them, so that each row shows how the store takes
replies once it has as many as that. Opening is timed on the store as it is then.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from goals import Goal, show_goals, show_table
from planning import WORDS

from flipmeter.ask.store import Store
from flipmeter.types import Head, Reply, Request, Script, Usage

N_HEADS = 700
"""Replies behind one head: seven views of a hundred seeds in the largest study."""
PAYLOAD = "SELECT sum(payload) FROM dbstat WHERE name IN ('texts', 'replies')"
"""Bytes of the rows themselves, as SQLite counts them."""


@dataclass(frozen=True)
class Filled:
    """A store of some size: bytes on disk and of payload, inserts per CPU second, opening."""

    n: int
    n_bytes: int
    payload: int
    rate: float
    opening: float

    @property
    def row(self) -> tuple[str, ...]:
        return (
            f"{self.n:,}",
            f"{self.n_bytes / self.n:.0f}",
            f"{self.payload / self.n:.0f}",
            f"{self.n_bytes / self.payload:.3f}",
            f"{self.rate:,.0f}",
            f"{1000 * self.opening:.1f}",
        )


def pair(number: int, characters: int = 600) -> tuple[Request, Reply]:
    """A request that no other number has, and its reply."""
    digest = hashlib.sha256(str(number).encode()).digest()
    head = Head((), "user", f"Classify. {number % N_HEADS} " + 8 * WORDS)
    text = (WORDS[number % 40 :] + 60 * WORDS)[: characters - 20 + number % 41]
    rest = f"{number}: {text}\nLabel:"
    request = Request("a model", Script(head, rest), "{}", ())
    usage = Usage(400 + digest[0], 300, 1)
    return request, Reply(str(1 + digest[1] % 5), "stop", usage=usage, seconds=0.1, model="m")


def fill(store: Store, start: int, end: int, batch: int, characters: int) -> float:
    """Store replies, and count those per second of CPU in the last tenth of all."""
    last = max(start, end - end // 10)
    begun = time.process_time()
    for first in range(start, end, batch):
        if first <= last < first + batch:
            begun = time.process_time()
        numbers = range(first, min(end, first + batch))
        store.put_many([pair(number, characters) for number in numbers])
    return (end - last) / (time.process_time() - begun)


def making(n: int, batch: int) -> float:
    """Requests and replies per second of this process, without storing any."""
    begun = time.process_time()
    for first in range(0, n, batch):
        for k in range(first, first + batch):
            request, _ = pair(k)
            assert request.key
    return n / (time.process_time() - begun)


def measured(path: Path, n: int, rate: float) -> Filled:
    begun = time.perf_counter()
    with Store(path) as store:
        opening = time.perf_counter() - begun
        payload = int(next(iter(store.read(PAYLOAD)))[0])
    return Filled(n, path.stat().st_size, payload, rate, opening)


def sizes(largest: int, batch: int, characters: int) -> list[Filled]:
    """Fill one store to each power of ten, and look at it there."""
    made = making(20_000, batch)
    found, start = [], 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replies.sqlite"
        for n in [10**power for power in range(4, largest + 1)]:
            with Store(path) as store:
                rate = fill(store, start, n, batch, characters)
            found.append(measured(path, n, 1 / (1 / rate - 1 / made)))
            start = n
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=7, help="the power of ten to end with")
    parser.add_argument("--batch", type=int, default=64, help="replies in one transaction")
    parser.add_argument("--characters", type=int, default=600, help="of an item's text, about")
    options = parser.parse_args()
    found = sizes(options.largest, options.batch, options.characters)
    names = ("replies", "bytes each", "payload", "ratio", "inserts per CPU s", "opening ms")
    show_table("A reply store as it grows", names, (one.row for one in found))
    last = found[-1]
    middle = next((one for one in found if one.n == 10**5), found[0])
    show_goals(
        [
            Goal("bytes / payload at the largest size", last.n_bytes / last.payload, "<=", 1.15),
            Goal("inserts at the largest size / at 10^5", last.rate / middle.rate, ">=", 0.5),
        ]
    )


if __name__ == "__main__":
    main()
