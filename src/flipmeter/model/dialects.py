"""Model -> what is known of its dialect: by its name, and by what its endpoint taught."""

from __future__ import annotations

from collections.abc import Iterator

from flipmeter.model.backends.backend import Capability
from flipmeter.model.backends.family import family_of
from flipmeter.model.endpoints import Provider
from flipmeter.model.names import identity_of, params_for
from flipmeter.model.store.store import Store
from flipmeter.model.wires.dialect import PLAIN, Dialect, dialect_of
from flipmeter.model.wires.learned import DIALECT, note_corrections, spoken_as
from flipmeter.types import Corrections, Decoding, Model


def recall_dialect(model: Model, decoding: Decoding, store: Store) -> Capability | None:
    """The learned dialect of an endpoint, None if there is none."""
    if family_of(model).capabilities is not None:  # it is not examined
        return None
    known = store.capabilities(identity_of(model), spoken_as(params_for(model, decoding, 0)))
    return known.get(DIALECT)


def note_dialect(model: Model, store: Store, corrections: Corrections) -> None:
    """Record what an endpoint taught, for every study that asks the model in the same way."""
    note_corrections(store, identity_of(model), params_for(model, Decoding(), 0), corrections)


def unsent(model: Model, decoding: Decoding) -> Iterator[str]:
    """A sentence for each setting of a study that models of this name are known to refuse."""
    body = {**decoding.body(), **model.extra}
    for name in (name for name in _dialect(model).dropped(body) if body[name] is not None):
        yield f"{name} is not sent: {refusal_by_name(model, name)}"


def refusal_by_name(model: Model, name: str) -> str:
    """The reason why a field is not sent to models of this name, and when it would be."""
    unless = " unless it is set not to reason (`reasoning_effort: none`)"
    way_out = unless if name in _dialect(model).quiet_only else ""
    return f"'{model.own_name}' refuses it{way_out}"


def _dialect(model: Model) -> Dialect:
    family = family_of(model)
    return dialect_of(family.table, model.own_name) if isinstance(family, Provider) else PLAIN
