"""Refusal -> correction: which field an endpoint will not take, in its own words.

A reply store keeps corrections: what an endpoint taught in one run holds for all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flipmeter.model.backends.backend import Capability
from flipmeter.model.backends.response import Trouble
from flipmeter.model.wires.dialect import LIMITS, LOGPROBS, SAMPLING
from flipmeter.types import Corrections, Request, canonical_json

if TYPE_CHECKING:
    from flipmeter.model.store.store import Store

DIALECT = "dialect"
"""The name under which a store keeps the corrections of an endpoint, beside its capabilities."""
REFUSALS = {400, 422}
CORRECTABLE = (
    *LIMITS,
    *SAMPLING,
    *("seed", "random_seed", "stop", "stop_sequences"),
    *("topP", "topK", "stopSequences"),
)
"""Fields that may go under another name or not at all: a study's own extra fields may not."""

_REFUSED = re.compile(
    r"unsupported|not supported|n.t support|deprecated|not permitted|not allowed|forbidden"
    r"|unknown|unrecogni[sz]ed|unexpected|cannot find field|only the default|may only be set"
    r"|not a valid (?:parameter|field)|cannot be (?:used|specified|set)|not available",
    re.IGNORECASE,
)
_INSTEAD = re.compile(r"\buse\s+[`'\"]?(\w+)[`'\"]?\s+instead", re.IGNORECASE)


def correction_in(trouble: Trouble, body: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """The field that an endpoint complains of, and its other name, or None to leave it out.

    Nothing where the complaint is about something else: it is then the user's to repair.
    """
    said = " ".join((trouble.message, *sorted(trouble.kinds))).replace("_", " ")
    if trouble.status not in REFUSALS or not _REFUSED.search(said):
        return None
    field = _complained_of(trouble, [name for name in CORRECTABLE if name in body])
    if field is None:
        return None
    other = _INSTEAD.search(trouble.message)
    if other and other[1] != field and other[1] not in body:
        return field, other[1]
    return None if field in LIMITS else (field, None)


def _complained_of(trouble: Trouble, fields: Iterable[str]) -> str | None:
    """The field that the refusal names: as its parameter, in quotes, or anywhere."""
    known = list(fields)
    if trouble.param in known:
        return trouble.param
    for pattern in (r"[`'\"]{}[`'\"]", r"(?<![\w.]){}(?!\w)"):
        for name in known:
            if re.search(pattern.format(re.escape(name)), trouble.message):
                return name
    return None


def corrected_request(request: Request, corrections: Corrections) -> Request:
    """A request whose fields are as its endpoint wants them."""
    params = corrected_params(request.params, corrections)
    return request if params == request.params else replace(request, params=params)


@lru_cache(maxsize=1024)
def corrected_params(params: str, corrections: Corrections) -> str:
    return canonical_json(corrected(json.loads(params), corrections))


def corrected(body: Mapping[str, Any], corrections: Corrections) -> dict[str, Any]:
    """A body with what its endpoint taught: fields under other names, or left out (None)."""
    taught = dict(corrections)
    named = {name: taught.get(name, name) for name in body}
    return {new: body[name] for name, new in named.items() if new is not None}


def with_correction(known: Corrections, correction: tuple[str, str | None]) -> Corrections:
    """Corrections and one more, perhaps of the name that an earlier one gave to a field.

    A name that was refused already is not learned: an endpoint could send a field back and forth.
    """
    taught, (refused, other) = dict(known), correction
    if other in taught:
        return known
    renamed = [old for old, new in known if new == refused]
    for field in renamed or ([] if refused in taught else [refused]):
        taught[field] = other
    return tuple(taught.items())


def told_corrections(corrections: Corrections) -> str:
    """The corrections in words."""
    renamed = [f"{old} is sent as {new}" for old, new in corrections if new is not None]
    return "; ".join([*renamed, *(f"{old} is not sent" for old, new in corrections if not new)])


# --- in a store ------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def spoken_as(params: str) -> str:
    """The fields of a body that are not corrected; they can affect which fields are accepted."""
    told = json.loads(params)
    return canonical_json({k: told[k] for k in told if k not in (*CORRECTABLE, *LOGPROBS)})


def note_corrections(store: Store, identity: str, params: str, corrections: Corrections) -> None:
    """Record what an endpoint taught."""
    taught = canonical_json([list(pair) for pair in corrections])
    today = datetime.now(UTC).date().isoformat()
    store.note_capabilities(identity, spoken_as(params), [Capability(DIALECT, True, taught, today)])


def recall_corrections(store: Store, identity: str, params: str) -> Corrections:
    """The corrections that an endpoint taught earlier."""
    return corrections_of(store.capabilities(identity, spoken_as(params)))


def corrections_of(found: Mapping[str, Capability]) -> Corrections:
    known = found.get(DIALECT)
    if known is None:
        return ()
    return tuple(
        (str(old), None if new is None else str(new)) for old, new in json.loads(known.how)
    )
