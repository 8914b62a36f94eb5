"""flipmeter's own command for the peers benchmark: one probe more, and its engine counts tokens.

    python benchmarks/peers_ours.py run STUDY --out FOLDER --store FILE

All the rest is `flipmeter`. At the end the counters of every engine that the command started are
written to the file that the variable PEERS_TALLY names: they hold every call, also those that only
bring the slot back to a prefix and that no reply tells of.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import xllamacpp

from flipmeter.prompt.probes import Probe, natural, probes
from flipmeter.types import Contrast, View

TALLY = "PEERS_TALLY"
COUNTER = "llamacpp:prompt_tokens_total"
"""The engine's own count of prompt tokens that it processed, cached ones left out."""

PROBE = "one_order"


def one_order(n_classes: int) -> tuple[View, ...]:
    """The base and the demonstrations with the highest class first."""
    order = natural(n_classes)
    return View("base", order), View("descending", order, demo_order="descending")


probes.add(
    PROBE,
    Probe(
        PROBE,
        "the demonstrations in base and in descending order",
        one_order,
        (Contrast("P2d", ("base", "descending"), "demos base / descending", PROBE),),
    ),
)


def processed(metrics: str) -> int:
    """The counter out of what an engine says about itself."""
    rows = (line.split() for line in metrics.splitlines() if not line.startswith("#"))
    return int(float(dict(row for row in rows if len(row) == 2)[COUNTER]))


def main() -> None:
    from flipmeter.cli import main as command

    start, engines, host_caches = xllamacpp.Server, [], []

    def counted(params: Any) -> Any:
        params.endpoint_metrics = True
        host_caches.append(params.cache_ram_mib)
        engines.append(start(params))
        return engines[-1]

    xllamacpp.Server = counted
    try:
        command()
    finally:
        tokens = sum(processed(engine.handle_metrics()) for engine in engines)
        tally = {"tokens": tokens, "host_cache_mib": max(host_caches, default=0)}
        Path(os.environ[TALLY]).write_text(json.dumps(tally), encoding="utf-8")
        engines.clear()


if __name__ == "__main__":
    main()
