"""Put the output of the last demo run into README.md, between its marks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rich.console import Console

from flipmeter.report import flip_table
from flipmeter.run.record.folder import Run

ROOT = Path(__file__).parents[1]
MARKS = re.compile(r"(<!-- demo: [^\n]*-->\n).*?(<!-- /demo -->)", re.DOTALL)


def shown(run: Run) -> str:
    """Return the flip table as a terminal of 118 columns shows it."""
    console = Console(width=118, record=True, file=sys.stderr, force_terminal=False)
    console.print(flip_table(run.estimates, run.verdicts, run.study.contrasts))
    lines = (line.rstrip() for line in console.export_text().splitlines())
    return "```text\n" + "\n".join(lines).strip() + "\n```\n"


def main() -> None:
    readme = ROOT / "README.md"
    table = shown(Run(ROOT / "runs" / "demo"))
    text = readme.read_text(encoding="utf-8")
    readme.write_text(MARKS.sub(lambda mark: mark[1] + table + mark[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
