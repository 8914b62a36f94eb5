"""The reply store: an append-only journal in SQLite. A key that is stored is never asked again."""

from __future__ import annotations

import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from sqlite3 import DatabaseError
from types import TracebackType
from typing import Any, NamedTuple

from flipmeter.ask.family import Capability
from flipmeter.ask.rescue import Room, left_behind, rescue
from flipmeter.errors import Damaged, Incomplete, Problem, Unusable
from flipmeter.files import inside, make_folder
from flipmeter.redaction import all_masked, masked
from flipmeter.types import Reply, Request, Usage, canonical_json

BEFORE_CHECKSUMS = -1
"""Stands for the checksum of what an older flipmeter stored: it is taken as it is."""

Row = tuple[Any, ...]


def reply_sum(answered: str, values: Sequence[Any], numbers: Sequence[Any]) -> int:
    """The checksum of a reply, the same under every version of Python and in every store.

    What points to a text is left out, as the numbers of texts differ by store.
    """
    floats = [None if number is None else float(number) for number in numbers]
    return zlib.crc32(ascii((answered, *values, floats)).encode())


def text_sum(text: str) -> int:
    return zlib.crc32(text.encode())


def whole_text(found: tuple[str, int] | None) -> str:
    """A text that many replies share, with its checksum; without it the store cannot be used."""
    if found is None:
        raise DatabaseError("a shared text of replies is missing")
    text, stored = found
    if stored not in (BEFORE_CHECKSUMS, text_sum(text)):
        raise DatabaseError("the checksum of a shared text of replies is wrong")
    return text


JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
PROGRAMS = """
SELECT count(*) FROM sqlite_master
WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'
"""
HIDDEN = """
SELECT count(*) FROM sqlite_master AS made, pragma_table_xinfo(made.name)
WHERE made.type = 'table' AND hidden
"""
LONGEST = 2**26
"""Bytes of a value: a reply is limited to less."""


def refuse_journal(path: Path) -> None:
    """Refuse, as damaged, a journal that names another file, which SQLite would then delete.

    A transaction in several files ends so; ours are in one.
    """
    journal = path.with_name(f"{path.name}-journal")
    if not journal.is_file():
        return
    with journal.open("rb") as file:
        file.seek(max(0, journal.stat().st_size - len(JOURNAL_MAGIC)))
        if file.read() == JOURNAL_MAGIC:
            raise sqlite3.DatabaseError(
                f"{journal.name} next to it belongs to another file; remove it"
            )


def refuse_programs(db: sqlite3.Connection) -> None:
    """Refuse, as damaged, a store with views, triggers or computed columns, which may never end."""
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    db.execute("PRAGMA trusted_schema=OFF")
    if db.execute(PROGRAMS).fetchone()[0] or db.execute(HIDDEN).fetchone()[0]:
        raise sqlite3.DatabaseError("it contains views, triggers or computed columns")


BATCH = 900
"""SQLite takes at most 999 variables in one statement on old builds."""

