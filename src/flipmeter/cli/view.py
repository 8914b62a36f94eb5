"""The verb view: runs in a browser, while they grow."""

from __future__ import annotations

import asyncio
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.app import DEFAULT_STORE, DataDir, StorePath, app, errors
from flipmeter.view import Shelf, Sources, open_view

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@app.command()
def view(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, or folders of them (runs).")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = LOOPBACK[0],
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 0,
    is_together: Annotated[
        bool, typer.Option("--together", help="Begin with all of them read as one run.")
    ] = False,
    is_opened: Annotated[bool, typer.Option("--open", help="Open a browser, too.")] = False,
    data_dir: DataDir = None,
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Look at runs in a browser: list, report, flips, progress, two compared, several as one."""
    shelf = Shelf(folders or [Path("runs")])
    if host not in LOOPBACK:
        errors().print(
            f"flipmeter: everybody who reaches {host} can read these runs, their prompts and "
            "replies; there is no password"
        )
    page = f"run/{shelf.whole.name}" if is_together else ""
    try:
        asyncio.run(_serve(shelf, Sources(store, data_dir), host, port, page, is_opened))
    except KeyboardInterrupt:
        return


async def _serve(
    shelf: Shelf, sources: Sources, host: str, port: int, page: str, is_opened: bool
) -> None:
    async with open_view(shelf, sources, host=host, port=port) as address:
        typer.echo(address + page)
        errors().print("Ctrl-C stops")
        if is_opened:
            webbrowser.open(address + page)
        await asyncio.Event().wait()
