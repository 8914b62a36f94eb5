"""RunFolders -> HTTP: the pages over run folders, on loopback, read only."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from markupsafe import Markup

from flipmeter.base.redaction import masked
from flipmeter.report.format import interval
from flipmeter.report.page import CHART, PLOT_STYLE, asset, environment, hash_source
from flipmeter.run.results.drawn_items import grid_page
from flipmeter.run.results.item_grid import ORDERS as ITEM_ORDERS
from flipmeter.run.results.item_grid import PAGE as ITEMS_PAGE
from flipmeter.run.results.item_grid import Sought, one_of
from flipmeter.types import Problem
from flipmeter.view.comparison import make_comparison
from flipmeter.view.explorer import item_address, item_page, menus
from flipmeter.view.flip_pages import KEY, PAGE, Flips, Wanted, read_key, read_place
from flipmeter.view.folders import AND, ChosenRuns, RunEntry, RunFolders, said
from flipmeter.view.jobs import PATIENCE, Jobs
from flipmeter.view.kept_grid import KeptGrid
from flipmeter.view.live import clock, describe
from flipmeter.view.sections import Library, Opened, make_report
from flipmeter.view.slices import make_slices, slice_menus

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
LIBRARIES = 8
"""Number of runs with their data in memory."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NotHere(Problem):
    """An address of something that is not there."""


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
        app.router.add_get("/run/{run}/items", self._items)
        app.router.add_get("/run/{run}/item", self._item)
        app.router.add_get("/run/{run}/slices", self._slices)
        app.router.add_get("/run/{run}/flips", self._flips)
        app.router.add_get("/run/{run}/flip", self._flip)
        app.router.add_get("/run/{run}/notes", self._notes)
        app.router.add_get("/run/{run}/sent", self._sent)
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
            response = _problem(error.status, f"{request.method} {request.path}: {error.reason}")
        except NotHere as problem:
            response = _problem(404, str(problem))
        except Problem as problem:
            response = _problem(400, str(problem))
        except Exception as error:  # a damaged file is no reason to stop serving the others
            response = _problem(500, said(error))
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
        sought = request.query.get("q", "").strip()
        entries = await asyncio.to_thread(self._entries)
        return _page(
            "runs.html",
            entries=[entry for entry in entries if _has(entry, sought)],
            n_runs=len(entries),
            sought=sought,
            roots=[str(root) for root in self._shelf.roots],
        )

    def _entries(self) -> list[dict[str, Any]]:
        """Every run as the list shows it."""
        return [_listed(entry) for entry in self._shelf.entries().values()]

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
        content: dict[str, Any] = _about(chosen) | {
            "lives": [(entry.name, describe(entry.beat)) for entry in chosen.entries if entry.beat]
        }
        if not chosen.has_results:
            title = " + ".join(entry.folder.name for entry in chosen.entries)
            return _page("run.html", report=None, title=title, **content)
        title = await asyncio.to_thread(lambda: chosen.run.study.name)
        report = await self._jobs.result(
            ("report", chosen, chosen.stamp),
            make_report,
            chosen,
            is_small=chosen.is_small,
        )
        n_decisions = chosen.n_decisions
        return _page("run.html", report=report, title=title, n_decisions=n_decisions, **content)

    async def _progress(self, request: web.Request) -> web.Response:
        beats = [entry.beat for entry in self._chosen(request).entries]
        beat = next(filter(None, beats), None)
        return web.json_response(None if beat is None else describe(beat).json())

    async def _items(self, request: web.Request) -> web.Response:
        chosen, sought = self._chosen(request), Sought.read(request.query)
        return await asyncio.to_thread(_items_page, chosen, sought)

    async def _item(self, request: web.Request) -> web.Response:
        chosen, query = self._chosen(request), request.query
        missing = [name for name in ("dataset", "item") if name not in query]
        if missing:
            raise Problem(f"the URL of an item needs {', '.join(missing)}")
        key = query["dataset"], query["item"]
        return await asyncio.to_thread(_item_page, chosen, key, Sought.read(_back(query)))

    async def _slices(self, request: web.Request) -> web.Response:
        chosen, sought = self._chosen(request), Sought.read(request.query)
        grid = KeptGrid.of(chosen)
        has_columns = await asyncio.to_thread(lambda: bool(grid.columns.by_name))
        page = None
        if has_columns:
            filters = tuple(sorted(sought.filters.items()))
            page = await self._jobs.result(
                ("slices", chosen, chosen.stamp, filters),
                make_slices,
                chosen,
                dict(filters),
                is_small=await asyncio.to_thread(_are_small, chosen),
            )
        return await asyncio.to_thread(
            lambda: _page(
                "slices.html",
                title=grid.run.study.name,
                page=page,
                menus=slice_menus(grid, page, sought) if has_columns else [],
                **_about(chosen),
            )
        )

    async def _flips(self, request: web.Request) -> web.Response:
        chosen, wanted = self._chosen(request), Wanted.read(request.query)
        return await asyncio.to_thread(_flips_page, chosen, wanted)

    async def _flip(self, request: web.Request) -> web.Response:
        chosen, key = self._chosen(request), read_key(request.query)
        return await asyncio.to_thread(_flip_page, chosen, key, _back(request.query))

    async def _notes(self, request: web.Request) -> web.Response:
        chosen = self._chosen(request)
        title = await asyncio.to_thread(lambda: chosen.run.study.name)
        return _page("notes.html", title=title, **_about(chosen))

    async def _sent(self, request: web.Request) -> web.Response:
        """A prompt as it was sent, or a reply as it came: nothing is cut, marked or replaced."""
        chosen, key = self._chosen(request), read_key(request.query)
        side = one_of("side", request.query.get("side", ""), {"0": "first", "1": "second"})
        opened = await asyncio.to_thread(_opened, chosen, key)
        if opened.sent is None:
            raise NotHere(opened.trouble)
        return web.Response(text=opened.sent[int(side)], content_type="text/plain", charset="utf-8")

    async def _compare(self, request: web.Request) -> web.Response:
        listed = [entry.name for entry in self._shelf.entries().values() if entry.has_results]
        names = [request.query.get(name, "") for name in ("first", "second")]
        contrast = request.query.get("contrast", "")
        comparison, is_asked = None, all(names)
        if is_asked:
            first, second = (self._find(name) for name in names)
            comparison = await self._jobs.result(
                ("compare", first, first.stamp, second, second.stamp, contrast),
                make_comparison,
                first,
                second,
                contrast,
                is_small=await asyncio.to_thread(_are_small, first, second),
            )
        return _page(
            "compare.html",
            entries=list(dict.fromkeys([*listed, *filter(None, names)])),
            names=names,
            comparison=comparison,
            contrast=contrast,
            is_asked=is_asked,
        )

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in ASSETS:
            raise NotHere(f"there is no {name}")
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        return web.Response(text=ASSETS[name](), content_type=kind, charset="utf-8")

    # --- what they are about ------------------------------------------------------------------

    def _chosen(self, request: web.Request) -> ChosenRuns:
        return self._find(request.match_info["run"])

    def _find(self, name: str) -> ChosenRuns:
        entries, names = self._shelf.entries(), name.split(AND)
        for one in names:
            if one not in entries:
                raise NotHere(f"no run named '{one}'; see the list of runs")
        return ChosenRuns(tuple(entries[one] for one in names))


