"""A run on a small disk of its own that somebody else fills: what is sent, stored and said.

    unshare -rm python tests/full_disk.py FOLDER STUDY LOG

mounts a disk of 16 MB at FOLDER, runs STUDY with its store there, fills the disk when the server,
which writes LOG, has answered a hundred requests, and afterwards makes room and runs it again. It
prints what happened as JSON; exit code 77 says that no disk can be mounted here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from flipmeter.ask.store import Store
from flipmeter.run.folder import Run

COMMAND = "from flipmeter.cli import main; main()"
NO_DISK = 77


def start(study: Path, folder: Path) -> subprocess.Popen[str]:
    options = ["--store", str(folder / "replies.sqlite"), "--out", str(study.with_name("run"))]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "run", str(study), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def fill(path: Path, spare: int = 0) -> None:
    """Take all the room there is in one piece, but for some bytes.

    In pieces it would go on after the run has given up its reserve, and take that too.
    """
    with path.open("wb") as file:
        while (free := shutil.disk_usage(path.parent).free - spare) > 0:
            with suppress(OSError):  # the run wrote meanwhile
                os.posix_fallocate(file.fileno(), 0, free)
                return


def answered(log: Path) -> list[int]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [int(line[1:]) for line in lines if line.startswith("=")]


def stored(folder: Path) -> list[int]:
    with Store(folder / "replies.sqlite") as store:
        return [number for (number,) in store.read("SELECT prompt_tokens FROM replies")]


def ended(run: subprocess.Popen[str]) -> dict[str, Any]:
    said = run.communicate()[1]
    return {"code": run.returncode, "said": said}


def main() -> None:
    folder, study, log = map(Path, sys.argv[1:4])
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        sys.exit(NO_DISK)
    told: dict[str, Any] = {}
    fill(folder / "others", spare=2**20)
    told["no room"] = ended(start(study, folder)) | {"sent": len(answered(log))}
    (folder / "others").unlink()
    run = start(study, folder)
    while len(answered(log)) < 100 and run.poll() is None:
        time.sleep(0.005)
    fill(folder / "others")
    told["filled"] = ended(run)
    (folder / "others").unlink()
    told["filled"] |= {"lost": len(set(answered(log)) - set(stored(folder)))}
    told["again"] = ended(start(study, folder))
    paid = answered(log)
    told["again"] |= {"paid": len(paid), "twice": len(paid) - len(set(paid))}
    told["again"]["stored"] = len(stored(folder))
    if told["again"]["code"] == 0:
        told["table"] = Run(study.with_name("run")).decisions.drop("seconds").write_json()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
