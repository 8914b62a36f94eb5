"""Item -> View: the positions that a rater must not care about."""

from flipmeter.probe.orders import RANDOM_OFFSET, demo_orders, order_demos
from flipmeter.probe.probes import (
    Probe,
    contrasts_of,
    expand,
    natural,
    probes,
    reversed_order,
)

__all__ = [
    "RANDOM_OFFSET",
    "Probe",
    "contrasts_of",
    "demo_orders",
    "expand",
    "natural",
    "order_demos",
    "probes",
    "reversed_order",
]
