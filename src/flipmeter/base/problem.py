"""What a user can put right."""


class Problem(Exception):
    """A user-fixable error: the message names the thing, the value and the way out."""


class Incomplete(Problem):
    """Work that stopped before its end; what was answered is stored."""
