"""Ask simulated raters on 1, 2 and 4 Ray actors, then again while a node dies, and count.

    python benchmarks/ray_scaling.py [--latency 0.05] [--room 8] [--seconds 8]

The cluster has one node for each actor, all on this machine, and a driver that stores every reply.
A rater answers `room` requests at a time and takes `latency` for each, so that one actor gives at
most room / latency replies per second: the ideal is that many times the actors. All processes share
the cores of this machine, and other work may take some of them: what a request takes of a core, by
whom, says how many requests the cores carry at most, whatever the latency.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from goals import Goal, show_goals, show_table
from processes import PARTS, cpu_by_part
from ray.cluster_utils import Cluster

from flipmeter.ask.store import Store
from flipmeter.types import Actors

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from slow_raters import Trial

TESTS = Path(__file__).parents[1] / "tests"

N_ITEMS = 200
PER_SEED = 7 * N_ITEMS
"""Distinct requests of the seven views."""
WIDE = 64
N_CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Pace:
    """Replies of some actors, and the CPU seconds of each part."""

    n_actors: int
    room: int
    latency: float
    n_requests: int
    seconds: float
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        return self.n_requests / self.seconds

    @property
    def share(self) -> float:
        """The share of the ideal."""
        return self.rate / self.ideal

    @property
    def ideal(self) -> float:
        """Replies per second if everything except the raters were free."""
        return self.n_actors * self.room / self.latency if self.latency else math.inf

    @property
    def carried(self) -> float:
        """Replies per second of all cores without other load."""
        return N_CORES * self.n_requests / sum(self.cpu.values())

    @property
    def row(self) -> tuple[str, ...]:
        return (
            str(self.n_actors),
            str(self.room),
            f"{1000 * self.latency:g} ms",
            f"{self.n_requests:,}",
            f"{self.rate:,.0f}",
            f"{self.ideal:,.0f}" if self.latency else "-",
            f"{self.share:.1%}" if self.latency else "-",
            *(f"{1000 * self.cpu[part] / self.n_requests:.2f}" for part in PARTS),
            f"{self.carried:,.0f}",
        )


@contextmanager
def nodes(n: int) -> Iterator[Cluster]:
    """Start a head that holds no actor, and so many nodes with room for one rater each."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(n):
        cluster.add_node(num_cpus=1, resources={"rater": 1})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def trial(n_actors: int, n_requests: int, latency: float, room: int, log: Path | None) -> Trial:
    n_seeds = -(-n_requests // PER_SEED)
    actors = Actors(n_actors, num_cpus=0.5, resources={"rater": 1})
    sized = {"n_items": N_ITEMS, "n_seeds": n_seeds}
    return Trial(actors, log, latency=latency, room=room, **sized)


async def pace(n_actors: int, n_requests: int, latency: float, room: int) -> Pace:
    """Ask so many requests; the actors are placed and warm before the clock starts."""
    n_warm = 4 * n_actors * room
    asked = trial(n_actors, n_requests + n_warm, latency, room, None)
    warm, timed = asked.requests[:n_warm], asked.requests[n_warm:][:n_requests]
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "r.sqlite") as store:
        await asked.backend.wait_for_all()
        await asked.ask(store, warm)
        start, before = time.perf_counter(), cpu_by_part()
        replies = await asked.ask(store, timed)
        seconds, after = time.perf_counter() - start, cpu_by_part()
    await asked.backend.close()
    assert not any(reply.error for reply in replies.values())
    cpu = {part: after[part] - before[part] for part in PARTS}
    return Pace(n_actors, room, latency, len(timed), seconds, cpu)


async def death(cluster: Any, n_actors: int, n_requests: int, room: int) -> dict[str, int]:
    """Kill a node with all its processes after a third of the replies, and count."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "r.sqlite") as store:
        asked = trial(n_actors, n_requests, 0.05, room, Path(folder) / "log")
        requests = asked.requests[:n_requests]
        await asked.backend.wait_for_all()
        asking = asyncio.create_task(asked.ask(store, requests))
        await asked.wait_for(n_requests // 3)
        doomed = cluster.list_all_nodes()[-1]
        await asyncio.to_thread(cluster.remove_node, doomed, allow_graceful=False)
        replies = await asking
        await asked.backend.close()
        n_asked = asked.n_asked()
        return {
            "distinct requests": len(requests),
            "asked of a rater": n_asked.total(),
            "of these again, since the node took them with it": n_asked.total() - len(n_asked),
            "stored": len(store),
            "lost": len({request.key for request in requests} - set(store.get(replies))),
            "failed": asked.ledger.failed,
            "asked again though stored": asked.n_asked_though_stored(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--room", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8, help="how long a row takes ideally")
    options = parser.parse_args()
    per_actor = round(options.seconds * options.room / options.latency)
    with nodes(4) as cluster:
        paces = [
            asyncio.run(pace(n, n * per_actor, options.latency, options.room)) for n in (1, 2, 4)
        ]
        unbound = [asyncio.run(pace(n, 4000, 0.0, WIDE)) for n in (1, 2)]
        counts = asyncio.run(death(cluster, 4, 4 * per_actor // 2, options.room))
    names = ("actors", "room", "latency", "requests", "requests/s", "ideal", "share")
    taken = (*(f"{part}: CPU ms each" for part in PARTS), f"{N_CORES} cores carry")
    show_table("Raters on actors", (*names, *taken), (one.row for one in [*paces, *unbound]))
    rows = ((what, f"{count:,}") for what, count in counts.items())
    show_table("One of 4 nodes dies in mid-run", ("", ""), rows)
    show_goals(
        [
            Goal("share of the ideal with 4 actors", paces[-1].share, ">=", 0.8),
            Goal("requests lost with a node", counts["lost"], "<=", 0),
            Goal("asked again though stored", counts["asked again though stored"], "<=", 0),
        ]
    )


if __name__ == "__main__":
    main()
