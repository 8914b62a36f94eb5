"""The verb serve: embedded and simulated models behind HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from flipmeter.base.checks import at_least
from flipmeter.cli.consoles import errors
from flipmeter.cli.options import (
    DataDir,
    TrustCode,
    TrustHosts,
    verb,
)
from flipmeter.data import load
from flipmeter.model import (
    open_backend,
    run_forever,
)
from flipmeter.study.grid import world
from flipmeter.types import Model

app = verb()


@app.command()
def serve(
    model: Annotated[list[str], typer.Argument(help="Models: NAME=local/..., '*=sim/honest'.")],
    dataset: Annotated[
        str, typer.Option(help="The dataset that simulated raters know.")
    ] = "reviews",
    data_dir: DataDir = None,
    port: Annotated[
        int, typer.Option(help="The port on the loopback address.", min=0, max=65535)
    ] = 8080,
    delay: Annotated[float, typer.Option(help="Seconds that every answer is held back.")] = 0.0,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Serve embedded or simulated models as an OpenAI-compatible endpoint on loopback."""
    at_least(delay, 0, "--delay")
    named = dict(_served(text) for text in model)
    has_sim = any(address.startswith("sim/") for address in named.values())
    known = world(load(dataset, data_dir=data_dir)) if has_sim else None
    opened = {name: open_backend(Model(address), known) for name, address in named.items()}
    errors().print(f"serving {', '.join(named)} on http://127.0.0.1:{port}/v1 (Ctrl-C stops)")
    asyncio.run(run_forever(opened, port=port, delay=delay))


def _served(text: str) -> tuple[str, str]:
    """Read NAME=ADDRESS; an address alone is served under its own name."""
    name, equals, address = text.partition("=")
    is_pair = bool(equals) and "?" not in name  # sim/first-slot?strength=1 is an address
    return (name, address) if is_pair else (text, text)
