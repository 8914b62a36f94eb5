"""The journal of submitted files, written before anything is sent and after the vendor answers.

A line of `jobs.jsonl` is an event of one file of a batch. What was begun and has no end may be at
the vendor or not: it is looked for there before it is submitted again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from flipmeter.base.files.atomic import open_output, sync_folder
from flipmeter.base.files.reading_limits import JSON_BYTES, read_plain
from flipmeter.model.batch.files import JOBS
from flipmeter.types import Problem

Event = Literal["uploaded", "submitting", "refused", "submitted", "fetched"]
SHOWN = 200


@dataclass(frozen=True)
class Submission:
    """A file of a batch at its vendor, as far as is known.

    One that `is_open` was sent, and whether it arrived is not known.
    """

    upload: str = ""
    id: str = ""
    since: str = ""
    is_open: bool = False
    is_fetched: bool = False


class Journal:
    """The events of a batch folder, each on disk before the next step is taken."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOBS
        self.jobs: dict[str, Submission] = {}
        for row in self._rows():
            self._take(row)

    def of(self, name: str) -> Submission:
        return self.jobs.get(name, Submission())

    def note(self, name: str, event: Event, **about: str) -> None:
        """Write an event and wait until it is on disk."""
        row = {"file": name, "event": event, "at": datetime.now(UTC).isoformat(), **about}
        line = json.dumps(row).encode() + b"\n"
        try:
            with open_output(self._path, is_appended=True) as file:
                # What was torn by a crash must not swallow this line.
                file.write(line if self._ends_well() else b"\n" + line)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self._path.parent)
        except OSError as error:
            raise Problem(
                f"cannot write {self._path} ({error.strerror}); nothing more is submitted"
            ) from error
        self._take(row)

    def _ends_well(self) -> bool:
        with self._path.open("rb") as file:
            if not file.seek(0, os.SEEK_END):
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _rows(self) -> list[dict[str, Any]]:
        try:
            lines = read_plain(self._path, JSON_BYTES).splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Problem(f"cannot read {self._path} ({error.strerror})") from error
        return [row for line in lines if (row := _row(line))]

    def _take(self, row: Mapping[str, Any]) -> None:
        name, event, known = str(row.get("file")), row.get("event"), self.of(str(row.get("file")))
        told = {key: str(row.get(key) or "")[:SHOWN] for key in ("upload", "job", "at")}
        if event == "uploaded":
            known = Submission(
                told["upload"], known.id, known.since, known.is_open, known.is_fetched
            )
        elif event == "submitting":
            known = Submission(known.upload, "", told["at"], is_open=True)
        elif event == "refused":
            known = Submission(known.upload)
        elif event == "submitted":
            known = Submission(known.upload, told["job"], known.since)
        elif event == "fetched":
            known = Submission(known.upload, known.id, known.since, is_fetched=True)
        self.jobs[name] = known


def _row(line: bytes) -> dict[str, Any] | None:
    """An event; a line that a crash tore is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
