"""Start the command line: processor seconds of `--version` and `--help` against their libraries.

    python benchmarks/start.py [--rounds 7]

The peer is `python -c "import typer, rich"`, which no command line made with them can be below.
Each is started in turn, so that a busy machine slows all alike; the least of the rounds counts.
"""

from __future__ import annotations

import argparse
import resource
import subprocess  # what is timed is a program
import sys

from goals import Goal, show_goals, show_table

PEER = ("-c", "import typer, rich")
OURS = {
    "flipmeter --version": ("-m", "flipmeter", "--version"),
    "flipmeter --help": ("-m", "flipmeter", "--help"),
}
MOST = 3.0


def cpu_of(arguments: tuple[str, ...]) -> float:
    """Processor seconds, user and system, of one start with stored bytecode."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    starts = {"import typer, rich": PEER, **OURS}
    for arguments in starts.values():
        cpu_of(arguments)  # writes the bytecode
    least = {
        name: min(cpu_of(arguments) for _ in range(rounds)) for name, arguments in starts.items()
    }
    peer = least["import typer, rich"]
    rows = ((name, f"{used:.3f}", f"{used / peer:.2f}") for name, used in least.items())
    show_table("Starting", ("start", "CPU s", "times the peer"), rows)
    show_goals([Goal(f"{name}, times the peer", least[name] / peer, "<=", MOST) for name in OURS])


if __name__ == "__main__":
    main()
