"""CONTRIBUTING: its snippets register parts that a study can use, and name files that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, Cli

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## How to add a part")[2]
SECTIONS = [part for part in re.split(r"^(?=\*\*)", PAGE, flags=re.M) if "```python" in part]
SNIPPETS = {
    re.findall(r"\*\*(.+?)\*\*", part)[0]: re.findall(r"```python\n(.*?)```", part, re.S)[0]
    for part in SECTIONS
}
STUDY: dict[str, Any] = {
    "name": "snippet",
    "models": ["sim/first-slot"],
    "datasets": ["reviews"],
    "test_size": 12,
    "probes": ["label_order"],
    "repeats": 1,
    "base": {"shots": 1},
}
USES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Level of a prompt factor": ("factors", "roman", {"base": {"label_format": "roman"}}),
    "Probe": ("probes", "middle_first", {"probes": ["middle_first"]}),
    "Order of the demonstrations": ("demo-orders", "backwards", {}),
    "Dataset": ("datasets", "tone", {"datasets": ["tone"]}),
    "Backend": ("backends", "constant", {"models": ["constant/x"]}),
    "Aggregator": ("aggregators", "nearest_tie", {"pipeline": "pairwise+nearest_tie"}),
    "Debiaser": ("debiasers", "first_slot", {"pipeline": "pointwise+first_slot"}),
    "Pipeline": ("pipelines", "parrot", {"pipeline": "parrot"}),
    "Aspect": ("aspects", "sizes", {}),
    "Metric": ("metrics", "within_one", {}),
    "Report section": ("sections", "per_rater", {}),
    "Gate limit": ("limits", "far", {}),
}
"""By kind: where the snippet's part is listed, its name, and how a study uses it."""
AFTERWARDS = {
    "Aspect": ("measure", "runs/snippet", "--show", "sizes"),
    "Metric": ("measure", "runs/snippet", "--show", "scores"),
    "Report section": ("measure", "runs/snippet"),
    "Gate limit": ("check", "runs/snippet", "--gate", "gate.yaml"),
}
"""By kind: what is done with the run, where a study alone does not use the part."""
SHOWN = {
    "Aspect": "items compared",
    "Metric": "within one class",
    "Report section": "Decisions by rater",
    "Gate limit": "far < 99.0 %",
}


@pytest.fixture
def tone(tmp_path: Path) -> Path:
    """The files of the dataset that a snippet describes."""
    folder = tmp_path / "data" / "tone"
    folder.mkdir(parents=True)
    for split in ("test", "train"):
        rows = [f"{1 + n % 3}\tA {split} message, number {n}." for n in range(30)]
        (folder / f"{split}.tsv").write_text("\n".join(rows), encoding="utf-8")
    return folder.parent


def test_every_snippet_is_used() -> None:
    assert [*SNIPPETS] == [*USES]


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize("kind", [*SNIPPETS])
def test_a_snippet_registers_a_part_that_is_listed_and_works_in_a_study(
    cli: Cli, tmp_path: Path, tone: Path, kind: str
) -> None:
    listed, name, use = USES[kind]
    assert name not in cli("list", listed)[1]
    exec(compile(SNIPPETS[kind], kind, "exec"), {"__name__": "snippet"})  # noqa: S102
    assert name in cli("list", listed)[1]
    (tmp_path / "study.json").write_text(json.dumps(STUDY | use))
    code, _, err = cli("run", "study.json", "--data-dir", str(tone), "--anyway")
    assert code == 0, err
    (tmp_path / "gate.yaml").write_text("far: 0.99")
    if kind in AFTERWARDS:
        code, out, err = cli(*AFTERWARDS[kind])
        assert code == 0, err
        assert SHOWN[kind] in out


@pytest.mark.parametrize("section", SECTIONS, ids=[*SNIPPETS])
def test_a_section_names_one_source_file_or_room_that_exists(section: str) -> None:
    named = re.findall(r"`(src/flipmeter/[^`]+)`", section)
    assert len(named) == 1
    assert (ROOT / named[0]).exists()
