"""Run folders -> pages: a small web application that reads, and never writes."""

from flipmeter.show.view.folders import RunFolders
from flipmeter.show.view.server import open_view

__all__ = ["RunFolders", "open_view"]
