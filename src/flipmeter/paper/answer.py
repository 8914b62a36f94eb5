"""PaperRequest -> Answer: run what is missing, decide every claim, lay out every table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from flipmeter.api import Run
from flipmeter.errors import Incomplete, Problem
from flipmeter.paper.claims import IN_PART, UNMEASURED, Decided, decide_claim, paper_claims
from flipmeter.paper.evidence import PHASES, Phase, PhaseRuns
from flipmeter.paper.phases import SMALL_SHOTS, STAND_IN, Needed, PaperRequest, PhaseStudy
from flipmeter.paper.sheets import Sheet, all_sheets

Perform = Callable[[PhaseStudy], Run]
SMALL_NOTE = (
    f"small size: few items, one seed, {SMALL_SHOTS} demonstrations of each class in the base (the "
    "paper: 5; Phase 2a: 1); --size full is the paper's"
)


COUNTED = {
    "holds": "hold",
    "fails": "fail",
    "not settled": "not settled",
    IN_PART: IN_PART,
    UNMEASURED: UNMEASURED,
}
"""The words for claims with their plurals, those that decide first."""


@dataclass(frozen=True)
class PaperAnswer:
    """The results: the verdict on every claim for every rater, every table, and missing parts."""

    evidence: PhaseRuns
    claims: Sequence[str]
    notes: Sequence[str] = ()

    @cached_property
    def decided(self) -> list[tuple[str, str, Decided]]:
        """Every claim with every rater and its word."""
        return [
            (name, rater, decide_claim(name, self.evidence, rater))
            for name in self.claims
            for rater in self.evidence.raters
        ]

    @cached_property
    def words(self) -> dict[str, list[str]]:
        """Every claim with its word for each rater, as a reader sees it."""
        found: dict[str, list[str]] = {}
        for name, _, decided in self.decided:
            found.setdefault(name, []).append(decided.told)
        return found

    @property
    def summaries(self) -> Iterator[str]:
        """A sentence for each rater: how many claims hold, fail, and are open."""
        for place, rater in enumerate(self.evidence.raters):
            counts = Counter(words[place] for words in self.words.values())
            told = [
                f"{counts[word]} {word if counts[word] == 1 else more}"
                for word, more in COUNTED.items()
                if counts[word]
            ]
            yield f"{rater}: of {len(self.words)} claims {', '.join(told)}."

    @cached_property
    def sheets(self) -> list[Sheet]:
        return list(all_sheets(self.evidence))

    def records(self) -> list[dict[str, Any]]:
        """The claims for a machine."""
        return [
            {
                "claim": name,
                "says": paper_claims[name].says,
                "where": paper_claims[name].where,
                "phase": paper_claims[name].phase,
                "rater": rater,
                "word": decided.word,
                "reason": decided.reason,
                "parts": [vars(part) for part in decided.parts],
            }
            for name, rater, decided in self.decided
        ]


def answer(request: PaperRequest, claims: Sequence[str], perform: Perform) -> PaperAnswer:
    """Run every job, and answer the claims with what came of it.

    A job that cannot be run (no key, no weights, no data) leaves its phase out for its model; the
    reason stands in the answer. What ends before its time ends the whole.
    """
    runs: dict[Phase, list[Path]] = {}
    missing: dict[Phase, list[str]] = {}

    def performed(job: PhaseStudy) -> Run | None:
        """The run of a job; a model without label probabilities is asked what needs none."""
        plain = job.without_scores()
        try:
            return perform(job)
        except Incomplete:
            raise
        except Problem as problem:
            is_whole = plain.study.vary == job.study.vary
            why = problem if is_whole else f"without corrections of probabilities ({problem})"
            missing.setdefault(job.phase, []).append(f"{job.model}: {why}")
            return None if is_whole else performed(plain)

    for job in request.jobs():
        if (run := performed(job)) is not None:
            runs.setdefault(job.phase, []).append(run.folder)
    told = [f"{phase}: {why}" for phase, whys in missing.items() for why in whys]
    if request.stands_in:
        told.insert(0, f"the bundled {STAND_IN} stand in for the paper's data (--data-dir)")
    if request.size == "small":
        told.insert(0, SMALL_NOTE)
    reasons = {phase: "; ".join(whys) for phase, whys in missing.items()}
    return PaperAnswer(PhaseRuns(_open_phase_runs(runs), reasons), claims, told)


def from_runs(runs: Mapping[Phase, Sequence[Path]], claims: Sequence[str]) -> PaperAnswer:
    """Answer the claims with runs that exist already."""
    return PaperAnswer(PhaseRuns(_open_phase_runs(runs)), claims)


def _open_phase_runs(runs: Mapping[Phase, Sequence[Path]]) -> dict[Phase, Run]:
    return {phase: Run(*folders) for phase, folders in runs.items() if folders}


def chosen_claims(names: Iterable[str]) -> list[str]:
    """The claims that are named, all of them where none is, in the order of the paper."""
    wanted = list(names)
    for name in wanted:
        paper_claims[name]
    ordered = sorted(paper_claims, key=lambda name: PHASES.index(paper_claims[name].phase))
    return [name for name in ordered if not wanted or name in wanted]


def needed_for(names: Sequence[str]) -> Needed:
    """The levels that some claims need; all if no claim is given.

    A claim that is not made of parts looks at all levels of its phase.
    """
    if not names:
        return Needed()
    claims = [paper_claims[name] for name in names]
    phases = tuple(phase for phase in PHASES if phase in {claim.phase for claim in claims})
    if not all(claim.parts for claim in claims):
        return Needed(phases)
    parts = [part for claim in claims for part in claim.parts]
    probes = dict.fromkeys(PROBES.get(part.metric[:2], "label_order") for part in parts)
    return Needed(phases, frozenset(part.level for part in parts), tuple(probes))


PROBES = {"P1": "label_order", "P2": "demo_order", "P3": "placement"}
