"""Model -> Capability: what an endpoint has, declared by it or shown by a few small requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from flipmeter.model.backends.backend import Capability
from flipmeter.model.backends.family import family_of
from flipmeter.model.backends.http import HttpBackend, Tried
from flipmeter.model.backends.response import as_dict
from flipmeter.model.endpoints import Provider
from flipmeter.model.engine.budget import Budget
from flipmeter.model.engine.engine import Engine
from flipmeter.model.engine.ledger import Ledger
from flipmeter.model.engine.pool import PERSISTENCE, Persistence
from flipmeter.model.names import identity_of, interface_of, params_for, without_logprobs
from flipmeter.model.store.store import Store
from flipmeter.model.wires.corrections import DIALECT, corrected, note_corrections, spoken_as
from flipmeter.model.wires.dialect import LOGPROBS, PLAIN, Dialect, dialect_of, effort_in
from flipmeter.types import (
    Corrections,
    Decoding,
    Interface,
    Message,
    Model,
    Problem,
    Reply,
    Request,
    Script,
    canonical_json,
)

CAPABILITIES = ("completions", "reasoning", "logprobs", "seed")
"""In the order in which they are examined: what is not there is left out of the later requests."""

DECLARED_AS = {
    "reasoning": {"reasoning", "reasoning_effort"},
    "logprobs": {"logprobs", "top_logprobs"},
    "seed": {"seed"},
}
REASONING = ("reasoning", "reasoning_effort")

SHORT, LONG = "Say yes.", "Write ten random words."
MAX_TOKENS = 16
"""Some endpoints refuse a smaller limit."""
REASONING_TOKENS = 1280
"""Some endpoints reserve 1,024 tokens for any reasoning and refuse a smaller limit."""
FEW_ATTEMPTS = 4

Found = tuple[bool | None, str]
"""Whether something is there, and how that is known."""


def needs(model: Model, decoding: Decoding, *, scored: bool = False) -> tuple[str, ...]:
    """The capabilities that a model needs for its requests."""
    wanted = {
        "completions": interface_of(model) == "completions",
        "reasoning": any(name in model.extra for name in REASONING),
        "logprobs": scored or any(name in model.extra for name in LOGPROBS),
        "seed": decoding.seed is not None and not decoding.is_greedy,
    }
    return tuple(name for name in CAPABILITIES if wanted[name])


def asked_as(model: Model) -> str:
    """The request settings that affect an endpoint's capabilities."""
    extra = without_logprobs(model).extra
    return canonical_json({**extra, "interface": interface_of(model)})


def stated(model: Model) -> dict[str, Capability] | None:
    """The capabilities declared by a model's backend, None for an endpoint."""
    family = family_of(model)
    if family.capabilities is None:
        return None
    how = "the engine in this process" if family.is_in_process else f"the backend '{model.family}'"
    return {
        name: Capability(name, name in family.capabilities, f"stated by {how}")
        for name in CAPABILITIES
    }


def check_scored(model: Model, found: Mapping[str, Capability]) -> None:
    """Refuse a model that is known to show no log-probabilities, where nothing does without."""
    known = found.get("logprobs")
    if known is not None and known.is_there is False:
        raise Problem(
            f"'{model.title}' shows no log-probabilities ({known.how}), but the study needs "
            f"label probabilities; use a method that reads labels only, another model, or "
            f"sampled replies (`scores: sampled`, 21 calls each)"
        )


@dataclass(frozen=True)
class Examination:
    """The findings, the last good reply (which names the model), and the endpoint's dialect."""

    found: Mapping[str, Capability]
    reply: Reply = field(default_factory=Reply)
    corrections: Corrections = ()


