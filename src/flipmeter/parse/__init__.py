"""Reply -> Answer: read the label, undo the order, name the fault."""

from flipmeter.parse.answer import counted, parse

__all__ = ["counted", "parse"]
