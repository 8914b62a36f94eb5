"""Leases of requests: a request that another process has sent is waited for, not paid again.

A lease is a row of the store. It ends with the reply, when its owner gives it back, or when the
owner is found dead: a process of this machine that has ended, or one of another machine or
container whose beats have stopped. A running process of this machine keeps its leases, even if it
is stopped or busy: it may have answers in its sockets that it has not read yet.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from sqlite3 import Connection
from weakref import WeakValueDictionary

from flipmeter.ask.store import BATCH, WAIT_SECONDS, Store
from flipmeter.process import ProcessName, this_process
from flipmeter.types import Reply

BEAT = 5.0
"""Seconds between two signs of life."""
SILENT = WAIT_SECONDS + 30.0
"""An owner out of sight that gave no sign for so many seconds is taken for dead.

They are counted here, from the last change that was seen: clocks of two machines differ. One that
waits for the store gives no sign meanwhile.
"""

LEASE = "INSERT OR IGNORE INTO leases VALUES (?, ?)"
_SENDING: WeakValueDictionary[int, Leases] = WeakValueDictionary()
"""Senders of this process; other entries of this process in a store are leftovers."""


@dataclass(frozen=True)
class Claimed:
    """The result of a claim: replies already stored, keys that others ask; the rest is ours."""

    stored: dict[str, Reply]
    elsewhere: dict[str, ProcessName]


@dataclass
class Leases:
    """The leases of one who sends; each has an entry of its own in the store."""

    store: Store
    id: int = field(default_factory=lambda: secrets.randbits(62))
    last_beat: float = 0.0
    n_beats: int = 0
    _beats_of: dict[int, tuple[int, float]] = field(default_factory=dict)
    _dead: set[int] = field(default_factory=set)

    @property
    def is_stale(self) -> bool:
        """Whether others may take us for dead: this process was stopped for a while."""
        return self.n_beats > 0 and time.monotonic() - self.last_beat > SILENT - BEAT

    def claim(self, keys: Sequence[str]) -> Claimed:
        """Lease what has no reply and no living owner, in one transaction."""
        found = Claimed({}, {})
        began = time.monotonic()
        with self.store.transaction() as db:
            if time.monotonic() - began > BEAT:
                self._beats_of.clear()  # others could not write meanwhile either
            self._beat(db)
            for start in range(0, len(keys), BATCH):
                batch = keys[start : start + BATCH]
                found.stored.update(self.store.get(batch))
                blobs = [bytes.fromhex(key) for key in batch if key not in found.stored]
                wanted = [(blob, self.id) for blob in blobs]
                db.executemany(LEASE, wanted)
                found.elsewhere.update(self._held_by_others(blobs))
                for owner in self._dead:  # they are forgotten with all that they held
                    db.execute("DELETE FROM leases WHERE owner = ?", [owner])
                    db.execute("DELETE FROM owners WHERE id = ?", [owner])
                db.executemany(LEASE, wanted if self._dead else ())
        return found

    def give_back(self, keys: Sequence[str]) -> None:
        """Let others ask some of what is leased."""
        with self.store.transaction() as db:
            given = [(bytes.fromhex(key), self.id) for key in keys]
            db.executemany("DELETE FROM leases WHERE key = ? AND owner = ?", given)

    def release(self) -> None:
        """Give back what has no reply."""
        _SENDING.pop(self.id, None)  # also if the store cannot be written
        with self.store.transaction() as db:
            db.execute("DELETE FROM leases WHERE owner = ?", [self.id])
            db.execute("DELETE FROM owners WHERE id = ?", [self.id])

    def beat(self) -> None:
        """Give a sign of life."""
        with self.store.transaction() as db:
            self._beat(db)

    def _beat(self, db: Connection) -> None:
        me = this_process()
        _SENDING[self.id] = self
        self.n_beats += 1  # never restarts: others check whether it changes
        db.execute(
            "INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?, ?)",
            [self.id, me.node, me.boot, me.space, me.pid, me.started, self.n_beats],
        )
        self.last_beat = time.monotonic()

    def _held_by_others(self, keys: list[bytes]) -> dict[str, ProcessName]:
        """Leases of other live processes."""
        marks = ",".join("?" * len(keys))
        rows = self.store.read(
            "SELECT key, owner, node, boot, space, pid, started, beats"
            " FROM leases LEFT JOIN owners ON owners.id = owner"
            f" WHERE key IN ({marks}) AND owner != ?",
            [*keys, self.id],
        )
        held: dict[str, ProcessName] = {}
        judged: dict[int, bool] = {}
        for key, owner, node, *name, beats in rows:
            process = ProcessName(node or "", *name)
            if owner not in judged:
                judged[owner] = node is None or self._is_dead(owner, process, beats)
            if not judged[owner]:
                held[key.hex()] = process
        self._dead = {owner for owner, is_dead in judged.items() if is_dead}
        return held

    def _is_dead(self, owner: int, process: ProcessName, beats: int) -> bool:
        """Judge by the process where it can be seen, else by its beats as seen from here."""
        if process == this_process():
            return owner not in _SENDING
        if process.is_gone or process.is_here:
            return process.is_gone
        known, since = self._beats_of.setdefault(owner, (beats, time.monotonic()))
        if known != beats:
            self._beats_of[owner] = beats, time.monotonic()
            return False
        return time.monotonic() - since > SILENT