async def examine(
    model: Model,
    backend: HttpBackend,
    names: Iterable[str] = CAPABILITIES,
    *,
    ledger: Ledger | None = None,
    budget: Budget | None = None,
    persistence: Persistence | None = None,
) -> Examination:
    """Find out what an endpoint has, by its list of models and at most seven small requests.

    One more finds out its dialect, if that is among `names`. They count against the budget. What
    keeps every request from being answered (no server, a wrong key) is raised as asking would.
    """
    wanted = set(names)
    witness = _Witness(backend)
    with Store() as store:
        engine = Engine(
            {backend.identity: witness},
            store,
            Ledger(spent=ledger.spent) if ledger else Ledger(),
            budget,
            {backend.identity: model.min_interval},
            persistence=persistence or replace(PERSISTENCE, attempts=FEW_ATTEMPTS),
        )
        examiner = _Examiner(model, witness, engine, await backend.listing())
        if DIALECT in wanted:
            await examiner.learn_dialect()
        found = [await examiner.examine(name) for name in CAPABILITIES if name in wanted]
    by_name = {capability.name: capability for capability in found}
    return Examination(by_name, witness.last, examiner.taught)


class _Witness:
    """A backend that keeps the whole answers of another: a reply does not hold them."""

    concurrency = 1
    is_reproducible = False

    def __init__(self, backend: HttpBackend) -> None:
        self.identity = backend.identity
        self.tried: dict[str, Tried] = {}
        self.last = Reply()
        self._backend = backend

    async def ask(self, request: Request) -> Reply:
        tried = self.tried[request.key] = await self._backend.try_out(request)
        if tried.refusal:
            return Reply(error=tried.refusal)
        self.last = tried.reply
        return tried.reply

    async def close(self) -> None:
        """Do nothing: who opened the other one closes it."""


