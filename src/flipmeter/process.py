"""A process by its machine, number and start: whether that one is still there; and a new one."""

from __future__ import annotations

import os
import platform
import subprocess  # the one place that starts a process
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

ENDED = ("Z", "X")
"""States of a process that only waits to be forgotten."""


@dataclass(frozen=True)
class ProcessName:
    """A process by its number and its start time, because numbers are reused.

    `boot` and `space` say where a number means the same: one start of a machine, one container.
    """

    node: str
    boot: str
    space: str
    pid: int
    started: str

    @property
    def is_gone(self) -> bool:
        """Say whether it is known to have ended; of another machine nothing is known."""
        here = this_process()
        if self.node == here.node and self.boot != here.boot:
            return True  # this machine has been started since
        if (self.node, self.space) != (here.node, here.space):
            return False
        return not is_running(self.pid) or _process_start_time(self.pid) != self.started

    @property
    def is_here(self) -> bool:
        """Whether its start can be seen: if it is not gone, then it is there, whatever it does."""
        here = this_process()
        places = (self.node, self.boot, self.space), (here.node, here.boot, here.space)
        return places[0] == places[1] and bool(self.started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.node}"


def this_process() -> ProcessName:
    return _process_name(os.getpid())


@lru_cache(maxsize=8)
def _process_name(pid: int) -> ProcessName:
    boot = _read_proc_file("/proc/sys/kernel/random/boot_id")
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return ProcessName(platform.node(), boot, space, pid, _process_start_time(pid))


def _process_start_time(pid: int) -> str:
    """Start time of a process, in ticks of its machine; "ended" for a zombie, "" if unknown.

    Its name may contain anything, even brackets: the fields come after the last one.
    """
    fields = _read_proc_file(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields:
        return ""
    return "ended" if fields[0] in ENDED else fields[19]


def _read_proc_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """Say whether a process of this machine is there still."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's, but alive
        return True
    return True


def start_python(*arguments: str, **options: Any) -> subprocess.Popen[Any]:
    """Start this interpreter again, without the folder in which we work on its search path.

    That folder may be a stranger's, with a `pip.py` in it. The variable is for children of its own.
    """
    environment = {**(options.pop("env", None) or os.environ), "PYTHONSAFEPATH": "1"}
    places = environment.pop("PYTHONPATH", "").split(os.pathsep)
    if chosen := [*filter(os.path.isabs, places)]:  # an empty entry is the working folder
        environment["PYTHONPATH"] = os.pathsep.join(chosen)
    return subprocess.Popen([sys.executable, "-P", *arguments], env=environment, **options)
