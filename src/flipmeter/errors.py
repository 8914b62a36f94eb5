"""Errors that a user can act on, one tree."""


class Problem(Exception):
    """A user-fixable error: the message names the thing, the value and the way out."""

    def __init__(self, *said: object) -> None:
        from flipmeter.redaction import masked  # it would double what `import flipmeter` loads

        super().__init__(*(masked(one) if isinstance(one, str) else one for one in said))


class Incomplete(Problem):
    """Work that stopped early; all replies are stored."""


class BadInput(Problem, ValueError):
    """Texts, labels or parameters that cannot be used; scikit-learn expects a ValueError."""


class Unusable(Problem):
    """A store that cannot be read or written."""


class Damaged(Unusable):
    """A store that holds what was never stored there."""


class Drained(Incomplete):
    """Sending was stopped on request; everything that was answered is stored."""


class OutOfBudget(Incomplete):
    """The next request could exceed the budget."""


class Outage(Incomplete):
    """A server that only fails; what it answered before is stored."""


class Unreadable(Incomplete):
    """The first replies of every rater make no sense as labels."""


class Retry(Exception):
    """This attempt failed and another may succeed, not before `after` seconds if that is known.

    One that `is_free` never reached a model and is not billed.
    """

    def __init__(self, reason: str, after: float | None = None, *, is_free: bool = False) -> None:
        super().__init__(reason)
        self.after = after
        self.is_free = is_free


class Silent(Retry):
    """No answer in time."""


class Unreachable(Retry):
    """No connection: a wrong address, a server not started, or one that has gone away."""


class Lost(Retry):
    """An actor is gone or was restarted by Ray: its requests go to another."""


class Stopped(KeyboardInterrupt):
    """A drain is over, or a signal came when nothing was being sent."""