def _library(chosen: ChosenRuns, wanted: Wanted) -> Library:
    return Library(Flips(chosen.run, chosen.stamp, wanted.text))


def _has(entry: Mapping[str, Any], sought: str) -> bool:
    """Whether a run has a text in its name, study, models, datasets or verdicts."""
    summary = entry["summary"]
    words = (
        entry["name"],
        summary.title,
        *summary.raters,
        *summary.datasets,
        *(summary.words or ()),
    )
    return all(word in " ".join(words).lower() for word in sought.lower().split())


def _listed(entry: RunEntry) -> dict[str, Any]:
    summary, beat = entry.summary, entry.beat
    worst = summary.worst
    return {
        "rate": _rate(worst) if worst is not None else "",
        "name": entry.name,
        "summary": summary,
        "has_results": entry.has_results,
        "when": clock(summary.when) if summary.when else "",
        "live": describe(beat) if beat is not None else None,
    }


def _rate(worst: Mapping[str, Any]) -> str:
    """The rate of a verdict; of one that is unreadable, how much of it is."""
    if worst["word"] == "unreadable":
        return f"{100 * (worst['unreadable'] or 0):.1f} % unreadable"
    return interval(worst)


def _about(chosen: ChosenRuns) -> dict[str, Any]:
    """The values that every page about a run is given."""
    return {"run": chosen.name, "parts": [entry.name for entry in chosen.entries]}


def _check_results(chosen: ChosenRuns) -> None:
    """Refuse runs that left nothing to look at, or something damaged."""
    for entry in chosen.entries:
        if entry.summary.trouble:
            trouble = entry.summary.trouble
            raise Problem(trouble if str(entry.folder) in trouble else f"{entry.folder}: {trouble}")


def _are_small(*runs: ChosenRuns) -> bool:
    return all(chosen.is_small for chosen in runs)


def _back(query: Mapping[str, str]) -> dict[str, str]:
    """Parameters of an address about the list that led to it: those that begin with _."""
    return {name[1:]: value for name, value in query.items() if name.startswith("_")}


