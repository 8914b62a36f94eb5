"""`flipmeter` and `python -m flipmeter`: the command line."""

import sys

INTERRUPTED = 130
"""As shells have it: a signal where nothing is asked, also while modules are still loaded."""


def main() -> None:
    """Run the command line; an interrupt ends it without a traceback, however early it comes."""
    try:
        from flipmeter.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
