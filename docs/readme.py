"""Put the output of the last demo run into README.md, between its marks."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from rich.console import Console

from flipmeter.run.folder import Run
from flipmeter.show.gather import summary

ROOT = Path(__file__).parents[1]
MARKS = re.compile(r"(<!-- demo: [^\n]*-->\n).*?(<!-- /demo -->)", re.DOTALL)


def shown(run: Run) -> str:
    """The summary of a run as a terminal of 130 columns shows it."""
    console = Console(width=130, record=True, file=sys.stderr, force_terminal=False)
    for part in summary(run):
        console.print(part, highlight=False, markup=False)
    lines = (line.rstrip() for line in console.export_text().splitlines())
    return "```text\n" + "\n".join(lines).strip() + "\n```\n"


def main() -> None:
    readme = ROOT / "README.md"
    os.chdir(ROOT)  # the commands that are shown name the run as a user would
    table = shown(Run(Path("runs/demo")))
    text = readme.read_text(encoding="utf-8")
    readme.write_text(MARKS.sub(lambda mark: mark[1] + table + mark[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
