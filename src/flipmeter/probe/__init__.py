"""Item -> View: the positions that a rater must not care about."""

from flipmeter.probe.orders import demo_orders, order_demos, show
from flipmeter.probe.probes import Probe, contrasts_of, expand, probes

__all__ = [
    "Probe",
    "contrasts_of",
    "demo_orders",
    "expand",
    "order_demos",
    "probes",
    "show",
]
