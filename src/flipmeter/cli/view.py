"""The verb view: runs in a browser, while they grow."""

from __future__ import annotations

import asyncio
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.consoles import errors
from flipmeter.cli.options import verb
from flipmeter.view import RunFolders, open_view

app = verb()

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
) -> None:
    """Look at runs in a browser: list, report, flips, progress, two compared, several as one."""
    shelf = RunFolders(folders or [Path("runs")])
    if host not in LOOPBACK:
        errors().print(
            f"flipmeter: everybody who reaches {host} can read these runs, their prompts and "
            "replies; there is no password"
        )
    page = f"run/{shelf.whole.name}" if is_together else ""
    try:
        asyncio.run(_serve(shelf, host, port, page, is_opened))
    except KeyboardInterrupt:
        return


async def _serve(shelf: RunFolders, host: str, port: int, page: str, is_opened: bool) -> None:
    async with open_view(shelf, host=host, port=port) as address:
        typer.echo(address + page)
        errors().print("Ctrl-C stops")
        if is_opened:
            webbrowser.open(address + page)
        await asyncio.Event().wait()
