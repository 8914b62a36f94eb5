"""The verbs, as a user types them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.cli import VERBS, about
from flipmeter.run.folder import Run
from flipmeter.run.progress import Meter
from flipmeter.types import Message, Reply, Request, Script
from forked import CONSOLE, Forked

Write = Callable[[str, str], Path]
Cli = Callable[..., tuple[int, str, str]]

TICKETS = "body,severity\n" + "".join(
    f"ticket number {k} about thing {k * 7 % 11},{('low', 'medium', 'high')[k % 3]}\n"
    for k in range(60)
)
STUDY = """
name: tickets
models: [sim/first-slot]
datasets: [{file: tickets.csv, text: body, label: severity, scale: [low, medium, high]}]
test_size: 24
base: {shots: 2}
"""


@pytest.fixture
def tickets(write: Write) -> Path:
    write("tickets.csv", TICKETS)
    return write("tickets.yaml", STUDY)


def test_a_users_own_file_gives_a_table_and_a_run_folder(cli: Cli, tickets: Path) -> None:
    code, out, _ = cli("run", str(tickets))
    assert code == 0
    assert "P1 label list reversed" in " ".join(out.split())
    assert "run folder: runs/tickets" in out
    assert Run(Path("runs/tickets")).decisions.height == 24 * 7 + 2 * 20


def test_a_run_says_which_rows_it_left_out(cli: Cli, write: Write) -> None:
    bad = ",low\nan odd one,purple\nno label,\n"
    write("tickets.csv", TICKETS + bad)
    study = write("tickets.yaml", STUDY.replace("high]}", "high], on_bad: drop}"))
    _, out, _ = cli("run", str(study))
    wanted = "! tickets: rows left out: 1 empty, 1 no label, 1 unknown label"
    assert wanted in out
    assert wanted in cli("measure", "runs/tickets")[1]


def test_a_second_run_asks_nothing_and_says_the_same(cli: Cli, tickets: Path) -> None:
    first = cli("run", str(tickets))
    with Store(Path(".flipmeter/replies.sqlite")) as store:
        n_replies = len(store)
    assert cli("run", str(tickets)) == first
    assert Run(Path("runs/tickets")).environment["asked"]["asked"] == 0
    with Store(Path(".flipmeter/replies.sqlite")) as store:
        assert len(store) == n_replies


def test_progress_without_a_terminal_has_the_time_left_and_the_flips_so_far(
    cli: Cli, tickets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flipmeter.run.progress.QUIET_SECONDS", -1.0)
    _, _, err = cli("run", str(tickets), "--set", "probes=[label_order]")
    lines = [line for line in err.splitlines() if "asking: " in line]
    form = r"flipmeter: asking: [\d,]+ of [\d,]+, [\d.]+/s, about [\d.,]+ (s|min|h|days) left"
    assert lines
    assert all(re.match(form, line) for line in lines[5:])
    assert not any(" left" in line for line in lines[:4])  # a first reply tells no speed
    row = Run(Path("runs/tickets")).verdicts.filter(contrast="P1").row(0, named=True)
    n_flips = round(row["value"] * 24)
    assert lines[-1].endswith(f"; P1: {n_flips} of 24 differ so far")


def test_the_time_left_does_not_count_the_test_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    meter = Meter(Ledger(wanted=100, asked=20))
    now = 600.0
    meter.on_test(43, 43)
    now = 610.0
    monkeypatch.setattr("flipmeter.run.progress.QUIET_SECONDS", 5.0)
    meter.on_reply(Request("m", Script.of([Message("user", "?")])), Reply("1"))
    assert "20 of 100, 2.0/s, about 40 s left" in capsys.readouterr().err


def test_measure_prints_the_same_numbers_for_a_machine(cli: Cli, tickets: Path) -> None:
    cli("run", str(tickets))
    code, out, _ = cli("measure", "runs/tickets", "--json")
    rows = json.loads(out)["estimates"]
    p1 = next(r for r in rows if r["metric"] == "P1" and r["policy"] == "complete")
    assert code == 0
    assert p1["n"] == 24
    assert 0 < p1["low"] < p1["value"] < p1["high"] < 1


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_measure_writes_all_estimates(cli: Cli, tickets: Path, suffix: str) -> None:
    cli("run", str(tickets))
    assert cli("measure", "runs/tickets", "--out", f"all.{suffix}")[0] == 0
    read = pl.read_csv if suffix == "csv" else pl.read_parquet
    assert read(f"all.{suffix}").height == Run(Path("runs/tickets")).estimates.height


def test_a_run_that_cannot_start_leaves_the_last_one_alone(cli: Cli, tickets: Path) -> None:
    cli("run", str(tickets))
    before = cli("measure", "runs/tickets")
    assert cli("run", str(tickets), "-m", "http/nobody", "--set", "probes=[label_order]")[0] == 2
    assert cli("measure", "runs/tickets") == before


def test_plan_sends_nothing_and_counts_what_is_shared(cli: Cli, tickets: Path) -> None:
    code, out, _ = cli("plan", str(tickets), "--json")
    numbers = json.loads(out)
    assert code == 0
    assert numbers["conditions"] == 9
    assert numbers["distinct"] == 24 * 7 + 2 * 20
    assert numbers["prompt_tokens_new"] < numbers["prompt_tokens"] / 2
    new = numbers["prompt_tokens_new"] / numbers["prompt_tokens"]
    assert numbers["saved_by_prefix_order"] == pytest.approx(1 - new)
    assert numbers["saved_by_dedupe"] == 0
    assert not Path(".flipmeter").exists()


def test_plan_says_which_share_is_saved(cli: Cli, tickets: Path) -> None:
    # Words that no header lists: the reversed prompts are those of base.
    words = ("--set", "base={label_format: natural_language, clarity: minimal, shots: 1}")
    probe = ("--set", "probes=[label_order]", "--set", "repeats=1")
    _, out, _ = cli("plan", str(tickets), *words, *probe)
    assert re.search(r"prompts saved by sending each distinct request once\W+50\.0 %", out)
    assert re.search(r"prompt tokens saved by prefix order\W+\d+\.\d %", out)


def test_plan_knows_what_is_stored(cli: Cli, tickets: Path) -> None:
    cli("run", str(tickets))
    numbers = json.loads(cli("plan", str(tickets), "--json")[1])
    assert numbers["stored"] == numbers["distinct"]


def test_show_marks_what_differs(cli: Cli, tickets: Path) -> None:
    code, out, _ = cli("try", str(tickets), "--dry", "--view", "reversed")
    assert code == 0
    assert "«high»" in out
    assert "«low»" in out
    assert "ascending" not in out


def test_show_prints_the_base_alone_where_it_is_asked_for(cli: Cli, tickets: Path) -> None:
    code, out, _ = cli("try", str(tickets), "--dry", "--view", "base")
    assert code == 0
    assert "ticket number" in out
    assert "reversed" not in out
    content = json.loads(cli("try", str(tickets), "--dry", "--view", "base", "--json")[1])
    assert list(content["prompts"]) == ["base"]


def test_list_names_what_a_study_may_use(cli: Cli) -> None:
    out = cli("list")[1]
    assert all(name in out for name in ("sst5", "reviews", "local/smollm2-135m", "label_order"))


def test_the_phase_0_table_has_the_papers_columns(cli: Cli, tickets: Path) -> None:
    cli("run", str(tickets))
    out = cli("paper", "--phase0", "--run", "phase0b=runs/tickets")[1]
    assert all(name in out for name in ("P1", "P2", "P3", "noise", "total", "McNemar p", "Sig."))


@pytest.fixture
def two_runs(cli: Cli, tickets: Path) -> tuple[str, str]:
    """A run that flips often, and one of a rater that has another rate."""
    greedy = ("--set", "models=[{model: 'sim/first-slot?strength=9', name: rater}]")
    assert cli("run", str(tickets), "--out", "greedy", *greedy)[0] == 0
    stochastic = ("--set", "models=[{model: sim/noisy, name: rater}]")
    assert cli("run", str(tickets), "--out", "stochastic", *stochastic)[0] == 0
    return "greedy", "stochastic"


def test_the_phase_0_table_takes_its_rates_from_the_greedy_run_in_every_form(
    cli: Cli, two_runs: tuple[str, str]
) -> None:
    greedy, stochastic = two_runs
    asked = ("paper", "--phase0", "--run", f"phase0b={stochastic}", "--run", f"phase0a={greedy}")
    (row,) = json.loads(cli(*asked, "--json")[1])["phase0"]
    (alone,) = json.loads(cli(*asked[:3], f"phase0b={greedy}", "--json")[1])["phase0"]
    (noisy,) = json.loads(cli(*asked[:4], "--json")[1])["phase0"]
    assert row["P1"] == alone["P1"] != noisy["P1"]
    assert (row["noise"], row["total"]) == (noisy["noise"], noisy["P1"])
    shown = f"{row['P1']:.3f}"
    for ending in ("csv", "md", "tex", "parquet"):
        code, out, _ = cli(*asked, "--out", f"table.{ending}")
        assert code == 0
        assert shown in out
    assert pl.read_parquet("table.parquet")["P1"].to_list() == [row["P1"]]
    assert pl.read_csv("table.csv")["P1"].to_list() == [row["P1"]]
    assert shown in Path("table.md").read_text()
    assert shown in Path("table.tex").read_text()


def test_one_report_shows_both_phases_of_the_first_table(
    cli: Cli, two_runs: tuple[str, str]
) -> None:
    greedy, stochastic = two_runs
    asked = ("paper", "--phase0", "--run", f"phase0b={stochastic}")
    (row,) = json.loads(cli(*asked, "--run", f"phase0a={greedy}", "--json")[1])["phase0"]
    alone = json.loads(cli(*asked, "--json")[1])["phase0"][0]
    assert row["P1"] != alone["P1"]
    for ending in ("html", "md", "tex"):
        both = ("report", stochastic, "--greedy", greedy, "--out", f"both.{ending}")
        assert cli(*both)[0] == 0
        written = Path(f"both.{ending}").read_text()
        assert f"{row['P1']:.3f}" in written
        assert f"{row['total']:.3f}" in written


def test_runs_at_two_temperatures_are_refused_with_the_way_out(cli: Cli, tickets: Path) -> None:
    cli("run", str(tickets), "--out", "a")
    cli("run", str(tickets), "--out", "b", "--set", "decoding.temperature=0.7")
    code, _, said = cli("report", "a", "b")
    assert code == 2
    assert "--greedy" in said


def test_equal_prompts_are_not_identified(cli: Cli, tickets: Path) -> None:
    """Words and a minimal header: reversing the label list changes nothing in the prompt."""
    words = ["--set", "base={label_format: natural_language, clarity: minimal, shots: 1}"]
    out = cli("run", str(tickets), *words, "--set", "probes=[label_order]")[1]
    assert "not identified" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.yaml"], "no study file nowhere.yaml"),
        (["run", "demos"], "did you mean 'demo'"),
        (["measure", "nowhere"], "not a run folder"),
        (["list", "dataset"], "did you mean 'datasets'"),
        (["run", "tickets.yaml", "--set", "nonsense"], "write KEY=VALUE"),
        (["run", "tickets.yaml", "-m", "openai/gpt-9"], "OPENAI_API_KEY"),
        (["run", "tickets.yaml", "-d", "sst5"], "nlp.stanford.edu"),
        (["try", "tickets.yaml", "--dry", "--item", "999"], "the test set has 24 items"),
        (["try", "tickets.yaml", "--dry", "--view", "reversd"], "did you mean 'reversed'"),
        (["run", "tickets.yaml", "--set", "test_size=59"], "the largest equal test_size is 36"),
    ],
)
def test_what_is_asked_wrongly_ends_with_2_and_a_way_out(
    cli: Cli, tickets: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    for name in ("OPENAI_API_KEY", "FLIPMETER_DATA"):
        monkeypatch.delenv(name, raising=False)
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err


SLOW = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from flipmeter.data.load import load
from fake_endpoint import serve
from flipmeter.study.grid import world
from read_prompts import reading

async def go():
    backend = reading("sim/first-slot", world(load("reviews")))
    async with serve({"*": backend}, delay=0.05) as url:
        print(url, flush=True)
        await asyncio.Event().wait()

asyncio.run(go())
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_goes_on_where_it_was(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: signal.Signals
) -> None:
    server = Forked(SLOW, Path(__file__).parent, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        monkeypatch.setenv("HTTP_BASE_URL", server.stdout.readline().strip())
        command = ["run", "demo", "-m", "http/any", "--set", "probes=[label_order]"]
        command += ["--set", "repeats=1", "--set", "base={shots: 1}"]
        code, err = _interrupted([*command], tmp_path / ".flipmeter" / "replies.sqlite", stop)
        if stop is signal.SIGINT:
            assert code == 4
            assert "run the same command again" in err
        with Store(tmp_path / ".flipmeter" / "replies.sqlite") as store:
            kept = len(store)
        assert 0 < kept < 120
        assert cli(*command)[0] == 0
        asked = Run(Path("runs/demo")).environment["asked"]
        assert (asked["stored"], asked["asked"]) == (kept, 120 - kept)
    finally:
        server.kill()
        server.communicate()


def _interrupted(command: list[str], store: Path, stop: signal.Signals) -> tuple[int, str]:
    """Start a run, stop it once ten replies are stored, and return how it ended."""
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    run = Forked(CONSOLE, *command, **streams, env=os.environ | {"COLUMNS": "200"})
    while run.poll() is None:
        if store.exists():
            with Store(store) as replies:
                if len(replies) >= 10:
                    break
    run.send_signal(stop)
    _, err = run.communicate()
    return run.returncode, err


def test_a_budget_stops_a_run_cleanly_and_a_larger_one_goes_on(cli: Cli, tickets: Path) -> None:
    code, _, err = cli("run", str(tickets), "--set", "budget={calls: 50}")
    assert code == 4
    assert "budget" in err
    with Store(Path(".flipmeter/replies.sqlite")) as store:
        assert len(store) == 50
    assert cli("run", str(tickets), "--set", "budget={calls: 500}")[0] == 0
    assert Run(Path("runs/tickets")).environment["asked"]["stored"] == 50


def test_names_with_brackets_stay_what_they_are(cli: Cli, tickets: Path) -> None:
    models = "models=[{name: 'G [high]', model: sim/honest}, {name: 'G [/low]', model: sim/noisy}]"
    code, out, _ = cli("run", str(tickets), "--set", models, "--set", "probes=[label_order]")
    assert code == 0
    assert "G [high]" in out
    assert "G [/low]" in out


HEAVY = {"numpy", "polars", "scipy", "yaml", "aiohttp", "xllamacpp", "flipmeter.ask"}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(option: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "flipmeter", option],
        check=True,
        capture_output=True,
        text=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "typer" in loaded
    assert not HEAVY & loaded


def test_a_verb_starts_without_what_few_need() -> None:
    said = "import flipmeter.cli.run, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True)
    heavy = {"scipy.stats", "scipy.optimize", "torch", "transformers", "sklearn", "ray"}
    assert not heavy & set(ran.stdout.split())


def test_every_verb_is_a_module_of_its_name_and_says_what_it_does(cli: Cli) -> None:
    code, out, _ = cli("--help")
    assert code == 0
    for verb in VERBS:
        assert about(verb).endswith(".")
        assert verb in out
        assert cli(verb, "--help")[0] == 0