def _items_page(chosen: ChosenRuns, sought: Sought) -> web.Response:
    grid = KeptGrid.of(chosen)
    page = grid_page(grid, sought)
    return _page(
        "items.html",
        title=grid.run.study.name,
        sought=sought,
        menus=menus(grid, sought),
        orders=list(ITEM_ORDERS.items()),
        page=page,
        rows=[
            (row, Markup('href="{}"').format(item_address(chosen.name, row.key, sought)))
            for row in page.rows
        ],
        **_about(chosen),
    )


def _item_page(chosen: ChosenRuns, key: tuple[str, str], sought: Sought) -> web.Response:
    grid = KeptGrid.of(chosen)
    page = item_page(chosen.name, grid, key, sought)
    if page is None:
        raise NotHere(f"no item '{key[1]}' of '{key[0]}' under these conditions")
    before, after = (
        item_address(chosen.name, beside, sought) if beside else ""
        for beside in (page.before, page.after)
    )
    return _page(
        "item.html",
        title=grid.run.study.name,
        page=page,
        before=before,
        after=after,
        back=sought,
        list_page=page.place // ITEMS_PAGE + 1 if page.place >= 0 else 1,
        **_about(chosen),
    )


def _flips_page(chosen: ChosenRuns, wanted: Wanted) -> web.Response:
    library = _library(chosen, wanted)
    n, rows = library.flips.n(wanted), library.flips.page(wanted)
    start = (wanted.page - 1) * PAGE
    return _page(
        "flips.html",
        title=library.run.study.name,
        wanted=wanted,
        filters=library.flips.filters(wanted),
        flips=[
            (flip, _address(chosen, {name: getattr(flip, name) for name in KEY}, wanted, at))
            for at, flip in enumerate(library.page(rows), start)
        ],
        first=start + 1,
        n_flips=n,
        n_all=_library(chosen, Wanted()).flips.n(Wanted()),
        n_pages=-(-n // PAGE),
        **_about(chosen),
    )


def _opened(chosen: ChosenRuns, key: Mapping[str, Any]) -> Opened:
    opened = Library(Flips(chosen.run, chosen.stamp)).open(key)
    if opened is None:
        raise NotHere(
            f"no answers to item '{key['item']}' under {key['contrast']} by '{key['rater']}'"
        )
    return opened


def _flip_page(chosen: ChosenRuns, key: Mapping[str, Any], told: Mapping[str, str]) -> web.Response:
    opened, back = _opened(chosen, key), Wanted.read(told)
    place = read_place(told)
    before, after = _beside(chosen, key, back, place) if place is not None else ("", "")
    sent = f"/run/{chosen.name}/sent?" + urlencode(dict(key))
    return _page(
        "flip.html",
        title=chosen.run.study.name,
        opened=opened,
        back=back,
        list_page=1 if place is None else place // PAGE + 1,
        place=-1 if place is None else place,
        n_flips=_library(chosen, back).flips.n(back) if place is not None else 0,
        before=before,
        after=after,
        raw=[f"{sent}&side={side}" for side in (0, 1)] if opened.sent else ("", ""),
        item=item_address(chosen.name, (key["dataset"], key["item"]), Sought.read(told)),
        **_about(chosen),
    )


def _beside(
    chosen: ChosenRuns, key: Mapping[str, Any], wanted: Wanted, place: int
) -> tuple[str, str]:
    """The addresses of the flips before and after one; none if it is not in its list."""
    flips = _library(chosen, wanted).flips
    start = max(place - 1, 0)
    rows = flips.some(wanted, start, 3 if place else 2).select(KEY).rows(named=True)
    at = place - start
    if at >= len(rows) or rows[at] != dict(key):
        return "", ""
    before = _address(chosen, rows[at - 1], wanted, place - 1) if at else ""
    after = _address(chosen, rows[at + 1], wanted, place + 1) if at + 1 < len(rows) else ""
    return before, after


def _address(chosen: ChosenRuns, key: Mapping[str, Any], wanted: Wanted, place: int) -> str:
    """The address of a flip; parameters that begin with _ lead back to its list."""
    told = {f"_{name}": value for name, value in (wanted.asked | {"n": str(place)}).items()}
    return f"/run/{chosen.name}/flip?" + urlencode({**key, **told})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _page(template: str, status: int = 200, **content: Any) -> web.Response:
    text = environment("flipmeter.view").get_template(template).render(content)
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8")


def _problem(status: int, message: str) -> web.Response:
    return _page("problem.html", status, message=message)


@cache
def _own(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


ASSETS: dict[str, Callable[[], str]] = {
    "page.css": lambda: asset("page.css"),
    "page.js": lambda: asset("page.js"),
    **{name: partial(asset, name) for name in CHART},
    "view.css": lambda: _own("view.css"),
    "view.js": lambda: _own("view.js"),
}
