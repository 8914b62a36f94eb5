"""User-fixable errors."""


class Problem(Exception):
    """A user-fixable error: the message names the thing, the value and the way out."""


class Incomplete(Problem):
    """Work that stopped early; all replies are stored."""
