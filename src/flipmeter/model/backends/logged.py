"""Replies that another program received: only the store is read, and no model is called."""

from __future__ import annotations

from flipmeter.types import Decoding, Reply, Request


class LoggedBackend:
    """The backend of a model that another program called."""

    is_reproducible = False
    concurrency = 1
    parameters = frozenset({*vars(Decoding())})

    def __init__(self, identity: str) -> None:
        self.identity = identity

    async def ask(self, request: Request) -> Reply:
        return Reply(error="the log that this run was imported from has no reply to this request")

    async def close(self) -> None: ...
