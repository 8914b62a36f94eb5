"""Ten changes of one digit or word in a copy of the source: the net must notice each.

python tests/net/planted.py            (a few minutes; with the Python that has flipmeter)
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
PLANTED = (
    ("prompt/levels.py", "Return label only without", "Return label alone without", "wires"),
    ("prompt/probes.py", "RANDOM_OFFSET = 1_000", "RANDOM_OFFSET = 1_001", "labels"),
    ("pipelines/averaging.py", '("N/A", "", "[MASK]")', '("N/B", "", "[MASK]")', "debiased"),
    ("pipelines/aggregate.py", "place(2 * sums, exp", "place(3 * sums, exp", "comparing"),
    ("pipelines/aggregate.py", "abs(n_votes * classes", "abs(n_votes * 2 * classes", "panel"),
    ("prompt/parsing.py", "(len(slots) + 1) for s", "(len(slots) + 2) for s", "sampled"),
    (
        "stats/formulas.py",
        "interval_level(level) / 2)",
        "interval_level(level) / 2.01)",
        "paper-phase0",
    ),
    ("stats/judge.py", "DRAWS = 2000", "DRAWS = 2001", "table"),
    ("cli/consoles.py", '"unreadable"), NOT_MET', '"unreadable"), NOT_SETTLED', "judges"),
    ("stats/conclude.py", 'return "inconclusive"', 'return "undecided"', "table"),
)
"""A file, its text, the other text, and the study that must notice it."""


def main() -> int:
    n_missed = 0
    for name, before, after, study in PLANTED:
        with TemporaryDirectory() as scratch:
            copy = Path(shutil.copytree(SOURCE, Path(scratch, "src")))
            path = copy / "flipmeter" / name
            text = path.read_text("utf-8")
            if before not in text:
                sys.exit(f"{name} has no {before!r} any more; plant something else there")
            path.write_text(text.replace(before, after), "utf-8")
            run = [sys.executable, str(HERE / "run"), "--source", str(copy)]
            done = subprocess.run(
                [*run, "--check", "--only", study], capture_output=True, text=True
            )
        layers = sorted(set(re.findall(r"^\+\+\+ (layer\d)", done.stdout, re.MULTILINE)))
        n_lines = len(re.findall(r"^\+", done.stdout, re.MULTILINE)) - len(layers)
        n_missed += not layers
        told = f"{n_lines} lines of {', '.join(layers)}" if layers else f"NOT NOTICED {done.stderr}"
        print(f"{name}: {before} -> {after}: {told}", flush=True)
    return n_missed


if __name__ == "__main__":
    sys.exit(main())