class _Examiner:
    """One examination: the requests it needs, each sent once, and what they show."""

    def __init__(
        self, model: Model, witness: _Witness, engine: Engine, listing: Mapping[str, Any]
    ) -> None:
        self.taught: Corrections = ()
        self._model = model
        self._witness = witness
        self._engine = engine
        self._interface: Interface = interface_of(model)
        self._extra = without_logprobs(model).extra
        self._asked_logprobs = family_of(model).logprob_fields_of(model, self._interface)
        self._is_passing = False
        declared = listing.get("supported_parameters")
        self._declared = set(map(str, declared)) if isinstance(declared, list) else None
        self._ways: Mapping[str, Callable[[], Awaitable[Found]]] = {
            "completions": self._completions,
            "reasoning": self._reasoning,
            "logprobs": self._logprobs,
            "seed": self._seed,
        }

    async def learn_dialect(self) -> None:
        """Ask plainly, as most studies do, so that the endpoint may complain of a field."""
        tried = await self._try(Decoding().body())
        if tried.problem is not None:
            raise tried.problem

    async def examine(self, name: str) -> Capability:
        """A finding; one that rests on what may pass has no date."""
        self._is_passing = False
        if name in family_of(self._model).lacks:
            found: Found = False, f"the API of {self._model.family} has none"
        elif self._declares(name) is False:
            found = False, "declared by the models endpoint: not among its parameters"
        else:
            found = await self._ways[name]()
        is_there, how = found
        if is_there is None and self._declares(name):
            is_there, how = True, f"declared by the models endpoint, not shown: {how}"
        if name == "reasoning" and is_there is False:
            self._extra = {k: v for k, v in self._extra.items() if k not in REASONING}
        if name == "completions" and is_there is False:
            self._interface = "chat"
        today = datetime.now(UTC).date().isoformat()
        return Capability(name, is_there, how, "" if self._is_passing else today)

    def _declares(self, name: str) -> bool | None:
        if self._declared is None or name not in DECLARED_AS:
            return None
        return bool(self._declared & DECLARED_AS[name])

    async def _completions(self) -> Found:
        tried = await self._try(interface="completions")
        return (True, _SHOWN) if not tried.refusal else await self._refused(tried, "chat")

    async def _reasoning(self) -> Found:
        own = {name: self._extra[name] for name in REASONING if name in self._extra}
        sent = own or {"reasoning": {"effort": "low"}}
        tried = await self._try(sent)
        if tried.refusal:
            return await self._refused(tried)
        spent = tried.reply.usage.reasoning
        is_off = effort_in(sent) == "none" or as_dict(sent.get("reasoning")).get("max_tokens") == 0
        if spent is None:
            return None, "accepted, but the usage does not count reasoning tokens"
        if is_off and spent:
            return False, f"accepted and not followed: {spent} reasoning tokens"
        if is_off or spent:
            return True, f"{_SHOWN}: {spent} reasoning tokens"
        return None, "accepted, but the answer took no reasoning tokens"

    async def _logprobs(self) -> Found:
        spoken = self._spoken({**self._extra, **self._asked_logprobs})
        if not spoken.keys() & self._asked_logprobs.keys():
            return False, _refusal_by_name(self._model, "logprobs")
        tried = await self._try(self._asked_logprobs)
        if tried.refusal:
            return await self._refused(tried)
        if tried.n_alternatives is not None:
            return True, f"{_SHOWN}: {tried.n_alternatives} alternatives of a token"
        if not tried.reply.text:
            return None, "the answer is empty"
        promised = "declared by the models endpoint" if self._declares("logprobs") else "accepted"
        return False, f"{promised}, absent from the answer"

    async def _seed(self) -> Found:
        fields = {"temperature": 1, "seed": 1}
        first = await self._try(fields, LONG)
        if first.refusal:
            return await self._refused(first)
        again = await self._try(fields, LONG, repeat=1)
        if again.refusal:
            return None, again.refusal
        if first.reply.text != again.reply.text:
            return False, "accepted but not honoured: two answers with the same seed differ"
        other = await self._try(fields | {"seed": 2}, LONG)
        if other.refusal or other.reply.text == first.reply.text:
            return None, other.refusal or "three answers with two seeds are equal"
        return True, f"{_SHOWN}: the same seed gives equal answers, another seed a different one"

    async def _refused(self, tried: Tried, interface: Interface | None = None) -> Found:
        """Whether a refusal is about what was asked for: is a plain request answered?"""
        if tried.is_passing:
            return None, tried.refusal
        plain = await self._try(interface=interface, leave_out=REASONING)
        if plain.problem is not None:
            raise plain.problem
        if plain.refusal:
            return None, f"a plain request gets no answer either: {plain.refusal}"
        return False, f"refused: {tried.refusal}"

    async def _try(
        self,
        fields: Mapping[str, Any] | None = None,
        prompt: str = SHORT,
        *,
        interface: Interface | None = None,
        repeat: int = 0,
        leave_out: Iterable[str] = (),
    ) -> Tried:
        """The outcome of a request, sent with the usual retries and pauses.

        A complaint about a field that is not looked for teaches the dialect, and is heeded.
        """
        extra = {k: v for k, v in self._extra.items() if k not in leave_out}
        body = {**extra, **(fields or {}), "interface": interface or self._interface}
        limit = "max_completion_tokens" if "max_completion_tokens" in extra else "max_tokens"
        has_reasoning = any(name in body for name in REASONING)
        body[limit] = REASONING_TOKENS if has_reasoning else MAX_TOKENS
        while True:
            tried = await self._send(body, prompt, repeat)
            correction = tried.correction
            if correction is None or correction[0] in ("seed", *dict(self.taught)):
                return tried
            self.taught = (*self.taught, correction)

    def _spoken(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A body as its family speaks, and as the endpoint taught by now."""
        told = {"interface": self._interface, **body}
        return corrected(family_of(self._model).speak(self._model, told), self.taught)

    async def _send(self, body: Mapping[str, Any], prompt: str, repeat: int) -> Tried:
        script, params = Script.of([Message("user", prompt)]), canonical_json(self._spoken(body))
        request = Request(self._witness.identity, script, params, repeat=repeat)
        if request.key not in self._witness.tried:
            reply = (await self._engine.ask([request]))[request.key]
            given_up = Tried(refusal=reply.error, is_passing=True)
            self._witness.tried.setdefault(request.key, given_up)
        tried = self._witness.tried[request.key]
        self._is_passing = self._is_passing or tried.is_passing
        return tried


_SHOWN = "shown by a request"


# --- dialects --------------------------------------------------------------------------------


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
        yield f"{name} is not sent: {_refusal_by_name(model, name)}"


def _refusal_by_name(model: Model, name: str) -> str:
    """The reason why a field is not sent to models of this name, and when it would be."""
    unless = " unless it is set not to reason (`reasoning_effort: none`)"
    way_out = unless if name in _dialect(model).quiet_only else ""
    return f"'{model.own_name}' refuses it{way_out}"


def _dialect(model: Model) -> Dialect:
    family = family_of(model)
    return dialect_of(family.table, model.own_name) if isinstance(family, Provider) else PLAIN
