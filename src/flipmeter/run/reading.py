"""Paths -> Run: a run folder, several that are one study, or a table of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flipmeter.data.tables import ENDINGS
from flipmeter.run.record.folder import Run
from flipmeter.run.record.joined import joined
from flipmeter.run.tables.predictions import TableScale, read_predictions
from flipmeter.types import Problem


def open_run(paths: Sequence[Path], scale: TableScale = ()) -> Run:
    """Open a run folder, several as one run, or a table of predictions as one."""
    tables = [
        path
        for path in paths
        if path.is_file() or (path.suffix.lower() in ENDINGS and not path.is_dir())
    ]
    if tables and len(paths) > 1:
        raise Problem(
            f"{tables[0]} is a table of predictions, but only run folders can be joined; put "
            f"all answers "
            "into one table, with a column `model`, `dataset` or `seed` that tells them apart"
        )
    if tables:
        return read_predictions(tables[0], scale)
    if scale:
        raise Problem(f"--scale is for a table of predictions; {paths[0]} is a run and has its own")
    return joined([Run(path) for path in paths])
