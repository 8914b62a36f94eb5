"""Run folders -> pages: a small web application that reads, and never writes."""

from flipmeter.view.making import Sources
from flipmeter.view.server import open_view
from flipmeter.view.shelf import Shelf

__all__ = ["Shelf", "Sources", "open_view"]
