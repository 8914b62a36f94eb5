"""The verb demo: a whole study, offline."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from flipmeter.api import STORE, Run
from flipmeter.cli.asking import ask
from flipmeter.cli.options import AsJson, Limit, Out, StorePath, run_folder, study_of, verb
from flipmeter.cli.output import on_file
from flipmeter.show.gather import one_flip

app = verb()


@app.command()
def demo(
    out: Out = None, store: StorePath = STORE, limit: Limit = None, as_json: AsJson = False
) -> None:
    """Run a whole study offline: embedded model, bundled reviews, a few minutes."""
    study = study_of("demo", None, None, None, limit, None)
    folder = run_folder(out, study.name)

    def close(done: Run) -> Iterator[RenderableType]:
        yield from one_flip(done.source)
        yield f"\nreport: {done.report()}  (open it in a browser)"

    steps = [on_file("view", folder)]
    ask(study, folder, store, as_json=as_json, then=close, steps=lambda _: steps)
