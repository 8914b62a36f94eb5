"""The verbs. Results go to stdout, progress and warnings to stderr."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import polars as pl
import typer
import yaml
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from flipmeter import __version__
from flipmeter.data import datasets, load
from flipmeter.decide import pipelines
from flipmeter.look import flipped_pair, views_of_item
from flipmeter.measure import phase0_table
from flipmeter.model import (
    SIMS,
    Ledger,
    Store,
    explain,
    export,
    identity_of,
    local_models,
    open_backend,
    open_stored,
    plan_prune,
    providers,
    prune,
    run_forever,
    stored_among,
)
from flipmeter.probe import demo_orders, probes
from flipmeter.progress import Meter
from flipmeter.prompt import factors
from flipmeter.rate import first_round, seat
from flipmeter.registry import load_extensions, suggestion
from flipmeter.report import (
    accuracy_tests_table,
    failures_line,
    flip_table,
    performance_table,
    phase0_view,
    side_by_side,
    tokens_table,
    verdict_lines,
)
from flipmeter.runs import Run, perform, preview
from flipmeter.study import (
    Study,
    base_conditions,
    conditions,
    find_study,
    read_study,
    world,
    worlds,
)
from flipmeter.types import Model, Problem, Request

ASKED_WRONGLY, INCOMPLETE = 2, 4
DEFAULT_STORE = Path(".flipmeter") / "replies.sqlite"

app = typer.Typer(
    help="Does your LLM rater change its mind when nothing but positions change?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

StudyName = Annotated[str, typer.Argument(help="A study file, or the name of a bundled study.")]
RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a key of the study: test_size=40, base.shots=1."),
]
Models = Annotated[
    list[str] | None, typer.Option("--model", "-m", help="Ask this model instead (repeatable).")
]
Data = Annotated[
    list[str] | None, typer.Option("--dataset", "-d", help="Use this dataset instead (repeatable).")
]
Limit = Annotated[int | None, typer.Option(help="Rate at most this many items.", min=1)]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="FLIPMETER_DATA", help="The folder with the catalog's datasets."),
]
StorePath = Annotated[Path, typer.Option("--store", help="The reply store.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The run folder (runs/NAME).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a machine.")]


def main() -> None:
    """Run the command line; what the user can mend is said without a traceback."""
    try:
        load_extensions()
        app()
    except Problem as problem:
        _fail(str(problem))
    except ExceptionGroup as group:
        found = _first_problem(group)
        if found is None:
            raise
        _fail(str(found))


def _fail(message: str, code: int = ASKED_WRONGLY) -> NoReturn:
    _errors().print(f"[bold red]flipmeter:[/] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(code)


def _first_problem(group: BaseExceptionGroup[BaseException]) -> Problem | None:
    for error in group.exceptions:
        found = _first_problem(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, Problem):
            return found
    return None


def _errors() -> Console:
    return Console(stderr=True)


def _print(*things: RenderableType) -> None:
    # A pipe has no width: give tables room instead of folding them at 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    for thing in things:
        console.print(thing, highlight=False)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"flipmeter {__version__}")
        raise typer.Exit


# --- reading a study --------------------------------------------------------------------------


def _study(
    name: str,
    changes: list[str] | None,
    models: list[str] | None,
    data: list[str] | None,
    limit: int | None,
    data_dir: Path | None,
) -> Study:
    set_keys = dict(_change(change) for change in changes or [])
    if models:
        set_keys["models"] = models
    if data:
        set_keys["datasets"] = data
    study = read_study(find_study(name), set_keys, data_dir=data_dir)
    return study if limit is None else study.limited(limit)


def _change(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise Problem(f"--set {text!r} changes nothing; write KEY=VALUE")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise Problem(f"--set {key}: {value!r} is not valid YAML ({error})") from error


# --- the verbs --------------------------------------------------------------------------------


@app.command()
def demo(out: Out = None, store: StorePath = DEFAULT_STORE, limit: Limit = None) -> None:
    """Run the whole job offline: embedded model, bundled data, a few minutes."""
    study = _study("demo", None, None, None, limit, None)
    _do(study, out or Path("runs") / study.name, store, show_flip=True)


@app.command()
def run(
    study: StudyName,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    out: Out = None,
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Ask what is missing, then measure. Stop and start as you like: nothing is asked twice."""
    chosen = _study(study, changes, model, dataset, limit, data_dir)
    _do(chosen, out or Path("runs") / chosen.name, store)


