"""`flipmeter paper`: phases as studies, tables in the paper's form, one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import Cli
from flipmeter.api import Run
from flipmeter.errors import Problem
from flipmeter.paper.answer import answer, chosen_claims, needed_for
from flipmeter.paper.claims import paper_claims
from flipmeter.paper.evidence import PHASES, PhaseRuns
from flipmeter.paper.phases import FILES, Needed, PaperRequest, PhaseStudy
from flipmeter.paper.published import LEVELS, PIPELINES, PublishedCell, published
from flipmeter.paper.sheets import WRITERS, Sheet, SheetCell, SheetRow, all_sheets, sheet_table
from flipmeter.study.entries import ModelEntry

Row = dict[str, Any]


def residual(value: float | None, **more: Any) -> Row:
    about = {"low": None, "high": None, "dataset_sd": 0.5, "n_datasets": 2, "n": 40, "failed": 1}
    return {"value": value, "note": "", **about, **more}


# --- phases as studies ----------------------------------------------------------------------------


def jobs(**keys: Any) -> list[PhaseStudy]:
    return list(PaperRequest(**keys).jobs())


def test_a_model_may_be_an_entry_with_options() -> None:
    entry = {"model": "sim/honest", "name": "mine", "interface": "chat"}
    (job,) = jobs(models=[entry], needed=Needed(phases=("phase0a",)))
    (model,) = job.study.models
    assert isinstance(model, ModelEntry)
    assert (job.model, model.interface) == ("mine", "chat")


def test_every_model_goes_through_every_phase_before_the_next_is_loaded() -> None:
    found = [(job.model, job.phase) for job in jobs(models=("sim/honest", "sim/noisy"))]
    assert found == [(model, phase) for model in ("sim/honest", "sim/noisy") for phase in PHASES]


def test_a_study_has_one_model() -> None:
    assert {len(job.study.models) for job in jobs(models=("sim/honest", "sim/noisy"))} == {1}


def test_the_bundled_reviews_stand_in_for_data_that_is_not_there() -> None:
    assert {name for job in jobs() for name in job.study.datasets} == {"reviews"}
    assert PaperRequest().stands_in


def test_a_small_size_is_a_few_items_of_one_dataset(tmp_path: Path) -> None:
    found = jobs(data_dir=tmp_path)
    assert {str(name) for job in found for name in job.study.datasets} == {"sst5"}
    assert max(job.study.test_size for job in found) < 20
    assert {len(job.study.seeds) for job in found} == {1}


def test_replies_of_a_small_size_are_short_in_every_phase() -> None:
    """Raw text has no end of its own in the paper's mode, which allows 512 tokens in Phase 0."""
    assert {job.study.decoding.max_tokens for job in jobs()} == {8}


def test_a_small_size_says_that_it_is_not_the_papers() -> None:
    def perform(job: PhaseStudy) -> Run:
        raise Problem("no key")

    notes = {size: answer(PaperRequest(size=size), [], perform).notes for size in ("small", "full")}
    assert any("small size" in note for note in notes["small"])
    assert not any("small size" in note for note in notes["full"])


def test_the_full_size_is_the_papers(tmp_path: Path) -> None:
    by_phase = {job.phase: job.study for job in jobs(size="full", data_dir=tmp_path)}
    assert {study.test_size for study in by_phase.values()} == {200}
    assert len(by_phase["phase1"].datasets) == 5
    assert by_phase["phase1"].seeds == [0, 1, 42]
    assert {study.mode for study in by_phase.values()} == {"paper"}


def test_the_papers_own_models_are_those_of_its_studies(tmp_path: Path) -> None:
    found = jobs(models=("paper",), size="full", data_dir=tmp_path)
    assert sum(job.phase == "phase0a" for job in found) == 10
    phase1 = [job for job in found if job.phase == "phase1"]
    assert [bool(job.study.vary) for job in phase1] == [True] + [False] * 7


def test_a_limit_holds_in_every_phase() -> None:
    assert {job.study.test_size for job in jobs(limit=3)} == {3}


def test_a_claim_alone_asks_only_its_levels_and_probes() -> None:
    found = jobs(needed=needed_for(["words-raise-p1"]))
    assert [job.phase for job in found] == ["phase1"]
    assert found[0].study.vary == {"label_format": ["natural_language"]}
    assert found[0].study.probes == ["label_order"]


def test_a_config_alone_is_kept() -> None:
    (job,) = jobs(needed=needed_for(["configs-trade-probes"]))
    assert list(job.study.configs) == ["P2a"]


