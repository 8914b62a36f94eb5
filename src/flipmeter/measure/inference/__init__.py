"""One inference core: replies of a contrast -> the verdict that every surface prints."""

from flipmeter.measure.inference.blocks import Row
from flipmeter.measure.inference.conclude import verdict, verdicts
from flipmeter.measure.inference.words import Finding, Verdict, Word, not_identified

__all__ = ["Finding", "Row", "Verdict", "Word", "not_identified", "verdict", "verdicts"]