TABLES = (
    """
CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE replies (
    key BLOB NOT NULL,
    model INTEGER NOT NULL,      -- texts: what was asked
    prefix INTEGER NOT NULL,     -- texts: the shared part of the prompt, stored once
    rest TEXT NOT NULL,          -- the part of the prompt behind the anchor
    params INTEGER NOT NULL,     -- texts: decoding fields, answers, repeat
    text TEXT NOT NULL,
    finish TEXT NOT NULL,
    scores TEXT,
    prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER,
    reasoning_tokens INTEGER,
    seconds REAL NOT NULL,
    answered_by INTEGER NOT NULL -- texts: model, provider and fingerprint as the reply names them
);
""",
    """
CREATE TABLE capabilities (
    model TEXT NOT NULL,         -- the identity of what was examined
    asked TEXT NOT NULL,         -- how it is asked: interface and extra fields, as canonical JSON
    name TEXT NOT NULL,
    is_there INTEGER,            -- NULL: it could not be told
    how TEXT NOT NULL,
    seen TEXT NOT NULL,          -- the UTC date of the examination
    PRIMARY KEY (model, asked, name)
) WITHOUT ROWID;
""",
    """
CREATE TABLE owners (
    id INTEGER PRIMARY KEY,
    node TEXT NOT NULL, boot TEXT NOT NULL, space TEXT NOT NULL,
    pid INTEGER NOT NULL, started TEXT NOT NULL,
    beats INTEGER NOT NULL       -- counted, not timed: clocks of two machines differ
);
CREATE TABLE leases (key BLOB PRIMARY KEY, owner INTEGER NOT NULL) WITHOUT ROWID;
""",
    f"""
ALTER TABLE texts ADD COLUMN checksum INTEGER NOT NULL DEFAULT {BEFORE_CHECKSUMS};
ALTER TABLE replies ADD COLUMN checksum INTEGER NOT NULL DEFAULT {BEFORE_CHECKSUMS};
""",
)
"""The additions of each schema version; together, a new store."""
BY_KEY = len(TABLES)
"""Up to this version replies lie in the order of their keys, which are hashes: every reply goes to
another page, and half of each page stays empty. Such a store is used as it is until it is converted
(`flipmeter cache convert`)."""
SCHEMA = BY_KEY + 1
"""Replies lie in the order in which they came, behind an index of the beginnings of their keys."""
START = "substr(key, 1, 12)"
"""The beginning of a key: no two keys share 96 bits, and the whole would double the index."""
PAGES = "PRAGMA page_size=16384"
"""In small pages, replies to long prompts leave a quarter of each page empty."""
JOURNAL = f"PRAGMA wal_autocheckpoint={2 * 2**20 // 16384}"
"""The WAL stays at about 2 MB. At SQLite's 1,000 pages it would take more than the reserve holds: a
disk that had room for the replies would fill up with their journal."""
INDEX = f"CREATE UNIQUE INDEX replies_by_key ON replies ({START})"

SELECT = """
SELECT key, rest, text, finish, scores, prompt_tokens, cached_tokens, completion_tokens,
       reasoning_tokens, seconds, answered_by, checksum
FROM replies
"""
INSERT = f"INTO replies VALUES ({','.join('?' * 15)})"
LAST = "SELECT max(rowid) FROM replies"
WAIT_SECONDS = 60
MEMORY = ":memory:"
BESIDE = ("", "-wal", "-shm", "-journal")
"""The endings of the files of a database."""


class KeptRequest(NamedTuple):
    """The stored part of a request: its key, and texts that no lookup reads."""

    key: str
    model: str
    prefix: str
    rest: str
    params: str

    @classmethod
    def of(cls, request: Request) -> KeptRequest:
        script = request.script
        params = stored_params(request.params, request.answers, request.repeat, script.anchor)
        return cls(request.key, request.model, script.head.text, script.rest, params)


