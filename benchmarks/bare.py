"""A whole `flipmeter run` on the embedded model against a bare client that only sends.

    python benchmarks/bare.py [--items 40] [--shots 5] [--rounds 2] [--data-dir DATA]

The study, the weights file and the engine are those of `peers.py`, and nothing is installed. The
client sends sorted prompts to a server that is already up; flipmeter starts the engine in its own
process, with an empty store. Its first run on a machine tests the engine and is shown by itself.
The same client is also given the engine as flipmeter starts it, without flash attention, which is
what equal replies in any order cost: the limit of any program that wants them.
Seconds are those on the wall, the fastest of the rounds. CPU seconds, for a machine that is shared
(OMP_NUM_THREADS=1 gives the engines one thread each), include the start of the server.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import peers_tools as tools
from goals import Goal, show_goals, show_table
from peers import (
    Bench,
    Row,
    Weights,
    default_weights,
    prepare,
    with_flipmeter,
    with_format,
    with_server,
)
from peers_server import served
from peers_study import labels

from flipmeter.ask.llama import n_cores
from flipmeter.fetch import CACHE_VARIABLE, cache_folder

MOST = 1.08


def cpu() -> float:
    """CPU seconds of this process and of its children that have ended."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def timed(run: Callable[[], Row]) -> tuple[Row, float]:
    """One whole command, and its CPU seconds."""
    before = cpu()
    return run(), cpu() - before


def forget_self_tests(scratch: Path) -> None:
    """Use the weights of the cache folder, but none of the outcomes that are kept there."""
    (scratch / "cache").mkdir()
    (scratch / "cache" / "weights").symlink_to(cache_folder() / "weights")
    os.environ[CACHE_VARIABLE] = str(scratch / "cache")


def sent_to_ours(bench: Bench, weights: Weights) -> Row:
    """The bare client, asking the engine as flipmeter starts it."""
    with served(weights.path, is_like_ours=True) as server:
        ran = tools.RAW_CLIENTS["sorted"](bench.asked, server.base_url, bench.folder())
    return Row("client", weights.format, ran.seconds, labels(bench.asked, ran.replies))


def _ratio(one: tuple[Row, float], other: tuple[Row, float]) -> float:
    return one[0].seconds / other[0].seconds


def measure(bench: Bench, rounds: int) -> None:
    weights = with_format(*default_weights(None))
    forget_self_tests(bench.scratch)
    ours = partial(with_flipmeter, bench, weights)
    client = partial(with_server, bench, weights, "client", tools.RAW_CLIENTS["sorted"])
    first = timed(ours)
    turns = [
        (timed(client), timed(partial(sent_to_ours, bench, weights)), timed(ours))
        for _ in range(rounds)
    ]
    bare, limit, again = (
        min(each, key=lambda one: one[0].seconds) for each in zip(*turns, strict=True)
    )
    rows = []
    shown = {
        "bare client": bare,
        "bare client, engine as ours": limit,
        "flipmeter run": again,
        "its first on a machine": first,
    }
    for name, (row, used) in shown.items():
        ratios = row.seconds / bare[0].seconds, used / bare[1]
        each = (f"{row.seconds:.1f}", f"{used:.1f}", *(f"{one:.3f}" for one in ratios))
        rows.append((name, *each))
    heads = ("", "seconds", "CPU s", "/ bare client", "CPU / bare client")
    show_table(bench.title, heads, rows)
    show_goals(
        [
            Goal("seconds / bare client", _ratio(again, bare), "<=", MOST),
            Goal("CPU seconds / bare client", again[1] / bare[1], "<=", MOST),
            Goal("seconds / bare client, engine as ours", _ratio(again, limit), "<=", MOST),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--items", type=int, default=40, help="items under each condition")
    parser.add_argument("--shots", type=int, default=5, help="demonstrations of each class")
    parser.add_argument("--rounds", type=int, default=2, help="the fastest of so many counts")
    parser.set_defaults(weights=None)
    chosen = parser.parse_args()
    print(f"{n_cores()} threads, load before {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bare-") as folder:
        measure(prepare(chosen, Path(folder)), chosen.rounds)


if __name__ == "__main__":
    main()
