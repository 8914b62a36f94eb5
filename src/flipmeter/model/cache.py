"""Store -> what is in it: say why a request is new, export replies, prune those no run needs."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from flipmeter.model.store import BATCH, Store
from flipmeter.types import Problem, Request

SHORT = 60
"""How many characters of a value or of a prompt are shown."""

LOCK_SECONDS = 2.0
EXPORTED: dict[str, pl.DataType | type[pl.DataType]] = {
    "key": pl.String,
    "model": pl.String,
    "prompt": pl.String,
    "params": pl.String,
    "answers": pl.List(pl.String),
    "repeat": pl.Int64,
    "reply": pl.String,
    "finish": pl.String,
    "scores": pl.List(pl.Float64),
    "prompt_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
    "seconds": pl.Float64,
    "answered_by": pl.String,
    "provider": pl.String,
    "fingerprint": pl.String,
}


def open_stored(path: Path) -> Store:
    """Open a store that must be there already."""
    if not path.is_file():
        raise Problem(
            f"no reply store at {path}; name the file that the runs wrote with --store "
            "(.flipmeter/replies.sqlite if none was named)"
        )
    return Store(path)


def stored_among(store: Store, keys: Iterable[str]) -> set[str]:
    """Return those of the keys that are stored, without reading the replies."""
    found: set[str] = set()
    for batch in _batches(keys):
        sql = f"SELECT key FROM replies WHERE key IN ({','.join('?' * len(batch))})"
        found.update(key.hex() for (key,) in store.read(sql, [bytes.fromhex(k) for k in batch]))
    return found


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    wanted = iter(dict.fromkeys(keys))
    while batch := list(islice(wanted, BATCH)):
        yield batch


# --- why a request is new ---------------------------------------------------------------------


@dataclass(frozen=True)
class Reason:
    """Why some requests are not stored: how they differ from the nearest that is."""

    why: str
    n_requests: int
    example: str


@dataclass(frozen=True)
class Explanation:
    """What a plan finds in a store, and why the rest of it is new, the most frequent first."""

    n_requests: int
    n_stored: int
    n_replies: int
    reasons: tuple[Reason, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the explanation as text, one example for each reason."""
        if not self.n_replies:
            yield f"nothing stored: all {_count(self.n_requests)} are new"
        elif self.n_stored == self.n_requests:
            yield f"everything is stored: {_count(self.n_requests)}"
        else:
            yield f"{self.n_stored:,} of {_count(self.n_requests)} are stored"
        for reason in self.reasons:
            verb = "is" if reason.n_requests == 1 else "are"
            yield f"{_count(reason.n_requests)} {verb} new because {reason.why}"
            yield f"    for example {reason.example}"


def _count(n_requests: int) -> str:
    return f"{n_requests:,} request{'' if n_requests == 1 else 's'}"


class _Ask(NamedTuple):
    """What a request says besides its prompt."""

    model: str
    params: str
    answers: tuple[str, ...]
    repeat: int


class _Shown(NamedTuple):
    """The prompt of a stored request; its shared part stays in the store."""

    prefix: int
    rest: str
    anchor: int


Place = tuple[object, ...]
"""What requests may have in common: a whole prompt, its rest, a prefix, a model."""

Near = tuple[_Ask, _Shown]


def explain(requests: Sequence[Request], store: Store) -> Explanation:
    """Compare the requests that are not stored with the nearest that are.

    The nearest has the same prompt, else the same query, else the same model; among those the
    fewest other differences. The store is read once.
    """
    stored = stored_among(store, (request.key for request in requests))
    missing = [request for request in requests if request.key not in stored]
    n_replies = len(store)
    if not n_replies or not missing:
        return Explanation(len(requests), len(stored), n_replies)
    index = _Index(store, missing)
    found: dict[tuple[str, ...], list[Request]] = {}
    nearest: dict[tuple[str, ...], Near] = {}
    for request in missing:
        near = index.nearest(request)
        why = index.differences(request, near)
        found.setdefault(why, []).append(request)
        nearest.setdefault(why, near)
    reasons = [
        Reason(" and ".join(why), len(new), index.example(new[0], nearest[why]))
        for why, new in found.items()
    ]
    ranked = sorted(reasons, key=lambda reason: -reason.n_requests)
    return Explanation(len(requests), len(requests) - len(missing), n_replies, tuple(ranked))