class Store:
    """Replies by request key. A reply is on disk before `put` returns.

    A reply whose checksum is wrong counts as not stored; `damaged` has the keys of those seen.
    `unsaved` are replies that could not be stored: they go to a rescue file when this is closed, as
    does what was stored here in a file that is gone by then.
    """

    def __init__(self, path: Path | str = MEMORY) -> None:
        self.path = str(path)
        self.place = Path()
        self.unsaved: list[tuple[Request, Reply]] = []
        self._has_written = self._is_damaged = False
        self._why = ""
        self._n_bytes = 0
        self._last: int | None = None
        with _explain_store_errors(self.path):
            if path != MEMORY:
                self.place = Path(path).absolute()
                make_folder(Path(path).parent)
                refuse_journal(Path(path))
            self._db = connect(self.path, timeout=WAIT_SECONDS, is_of_one_thread=False)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise
        self.damaged: set[str] = set()
        self._texts: dict[str, int] = {}
        self._answered: dict[int, str] = {}
        self.room = Room(self.path)
        self._turn = threading.RLock()
        self._files = self._files_now()
        for left in left_behind(Path(path)) if path != MEMORY else ():
            from flipmeter.ask.merge import take_in  # it imports this module

            try:
                take_in(left, self)  # what an earlier process could not leave here
            except BaseException:
                self._db.close()
                raise
        self._has_written = False

    def _open(self) -> None:
        # What cannot be decoded has a wrong checksum, like any other damage.
        self._db.text_factory = partial(str, encoding="utf-8", errors="replace")
        refuse_programs(self._db)
        self._db.execute(PAGES)  # of a new file: an old one keeps its own
        self._switch_to_wal()
        # WAL with NORMAL survives the death of the process at any moment.
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(JOURNAL)
        self._db.execute("BEGIN IMMEDIATE")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        for added in TABLES[version:]:
            for statement in added.split(";\n"):
                self._db.execute(statement)
        if not version:
            self._db.execute(INDEX)
        if version < BY_KEY:
            self._db.execute(f"PRAGMA user_version={BY_KEY if version else SCHEMA}")
        self._db.execute("COMMIT")
        self.version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA:
            raise Problem(
                f"the reply store {self.path} was written by a newer flipmeter "
                f"(schema {version}, this one knows {SCHEMA}); upgrade, or use another --store"
            )

    def _switch_to_wal(self) -> None:
        """Set the journal mode; SQLite does not wait here when another process does the same."""
        for _ in range(WAIT_SECONDS * 20):
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                time.sleep(0.05)
        raise Problem(f"the reply store {self.path} is locked by another program; try again")

    def get(self, keys: Iterable[str]) -> dict[str, Reply]:
        """The stored replies among these keys."""
        with self._watched():
            return {row[0].hex(): self._reply(row) for row in self._whole(keys)}

    def among(self, keys: Iterable[str]) -> set[str]:
        """The keys among these that are stored."""
        with self._watched():
            return {row[0].hex() for row in self._whole(keys)}

    def check(self) -> list[str]:
        """Read everything, and return the keys of damaged replies."""
        with _explain_store_errors(self.path):
            for found in self._db.execute("SELECT text, checksum FROM texts"):
                whole_text(found)
            return [row[0].hex() for row in self._db.execute(SELECT) if not self._is_whole(row)]

    def _whole(self, keys: Iterable[str]) -> Iterator[Row]:
        for row in self.rows_of(SELECT, keys):
            if self._is_whole(row):
                yield row
            else:
                self.damaged.add(row[0].hex())

    def rows_of(self, select: str, keys: Iterable[str]) -> Iterator[Row]:
        """The rows of a query about replies that have one of these keys, which stand first."""
        wanted = list(dict.fromkeys(keys))
        is_by_key = self.version <= BY_KEY
        for start in range(0, len(wanted), BATCH):
            blobs = [bytes.fromhex(key) for key in wanted[start : start + BATCH]]
            found = blobs if is_by_key else [blob[:12] for blob in blobs]
            where = f"WHERE {'key' if is_by_key else START} IN ({','.join('?' * len(blobs))})"
            yield from self._db.execute(f"{select} {where}", found)

    def _is_whole(self, row: Row) -> bool:
        """Whether a reply is what was stored."""
        *values, answered_by, stored = row
        if stored == BEFORE_CHECKSUMS:
            return True
        answered = self._answered_by(answered_by)
        try:
            return bool(stored == reply_sum(answered, values[:5], values[5:]))
        except (TypeError, ValueError):  # a number that is none any more
            return False

    def _answered_by(self, number: int) -> str:
        if number not in self._answered:
            sql = "SELECT text, checksum FROM texts WHERE id = ?"
            self._answered[number] = whole_text(self._db.execute(sql, [number]).fetchone())
        return self._answered[number]

    def _reply(self, row: Row) -> Reply:
        _, _, text, finish, scores, *usage, seconds, answered_by, _ = row
        model, provider, fingerprint = self._answered_by(answered_by).split("\x1f")
        return Reply(
            text=text,
            finish=finish,
            scores=tuple(map(float, scores.split(","))) if scores else None,
            usage=Usage(*usage),
            seconds=seconds,
            model=model,
            provider=provider,
            fingerprint=fingerprint,
        )

    def put(self, request: Request, reply: Reply) -> None:
        """Store a reply; an existing key keeps its first reply."""
        self.put_many([(request, reply)])

    def put_many(self, pairs: Iterable[tuple[Request, Reply]]) -> dict[str, Reply]:
        """Store some replies, all or none, and return those that were there before."""
        return self.put_kept((KeptRequest.of(request), reply) for request, reply in pairs)

    def put_kept(self, pairs: Iterable[tuple[KeptRequest, Reply]]) -> dict[str, Reply]:
        """Store replies by the keys of their requests, whose prompts may be left out."""
        answered = list(pairs)
        if any(reply.error for _, reply in answered):
            raise ValueError("an error is not a reply; send the request again")
        if not answered:
            return {}
        try:
            return self._put(answered)
        except Incomplete:
            if not self.room.is_short:
                raise
            return self._put(answered)  # what is paid for is stored in what was held back

    def _put(self, answered: Sequence[tuple[KeptRequest, Reply]]) -> dict[str, Reply]:
        earlier: dict[str, Reply] = {}
        with self.transaction() as db:
            rows = [self._row(request, reply) for request, reply in answered]
            inserted = db.executemany(f"INSERT OR IGNORE {INSERT}", rows)
            if inserted.rowcount < len(rows):
                earlier = self.get(row[0].hex() for row in rows)
                damaged = [row for row in rows if row[0].hex() not in earlier]
                db.executemany(f"INSERT OR REPLACE {INSERT}", damaged)
            # A lease goes with its reply, whoever holds it.
            db.executemany("DELETE FROM leases WHERE key = ?", [row[:1] for row in rows])
        self.damaged.difference_update(row[0].hex() for row in rows)
        return earlier

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all or nothing, one at a time; whoever is inside one joins it."""
        with self._turn, self._watched(), self.room.noticed():
            is_inside = self._db.in_transaction
            if is_inside:
                yield self._db
                return
            # SQLite never shortens a file in use: one that is shorter was overwritten in place.
            n_bytes, self._n_bytes = self._n_bytes, 0
            with suppress(OSError):
                self._n_bytes = self.place.stat().st_size
            self._is_damaged |= self._n_bytes < n_bytes
            self._db.execute("BEGIN IMMEDIATE")
            try:
                if self._last is None and self.version > BY_KEY:
                    self._last = self._db.execute(LAST).fetchone()[0] or 0
                yield self._db
                self._db.execute("COMMIT")
                self._has_written = True
            except BaseException:
                # SQLite itself rolls back when a disk is full: a second time would hide the reason.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self._texts.clear()
                self._answered.clear()
                raise
            self.refuse_loss()

    def refuse_loss(self) -> None:
        """Refuse to go on with a file that the next process will not find."""
        if self._is_damaged or self._files_now() != self._files:
            self._why = (
                f"the reply store {self.path} was removed, renamed or overwritten while it was in "
                "use; sending has stopped"
            )
            raise Incomplete(self._why)

    def _files_now(self) -> list[tuple[int, int]]:
        """The database and its journal, as they are at their path; in memory there is none."""
        found: list[tuple[int, int]] = []
        for end in ("", "-wal", "-shm") if self.place.name else ():
            with suppress(OSError):
                about = Path(f"{self.place}{end}").lstat()
                found.append((about.st_dev, about.st_ino))
        return found

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Explain what goes wrong; once something was written here, that leaves work undone."""
        try:
            with _explain_store_errors(self.path):
                yield
        except Unusable as problem:
            self._why = str(problem)
            self._is_damaged |= isinstance(problem, Damaged)
            if self._has_written:
                raise Incomplete(self._why) from problem
            raise

    @property
    def is_lost(self) -> bool:
        """Whether the next process will not find here what this one has stored."""
        return self._has_written and (self._is_damaged or self._files_now() != self._files)

    def keys_after(self, n_earlier: int) -> Iterator[str]:
        """The keys of what was stored since this first wrote, and of some replies before.

        In a store of an old layout it is not known which they are: of all replies.
        """
        where = "" if self._last is None else f"WHERE rowid > {self._last - n_earlier}"
        return (row[0].hex() for row in self.read(f"SELECT key FROM replies {where}"))

    def _row(self, request: KeptRequest, reply: Reply) -> Row:
        answered = "\x1f".join((reply.model, reply.provider, reply.fingerprint))
        answered, text, finish, rest = all_masked(answered, reply.text, reply.finish, request.rest)
        key = bytes.fromhex(request.key)
        scores = ",".join(map(repr, reply.scores)) if reply.scores is not None else None
        said = text, finish, scores
        numbers = *vars(reply.usage).values(), reply.seconds
        return (
            key,
            self._text(request.model),
            self._text(request.prefix),
            rest,
            self._text(request.params),
            *said,
            *numbers,
            self._text(answered),
            reply_sum(answered, (key, rest, *said), numbers),
        )

    def _text(self, text: str) -> int:
        if text not in self._texts:
            kept = masked(text)
            row = [kept, text_sum(kept)]
            self._db.execute("INSERT OR IGNORE INTO texts(text, checksum) VALUES (?, ?)", row)
            found = self._db.execute("SELECT id FROM texts WHERE text = ?", [kept]).fetchone()
            self._texts[text] = found[0]
        return self._texts[text]

    def capabilities(self, model: str, asked: str) -> dict[str, Capability]:
        """By name what is known of a model that is asked in some way."""
        rows = self.read(
            "SELECT name, is_there, how, seen FROM capabilities WHERE model = ? AND asked = ?",
            [model, asked],
        )
        return {
            name: Capability(name, None if is_there is None else bool(is_there), how, seen)
            for name, is_there, how, seen in rows
        }

    def note_capabilities(self, model: str, asked: str, found: Iterable[Capability]) -> None:
        """Record what an examination found, in the place of what was known before."""
        rows = [(model, asked, c.name, c.is_there, c.how, c.seen) for c in found]
        with self.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO capabilities VALUES (?,?,?,?,?,?)", rows)

    def read(self, sql: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, for verbs that look at the whole store."""
        with _explain_store_errors(self.path):
            yield from self._db.execute(sql, values)

    def __len__(self) -> int:
        with _explain_store_errors(self.path):
            return int(self._db.execute("SELECT count(*) FROM replies").fetchone()[0])

    def close(self) -> None:
        """Close the file; what it cannot keep is rescued, which is an error."""
        try:
            if self.place.name and (self.is_lost or self.unsaved):
                if not self._why:
                    with suppress(Incomplete):
                        self.refuse_loss()
                why = self._why or f"the reply store {self.path} did not take all replies"
                if told := rescue(self, why):
                    raise told
        finally:
            self._has_written, self.unsaved = False, []
            self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    path: Path | str, *, timeout: float = 5, is_of_one_thread: bool = True
) -> sqlite3.Connection:
    """Open a database; no link may be in its place, or in that of a file kept beside it."""
    for ending in BESIDE if path != MEMORY else ():
        inside(Path(f"{path}{ending}"))
    return sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=is_of_one_thread
    )


@lru_cache(maxsize=1024)
def stored_params(params: str, answers: tuple[str, ...], repeat: int, anchor: int) -> str:
    """The fields of a request besides its model and prompt, as stored."""
    return canonical_json([params, answers, repeat, anchor])


@contextmanager
def _explain_store_errors(path: str) -> Iterator[None]:
    """Turn what SQLite and the file system say into what the user can do."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        raise Unusable(
            f"the reply store {path} cannot be used ({error}); nothing stored is lost: check the "
            f"permissions and the disk, where {path} and {path}-wal are the store, or use "
            "another file with --store"
        ) from error
    except (sqlite3.Error, AttributeError, TypeError, ValueError) as error:
        kind = Damaged if isinstance(error, sqlite3.DatabaseError) else Unusable
        raise kind(
            f"the reply store {path} cannot be used: it is damaged, or not a reply store "
            f"({error}); restore a backup, save what .recover of sqlite3 can read, or use "
            "another file with --store"
        ) from error
