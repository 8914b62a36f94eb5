"""Answer -> Decision: what must be asked about an item, and the class that settles it."""

from flipmeter.decide.pipelines import Pipeline, pipelines

__all__ = ["Pipeline", "pipelines"]
