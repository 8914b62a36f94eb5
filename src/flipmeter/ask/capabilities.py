"""Model -> Capability: declared, shown by a few requests, or measured by equal ones."""

from __future__ import annotations

import json
import platform
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from flipmeter.ask.dialect import (
    DIALECT,
    LOGPROBS,
    PLAIN,
    Dialect,
    corrected,
    dialect_of,
    effort_in,
    note_corrections,
    spoken_as,
)
from flipmeter.ask.endpoints import Provider
from flipmeter.ask.engine import Engine
from flipmeter.ask.family import Backend, Capability, family_of
from flipmeter.ask.http import HttpBackend, Tried
from flipmeter.ask.limits import Budget
from flipmeter.ask.llama import n_cores
from flipmeter.ask.names import (
    can_be_reproducible,
    identity_of,
    interface_of,
    is_tested,
    open_backend,
    params_for,
    request_for,
    without_logprobs,
)
from flipmeter.ask.pool import PERSISTENCE, Ledger, Persistence
from flipmeter.ask.response import as_dict
from flipmeter.ask.store import Store
from flipmeter.ask.weights import Fetched
from flipmeter.errors import Problem
from flipmeter.fetch import cache_folder
from flipmeter.files import inside, make_folder, write_text
from flipmeter.types import (
    Corrections,
    Decoding,
    Interface,
    Message,
    Model,
    Prompt,
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


Open = Callable[..., Backend]
NAME = "reproducible"
NOT_TESTED = "not yet tested on this machine"
ANSWERS = ("1", "2", "3")
GUESTS = ("old", "young", "tired", "happy", "hungry", "quiet", "loud")
MEALS = ("soup", "fish", "bread", "salad", "pie")
ENDS = ("cold and dull", "worth the wait", "far too salty for them")
LINES = 36
"""Enough for a prompt of more than one batch of 512 tokens."""
CUTS = (12, 41, 70, 118, 230)
"""After how many characters a prompt ends; each goes on from the one before."""


def recall_reproducible(model: Model, store: Store) -> Capability:
    """The known reproducibility of a model: by its kind, or by a self-test on such a machine."""
    if not is_tested(model):
        there = can_be_reproducible(model, Decoding())
        return Capability(NAME, there, "stated by the rater" if there else "measured by repeats")
    identity = identity_of(model)
    if known := store.capabilities(identity, _machine()).get(NAME):
        return known
    with suppress(OSError, ValueError, TypeError):  # of another store's run on this machine
        return Capability(**json.loads(_outcome_file(identity).read_text(encoding="utf-8")))
    return Capability(NAME, None, NOT_TESTED)


async def learn_reproducible(
    model: Model,
    store: Store,
    *,
    progress: Fetched | None = None,
    anew: bool = False,
    on_test: Fetched | None = None,
    open_one: Open = open_backend,
) -> Capability:
    """The reproducibility of a model, by a self-test that is run once and recorded."""
    found = recall_reproducible(model, store)
    if not is_tested(model):
        return found
    if found.is_there is None or anew:
        found = await self_test(model, partial(open_one, model, progress=progress), on_test)
        if found.seen:  # for the other stores of this machine; this one has it in any case
            path = _outcome_file(identity_of(model))
            with suppress(OSError, Problem):
                make_folder(inside(path.parent, cache_folder()))
                write_text(path, canonical_json(asdict(found)))
    if found.seen:
        store.note_capabilities(identity_of(model), _machine(), [found])
    return found


def _outcome_file(identity: str) -> Path:
    named = canonical_json([identity, _machine()])
    return cache_folder() / "self-tests" / f"{sha256(named.encode()).hexdigest()[:32]}.json"


async def self_test(
    model: Model, start: Callable[[], Backend], on_test: Fetched | None = None
) -> Capability:
    """Ask prompts of several lengths in several orders, twice in a row and after a restart.

    A reply differs if its text or the log-probability of a label does, in the last bit.
    """
    first: dict[str, Reply] = {}
    n_replies = n_differing = 0
    lives = _engine_lives(_self_test_requests(model))
    for order in lives:
        backend = start()
        try:
            for request in order:
                reply = await backend.ask(request)
                if reply.error:
                    return Capability(NAME, None, f"the self-test failed: {reply.error}")
                before = first.setdefault(request.key, reply)
                n_replies += 1
                if on_test is not None:
                    on_test(n_replies, sum(map(len, lives)))
                n_differing += (before.text, before.scores) != (reply.text, reply.scores)
        finally:
            await backend.close()
    what = f"{len(first)} prompts in several orders, across a restart"
    said = f"{n_differing} of {n_replies} replies differ" if n_differing else f"{n_replies} replies"
    how = f"self-test: {said} to {what}" + ("" if n_differing else ", bit-identical")
    return Capability(NAME, not n_differing, how, datetime.now(UTC).date().isoformat())


def _self_test_requests(model: Model) -> list[Request]:
    """Requests from short to long, each the beginning of a later one, with and without an end."""
    text = "\n".join(
        f"The {GUESTS[n % 7]} guests at our table said the {MEALS[n % 5]} was {ENDS[n % 3]}."
        for n in range(LINES)
    )
    starts = [text[:cut] for cut in CUTS]
    texts = [*starts, *(f"{start}\nLabel:" for start in starts[1:]), text, f"{text}\nLabel:"]
    identity = identity_of(model)
    return [_request(model, identity, one) for one in texts]


def _request(model: Model, identity: str, text: str) -> Request:
    prompt = Prompt(Script.of([Message("user", text)], len(text) // 2), ANSWERS, (1, 2, 3))
    asked = request_for(model, identity, prompt, Decoding(), 0)
    few = json.loads(asked.params) | {"max_tokens": 1}  # whatever the model is given
    return replace(asked, params=canonical_json(few))


def _engine_lives(requests: Sequence[Request]) -> list[list[Request]]:
    """The order of requests in each life of an engine; the long ones are computed whole twice."""
    *short, long, longer = requests
    up = [*short, long, longer]
    down = [request for request in reversed(up) for _ in range(2)]
    mixed = Random(1).sample(short, len(short))
    return [up + down, [longer, *mixed]]


def _machine() -> str:
    """The machine and settings of an engine that are not part of its identity."""
    return canonical_json({"processor": processor(), "threads": n_cores()})


@cache
def processor() -> str:
    """The processor with the instructions that it has: these decide how an engine computes."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return f"{platform.machine()} {platform.processor()}".strip()
    fields = dict(line.split(":", 1) for line in reversed(told.splitlines()) if ":" in line)
    known = {name.strip().lower(): value.strip() for name, value in fields.items()}
    flags = known.get("flags") or known.get("features", "")
    name = known.get("model name") or known.get("cpu part", "")
    return f"{platform.machine()} {name} {sha256(flags.encode()).hexdigest()[:8]}"