class _Index:
    """Stored requests by what they share with the wanted ones, one of each way of asking."""

    def __init__(self, store: Store, wanted: Sequence[Request]) -> None:
        self._store = store
        self._ids: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._hashes: dict[int, Any] = {}
        self._near: dict[Place, dict[_Ask, _Shown]] = {
            place: {} for request in wanted for place in self._places_of(request)
        }
        for row in store.read("SELECT model, prefix, rest, params FROM replies"):
            self._add(*row)

    def _places_of(self, request: Request) -> list[Place]:
        """Return where to look for the nearest stored request, best first."""
        head, rest = request.script.head.text, request.script.rest
        model, prefix = self._id(request.model), self._id(head)
        return _places(model, prefix, rest, _digest(_hashed(head), rest))

    def _add(self, model: int, prefix: int, rest: str, params: int) -> None:
        ask, anchor = _read_params(self._text(model), self._text(params))
        if prefix not in self._hashes:
            self._hashes[prefix] = _hashed(self._read_text(prefix))
        for place in _places(model, prefix, rest, _digest(self._hashes[prefix], rest)):
            if place in self._near:
                self._near[place].setdefault(ask, _Shown(prefix, rest, anchor))

    def nearest(self, request: Request) -> Near:
        """Return the stored request in the best place that differs least."""
        ask = _ask(request)
        candidates = next(filter(None, (self._near[p] for p in self._places_of(request))))
        old = min(candidates, key=lambda old: _distance(ask, old))
        return old, candidates[old]

    def differences(self, request: Request, near: Near) -> tuple[str, ...]:
        """Return the fields that differ, in words, equal for requests that differ alike."""
        old, shown = near
        told = [*self._prompt_differs(request, shown), *_differences(_ask(request), old)]
        if not told and request.script.anchor != shown.anchor:
            told = [f"anchor is {request.script.anchor}, stored: {shown.anchor}"]
        return tuple(told) or ("the role of a message differs",)

    def _prompt_differs(self, request: Request, shown: _Shown) -> list[str]:
        new, old = _prompt(request), self._prompt(shown)
        if new == old:
            return []
        if self._id(request.script.head.text) == shown.prefix:
            return ["the prompt differs behind the shared part"]
        if request.script.rest == shown.rest:
            return ["the prompt differs in the shared part"]
        return ["the prompt differs"]

    def example(self, request: Request, near: Near) -> str:
        """Return where a request first differs from a stored prompt, or how its prompt ends."""
        new, old = _prompt(request), self._prompt(near[1])
        if new == old:
            return f"the prompt that ends {_quoted(new[-SHORT:])}"
        start = _n_shared(new, old)
        return (
            f"from character {start + 1} on: {_quoted(new[start : start + SHORT])}, "
            f"stored: {_quoted(old[start : start + SHORT])}"
        )

    def _prompt(self, shown: _Shown) -> str:
        return self._text(shown.prefix) + shown.rest

    def _id(self, text: str) -> int:
        """Return the number of a text in the store, 0 for one that is not there."""
        if text not in self._ids:
            rows = self._store.read("SELECT id FROM texts WHERE text = ?", [text])
            self._ids[text] = next((int(row[0]) for row in rows), 0)
        return self._ids[text]

    def _text(self, number: int) -> str:
        if number not in self._texts:
            self._texts[number] = self._read_text(number)
        return self._texts[number]

    def _read_text(self, number: int) -> str:
        (row,) = self._store.read("SELECT text FROM texts WHERE id = ?", [number])
        return str(row[0])


def _places(model: int, prefix: int, rest: str, digest: bytes) -> list[Place]:
    return [
        ("prompt", digest),
        ("rest", rest),
        ("prefix", prefix, model),
        ("model", model),
        ("any",),
    ]


def _hashed(prefix: str) -> Any:
    return hashlib.blake2b(prefix.encode(), digest_size=16)


