"""The verb demo: the whole job, offline."""

from __future__ import annotations

from pathlib import Path

from flipmeter.api import STORE, Run
from flipmeter.cli.asking import ask
from flipmeter.cli.consoles import say
from flipmeter.cli.options import Limit, Out, StorePath, study_of, verb
from flipmeter.run.results.summary import one_flip

app = verb()


@app.command()
def demo(out: Out = None, store: StorePath = STORE, limit: Limit = None) -> None:
    """Run the whole job offline: embedded model, bundled data, a few minutes."""
    study = study_of("demo", None, None, None, limit, None)
    folder = out or Path("runs") / study.name

    def close(done: Run) -> None:
        say(*one_flip(done.source))
        say(f"\nreport: {done.report()}  (open it in a browser)")

    ask(study, folder, store, then=close)
