"""CPU seconds of this process and of all that it started, by what they are (Linux)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PARTS = ("driver", "actors", "Ray")


def cpu_by_part() -> dict[str, float]:
    """The CPU seconds so far of the driver, of Ray actors and of Ray's own processes."""
    found = dict(_processes())
    mine, seconds = os.getpid(), dict.fromkeys(PARTS, 0.0)
    for pid, (_, name, used) in found.items():
        above = pid
        while above in found and above != mine:
            above = found[above][0]
        if above == mine:
            seconds[_part(pid, name)] += used
    return seconds


def _part(pid: int, name: str) -> str:
    if pid == os.getpid():
        return "driver"
    return "actors" if name.startswith("ray::Holder") else "Ray"


def _processes() -> list[tuple[int, tuple[int, str, float]]]:
    """The parent, name and CPU seconds of every process."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it may end meanwhile
                found.append((int(folder.name), _read(folder)))
    return found


def _read(folder: Path) -> tuple[int, str, float]:
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    name = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    return int(fields[1]), name, (int(fields[11]) + int(fields[12])) / TICKS
