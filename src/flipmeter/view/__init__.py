"""Run folders -> pages: a small web application that reads, and never writes."""

from flipmeter.view.folders import Shelf
from flipmeter.view.making import Sources
from flipmeter.view.server import open_view

__all__ = ["Shelf", "Sources", "open_view"]
