"""Processes forked from one that has flipmeter's modules loaded: a command in 0.1 s, not in 1.5.

A process of the operating system as any other, with streams, signals and an exit code of its own;
use `subprocess` where the start of an interpreter or the way of a module is what is tested. The
server of a test process ends with it. Nothing but imports has happened in the server, so that no
thread is lost in a fork.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

CONSOLE = "from flipmeter.__main__ import main; main()"
LONGEST = 2**17
"""Bytes of a request: code, arguments and environment."""


class Forked(subprocess.Popen[str]):
    """`python -c CODE ARGUMENT ...`, but for the time that the imports take."""

    def __init__(self, code: str, *arguments: object, **options: Any) -> None:
        super().__init__([code, *map(str, arguments)], text=True, **options)

    def _execute_child(self, *values: Any) -> None:
        """Ask the server for a process in the place of making one."""
        given = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
        told = given.bind(self, *values).arguments
        self._end, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        streams = (told["p2cread"], told["c2pwrite"], told["errwrite"])
        request = {
            "argv": told["args"],
            "cwd": os.fspath(told["cwd"] or Path.cwd()),
            "env": dict(os.environ if told["env"] is None else told["env"]),
        }
        fds = [own if given == -1 else given for own, given in enumerate(streams)]
        socket.send_fds(_server()[0], [json.dumps(request).encode()], [theirs.fileno(), *fds])
        theirs.close()
        self.pid = int(self._end.recv(20))
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(told[name] for name in names))  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """The status of the process, which its parent tells; (0, 0) while it runs."""
        self._end.setblocking(not wait_flags & os.WNOHANG)
        try:
            status = int(self._end.recv(20))
        except BlockingIOError:
            return 0, 0
        self._end.close()
        return self.pid, status

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def run(
    *arguments: object,
    code: str = CONSOLE,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command of the console script to its end, or other code."""
    pipe = subprocess.PIPE
    with Forked(code, *arguments, cwd=cwd, env=env, stdout=pipe, stderr=pipe) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The server of this test process, and the socket to it."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, __file__, str(number)]
        return ours, subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL)


# In the server


def serve(requests: socket.socket) -> None:
    """Give each request a process that waits for the one that is asked for, and tells its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        request, fds, *_ = socket.recv_fds(requests, LONGEST, 4)
        if not request:
            return
        if not os.fork():
            requests.close()
            mind(json.loads(request), *fds)
            return
        for fd in fds:
            os.close(fd)


def mind(request: dict[str, Any], told: int, *streams: int) -> None:
    """Fork the process of a request; its parent stays to tell its number and its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        for fd in streams:
            os.close(fd)
        os.write(told, str(pid).encode())
        os.write(told, str(os.waitpid(pid, 0)[1]).encode())
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.close(told)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    code, *arguments = request["argv"]
    sys.argv = ["flipmeter" if code == CONSOLE else "-c", *arguments]
    sys.path[0] = sysconfig.get_path("scripts") if code == CONSOLE else ""
    if places := os.environ.get("PYTHONPATH"):
        sys.path[1:1] = places.split(os.pathsep)
    exec(compile(code, "<forked>", "exec"), {"__name__": "__main__"})  # noqa: S102


if __name__ == "__main__":
    import flipmeter.cli

    for module in pkgutil.iter_modules(flipmeter.cli.__path__, "flipmeter.cli."):
        import_module(module.name)
    gc.collect()
    gc.freeze()  # the end of a process would go through all modules
    serve(socket.socket(fileno=int(sys.argv[1])))
