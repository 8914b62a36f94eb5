"""Phases of the paper -> studies: its own designs, with other models, data and sizes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from flipmeter.api import Study, read_study
from flipmeter.paper.evidence import PHASES, Phase
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.study.entries import ModelEntry
from flipmeter.study.forecast import Preview

Size = Literal["small", "full"]
FILES: Mapping[Phase, str] = {
    "phase0a": "phase0a",
    "phase0b": "phase0b",
    "phase1": "phase1",
    "phase2a": "phase2-pipelines",
    "phase2b": "phase2-joint",
}
STAND_IN = "reviews"
"""The bundled dataset that stands in for the paper's, which may not be redistributed."""
EMBEDDED = "local/smollm2-135m"
PAPER_MODELS = "paper"
"""The `--models` name of the paper's own: ten endpoints in Phase 0, open weights in the others."""
CHEAP = ("label_order", "demo_order")
COSTLY = re.compile(r"domain_context|pride_cyclic")
"""Pipelines that ask many times more, and that the paper has no row for."""
SMALL_SHOTS = 2
"""Demonstrations of each class in the base of a small size, which has 5 in the paper."""
FEW: Mapping[str, Any] = {"base.shots": SMALL_SHOTS, "decoding.max_tokens": 8}
CUED: Mapping[str, Any] = {
    **FEW,
    "test_size": 12,
    "seeds": [0],
    "probes": list(CHEAP),
    "decoding.stop": ["\n"],
}
SMALL: Mapping[Phase, Mapping[str, Any]] = {
    "phase0a": {**FEW, "test_size": 16},
    "phase0b": {**FEW, "test_size": 16},
    "phase1": CUED,
    "phase2a": {
        **FEW,
        "test_size": 16,
        "seeds": [0],
        "probes": list(CHEAP[:1]),
        "base.shots": 1,
    },
    "phase2b": CUED,
}
"""The changes of the small size: few items and demonstrations, one seed, short replies.

Raw text does not end by itself in the paper's mode. A line break ends what follows a cue; replies
to comparisons and behind an uncued query may begin with one.
"""


@dataclass(frozen=True)
class PhaseStudy:
    """One phase for one model: a study of its own, so that one model is in memory at a time."""

    phase: Phase
    model: str
    study: Study

    def folder(self, root: Path) -> Path:
        """The folder of its run; names of models may contain slashes."""
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", self.model).strip("-.")
        return root / "runs" / self.phase / slug

    def without_scores(self) -> PhaseStudy:
        """The job without pipelines that need label probabilities, which some models lack."""
        vary = dict(self.study.vary)
        named = [
            name for name in vary.get("pipeline", []) if not open_pipeline(name).traits.needs_scores
        ]
        study = self.study.model_copy(update={"vary": {**vary, "pipeline": named}})
        return replace(self, study=study)


@dataclass(frozen=True)
class Needed:
    """The phases to run, with their levels and probes; None is all of them."""

    phases: Sequence[Phase] = PHASES
    levels: Collection[str] | None = None
    probes: Sequence[str] | None = None

    def keys(self, phase: Phase, study: Study) -> dict[str, Any]:
        """The keys of a study that only asks what is needed; Phase 0 has one level."""
        keys: dict[str, Any] = {}
        if self.levels is not None and phase not in ("phase0a", "phase0b"):
            vary = {
                factor: [value for value in values if f"{factor}={value}" in self.levels]
                for factor, values in study.vary.items()
            }
            keys["vary"] = {factor: values for factor, values in vary.items() if values}
            keys["configs"] = {
                name: config
                for name, config in study.configs.items()
                if f"config={name}" in self.levels
            }
        if self.probes is not None:
            keys["probes"] = list(self.probes)
        return keys


@dataclass(frozen=True)
class PaperRequest:
    """The user's request: models, data, size, and the claims to test."""

    models: Sequence[str | Mapping[str, Any]] = (EMBEDDED,)
    size: Size = "small"
    needed: Needed = Needed()
    datasets: Sequence[str] = ()
    data_dir: Path | None = None
    limit: int | None = None

    @property
    def stands_in(self) -> bool:
        """Whether the bundled reviews take the place of the paper's data."""
        return not self.datasets and self.data_dir is None

    def jobs(self) -> Iterator[PhaseStudy]:
        """Every model through every phase, a model at a time."""
        by_phase = {phase: self._entries(phase) for phase in self.needed.phases}
        titles = [_model_entry_title(entry) for entries in by_phase.values() for entry in entries]
        for model in dict.fromkeys(titles):
            for phase, entries in by_phase.items():
                for place, entry in enumerate(entries):
                    if _model_entry_title(entry) == model:
                        yield PhaseStudy(
                            phase, model, self._study(phase, entry, is_first=place == 0)
                        )

    def _entries(self, phase: Phase) -> list[Any]:
        """The models of a phase, the paper's own where these are asked for."""
        found: list[Any] = []
        for model in self.models:
            own = read_study(FILES[phase]).models if model == PAPER_MODELS else [model]
            found += [_study_file_entry(entry) for entry in own]
        return found

    def _study(self, phase: Phase, entry: Any, *, is_first: bool) -> Study:
        changes: dict[str, Any] = {"models": [entry], **self._data(phase)}
        if self.size == "small":
            changes |= SMALL[phase]
        study = read_study(FILES[phase], changes, data_dir=self.data_dir)
        update: dict[str, Any] = {"vary_models": []}
        if phase == "phase1" and not is_first and PAPER_MODELS in self.models:
            update["vary"] = {}  # as in the paper: other models are a factor, at the base
        if phase == "phase2a" and self.size == "small":
            named = study.vary["pipeline"]
            update["vary"] = {"pipeline": [name for name in named if not COSTLY.search(name)]}
        study = study.model_copy(update=update)
        study = study.model_copy(update=self.needed.keys(phase, study))
        return study if self.limit is None else study.limited(self.limit)

    def _data(self, phase: Phase) -> dict[str, Any]:
        if self.datasets:
            return {"datasets": list(self.datasets)}
        if self.data_dir is None:
            return {"datasets": [STAND_IN]}
        return {"datasets": ["sst5"]} if self.size == "small" else {}


def plan_of(jobs: Iterable[PhaseStudy], **options: Any) -> Preview:
    """The requests of all jobs, a row per phase and model; phases share some requests."""
    seen = [(job, job.study.plan(**options)) for job in jobs]
    forecasts = (
        replace(forecast, model=f"{job.phase}: {forecast.model}")
        for job, one in seen
        for forecast in one.forecasts
    )
    notes = dict.fromkeys(note for _, one in seen for note in one.notes)
    return Preview(
        n_conditions=sum(one.n_conditions for _, one in seen),
        forecasts=tuple(forecasts),
        name="the paper",
        notes=("requests that phases share are asked once and counted in each", *notes),
        n_repeats=sum(one.n_repeats for _, one in seen),
    )


def _study_file_entry(entry: str | Mapping[str, Any] | ModelEntry) -> Any:
    """An entry as a study file has it."""
    return entry.model_dump(exclude_defaults=True) if isinstance(entry, ModelEntry) else entry


def _model_entry_title(entry: Any) -> str:
    return entry if isinstance(entry, str) else str(entry.get("name") or entry["model"])
