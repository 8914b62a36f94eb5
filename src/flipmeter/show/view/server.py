"""RunFolders -> HTTP: the pages over run folders, on loopback, read only."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from flipmeter.errors import Problem
from flipmeter.redaction import masked
from flipmeter.show.format import interval
from flipmeter.show.item_grid import Sought, one_of
from flipmeter.show.page import CHART, HERE, PLOT_STYLE, environment, hash_source
from flipmeter.show.page.markup import Menu
from flipmeter.show.view.comparison import make_comparison
from flipmeter.show.view.explorer import item_page, items_page, make_slices, slice_menus
from flipmeter.show.view.flip_pages import flips_of, read_key
from flipmeter.show.view.folders import (
    AND,
    ChosenRuns,
    NotHere,
    RunEntry,
    RunFolders,
    clock,
    describe,
    said,
)
from flipmeter.show.view.sections import (
    PATIENCE,
    Jobs,
    flip_page,
    flips_page,
    make_report,
    open_flip,
)

SAYING = {"text/html", "text/plain", "application/json"}
"""Pages made of studies and replies; the rest is our own."""
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'self' {hash_source(PLOT_STYLE)}; script-src 'self'; "
        "connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOCAL = "localhost"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PAGES: Mapping[str, Callable[[ChosenRuns, Mapping[str, str]], dict[str, Any]]] = {
    "items": items_page,
    "item": item_page,
    "flips": flips_page,
    "flip": flip_page,
    "notes": lambda chosen, query: {},
}
"""The pages about a run that are made at once, by their name in addresses."""


@asynccontextmanager
async def open_view(
    shelf: RunFolders, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serve the pages of a shelf and give their address; port 0 takes a free one."""
    viewer = Viewer(shelf, host)
    runner = web.AppRunner(viewer.application(), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise Problem(
                f"cannot listen on {host}:{port} ({error.strerror or error}); use another --port"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


class Viewer:
    """The routes. Everything is read when it is asked for; nothing is ever written."""

    def __init__(
        self,
        shelf: RunFolders,
        host: str = "127.0.0.1",
        patience: float = PATIENCE,
    ) -> None:
        self._shelf = shelf
        self._host = host
        self._jobs = Jobs(patience)

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._list)
        app.router.add_get("/together", self._together)
        app.router.add_get("/run/{run}", self._run)
        app.router.add_get("/run/{run}/progress", self._progress)
        app.router.add_get("/run/{run}/slices", self._slices)
        app.router.add_get("/run/{run}/sent", self._sent)
        for name in PAGES:
            app.router.add_get(f"/run/{{run}}/{name}", partial(self._at_once, name))
        app.router.add_get("/compare", self._compare)
        app.router.add_get("/assets/{name}", self._asset)
        app.on_cleanup.append(self._close)
        return app

    async def _close(self, _: web.Application) -> None:
        self._jobs.close()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer to our own name only, and put whatever goes wrong on a page."""
        try:
            self._check_host(request)
            response = await handler(request)
        except web.HTTPException as error:
            response = _problem_page(
                error.status, f"{request.method} {request.path}: {error.reason}"
            )
        except NotHere as problem:
            response = _problem_page(404, str(problem))
        except Problem as problem:
            response = _problem_page(400, str(problem))
        except Exception as error:  # a damaged file is no reason to stop serving the others
            response = _problem_page(500, said(error))
        if isinstance(response, web.Response) and response.content_type in SAYING:
            response.text = masked(response.text or "")
        response.headers.update(HEADERS)
        return response

    def _check_host(self, request: web.Request) -> None:
        """Refuse names that others may have pointed at us (DNS rebinding), but no numbers."""
        name = request.url.host or ""
        if name not in (LOCAL, self._host) and not _is_address(name):
            raise web.HTTPForbidden(reason=f"this server is not {name[:80]}; use {self._host}")

    # --- pages --------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        return await asyncio.to_thread(self._listed, request.query.get("q", "").strip())

    def _listed(self, sought: str) -> web.Response:
        entries = self._shelf.entries().values()
        return _render_page(
            "runs.html",
            entries=[entry for entry in entries if _matches_search(entry, sought)],
            n_runs=len(entries),
            sought=sought,
            roots=[str(root) for root in self._shelf.roots],
            rate=_worst_rate,
            clock=clock,
            describe=describe,
        )

    async def _together(self, request: web.Request) -> web.Response:
        """Lead to the page of the runs that were ticked on the list."""
        names = request.query.getall("run", [])
        if not names:
            raise Problem("no run is ticked; go back and tick the runs to join")
        address = f"/run/{self._find(AND.join(names)).name}"
        return web.Response(status=303, headers={"Location": address})

    async def _run(self, request: web.Request) -> web.Response:
        chosen = self._chosen(request)
        await asyncio.to_thread(_check_results, chosen)
        content: dict[str, Any] = {"report": None}
        if chosen.has_results:
            report = await self._made(make_report, chosen)
            content = {"report": report, "n_decisions": chosen.n_decisions}
        lives = [(entry.name, describe(entry.beat)) for entry in chosen.entries if entry.beat]
        return await asyncio.to_thread(_page_of, "run", chosen, lives=lives, **content)

    async def _progress(self, request: web.Request) -> web.Response:
        beats = [entry.beat for entry in self._chosen(request).entries]
        beat = next(filter(None, beats), None)
        if beat is None:
            return web.json_response(None)
        live = describe(beat)
        facts = {name: text for name, _, text in live["facts"]}
        return web.json_response({**live, "facts": facts})

    async def _at_once(self, name: str, request: web.Request) -> web.Response:
        chosen = self._chosen(request)
        content = await asyncio.to_thread(PAGES[name], chosen, request.query)
        return await asyncio.to_thread(_page_of, name, chosen, **content)

    async def _slices(self, request: web.Request) -> web.Response:
        chosen, sought = self._chosen(request), Sought.read(request.query)
        grid, page = flips_of(chosen), None
        has_columns = await asyncio.to_thread(lambda: bool(grid.columns.by_name))
        if has_columns:
            page = await self._made(make_slices, chosen, tuple(sorted(sought.filters.items())))
        menus = await asyncio.to_thread(slice_menus, grid, page, sought) if has_columns else []
        return await asyncio.to_thread(_page_of, "slices", chosen, page=page, menus=menus)

    async def _sent(self, request: web.Request) -> web.Response:
        """A prompt as it was sent, or a reply as it came: nothing is cut, marked or replaced."""
        chosen, key = self._chosen(request), read_key(request.query)
        side = one_of("side", request.query.get("side", ""), {"0": "first", "1": "second"})
        opened = await asyncio.to_thread(lambda: open_flip(flips_of(chosen), key))
        if opened["sent"] is None:
            raise NotHere(opened["trouble"])
        text = opened["sent"][int(side)]
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    async def _compare(self, request: web.Request) -> web.Response:
        listed = [entry.name for entry in self._shelf.entries().values() if entry.has_results]
        names = [request.query.get(name, "") for name in ("first", "second")]
        contrast, is_asked = request.query.get("contrast", ""), all(names)
        comparison = None
        if is_asked:
            comparison = await self._made(make_comparison, *map(self._find, names), contrast)
        known = list(dict.fromkeys([*listed, *filter(None, names)]))
        titles = ("First, which is subtracted", "Second")
        usual = zip(("first", "second"), titles, names, known[1::-1], strict=False)
        picked = [
            Menu(name, title, [(one, one) for one in known], chosen or latest, "")
            for name, title, chosen, latest in usual
        ]
        return _render_page(
            "compare.html",
            picked=picked,
            names=names,
            comparison=comparison,
            contrast=contrast,
            is_asked=is_asked,
        )

    async def _made(self, work: Callable[..., Any], *about: Any) -> Any | None:
        """The result of long work, made once for every state of its runs; None before."""
        runs = [one for one in about if isinstance(one, ChosenRuns)]
        is_small = await asyncio.to_thread(lambda: all(chosen.is_small for chosen in runs))
        key = (work, *about, *(chosen.stamp for chosen in runs))
        return await self._jobs.result(key, work, *about, is_small=is_small)

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in ASSETS:
            raise NotHere(f"there is no {name}")
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        text = ASSETS[name].read_text(encoding="utf-8")
        return web.Response(text=text, content_type=kind, charset="utf-8")

    # --- what they are about ------------------------------------------------------------------

    def _chosen(self, request: web.Request) -> ChosenRuns:
        return self._find(request.match_info["run"])

    def _find(self, name: str) -> ChosenRuns:
        entries, names = self._shelf.entries(), name.split(AND)
        for one in names:
            if one not in entries:
                raise NotHere(f"no run named '{one}'; see the list of runs")
        return ChosenRuns(tuple(entries[one] for one in names))


def _matches_search(entry: RunEntry, sought: str) -> bool:
    """Whether a run has a text in its name, study, models, datasets or verdicts."""
    found = entry.summary
    words = (entry.name, found.title, *found.raters, *found.datasets, *(found.words or ()))
    return all(word in " ".join(words).lower() for word in sought.lower().split())


def _worst_rate(worst: Mapping[str, Any]) -> str:
    """The rate of a verdict; of one that is unreadable, how much of it is."""
    if worst["word"] == "unreadable":
        return f"{100 * (worst['unreadable'] or 0):.1f} % unreadable"
    return interval(worst)


def _check_results(chosen: ChosenRuns) -> None:
    """Refuse runs that left nothing to look at, or something damaged."""
    for entry in chosen.entries:
        if entry.summary.trouble:
            trouble = entry.summary.trouble
            raise Problem(trouble if str(entry.folder) in trouble else f"{entry.folder}: {trouble}")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _render_page(template: str, status: int = 200, **content: Any) -> web.Response:
    text = environment("flipmeter.show.view").get_template(template).render(content)
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8")


def _page_of(name: str, chosen: ChosenRuns, **content: Any) -> web.Response:
    """A page about a run, with its title and what else stands on every one of them."""
    names = [entry.folder.name for entry in chosen.entries]
    title = chosen.run.study.name if chosen.has_results else " + ".join(names)
    parts = [entry.name for entry in chosen.entries]
    return _render_page(f"{name}.html", run=chosen.name, parts=parts, title=title, **content)


def _problem_page(status: int, message: str) -> web.Response:
    return _render_page("problem.html", status, message=message)


ASSETS = {
    **{name: HERE / name for name in ("page.css", "page.js", *CHART)},
    **{name: Path(__file__).parent / name for name in ("view.css", "view.js")},
}
