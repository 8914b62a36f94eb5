"""`flipmeter` and `python -m flipmeter`: the command line."""

import os
import sys
from contextlib import suppress
from itertools import filterfalse

INTERRUPTED = 130
"""As shells have it: a signal where nothing is asked, also while modules are still loaded."""
ALLOCATOR = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")
"""The allocator of polars returns memory at once; it reads this when polars is first imported."""

os.environ.setdefault(*ALLOCATOR)
PLACES = [*filterfalse(os.path.isabs, (os.environ.get("PYTHONPATH") or os.sep).split(os.pathsep))]
"""The working folder by entries that are empty, as in `PYTHONPATH=$PYTHONPATH:...`, or relative."""
if __name__ == "__main__" and not sys.flags.safe_path:
    PLACES.append("")  # `python -m` put it there
for place in PLACES:
    with suppress(OSError, ValueError):
        sys.path.remove(os.path.abspath(place))  # noqa: PTH100


def main() -> None:
    """Run the command line; an interrupt ends it without a traceback, however early it comes."""
    try:
        from flipmeter.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
