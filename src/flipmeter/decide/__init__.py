"""Answer -> Decision: what must be asked about an item, and the class that settles it."""

from flipmeter.decide import comparing, correcting  # their pipelines are added on import
from flipmeter.decide.pipelines import (
    Heard,
    Panel,
    Pipeline,
    Traits,
    in_mode,
    open_pipeline,
    pipelines,
)

__all__ = [
    "Heard",
    "Panel",
    "Pipeline",
    "Traits",
    "comparing",
    "correcting",
    "in_mode",
    "open_pipeline",
    "pipelines",
]
