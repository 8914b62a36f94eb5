"""Peak memory and CPU seconds of the verbs that read a run.

    python benchmarks/measuring.py [--decisions 1000000] [--run FOLDER] [--verbs measure,report]

The run is that of `viewer.py` (six raters, made up answers), or an existing one; `compare`
compares it with itself. Every verb is a process of its own. `viewer.py` measures `view`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from goals import Goal, show_goals
from rich.console import Console
from rich.table import Table
from viewer import make_run

MOST_MB = 1000
MB = 1e6
DONE = (0, 1, 3)
"""Exit codes of a verb that came to its end; a gate is broken or open."""


def took(*words: str) -> tuple[float, float]:
    """CPU seconds and peak bytes of one command."""
    pid = os.fork()
    if not pid:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        os.execv(sys.executable, [sys.executable, "-m", "flipmeter", *words])
    _, status, used = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) in DONE, words
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--run", type=Path, help="an existing run folder")
    parser.add_argument("--verbs", default="", help="only these, with commas")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = asked.run or Path(folder) / "run"
        if asked.run is None:
            n = make_run(where, asked.decisions)
            Console().print(f"{n:,} decisions")
        page = str(Path(folder) / "page.html")
        verbs = {
            "measure": ("measure", str(where)),
            "report": ("report", str(where), "--out", page),
            "compare": ("compare", str(where), str(where)),
            "check": ("check", str(where)),
            "residuals": ("residuals", str(where)),
        }
        table, peaks = Table("verb", "CPU s", "peak MB"), {}
        for name in asked.verbs.split(",") if asked.verbs else verbs:
            words = verbs[name]
            seconds, peaks[name] = took(*words)
            table.add_row(name, f"{seconds:.1f}", f"{peaks[name] / MB:,.0f}")
    Console(width=120).print(table)
    show_goals(
        [Goal(f"peak MB of {name}", peak / MB, "<=", MOST_MB) for name, peak in peaks.items()]
    )


if __name__ == "__main__":
    main()
