"""Item -> View: the positions that a rater must not care about."""

from flipmeter.probe.orders import demo_orders, order_demos, place_order, show
from flipmeter.probe.probes import Probe, base_view, contrasts_of, expand, probes, shown_in

__all__ = [
    "Probe",
    "base_view",
    "contrasts_of",
    "demo_orders",
    "expand",
    "order_demos",
    "place_order",
    "probes",
    "show",
    "shown_in",
]
