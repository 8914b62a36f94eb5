"""User-fixable errors."""


class Problem(Exception):
    """A user-fixable error: the message names the thing, the value and the way out."""

    def __init__(self, *said: object) -> None:
        from flipmeter.base.redaction import masked  # it would double what `import flipmeter` loads

        super().__init__(*(masked(one) if isinstance(one, str) else one for one in said))


class Incomplete(Problem):
    """Work that stopped early; all replies are stored."""
