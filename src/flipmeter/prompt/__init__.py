"""Item, View -> Prompt, and Reply -> Answer: probes, words, and what is read."""

from flipmeter.prompt import comparing, pointwise  # noqa: F401 - they register their parts
