"""Study -> a batch to upload, and its results -> the store: what a run then need not ask."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from flipmeter.ask.batch import (
    MOST_REQUESTS,
    BatchEntry,
    BatchFile,
    Results,
    form_for,
    forms_in,
    read_batch,
    read_results,
    result_files,
    write_batch,
)
from flipmeter.ask.capabilities import needs
from flipmeter.ask.endpoints import has_endpoint
from flipmeter.ask.names import caching_of, identity_of
from flipmeter.ask.plan import plan
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.redaction import references
from flipmeter.run.conditions import Known, adapted, recall
from flipmeter.run.rate import Rating, Seat, lots, seat
from flipmeter.study.file import Study
from flipmeter.study.grid import conditions
from flipmeter.types import Condition, Request, canonical_json

LOT = 10_000
"""Number of replies stored at a time."""


@dataclass(frozen=True)
class Exported:
    """The files of a batch, which round of asking they are, and what a user must know."""

    files: tuple[BatchFile, ...]
    round: int
    notes: tuple[str, ...]

    @property
    def n_requests(self) -> int:
        return sum(file.n_requests for file in self.files)


def export_batch(
    study: Study,
    folder: Path,
    store: Store,
    *,
    most_requests: int = MOST_REQUESTS,
    most_bytes: int | None = None,
) -> Exported:
    """Write what a study has to ask now and is not stored; nothing is written if that is nothing.

    A pipeline that looks at answers before it asks again is exported round by round.
    """
    grid = conditions(study)
    remote = [condition for condition in grid if has_endpoint(condition.rater.model)]
    if not remote:
        raise Problem(
            "no model of the study has an endpoint; flipmeter run asks the models in this "
            "process and needs no batch"
        )
    known = recall(remote, store)
    notes = _batch_notes(grid, remote, known)
    fitted, _ = adapted(remote, known)
    seats = dict.fromkeys(seat(condition) for condition in fitted)
    identities = {(model, dataset): identity_of(model) for model, dataset in seats}
    models = {identities[place]: place[0] for place in seats}
    missing, n_rounds = _missing_requests(fitted, identities, store)
    if not missing:
        return Exported((), n_rounds, notes)
    content = canonical_json(study.model_dump(mode="json"))
    about = {
        "format": 1,
        "study": study.name,
        "study_sha256": hashlib.sha256(content.encode()).hexdigest(),
        "round": n_rounds,
    }
    asked = []
    for request in missing:
        model = models[request.model]
        if names := [*references(model.extra)]:
            raise Problem(
                f"{model.title} has a field that is filled from {names[0]}, which a batch cannot "
                "contain: a batch is a file; use flipmeter run for it"
            )
        form = form_for(model.family)
        asked.append(BatchEntry(model.own_name, request, form, caching_of(model)))
    files = write_batch(folder, asked, about, most_requests=most_requests, most_bytes=most_bytes)
    return Exported(tuple(files), n_rounds, notes)


def _missing_requests(
    grid: Sequence[Condition], identities: dict[Seat, str], store: Store
) -> tuple[list[Request], int]:
    """The requests of the next round, and its number."""
    found: dict[str, Request] = {}
    n_rounds = 0
    for lot in lots(grid, None):
        rating, n_done = Rating(lot, identities), 0
        while calls := list(rating.calls()):
            requests = plan(calls).requests
            replies = store.get(request.key for request in requests)
            missing = {r.key: r for r in requests if r.key not in replies}
            if missing:
                found |= missing
                n_rounds = max(n_rounds, n_done + 1)
                break
            rating.hear(calls, replies)
            n_done += 1
    return list(found.values()), n_rounds


def _batch_notes(
    grid: Sequence[Condition], remote: Sequence[Condition], known: Known
) -> tuple[str, ...]:
    own = dict.fromkeys(c.rater.name for c in grid if c not in remote)
    notes = [f"{name} runs in this process; use flipmeter run for it" for name in own]
    for rater in dict.fromkeys(condition.rater for condition in remote):
        wanted = needs(rater.model, rater.decoding, scored=rater.is_scored)
        open_ = [name for name in wanted if name not in known.get(rater.model, {})]
        if open_:
            notes.append(
                f"whether {rater.name} has {', '.join(open_)} is not known: run `flipmeter "
                f"examine "
                f"{quote(rater.model.address)}` first, or flipmeter run may want other requests"
            )
    return tuple(dict.fromkeys(notes))


@dataclass(frozen=True)
class Imported:
    """The outcome of importing a batch: new replies, known ones, errors, and open requests."""

    n_new: int
    n_known: int
    errors: tuple[str, ...]
    n_left: int


def import_batch(paths: Sequence[Path], store: Store, folder: Path | None = None) -> Imported:
    """Store the replies in result files, or in a batch's folder; all is checked before any is kept.

    An error is not stored, so that the next run asks again; a stored reply keeps its place.
    """
    for path in paths:
        if not path.exists():
            raise Problem(f"{path} does not exist; pass the batch's folder or its result files")
    folder = folder or next((path for path in paths if path.is_dir()), paths[0].parent)
    known = read_batch(folder)
    files = [file for path in paths for file in (result_files(path) if path.is_dir() else [path])]
    found: Results = read_results(files, known, forms_in(folder))
    before = store.among(found.replies)
    answered = [(known[key], reply) for key, reply in found.replies.items()]
    for start in range(0, len(answered), LOT):
        store.put_many(answered[start : start + LOT])
    there = store.among(known)
    errors = tuple(said for key, said in found.errors.items() if key not in there)
    return Imported(len(answered) - len(before), len(before), errors, len(known) - len(there))
