"""A Python callable as a rater: any agent, chain or fine-tuned model, behind the one seam."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flipmeter.ask.family import variables
from flipmeter.ask.response import plain
from flipmeter.ask.user_code import FAMILY, find_callable, running, settle
from flipmeter.checks import read_number
from flipmeter.errors import Problem
from flipmeter.loops import listening
from flipmeter.redaction import filled, references
from flipmeter.types import Label, Model, Question, Reply, Request, canonical_json

AT_ONCE = 16
"""Default number of concurrent questions to a coroutine; a plain function gets one."""
LEAST = -100.0
"""The log-probability of a label to which a callable gives none."""
ROUNDED = 0.05
"""Probabilities may add up to this much more or less than 1."""


class PythonBackend:
    """Puts questions to a callable; what it raises is an error of that one reply."""

    parameters: frozenset[str] = frozenset()

    def __init__(self, model: Model) -> None:
        self._name = name_of(model)
        found = find_callable(self._name)
        self.identity = python_identity(model)
        self.is_reproducible = is_said_reproducible(model)
        self._timeout = model.timeout
        with running(self._name):
            self._call, self._is_async = _prepare_callable(found, model)
        self.concurrency = model.concurrency or (AT_ONCE if self._is_async else 1)
        settle(self._name)

    async def ask(self, request: Request) -> Reply:
        """Put the question of a request to the callable and take down what it says."""
        with running(self._name):
            return await self._reply(request)

    async def _reply(self, request: Request) -> Reply:
        question = Question.read(request.script.text, request.repeat)
        start = time.perf_counter()
        try:
            if self._is_async:
                async with listening(self._timeout):
                    said = await self._call(question)
            else:
                said = await asyncio.to_thread(self._call, question)
            text, scores = _read_callable_answer(said, question, request.answers)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if is_cancelled and (task is None or task.cancelling() > 0):
                raise  # the run itself is, and not only something inside the callable
            why = plain(f"{type(error).__name__}: {error}".rstrip(": "))
            return Reply(error=why, model=self.identity)
        seconds = time.perf_counter() - start
        return Reply(plain(text), "stop", scores, seconds=seconds, model=self.identity)

    async def close(self) -> None:
        """Do nothing: what a callable holds is its own."""


# --- its result -------------------------------------------------------------------------------


def _read_callable_answer(
    said: object, question: Question, answers: Sequence[str]
) -> tuple[str, tuple[float, ...] | None]:
    """The label of an answer as the question writes it, and its log-probabilities."""
    told = dict(said) if isinstance(said, Mapping) else {"label": said}
    label, shares = told.pop("label", None), told.pop("probabilities", None)
    if question.span is not None and shares is not None:
        raise ValueError("it returned probabilities, but a range of numbers has no labels")
    if told:
        raise ValueError(
            f"it returned {sorted(map(str, told))} in addition to label and probabilities"
        )
    if shares is None:
        return _label_text(label, question), None
    by_text = _label_probabilities(shares, question)
    text = (
        _label_text(label, question) if label is not None else max(by_text, key=by_text.__getitem__)
    )
    logs = {text: math.log(share) if share > 0 else LEAST for text, share in by_text.items()}
    return text, tuple(max(logs[answer], LEAST) for answer in answers) if answers else None


def _label_text(said: object, question: Question) -> str:
    """The text of a label given as text, class name, rank or the label itself."""
    if question.span is not None:
        said = said.item() if isinstance(said, np.integer | np.floating) else said
        if said is None or isinstance(said, str):  # in words it is read like a reply
            return said or ""
        number = read_number(said)
        if number is None:
            raise TypeError(f"it returned {said!r:.80}; return a number")
        return repr(number)
    if isinstance(said, Label):
        return said.text
    if isinstance(said, int | np.integer) and not isinstance(said, bool):
        ranks = {label.rank: label.text for label in question.labels}
        if int(said) not in ranks:
            raise ValueError(f"it returned the rank {said}; ranks are 1 to {len(ranks)}")
        return ranks[int(said)]
    if said is None:
        return ""
    if not isinstance(said, str):
        raise TypeError(f"it returned {said!r:.80}; return a label, a rank or a mapping")
    texts = {label.text for label in question.labels}
    names = {label.name.casefold(): label.text for label in question.labels}
    return said if said in texts else names.get(said.strip().casefold(), said)


def _label_probabilities(shares: object, question: Question) -> dict[str, float]:
    """The probability of every label by its text; a list is by slot."""
    texts = [label.text for label in question.labels]
    if isinstance(shares, Mapping):
        found = {_label_text(label, question): share for label, share in shares.items()}
        if set(found) != set(texts):
            odd = ", ".join(sorted({*found} ^ {*texts}))
            raise ValueError(
                f"it returned {len(found)} probabilities by label, but there are {len(texts)} "
                f"labels ({', '.join(texts)}); these are not in both: {odd}"
            )
    else:
        if isinstance(shares, str) or not isinstance(shares, Iterable):
            raise TypeError(
                f"it returned {shares!r:.80} as probabilities; return a list or a mapping"
            )
        listed = list(shares)
        if len(listed) != len(texts):
            raise ValueError(
                f"it returned {len(listed)} probabilities, but there are {len(texts)} labels "
                f"({', '.join(texts)}); return one for each, in this order"
            )
        found = dict(zip(texts, listed, strict=True))
    return _check_probabilities(found)


def _check_probabilities(shares: Mapping[str, object]) -> dict[str, float]:
    """Refuse values that are not probabilities, or do not add up to 1 except for rounding."""
    found: dict[str, float] = {}
    for text, share in shares.items():
        try:
            found[text] = float(share)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            found[text] = math.nan
    for text, share in found.items():
        if not 0 <= share <= 1:
            raise ValueError(
                f"it returned {shares[text]!r:.80} as the probability of '{text}'; use 0 to 1"
            )
    total = sum(found.values())
    if abs(total - 1) > ROUNDED:
        raise ValueError(
            f"it returned probabilities that add up to {total:g}; they must add up to 1"
        )
    return found


# --- which callable ---------------------------------------------------------------------------


def name_of(model: Model) -> str:
    return model.address.removeprefix(f"{FAMILY}/")


def python_identity(model: Model) -> str:
    """The name of a callable with its version: its own, or a hash of its module's source."""
    name = name_of(model)
    found = find_callable(name)
    module, _, path = name.rpartition(":")
    options = f" {canonical_json(dict(model.options))}" if model.options else ""
    return f"{FAMILY}/{Path(module).stem}:{path}@{_callable_version(found, name)}{options}"


