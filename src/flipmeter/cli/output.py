"""Results to a file and to stdout: tables and lines for people, JSON or CSV for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer
from rich.console import RenderableType

from flipmeter.api import Run
from flipmeter.cli.consoles import say
from flipmeter.errors import Problem
from flipmeter.files import open_output, write_output
from flipmeter.parquet import collected, without_secrets
from flipmeter.printed import CONTROLS, without_controls
from flipmeter.show.estimate_tables import shared_warnings

if TYPE_CHECKING:
    from flipmeter.choose.card import Card
    from flipmeter.choose.select import NextStep

AsCsv = Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")]


@dataclass(frozen=True)
class Output:
    """The output of results: a file, and stdout as JSON, CSV or tables."""

    out: Path | None = None
    as_json: bool = False
    as_csv: bool = False

    def show(
        self,
        about: Mapping[str, Any],
        tables: Mapping[str, pl.DataFrame],
        people: Callable[[], None],
        *,
        rows: pl.DataFrame | None = None,
        write: Callable[[pl.DataFrame, Path], None] | None = None,
        steps: Sequence[NextStep] = (),
    ) -> None:
        """Write and print tables; `rows` is what a file gets where that is not the one table."""
        from flipmeter.show.table import safe_csv, write_table

        if rows is None:
            (rows,) = tables.values()
        if self.out is not None:
            (write or write_table)(rows, self.out)
        if self.as_json:
            content = {name: table.to_dicts() for name, table in tables.items()}
            print_json({**about, **content, **_next_commands_json(steps)})
        elif self.as_csv:
            typer.echo(safe_csv(rows), nl=False)
        else:
            people()
            say_next(steps)


def finish(
    content: Mapping[str, Any],
    *lines: RenderableType,
    as_json: bool,
    steps: Sequence[NextStep] = (),
) -> None:
    """Print what a verb did: lines for people, or `content` as one JSON document."""
    if as_json:
        print_json({**content, **_next_commands_json(steps)})
    else:
        for line in lines:
            if isinstance(line, str):
                typer.echo(without_controls(line))  # not folded: it may hold a path to copy
            else:
                say(line)
        say_next(steps)


def say_next(steps: Sequence[NextStep]) -> None:
    """Print the next commands, each in one line to copy."""
    for step in steps:
        if step.text:
            say(f"next: {step.text}")
        typer.echo(without_controls(f"  {step.command}" if step.text else f"next: {step.command}"))


def _next_commands_json(steps: Sequence[NextStep]) -> dict[str, list[str]]:
    return {"next": [step.command for step in steps]} if steps else {}


def print_json(content: Any) -> None:
    """Print one JSON document; a number that is not finite becomes null, as JSON has no NaN."""
    text = json.dumps(
        _replace_non_finite(content), ensure_ascii=False, allow_nan=False, default=str
    )
    typer.echo(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def _replace_non_finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {name: _replace_non_finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_replace_non_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


@contextmanager
def _explain_write_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Problem(
            f"cannot write {out} ({error.strerror or error}); use another name"
        ) from error


def write_text(text: str, out: Path) -> None:
    """Write a text file."""
    with _explain_write_errors(out):
        write_output(out, text)


def write_rows(table: pl.DataFrame, out: Path) -> None:
    """Write rows unchanged, in the format of the file's suffix."""
    writers: dict[str, Callable[..., Any]] = {
        ".csv": table.write_csv,
        ".jsonl": table.write_ndjson,
        ".parquet": table.write_parquet,
    }
    if out.suffix not in writers:
        raise Problem(f"cannot write {out}: the name must end in {', '.join(writers)}")
    table = collected(without_secrets(table.lazy()))
    with _explain_write_errors(out), open_output(out) as file:
        writers[out.suffix](file)


VALUES = ("--set", "--model", "-m", "--dataset", "-d", "--data-dir", "--store", "--trust-host")
FLAGS = ("--trust",)
"""The options that say what a study asks, and with whose consent."""
MOST_STEPS = 4


def carried(*more: str) -> list[str]:
    """The options of this command line that the next one needs, too."""
    values, found, rest = (*VALUES, *more), list[str](), iter(sys.argv[2:])
    for word in rest:
        if word in values:
            found += [word, next(rest, "")]
        elif word in FLAGS or word.partition("=")[0] in values:
            found.append(word)
    return found


def this_again(*more: str) -> NextStep:
    """The same command, with further options."""
    return _next_command(*sys.argv[1:], *more)


def with_study(verb: str, study: str, *more: str) -> NextStep:
    """A verb on the study of this command; `more` are further options to carry over."""
    return _next_command(verb, study, *carried(*more))


def on_file(verb: str, path: Path, *more: str) -> NextStep:
    """A verb on a file or folder."""
    return _next_command(*verb.split(), str(path), *more)


def after_select(card: Path, n_items: int, n_unseen: int | None) -> NextStep:
    """Confirm a card on as many items as it was chosen on, if the data has them unseen."""
    from flipmeter.choose.select import NextStep

    n = n_items if n_unseen is None or n_unseen <= 0 else min(n_items, n_unseen)
    step = _next_command("confirm", str(card), "--items", str(n))
    if n_unseen is None or n_unseen > 0:
        return step
    why = "The choice saw every item of the data: add rows, then confirm it on these."
    return NextStep(why, step.command)


def unless_met(word: str, *runs: Path) -> list[NextStep]:
    """The report of runs that did not pass a test, with the options that read a table."""
    from flipmeter.cli.consoles import BY_WORD, DONE

    if BY_WORD.get(word) == DONE:
        return []
    return [_next_command("report", *map(str, runs), *carried("--scale", "--within"))]


def after_classify(path: Path, card: Card) -> list[NextStep]:
    """Confirm a selected rater that is in use and was not confirmed yet."""
    if card.selected is None or not card.selected.seen or card.is_confirmed:
        return []
    return [after_select(path, card.selected.n_items, None)]


def after_confirm(path: Path, run: Path, word: str) -> list[NextStep]:
    """Use a confirmed rater; else read the run that tested it."""
    from flipmeter.choose.select import NextStep

    use = _next_command("classify", str(path), "FILE.csv", "--text", "COLUMN").command
    return unless_met(word, run) or [NextStep("Label texts of your own.", use)]


def on_run(run: Run, study: str | None = None) -> list[NextStep]:
    """Suggested next steps for the verdicts of a run, most urgent first.

    Without `study` the run itself stands for it: it holds its study.
    """
    return run.next_steps(join([study, *carried()]) if study else "")[:MOST_STEPS]


def _next_command(*words: str) -> NextStep:
    from flipmeter.choose.select import NextStep

    return NextStep("", join(["flipmeter", *words]))


def heading(done: Run) -> dict[str, Any]:
    """Study, mode and warnings: the head of every JSON document about a run."""
    return {"study": done.study.name, "mode": done.study.mode, "warnings": done.warnings}


def warning_lines(done: Run) -> list[str]:
    """The warnings of a run, each once, with its raters."""
    return [f"! {names}: {text}" for names, text in shared_warnings(done.source.remarks).items()]
