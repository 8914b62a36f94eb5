"""Perform a whole study against a mock endpoint, and print requests per second and CPU seconds.

    python benchmarks/throughput.py [--connections 256] [--latency 0.05] [--items 72] [--peers]

The mock runs in a process of its own, on another core where there is one. The clock covers all
that a user waits for: planning, asking, storing, deciding and measuring. With --peers, lm-eval and
Inspect ask as many prompts of the same study; their clock covers their whole command.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import peers_tools as tools
from endpoint import Cost, mock, show, timed
from goals import Goal, show_goals
from peers_study import Question, questions

from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.study.file import Study, read_study

Ask = Callable[[list[Question], str, Path], tools.Ran]


def study(base_url: str, connections: int, n_items: int) -> Study:
    """A study on the bundled reviews with all probes, each view asked twice."""
    model = {"model": "http/mock", "base_url": base_url, "concurrency": connections}
    return read_study(
        {
            "models": [model],
            "datasets": ["reviews"],
            "seeds": [0, 1],
            "test_size": n_items,
            "repeat_views": ["all"],
        }
    )


def measure(base_url: str, connections: int, n_items: int) -> Cost:
    """Perform the study with an empty store."""
    found: list[Cost] = []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "r.sqlite") as store:
        asked = study(base_url, connections, n_items)
        with timed(lambda *cost: found.append(Cost(*cost)), "perform") as counts:
            ledger = Ledger()
            perform(asked, Path(folder) / "run", store, Terms(ledger))
            counts.append(ledger.asked)
    return found[0]


def peers(base_url: str, connections: int, n_items: int) -> list[Cost]:
    """Let lm-eval and Inspect ask the prompts of the study, on the core that ours had."""
    content = study(base_url, connections, n_items).model_dump(mode="json")
    asked = questions({**content, "repeats": 1}, None) * 2
    return [
        _whole("lm-eval", partial(tools.lm_eval, connections=connections), asked, base_url),
        _whole("Inspect", partial(tools.inspect, connections=connections), asked, base_url),
    ]


def _whole(name: str, ask: Ask, asked: list[Question], base_url: str) -> Cost:
    """Cost of a command: its own wall clock, and the CPU seconds of a child."""
    named = [replace(one, id=str(number)) for number, one in enumerate(asked)]
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = ask(named, base_url, Path(folder))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(name, len(named), ran.seconds, cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--items", type=int, default=72)
    parser.add_argument("--rounds", type=int, default=3, help="the fastest of so many counts")
    parser.add_argument("--peers", action="store_true", help="lm-eval and Inspect as well")
    options = parser.parse_args()
    with mock(options.latency) as base_url:
        rounds = [
            measure(base_url, options.connections, options.items) for _ in range(options.rounds)
        ]
        ours = min(rounds, key=lambda cost: cost.seconds)
        theirs = peers(base_url, options.connections, options.items) if options.peers else []
    title = f"{options.connections} connections, {1000 * options.latency:g} ms latency"
    show(title, [ours, *theirs])
    show_goals(
        [
            Goal("whole run, requests/s", ours.n_requests / ours.seconds, ">=", 2000),
            Goal("whole run, CPU s per 1,000", 1000 * ours.cpu / ours.n_requests, "<=", 0.45),
        ]
    )


if __name__ == "__main__":
    main()