def test_a_claim_about_all_levels_asks_them_all() -> None:
    (job,) = jobs(needed=needed_for(["only-fewer-classes"]))
    assert len(job.study.levels()) == 17


def test_pipelines_that_need_probabilities_can_be_left_out() -> None:
    (job,) = (job for job in jobs() if job.phase == "phase2a")
    left = set(job.study.vary["pipeline"]) - set(job.without_scores().study.vary["pipeline"])
    assert {"pointwise+pride", "pointwise+contextual", "pointwise+batch@recommended"} <= left
    assert "pairwise" not in left


def test_every_phase_has_a_study_and_every_claim_a_phase() -> None:
    assert set(FILES) == set(PHASES)
    assert {paper_claims[name].phase for name in paper_claims} == set(PHASES)


def test_an_unknown_claim_names_the_nearest() -> None:
    with pytest.raises(Problem, match="did you mean 'words-raise-p1'"):
        chosen_claims(["words-raises-p1"])


# --- rows and cells -----------------------------------------------------------------------------


def test_every_printed_row_has_a_level_or_is_a_model() -> None:
    for table, names in (("phase1_residuals", LEVELS), ("phase2_pipeline", PIPELINES)):
        rows = published(table).select(pl.nth(0, 1)).unique().rows()
        assert {row for row in rows if row[0] != "Model"} == set(names)


def test_a_cell_shows_paper_here_difference_and_interval() -> None:
    right = residual(1.0, low=-2.0, high=4.0)
    cell = SheetCell(PublishedCell(2.2, 2.72, "+2.20 ± 2.72"), residual(1.5), right)
    assert cell.lines() == [
        "paper +2.20 ± 2.72",
        "here +1.50 ± 0.50",
        "diff. -0.70",
        "95 % +1.00 [-2.00, +4.00]",
    ]


def test_one_dataset_has_no_spread() -> None:
    assert SheetCell(None, residual(1.5, n_datasets=1)).lines() == ["here +1.50"]


def test_a_cell_without_a_measurement_shows_the_paper_alone() -> None:
    assert SheetCell(PublishedCell(1.0, None, "+1.00"), residual(None)).lines() == ["paper +1.00"]


def test_absolute_numbers_have_three_decimals_and_no_sign() -> None:
    cell = SheetCell(PublishedCell(0.5, None, "0.500"), residual(0.25, n_datasets=1), form=".3f")
    assert cell.lines() == ["paper 0.500", "here 0.250", "diff. -0.250"]


@pytest.fixture
def sheet() -> Sheet:
    cells = (SheetCell(PublishedCell(2.2, None, "+2.20"), residual(1.5)), SheetCell(text="a_b & c"))
    rows = [SheetRow(("Mood", "q|r_s"), cells)]
    return Sheet("x y/z", "Title", ("factor", "level"), ("Acc.", "n"), rows, ("a note",))


@pytest.mark.parametrize("ending", list(WRITERS))
def test_a_sheet_is_written_in_every_form(sheet: Sheet, ending: str) -> None:
    text = WRITERS[ending](sheet)
    assert "2.2" in text
    assert "1.5" in text


def test_names_are_escaped_where_they_would_act(sheet: Sheet) -> None:
    assert r"q\|r\_s" in WRITERS[".md"](sheet)
    assert r"a\_b \& c" in WRITERS[".tex"](sheet)
    assert sheet.file_name == "x-y-z"


def test_a_grid_of_the_page_sorts_by_what_was_measured(sheet: Sheet) -> None:
    cell = sheet_table(sheet).groups[0].rows[0][2]
    assert cell.sort == 1.5


def test_the_csv_has_a_row_for_each_number(sheet: Sheet) -> None:
    frame = sheet.frame()
    assert frame["number"].to_list() == ["Acc.", "n"]
    assert frame["difference"][0] == pytest.approx(-0.7)


# --- without a run --------------------------------------------------------------------------------


def test_without_a_run_the_tables_are_the_papers() -> None:
    names = {sheet.name: len(sheet.rows) for sheet in all_sheets(PhaseRuns({}))}
    assert names == {"phase0": 10, "tokens": 10, "phase2 joint": 20, "phase2 transfer": 15}


