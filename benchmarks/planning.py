"""Plan studies of 10^4 to 10^6 requests, and print seconds and peak memory of each.

    python benchmarks/planning.py [--largest 6]

Each size runs in a process of its own, so that its peak memory is its own: texts of about 150
characters behind 25 demonstrations, all probes, every prompt distinct.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass

from goals import Goal, alone, show_goals, show_table

from flipmeter.ask.plan import price
from flipmeter.prompt.probes import expand
from flipmeter.run.rate import first_round, seat
from flipmeter.types import Condition, Item, Model, Rater, Scale, Task

PROBES = ("label_order", "demo_order", "placement")
N_VIEWS = len(expand(PROBES, 5))
WORDS = "the plot is thin but the acting holds it up and no one in the room was bored for long "


@dataclass(frozen=True)
class Size:
    """Cost of a plan."""

    n_requests: int
    n_groups: int
    seconds: float
    mebibytes: float

    @property
    def row(self) -> tuple[str, ...]:
        micro = 1e6 * self.seconds / self.n_requests
        return (
            f"{self.n_requests:,}",
            str(self.n_groups),
            f"{self.seconds:.2f}",
            f"{micro:.1f}",
            f"{self.mebibytes:.0f}",
            f"{1024 * self.mebibytes / self.n_requests:.2f}",
        )


def items(n: int, role: str) -> tuple[Item, ...]:
    texts = (f"{role} {k}: {WORDS[k % 40 :]}{WORDS[: k % 53]}" for k in range(n))
    return tuple(Item(f"{role}{k}", {"text": text}, 1 + k % 5) for k, text in enumerate(texts))


def grid(n_requests: int) -> list[Condition]:
    task = Task(Scale(("very bad", "bad", "fair", "good", "very good")))
    demos, tested = items(25, "demo"), items(n_requests // N_VIEWS, "test")
    rater = Rater(Model("http/none", base_url="http://127.0.0.1:1/v1"))
    views = expand(PROBES, 5)
    return [Condition(rater, "texts", task, 0, view, demos, tested) for view in views]


def measure(n_requests: int) -> Size:
    """Plan and price a study of about so many requests."""
    conditions = grid(n_requests)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    planned = first_round(conditions, {seat(conditions[0]): "none@1"})
    price(planned)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Size(len(planned.requests), len(planned.groups), seconds, (after - before) / 1024)


def sizes(largest: int) -> list[Size]:
    """Measure each power of ten in a fresh process."""
    return [alone(measure, 10**power) for power in range(4, largest + 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=6, help="the power of ten to end with")
    found = sizes(parser.parse_args().largest)
    names = ("requests", "groups", "seconds", "µs each", "MiB", "KiB each")
    show_table("Planning and pricing, nothing sent", names, (size.row for size in found))
    few, many = found[0], found[-1]
    what = f"planning, {many.n_requests:,} requests / {few.n_requests:,}"
    n = many.n_requests / few.n_requests
    show_goals(
        [
            Goal(
                "planning and pricing, µs a request", 1e6 * many.seconds / many.n_requests, "<=", 20
            ),
            Goal(f"{what}: seconds each", many.seconds / few.seconds / n, "<=", 1.5),
            Goal(f"{what}: memory each", many.mebibytes / few.mebibytes / n, "<=", 1.5),
        ]
    )


if __name__ == "__main__":
    main()
