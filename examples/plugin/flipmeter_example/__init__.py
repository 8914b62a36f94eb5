"""A plug-in for flipmeter. Importing this module registers its parts, one per module."""

from flipmeter_example import aggregator, backend, probe, section

__all__ = ["aggregator", "backend", "probe", "section"]
