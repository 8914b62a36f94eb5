"""Every error that one module raises and another one catches, as a tree.

Exception
├── Problem              the user can fix it; the command line prints it and exits with 2
│   ├── BadInput         texts, labels or parameters of a classifier; a ValueError too
│   ├── Unusable         a reply store that cannot be read or written
│   │   └── Damaged      ... that holds what was never stored there
│   └── Incomplete       work stopped early, all replies are stored; exits with 4
│       ├── Drained      on request
│       ├── OutOfBudget  before the next request could exceed the budget
│       ├── Outage       because a server only fails
│       └── Unreadable   because the first replies make no sense as labels
└── Retry                this attempt failed, another may succeed
    ├── Silent           there was no answer in time
    ├── Unreachable      there was no connection
    └── Lost             an actor is gone, its requests go to another
KeyboardInterrupt
└── Stopped              a drain is over, or a signal came while nothing was being sent
"""


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
