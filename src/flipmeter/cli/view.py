"""The verb view: runs in a browser, live."""

from __future__ import annotations

import asyncio
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.consoles import errors
from flipmeter.cli.options import AsJson, verb
from flipmeter.cli.output import finish
from flipmeter.show.view.folders import RunFolders
from flipmeter.show.view.server import open_view

app = verb()

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@app.command()
def view(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, or folders of them (runs).")
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen on.")] = LOOPBACK[
        0
    ],
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", help="The port to listen on; 0: any free port.", max=65535, min=0
        ),
    ] = 0,
    is_together: Annotated[
        bool, typer.Option("--together", help="Start with all runs joined into one.")
    ] = False,
    is_opened: Annotated[bool, typer.Option("--open", help="Open a browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Serve runs to a browser: reports, flipped items, progress, comparisons."""
    shelf = RunFolders(folders or [Path("runs")])
    if host not in LOOPBACK:
        errors().print(
            f"flipmeter: anyone who can reach {host} can read these runs, prompts and replies "
            "included; there is no password"
        )
    page = f"run/{shelf.whole.name}" if is_together else ""
    try:
        asyncio.run(_serve(shelf, host, port, page, is_opened, as_json))
    except KeyboardInterrupt:
        return


async def _serve(
    shelf: RunFolders, host: str, port: int, page: str, is_opened: bool, as_json: bool
) -> None:
    async with open_view(shelf, host=host, port=port) as address:
        finish({"address": address + page}, address + page, as_json=as_json)
        errors().print("Ctrl-C stops")
        if is_opened:
            webbrowser.open(address + page)
        await asyncio.Event().wait()
