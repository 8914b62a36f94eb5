"""Run the benchmarks one after the other, and print all their goals as one table.

    python benchmarks/bench.py [clients throughput planning statistics instrument order
                                prefix_cache viewer scale measuring peers bare]

Without names, all of them: one to two hours on two idle cores. Peers are installed into
environments of their own in the cache folder. With FLIPMETER_DATA set to a folder that holds
SST-5, `peers` asks about that instead of the bundled reviews.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess  # each benchmark is a program
import sys
import tempfile
from pathlib import Path

from goals import KEPT, Goal, show_goals
from peers_tools import program

HERE = Path(__file__).parent
SCRIPTS = {
    "clients": ["clients.py"],
    "throughput": ["throughput.py", "--peers"],
    "planning": ["planning.py"],
    "statistics": ["statistics_stage.py"],
    "instrument": ["instrument.py"],
    "order": ["order.py"],
    "prefix_cache": ["prefix_cache.py"],
    "viewer": ["viewer.py"],
    "scale": ["scale.py"],
    "measuring": ["measuring.py", "--decisions", "10000000"],
    "peers": ["peers.py"],
    "bare": ["bare.py"],
}


def run(name: str, kept: Path) -> None:
    """Run one benchmark; a failure is said and does not stop the others."""
    script, *options = SCRIPTS[name]
    python = program("clients") / "python" if name == "clients" else sys.executable
    print(f"\n== python benchmarks/{' '.join(SCRIPTS[name])}", flush=True)
    environment = os.environ | {KEPT: str(kept)}
    ended = subprocess.run([str(python), str(HERE / script), *options], env=environment)
    if ended.returncode:
        print(f"{script} failed with exit code {ended.returncode}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SCRIPTS), help=", ".join(SCRIPTS))
    names = parser.parse_args().names
    if unknown := set(names) - set(SCRIPTS):
        raise SystemExit(f"no benchmark {sorted(unknown)}; there are: {', '.join(SCRIPTS)}")
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "goals.jsonl"
        kept.touch()
        for name in names:
            run(name, kept)
        lines = kept.read_text(encoding="utf-8").splitlines()
    print()
    show_goals([Goal(**json.loads(line)) for line in lines])


if __name__ == "__main__":
    main()