def _digest(prefix: Any, rest: str) -> bytes:
    """Return the hash of a prompt; a long shared part is hashed once only."""
    whole = prefix.copy()
    whole.update(rest.encode())
    return bytes(whole.digest())


def _n_shared(a: str, b: str) -> int:
    """Return how many characters two texts share at their start."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((place for place, (x, y) in pairs if x != y), min(len(a), len(b)))


def _prompt(request: Request) -> str:
    return request.script.head.text + request.script.rest


def _ask(request: Request) -> _Ask:
    return _Ask(request.model, request.params, tuple(request.answers), request.repeat)


@lru_cache(maxsize=1 << 14)
def _read_params(model: str, text: str) -> tuple[_Ask, int]:
    """Return what a stored request says besides its prompt, and its anchor."""
    params, answers, repeat, anchor = json.loads(text)
    return _Ask(model, params, tuple(answers), repeat), anchor


@lru_cache(maxsize=1 << 14)
def _distance(new: _Ask, old: _Ask) -> tuple[int, bool, int]:
    """Return how far two ways of asking are apart: fewest fields first, then the same model."""
    n_fields = len(_differences(new, old))
    return n_fields, new.model != old.model, abs(new.repeat - old.repeat)


@lru_cache(maxsize=1 << 14)
def _differences(new: _Ask, old: _Ask) -> tuple[str, ...]:
    told = [("model", new.model, old.model)] if new.model != old.model else []
    told += _param_differences(json.loads(new.params), json.loads(old.params))
    if new.answers != old.answers:
        told.append(("answers", _json(new.answers), _json(old.answers)))
    if new.repeat != old.repeat:
        told.append(("repeat", str(new.repeat), str(old.repeat)))
    return tuple(f"{name} is {_short(a)}, stored: {_short(b)}" for name, a, b in told)


def _param_differences(
    new: Mapping[str, Any], old: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    def said(params: Mapping[str, Any], name: str) -> str:
        return _json(params[name]) if name in params else "not set"

    names = sorted({*new, *old})
    pairs = [(f"params.{name}", said(new, name), said(old, name)) for name in names]
    return [(name, a, b) for name, a, b in pairs if a != b]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= 2 * SHORT else f"{text[:SHORT]}…{text[-SHORT:]}"


def _quoted(text: str) -> str:
    """Return a piece of a prompt on one line."""
    return _json(text) if text else "nothing more"


# --- export -----------------------------------------------------------------------------------

EXPORT_SQL = """
SELECT key, model.text, prefix.text, rest, params.text, replies.text, finish, scores,
       prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, seconds, answered.text
