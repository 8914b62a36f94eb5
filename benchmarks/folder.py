"""The size of a run folder: bytes a call of a study with 25 demonstrations, file by file.

    python benchmarks/folder.py [--items 200] [--data-dir DATA]

A whole run of a simulated rater, all probes, five shots, through the public `Study`; on the bundled
reviews, or on SST-5 where its folder is named. Beside it the bytes of the prompts as they are sent.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from goals import Goal, show_goals
from rich.console import Console
from rich.table import Table

import flipmeter as fm

MOST = 400
SHOTS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--data-dir", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = fm.Study(
            models=["sim/first-slot"],
            datasets=["sst5" if asked.data_dir else "reviews"],
            test_size=asked.items,
            base={"shots": SHOTS},
            data_dir=asked.data_dir,
        )
        run = study.run(Path(folder) / "run", store=Path(folder) / "replies.sqlite")
        n_calls = len(run.calls)
        sizes = {path.name: path.stat().st_size for path in run.folder.rglob("*") if path.is_file()}
        digests = run.calls["prompt"].to_list()
        prompts = run.source.prompts(digests)
    sent = sum(len(prompts[digest].encode()) for digest in digests)
    table = Table("file", "bytes", "a call", title=f"{n_calls:,} calls", title_justify="left")
    for name, size in [*sizes.items(), ("all", sum(sizes.values())), ("prompts as sent", sent)]:
        table.add_row(name, f"{size:,}", f"{size / n_calls:,.1f}")
    Console(width=120).print(table)
    show_goals([Goal("bytes a call", sum(sizes.values()) / n_calls, "<=", MOST)])


if __name__ == "__main__":
    main()
