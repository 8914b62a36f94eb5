"""`flipmeter` and `python -m flipmeter`: the command line."""

import os
import sys
from contextlib import suppress

INTERRUPTED = 130
"""As shells have it: a signal where nothing is asked, also while modules are still loaded."""
ALLOCATOR = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")
"""The allocator of polars returns memory at once; it reads this when polars is first imported."""

os.environ.setdefault(*ALLOCATOR)
if __name__ == "__main__" and not sys.flags.safe_path:
    with suppress(OSError, ValueError):  # `python -m` put the working folder there
        sys.path.remove(os.getcwd())  # noqa: PTH109


def main() -> None:
    """Run the command line; an interrupt ends it without a traceback, however early it comes."""
    try:
        from flipmeter.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