def _do(study: Study, folder: Path, store_path: Path, *, show_flip: bool = False) -> None:
    ledger = Ledger()
    with Store(store_path) as store, _resumable(ledger, store_path), Meter(ledger) as meter:
        done = perform(
            study,
            folder,
            store,
            ledger=ledger,
            on_reply=meter.on_reply,
            on_fetch=meter.on_fetch,
            on_plan=meter.on_plan,
        )
    _print_run(done, study)
    if show_flip:
        _print_flip(done, study)
    _print(f"\nrun folder: {folder}")
    if ledger.failed:
        _fail(
            f"{ledger.failed} requests failed for good ({_first_error(done)}); the tables count "
            "them as errors: run again to ask only those",
            INCOMPLETE,
        )


@contextmanager
def _resumable(ledger: Ledger, store: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _fail(
            f"stopped; {ledger.asked} new replies are kept in {store}: "
            "run the same command again to go on",
            INCOMPLETE,
        )


def _first_error(done: Run) -> str:
    errors = done.calls.filter(pl.col("error") != "")["error"]
    return str(errors[0]) if len(errors) else "see calls.parquet"


@app.command()
def measure(
    folder: RunFolder,
    greedy: Annotated[
        Path | None, typer.Option(help="The greedy run beside this stochastic one (Phase 0 table).")
    ] = None,
    phase0: Annotated[bool, typer.Option("--phase0", help="Only the paper's first table.")] = False,
    as_json: AsJson = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print all estimates as CSV.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write all estimates (.parquet, .csv).")] = None,
) -> None:
    """Print the estimates of a run, every number with its interval and n."""
    done = Run(folder)
    if out is not None:
        _write_estimates(done.estimates, out)
    if as_json:
        typer.echo(json.dumps(_plain(done), ensure_ascii=False))
    elif csv:
        typer.echo(done.estimates.write_csv(), nl=False)
    elif phase0 or greedy is not None:
        _print(phase0_view(_phase0(done, greedy)))
    else:
        _print_run(done, done.study)


def _phase0(done: Run, greedy: Path | None) -> pl.DataFrame:
    if greedy is None:
        return phase0_table(done.estimates)
    return phase0_table(Run(greedy).estimates, done.estimates)


def _plain(done: Run) -> dict[str, Any]:
    return {
        "study": done.study.name,
        "mode": done.study.mode,
        "estimates": done.estimates.to_dicts(),
        "verdicts": done.verdicts.to_dicts(),
    }


def _write_estimates(estimates: pl.DataFrame, out: Path) -> None:
    if out.suffix == ".parquet":
        estimates.write_parquet(out)
    elif out.suffix == ".csv":
        estimates.write_csv(out)
    else:
        raise Problem(f"cannot write {out}: the name must end in .parquet or .csv")


@app.command()
def plan(
    study: StudyName,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Say what a study would ask, before anything is sent."""
    chosen = _study(study, changes, model, dataset, limit, data_dir)
    with Store(store if store.exists() else ":memory:") as replies:
        grid, cost = preview(chosen, replies)
    numbers = {"conditions": len(grid), **cost.as_dict()}
    if as_json:
        typer.echo(json.dumps(numbers))
        return
    table = Table(title=f"Plan of {chosen.name}: nothing has been sent", title_justify="left")
    table.add_column("what")
    table.add_column("number", justify="right")
    for name, number in numbers.items():
        table.add_row(_PLAN_WORDS[name], f"{number:,}")
    _print(table)


_PLAN_WORDS = {
    "conditions": "conditions (rater x dataset x seed x level x view)",
    "calls": "prompts that the decisions need",
    "distinct": "distinct requests",
    "stored": "of these already stored",
    "prompt_tokens": "prompt tokens to send (estimate, 4 characters each)",
    "prompt_tokens_shared": "of these new to a prefix cache",
    "completion_tokens_at_most": "completion tokens at most",
}


@app.command()
def show(
    study: StudyName,
    item: Annotated[int, typer.Option(help="Which test item, 1 is the first.", min=1)] = 1,
    view: Annotated[list[str] | None, typer.Option(help="Only these views (repeatable).")] = None,
    changes: Changes = None,
    dataset: Data = None,
    data_dir: DataDir = None,
) -> None:
    """Print the views of one item side by side, differences marked: look before you spend."""
    chosen = _study(study, changes, None, dataset, None, data_dir)
    grid = base_conditions(conditions(chosen))
    if item > len(grid[0].items):
        raise Problem(f"--item {item}: the test set has {len(grid[0].items)} items")
    prompts = {name: prompt.text for name, prompt in views_of_item(grid, item - 1)}
    base = prompts.pop("base")
    for name in view or []:
        if name not in prompts:
            raise Problem(f"no view named '{name}'{suggestion(name, list(prompts))}")
    for name, text in prompts.items():
        if not view or name in view:
            if text == base:
                _print(f"{name}: the prompt is equal to base, so this contrast is not identified")
            else:
                _print(side_by_side(["base", name], [base, text]))
    if not prompts:
        _print(side_by_side(["base"], [base]))


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Argument(help="datasets, models, probes, ...")] = None,
) -> None:
    """Print the names that a study may use."""
    kinds = _kinds()
    if kind is not None and kind not in kinds:
        raise Problem(f"no kind named '{kind}'{suggestion(kind, list(kinds))}")
    for name in [kind] if kind else list(kinds):
        table = Table(title=name, title_justify="left", show_header=False, box=None)
        for part, about in kinds[name].items():
            table.add_row(f"  {part}", about)
        _print(table)


def _kinds() -> dict[str, dict[str, str]]:
    levels = {factor: ", ".join(registry) for factor, registry in factors.items()} | {
        "shots": "demonstrations per class: 0, 1, 2, ...",
        "layout": "cued, paper",
    }
    return {
        "datasets": {name: entry.title for name, entry in datasets.items()},
        "models": _model_names(),
        "factors": levels,
        "probes": {name: probe.about for name, probe in probes.items()},
        "demo orders": {name: _first_line(order) for name, order in demo_orders.items()},
        "pipelines": {name: _first_line(pipeline) for name, pipeline in pipelines.items()},
    }


def _model_names() -> dict[str, str]:
    names = {f"local/{name}": weights.about for name, weights in local_models.items()}
    names["llamacpp/FILE.gguf"] = "any GGUF file, in this process"
    for name, provider in providers.items():
        where = provider.base_url or f"set {name.upper()}_BASE_URL or base_url"
        names[f"{name}/MODEL"] = f"OpenAI-compatible, {where}"
    return names | {f"sim/{name}": preset.about for name, preset in SIMS.items()}


def _first_line(part: object) -> str:
    return (part.__doc__ or "").strip().partition("\n")[0]


@app.command()
def serve(
    model: Annotated[list[str], typer.Argument(help="Models: NAME=local/..., '*=sim/honest'.")],
    dataset: Annotated[
        str, typer.Option(help="The dataset that simulated raters know.")
    ] = "reviews",
    data_dir: DataDir = None,
    port: Annotated[int, typer.Option(help="The port on the loopback address.")] = 8080,
    delay: Annotated[float, typer.Option(help="Seconds that every answer is held back.")] = 0.0,
) -> None:
    """Serve embedded or simulated models as an OpenAI-compatible endpoint on loopback."""
    named = dict(_served(text) for text in model)
    has_sim = any(address.startswith("sim/") for address in named.values())
    known = world(load(dataset, data_dir=data_dir)) if has_sim else None
    opened = {name: open_backend(Model(address), known) for name, address in named.items()}
    _errors().print(f"serving {', '.join(named)} on http://127.0.0.1:{port}/v1 (Ctrl-C stops)")
    asyncio.run(run_forever(opened, port=port, delay=delay))


def _served(text: str) -> tuple[str, str]:
    """Read NAME=ADDRESS; an address alone is served under its own name."""
    name, equals, address = text.partition("=")
    is_pair = bool(equals) and "?" not in name  # sim/first-slot?strength=1 is an address
    return (name, address) if is_pair else (text, text)


# --- the reply store --------------------------------------------------------------------------

cache = typer.Typer(help="Look into the reply store, export it, prune it.", no_args_is_help=True)
app.add_typer(cache, name="cache")


@cache.command("explain")
def cache_explain(
    study: StudyName,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Say why the requests of a study are new: what differs from the nearest stored ones."""
    chosen = _study(study, changes, model, dataset, limit, data_dir)
    with Store(store if store.exists() else ":memory:") as replies:
        typer.echo("\n".join(explain(_requests(chosen), replies).lines()))


def _requests(study: Study) -> tuple[Request, ...]:
    loaded = study.load()
    grid, known = conditions(study, loaded), worlds(study, loaded)
    identities = {seat(c): identity_of(c.rater.model, known.get(c.dataset)) for c in grid}
    return first_round(grid, identities)[1].requests


@cache.command("export")
def cache_export(
    source: Annotated[Path, typer.Argument(help="A reply store, or a run folder.")],
    out: Annotated[Path, typer.Argument(help="The file to write (.jsonl, .parquet).")],
    store: Annotated[
        Path, typer.Option("--store", help="The reply store of the run folder.")
    ] = DEFAULT_STORE,
) -> None:
    """Write every request with its reply; of a run folder, only those that it rests on."""
    keys = _keys(source) if source.is_dir() else None
    path = source if keys is None else store
    with open_stored(path) as replies:
        n_written = export(replies, out, keys)
    typer.echo(f"{n_written:,} requests with their replies: {out}")
    if keys is not None and n_written < len(keys):
        n_absent = len(keys) - n_written
        typer.echo(f"! {n_absent:,} replies of {source} are not in {path}: --store", err=True)


def _keys(folder: Path) -> list[str]:
    answered = Run(folder).calls.filter(pl.col("error") == "")
    return answered["key"].unique(maintain_order=True).to_list()


@cache.command("prune")
def cache_prune(
    keep: Annotated[
        list[Path], typer.Option("--keep", help="Keep what this run folder rests on (repeatable).")
    ],
    store: StorePath = DEFAULT_STORE,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else only say what would go.")] = False,
) -> None:
    """Remove the replies that none of the named runs rests on, and give the space back."""
    runs = {folder: _keys(folder) for folder in keep}
    keys = [key for found in runs.values() for key in found]
    with open_stored(store) as replies:
        planned = plan_prune(replies, keys)
        for folder, found in runs.items():
            n_stored = len(stored_among(replies, found))
            typer.echo(f"{folder}: {n_stored:,} of its {len(found):,} replies are stored")
    done = prune(store, keys) if yes else planned
    typer.echo(
        f"{'removed' if yes else 'would remove'} {done.n_removed:,} replies from {store}, "
        f"{done.n_kept:,} stay{'' if yes else '; add --yes to do it'}"
    )


# --- printing a run ---------------------------------------------------------------------------


def _print_run(done: Run, study: Study) -> None:
    estimates = done.estimates
    _print("", flip_table(estimates, done.verdicts, study.contrasts))
    for warning in _warnings(done):
        _print(f"! {warning}")
    _print("", performance_table(estimates, done.views))
    for table in (accuracy_tests_table(estimates), tokens_table(estimates)):
        if table is not None:
            _print("", table)
    _print("", *verdict_lines(done.verdicts))
    _print(f"mode: {study.mode}; flip rates on complete pairs, verdicts under the strict policy")


def _warnings(done: Run) -> list[str]:
    lines = [failures_line(done.decisions)]
    notes: Mapping[str, Any] = done.environment["datasets"]
    lines += [f"{name}: {note}" for name, about in notes.items() for note in about["notes"]]
    return [line for line in lines if line]


def _print_flip(done: Run, study: Study) -> None:
    pair = flipped_pair(conditions(study), done.decisions, study.contrasts)
    if pair is None:
        _print("\nno item flipped")
        return
    _print(
        f"\nOne item that flipped ({pair.contrast.name}, {pair.contrast.about}); "
        f"people call it {pair.gold}:",
        side_by_side(pair.views, pair.prompts, [f"answer: {answer}" for answer in pair.answers]),
    )
