"""The verb paper: the paper's claims and errors, answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from flipmeter.api import STORE, Run
from flipmeter.ask.pool import Ledger
from flipmeter.ask.prices import read_prices
from flipmeter.cli.asking import resumable
from flipmeter.cli.consoles import INCOMPLETE, errors, fail, say
from flipmeter.cli.options import (
    AsJson,
    Data,
    DataDir,
    Limit,
    Offline,
    Prices,
    Rate,
    StorePath,
    TokensPerSecond,
    TrustCode,
    TrustHosts,
    out_option,
    run_folder,
    spare,
    verb,
)
from flipmeter.cli.output import Output, finish, heading, print_json
from flipmeter.errors import Problem
from flipmeter.files import inside, write_output
from flipmeter.paper.answer import PaperAnswer, answer, chosen_claims, from_runs, needed_for
from flipmeter.paper.answer_page import claims_tables, errata_markdown, errata_tables, write_answer
from flipmeter.paper.errata import shown_errata
from flipmeter.paper.evidence import PHASES, Phase
from flipmeter.paper.phases import EMBEDDED, PaperRequest, PhaseStudy, Size, plan_of
from flipmeter.registry import suggestion
from flipmeter.show.estimate_tables import phase0_view, warned, write_phase0
from flipmeter.study.forecast import Speed

app = verb()

PaperModels = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Ask this model, or `paper` for the paper's own (repeatable); default: the "
        "embedded one.",
    ),
]
PaperSize = Annotated[
    str,
    typer.Option(metavar="SIZE", help="Small takes minutes; full is the size of the paper."),
]
OnlyNames = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Only this claim, or with --errata this erratum (repeatable)."
    ),
]
ShowErrata = Annotated[
    bool, typer.Option("--errata", help="Show each error of the paper on honest raters.")
]
ShowPhase0 = Annotated[
    bool,
    typer.Option(
        "--phase0",
        help="Print the paper's first table of --run phase0b=RUN instead; P1, P2 and P3 come from "
        "--run phase0a=RUN if given.",
    ),
]
PlanOnly = Annotated[
    bool, typer.Option("--plan", help="Print requests, prices and hours; call no model.")
]
NamedRuns = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        metavar="PHASE=FOLDER",
        help="Use an existing run: phase1=runs/mine (repeatable).",
    ),
]
PaperOut = Annotated[
    Path | None,
    out_option(
        "The folder; default: runs/paper. A file with --errata (.md) or --phase0 (.csv, "
        ".parquet, .md, .tex)."
    ),
]


@app.command()
def paper(
    models: PaperModels = None,
    size: PaperSize = "small",
    only: OnlyNames = None,
    is_errata: ShowErrata = False,
    is_phase0: ShowPhase0 = False,
    is_plan: PlanOnly = False,
    runs: NamedRuns = None,
    dataset: Data = None,
    data_dir: DataDir = None,
    limit: Limit = None,
    prices: Prices = None,
    offline: Offline = False,
    rate: Rate = None,
    tokens_per_second: TokensPerSecond = None,
    out: PaperOut = None,
    store: StorePath = STORE,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Answer the paper: run its phases, decide its claims, lay its tables beside ours."""
    if is_errata:
        _show_errata(only or [], out, as_json=as_json)
        return
    if is_phase0:
        _show_phase0(_named_runs(runs or []), out, as_json=as_json)
        return
    if size not in ("small", "full"):
        raise Problem(f"no size named '{size}'{suggestion(size, ['small', 'full'])}")
    claims = chosen_claims(only or [])
    request = PaperRequest(
        models=tuple(models or [EMBEDDED]),
        size=cast(Size, size),
        needed=needed_for(only or []),
        datasets=tuple(dataset or []),
        data_dir=data_dir,
        limit=limit,
    )
    if is_plan:
        listed = None if prices is None else read_prices(prices)
        speed = Speed(rate, tokens_per_second)
        jobs = request.jobs()
        seen = plan_of(jobs, store=store, prices=listed, is_offline=offline, speed=speed)
        finish(seen.as_dict(), *seen.tables(), as_json=as_json)
        return
    folder = run_folder(out, "paper")
    existing = _named_runs(runs or [])
    found = (
        from_runs(existing, claims) if existing else _run_paper_jobs(request, claims, folder, store)
    )
    page = write_answer(found, folder)
    if as_json:
        print_json({"claims": found.records(), "notes": list(found.notes), "page": str(page)})
        return
    say(*claims_tables(found))
    say(f"\npage: {page}", f"tables: {folder / 'tables'}")


def _show_phase0(runs: dict[Phase, list[Path]], out: Path | None, *, as_json: bool) -> None:
    if "phase0b" not in runs:
        raise Problem("--phase0 needs a run with repeats; add --run phase0b=RUN")
    spare(out, *(folder for folders in runs.values() for folder in folders))
    done = Run(*runs["phase0b"])
    greedy = Run(*runs["phase0a"]) if "phase0a" in runs else None
    table = done.phase0(greedy)
    named = {"": done} if greedy is None else {" (greedy)": greedy, " (stochastic)": done}
    remarks = {
        f"{rater}{which}": told
        for which, run in named.items()
        for rater, told in run.source.remarks.items()
    }
    warnings = {rater: "; ".join(map(str, told)) for rater, told in remarks.items()}
    Output(out, as_json=as_json).show(
        heading(done) | {"warnings": warnings},
        {"phase0": table},
        lambda: say("", warned(phase0_view(table, done.study.mode), remarks)),
        write=write_phase0,
    )


def _run_paper_jobs(
    request: PaperRequest, claims: Sequence[str], folder: Path, store: Path
) -> PaperAnswer:
    """Run every job, each with its progress; one that is not whole ends with its exit code."""
    ledger, stopped = Ledger(), list[str]()

    def perform(job: PhaseStudy) -> Run:
        errors().print(f"{job.phase}: {job.model}")
        done = job.study.run(
            inside(job.folder(folder), folder), store=store, ledger=ledger, is_quiet=False
        )
        stopped.extend([f"{job.phase}, {job.model}: {done.stopped}"] if done.stopped else [])
        return done

    with resumable(ledger, store):
        found = answer(request, claims, perform)
    if stopped:
        fail("; ".join(stopped), INCOMPLETE)
    return found


def _named_runs(runs: Sequence[str]) -> dict[Phase, list[Path]]:
    found: dict[Phase, list[Path]] = {}
    for text in runs:
        name, equals, folder = text.partition("=")
        if not equals or name not in PHASES:
            raise Problem(f"--run {text!r}: write PHASE=FOLDER; phases are {', '.join(PHASES)}")
        found.setdefault(name, []).append(Path(folder))
    return found


def _show_errata(names: list[str], out: Path | None, *, as_json: bool) -> None:
    if out is not None and out.suffix != ".md":
        raise Problem(f"cannot write {out}: errata are written as Markdown (.md)")
    if out is None and not as_json:
        for one in shown_errata(names):
            say(*errata_tables(one))
        return
    found = list(shown_errata(names))
    if out is not None:
        write_output(out, errata_markdown(found))
    if as_json:
        print_json({"errata": [one.record() for one in found]})
    elif out is not None:
        typer.echo(f"errata: {out}")