def is_said_reproducible(model: Model) -> bool:
    """Whether a callable claims to give equal questions equal answers (`is_reproducible`)."""
    return getattr(find_callable(name_of(model)), "is_reproducible", False) is True


def _callable_version(found: Any, name: str) -> str:
    version = getattr(found, "version", None)
    if isinstance(version, str | int | float):
        return str(version)
    while isinstance(found, partial):
        found = found.func
    try:
        source = inspect.getsourcefile(inspect.unwrap(found))
    except TypeError:  # an instance: its class has the source
        source = inspect.getsourcefile(type(found))
    if source is None or not Path(source).is_file():
        raise Problem(
            f"'{name}' has no source code to identify its version; give it an attribute `version`"
        )
    return f"sha256:{hashlib.sha256(Path(source).read_bytes()).hexdigest()[:16]}"


def _prepare_callable(found: Any, model: Model) -> tuple[Callable[[Question], Any], bool]:
    """The function to call (a class is instantiated once), and whether to await it."""
    options = filled(model.options, variables(references(model.options), model))
    if inspect.isclass(found):
        try:
            found, options = found(**options), {}
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise Problem(f"cannot make a '{name_of(model)}': {why}; see its `options`") from error
    is_async = any(map(inspect.iscoroutinefunction, (found, type(found).__call__)))
    return (lambda question: found(question, **options)), is_async
