"""Model -> Capability: whether an engine in this process gives equal requests equal replies."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from random import Random

from flipmeter.base.files.atomic import inside, make_folder, write_text
from flipmeter.base.files.fetch import cache_folder
from flipmeter.model.backends.backend import Backend, Capability
from flipmeter.model.backends.llama import n_cores
from flipmeter.model.backends.weights import Fetched
from flipmeter.model.names import (
    can_be_reproducible,
    identity_of,
    is_tested,
    open_backend,
    request_for,
)
from flipmeter.model.store.store import Store
from flipmeter.types import (
    Decoding,
    Message,
    Model,
    Problem,
    Prompt,
    Reply,
    Request,
    Script,
    canonical_json,
)

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
        return Capability(**json.loads(_file(identity).read_text(encoding="utf-8")))
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
            path = _file(identity_of(model))
            with suppress(OSError, Problem):
                make_folder(inside(path.parent, cache_folder()))
                write_text(path, canonical_json(asdict(found)))
    if found.seen:
        store.note_capabilities(identity_of(model), _machine(), [found])
    return found


def _file(identity: str) -> Path:
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
    lives = _lives(_requests(model))
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


def _requests(model: Model) -> list[Request]:
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


def _lives(requests: Sequence[Request]) -> list[list[Request]]:
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
