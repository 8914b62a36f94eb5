"""Take the picture of a report's first screen that README.md shows, in Debian's Chromium.

python docs/picture.py [--out docs/images/report.png]
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from contextlib import chdir
from pathlib import Path

import flipmeter as fm

ROOT = Path(__file__).parents[1]
STUDY = {
    "name": "raters",
    "models": [
        "sim/honest",
        "sim/first-slot",
        "sim/last-slot",
        "sim/biased-noisy",
    ],
    "datasets": ["reviews"],
    "test_size": 100,
    "repeats": 2,
    "base": {"shots": 1},
}
"""Simulated raters, whose preferences are known: the picture needs no weights."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1180,900",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "report.png")
    out = parser.parse_args().out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, chdir(name):
        folder = Path(name)
        run = fm.Study(**STUDY).run(is_quiet=True, anyway=True)
        run.report("report.html")
        page = (folder / "report.html").as_uri()
        flags = [*FLAGS, f"--user-data-dir={folder}/profile", f"--screenshot={out}"]
        subprocess.run(["chromium", *flags, page], check=True, capture_output=True)


if __name__ == "__main__":
    main()
