"""Run folders -> pages: a small web application that reads, and never writes."""

from flipmeter.view.folders import RunFolders
from flipmeter.view.server import open_view

__all__ = ["RunFolders", "open_view"]