def test_a_model_that_cannot_be_asked_is_a_note_and_no_end() -> None:
    def perform(job: PhaseStudy) -> Run:
        raise Problem("no key in OPENAI_API_KEY")

    found = answer(PaperRequest(models=("openai/gpt-x",)), ["every-probe-flips"], perform)
    assert found.decided == []
    assert any("phase1: openai/gpt-x: no key" in note for note in found.notes)


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole command on two simulated raters, once for the tests below."""
    from flipmeter.cli.paper import paper

    folder = tmp_path_factory.mktemp("paper")
    paper(
        models=["sim/noisy", "sim/first-slot"],
        limit=6,
        out=folder / "out",
        store=folder / "replies.sqlite",
    )
    return folder / "out"


def test_every_claim_is_decided_for_both_raters(answered: Path) -> None:
    records = json.loads((answered / "claims.json").read_text(encoding="utf-8"))
    assert {record["claim"] for record in records} == set(paper_claims)
    assert {record["rater"] for record in records} == {"sim/noisy", "sim/first-slot"}
    assert all(record["word"] and record["reason"] for record in records)


def test_every_table_is_there_in_four_forms(answered: Path) -> None:
    stems = {path.stem for path in (answered / "tables").iterdir()}
    assert {"phase0", "tokens", "phase2-joint", "phase2-transfer"} <= stems
    assert {"phase1-sim-noisy", "phase2-pipelines-sim-noisy", "configs-sim-noisy"} <= stems
    endings = {path.suffix for path in (answered / "tables").iterdir()}
    assert endings == set(WRITERS)


def test_measured_numbers_stand_beside_the_papers(answered: Path) -> None:
    table = pl.read_csv(answered / "tables" / "phase1-sim-noisy.csv", infer_schema_length=None)
    row = table.filter(factor="Scale cardinality", level="3-way", number="P1").row(0, named=True)
    assert row["paper"] == -16.33
    assert row["difference"] == pytest.approx(row["here"] + 16.33)
    assert row["low"] <= row["value"] <= row["high"]


def test_the_joint_table_has_absolute_numbers_of_both_raters(answered: Path) -> None:
    table = pl.read_csv(answered / "tables" / "phase2-joint.csv", infer_schema_length=None)
    ours = table.filter(pl.col("model").str.starts_with("sim/"), number="Acc.")
    assert set(ours["config"]) == {"baseline", "A", "P1", "P2a", "P2b"}
    assert ours["here"].is_between(0, 1).all()


def test_phase_0_has_n_and_faults(answered: Path) -> None:
    text = (answered / "tables" / "phase0.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| sim/noisy")]
    assert line.endswith("| 6 | 0 |")


def test_the_page_is_one_file_that_says_what_stands_in(answered: Path) -> None:
    page = (answered / "paper.html").read_text(encoding="utf-8")
    assert "the bundled reviews stand in" in page
    assert "src=" not in page
    assert page.count("<table") >= 10


def test_the_page_begins_with_a_word_for_every_claim_and_rater(answered: Path) -> None:
    page = (answered / "paper.html").read_text(encoding="utf-8")
    records = json.loads((answered / "claims.json").read_text(encoding="utf-8"))
    first = page[page.index("<tbody") : page.index("</tbody")]
    assert first.count("<tr") == len(list(paper_claims))
    assert first.count('class="word ') == len(records)
    before = page[: page.index("<table")]
    for rater in ("sim/noisy", "sim/first-slot"):
        held = sum(one["rater"] == rater and one["word"] == "holds" for one in records)
        sentence = before[before.index(f"{rater}: of {len(list(paper_claims))} claims ") :]
        assert (f" {held} hold" in sentence.partition(".")[0]) == bool(held)


def test_runs_that_exist_are_answered_without_asking(
    answered: Path, cli: Cli, tmp_path: Path
) -> None:
    run = answered / "runs" / "phase1" / "sim-noisy"
    words = ("--run", f"phase1={run}", "--only", "words-raise-p1", "--json")
    code, out, err = cli("paper", *words, "--out", str(tmp_path / "p"))
    assert code == 0, err
    assert [record["rater"] for record in json.loads(out)["claims"]] == ["sim/noisy"]


def test_a_plan_has_a_row_for_every_phase_and_asks_nothing(cli: Cli, tmp_path: Path) -> None:
    words = ("--plan", "--limit", "4", "--offline", "--json", "--store", str(tmp_path / "r.sqlite"))
    code, out, err = cli("paper", "-m", "sim/honest", *words)
    assert code == 0, err
    assert [row["model"].split(":")[0] for row in json.loads(out)["models"]] == list(PHASES)
    assert not (tmp_path / "r.sqlite").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--size", "smal"), "did you mean 'small'"),
        (("--run", "runs/x"), "write PHASE=FOLDER"),
        (("--only", "words"), "no claim of the paper named 'words'"),
    ],
)
def test_a_wrong_word_is_named(cli: Cli, words: tuple[str, str], message: str) -> None:
    code, _, err = cli("paper", *words)
    assert code == 2
    assert message in err