FROM replies
JOIN texts AS model ON model.id = replies.model
JOIN texts AS prefix ON prefix.id = replies.prefix
JOIN texts AS params ON params.id = replies.params
JOIN texts AS answered ON answered.id = replies.answered_by
"""
BEFORE = re.compile(r"(?:system|user|assistant)\x1f([^\x1e]*)\x1e")


def export(store: Store, out: Path, keys: Iterable[str] | None = None) -> int:
    """Write requests with their replies, row by row, and return how many; None means all.

    `params` is JSON text; `scores` are by answer, with None for minus infinity.
    """
    if out.suffix not in (".jsonl", ".parquet"):
        raise Problem(f"cannot write {out}: the name must end in .jsonl or .parquet")
    lines = out.with_name(out.name + ".lines")
    try:
        n_rows = _write_lines(lines, stored_rows(store, keys))
        if not n_rows:
            raise Problem(f"none of the wanted replies is in {store.path}; nothing is written")
        if out.suffix == ".parquet":
            _turn_to_parquet(lines)
        lines.replace(out)
    except OSError as error:
        raise Problem(f"cannot write {out} ({error}); name another file") from error
    finally:
        lines.unlink(missing_ok=True)
    return n_rows


def stored_rows(store: Store, keys: Iterable[str] | None = None) -> Iterator[dict[str, object]]:
    """Yield each stored request with its reply, all or those of some keys in their order."""
    if keys is None:
        yield from (_exported(row) for row in store.read(EXPORT_SQL))
        return
    for batch in _batches(keys):
        where = f"WHERE key IN ({','.join('?' * len(batch))})"
        rows = store.read(EXPORT_SQL + where, [bytes.fromhex(key) for key in batch])
        found = {row[0].hex(): row for row in rows}
        yield from (_exported(found[key]) for key in batch if key in found)


def _exported(row: Sequence[Any]) -> dict[str, object]:
    key, model, prefix, rest, params, text, finish, scores, *numbers, answered = row
    ask, _ = _read_params(model, params)
    values = (
        key.hex(),
        model,
        _prompt_text(prefix, rest),
        ask.params,
        list(ask.answers),
        ask.repeat,
        text,
        finish,
        _scores(scores),
        *numbers,
        *answered.split("\x1f"),
    )
    return dict(zip(EXPORTED, values, strict=True))


def _prompt_text(prefix: str, rest: str) -> str:
    """Return the prompt as it is shown: the messages in their order, a blank line between."""
    before, place = [], 0
    while found := BEFORE.match(prefix, place):
        before.append(found[1])
        place = found.end()
    return "\n\n".join([*before, prefix[place:] + rest])


def _scores(text: str | None) -> list[float | None] | None:
    if text is None:
        return None
    numbers = [float(part) for part in text.split(",") if part]
    return [number if math.isfinite(number) else None for number in numbers]


def _write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> int:
    n_rows = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(_json(row) + "\n")
            n_rows += 1
    return n_rows


def _turn_to_parquet(lines: Path) -> None:
    """Rewrite a file of JSON lines as Parquet, a chunk at a time."""
    table = lines.with_name(lines.name + ".new")
    try:
        pl.scan_ndjson(lines, schema=EXPORTED).sink_parquet(table)
        table.replace(lines)
    finally:
        table.unlink(missing_ok=True)


# --- prune ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pruned:
    """What a store keeps and loses when only some runs count."""

    n_kept: int
    n_removed: int


def plan_prune(store: Store, keys: Collection[str]) -> Pruned:
    """Return what would be removed if only these keys were kept; nothing is changed."""
    n_kept = len(stored_among(store, keys))
    return Pruned(n_kept, len(store) - n_kept)


def prune(path: Path, keys: Collection[str]) -> Pruned:
    """Remove every reply but those of these keys and give the space back.

    The store is locked alone: another program remembers texts that would go, and what it stores
    next would point nowhere.
    """
    with open_stored(path) as store:
        planned = plan_prune(store, keys)
    if not planned.n_kept:
        raise Problem(
            f"none of the kept runs rests on a reply in {path}; nothing is removed: name their "
            "store with --store, or delete the file to forget everything"
        )
    try:
        with closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)) as db:
            return _prune(db, keys)
    except sqlite3.Error as error:
        raise Problem(
            f"the reply store {path} cannot be pruned ({error}); if a run or another program uses "
            "it, wait for its end, and check that the disk has room for a copy"
        ) from error


def _prune(db: sqlite3.Connection, keys: Collection[str]) -> Pruned:
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
    # Leaving WAL fails while anybody else has the store open, and the lock is kept from here on.
    db.execute("PRAGMA journal_mode=DELETE")
    db.execute("BEGIN EXCLUSIVE")
    db.execute("CREATE TEMP TABLE kept (key BLOB PRIMARY KEY)")
    db.executemany("INSERT OR IGNORE INTO kept VALUES (?)", ([bytes.fromhex(key)] for key in keys))
    n_removed = db.execute("DELETE FROM replies WHERE key NOT IN (SELECT key FROM kept)").rowcount
    db.execute(
        "DELETE FROM texts WHERE id NOT IN (SELECT model FROM replies UNION"
        " SELECT prefix FROM replies UNION SELECT params FROM replies UNION"
        " SELECT answered_by FROM replies)"
    )
    n_kept = int(db.execute("SELECT count(*) FROM replies").fetchone()[0])
    db.execute("COMMIT")
    db.execute("VACUUM")
    return Pruned(n_kept, n_removed)
