"""Run folders with other content, committed as a run commits them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from flipmeter.run.folder import Run
from flipmeter.run.generation import commit


def changed(
    folder: Path,
    facts: Mapping[str, Any] | None = None,
    *,
    study: str | None = None,
    **tables: pl.DataFrame,
) -> Run:
    """Give a run folder other facts, another study file or other tables, by their names."""
    run = Run(folder)
    writers: dict[str, Callable[[Path], object]] = {
        name: partial(shutil.copyfile, run.path(name)) for name in run.manifest.files
    }
    for name, table in tables.items():
        writers[f"{name}.parquet"] = table.write_parquet
    if study is not None:
        writers["study.yaml"] = lambda path: path.write_text(study, encoding="utf-8")
    with TemporaryDirectory(dir=folder) as scratch:
        commit(
            folder,
            Path(scratch),
            writers,
            study=run.manifest.study,
            state=run.manifest.state,
            facts={**run.environment, **(facts or {})},
        )
    return Run(folder)


def damage(path: Path, content: bytes) -> None:
    """Put other bytes into a file, behind the back of the run."""
    path.write_bytes(content)
