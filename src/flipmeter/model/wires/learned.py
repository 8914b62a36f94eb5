"""Corrections in a reply store: what an endpoint taught in one run holds for all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from flipmeter.model.backends.backend import Capability
from flipmeter.model.wires.corrections import CORRECTABLE
from flipmeter.model.wires.dialect import LOGPROBS
from flipmeter.types import Corrections, canonical_json

if TYPE_CHECKING:
    from flipmeter.model.store.store import Store

DIALECT = "dialect"


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
