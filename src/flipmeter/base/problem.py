"""What a user can put right."""


class Problem(Exception):
    """The user can mend this: the message names the thing, the value and the way out."""
