"""Answer -> Decision: what must be asked about an item, and the class that settles it."""

from flipmeter.pipelines import comparison, corrections, orbit, panels  # noqa: F401 - they register their parts
