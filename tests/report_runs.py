"""Runs of simulated raters that a report must do justice to, and texts that try to break it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import polars as pl

from changed_runs import changed
from flipmeter.ask.store import Store
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.study.file import read_study

HOSTILE = {
    "script": "<script>document.title = 'owned'; alert(1)</script> went well",
    "end of script": "</script></style><script>document.title='owned'</script> fine",
    "attribute": "\" onmouseover=\"document.title='owned'\" x=\" ' onfocus='alert(2)' y='",
    "image": "<img src=x onerror=\"document.title='owned'\"><svg onload=alert(3)>",
    "link": '<a href="javascript:alert(4)">click</a> [click](javascript:alert(5)) {{ 7 * 7 }}',
    "base": "<base href='http://192.0.2.1/'><meta http-equiv=refresh content='0;url=//192.0.2.1'>",
    "direction": "left \u202eright to left\u202c and \u2066isolated\u2069 \u200fmarks\u200e done",
    "ansi": "\x1b[31mred\x1b[0m \x1b]8;;http://192.0.2.1\x07link\x1b]8;;\x07 and a bell \x07",
    "null": "nothing\x00 after, a form feed \x0c, a line \u2028 separator and \ufeff a mark",
    "comment": "<!-- <!--> ]]> --> <![CDATA[ %3Cscript%3E &lt;b&gt; &#x3c;",
    "formula": '=HYPERLINK("http://192.0.2.1"; "open") and @everyone',
    "tall": "a" + "\u0301" * 300 + " stacked, then " + "z" * 3_000,
    "gap": "a private \ue000 character that frames use for themselves",
}
LONG = "long " * 20_000


def simulated(folder: Path, store: Store | None = None, **changes: Any) -> Run:
    """Return a run of simulated raters on the bundled reviews."""
    content: dict[str, Any] = {
        "name": "simulated",
        "models": ["sim/first-slot"],
        "datasets": ["reviews"],
        "test_size": 45,
        "base": {"shots": 1},
    }
    study = read_study({**content, **changes})
    return perform(study, folder, Store() if store is None else store, Terms(anyway=True))


def hostile(folder: Path) -> Run:
    """Return a run whose texts, replies and names all try to break out of a page."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [*HOSTILE.values(), LONG]
    with (folder / "hostile.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["body", "severity"])
        for number in range(60):
            text = texts[number % len(texts)].replace(
                "\0", ""
            )  # a reply may hold it, a file may not
            rows.writerow([f"{text} {number}", ("low", "mid", "high")[number % 3]])
    name = "\"><script>alert('name')</script>"
    simulated(
        folder,
        name=f"{name} \u202e".replace("/", ""),  # a study's name is a file name
        models=[{"model": "sim/first-slot?strength=6", "name": f"{name}' onload='x"}],
        datasets=[
            {
                "file": str(folder / "hostile.csv"),
                "name": "<b>set</b>",
                "text": "body",
                "label": "severity",
                "scale": ["low", "mid", "high"],
            }
        ],
        test_size=24,
    )
    calls = Run(folder).calls
    replies = [texts[place % len(texts)] for place in range(len(calls))]
    return changed(folder, calls=calls.with_columns(pl.Series("reply", replies)))


def many(folder: Path) -> Run:
    """Return three raters on three datasets with several levels and two seeds."""
    return simulated(
        folder,
        name="many",
        models=["sim/biased-noisy", "sim/first-slot?strength=3", "sim/refusing"],
        datasets=["reviews", *_halves(folder)],
        seeds=[0, 1],
        test_size=15,
        vary={"label_format": ["letter", "neutral_id"], "mood": ["indicative"], "shots": [0, 2]},
    )


def _halves(folder: Path) -> list[dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    specs = []
    for name, words in (("tickets", ("low", "medium", "high")), ("stars", ("1", "2", "3", "4"))):
        path = folder / f"{name}.csv"
        lines = [
            f"{name} number {k} about thing {k * 7 % 11},{words[k % len(words)]}"
            for k in range(120)
        ]
        path.write_text("body,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
        spec = {
            "file": str(path),
            "name": name,
            "text": "body",
            "label": "label",
            "scale": list(words),
        }
        specs.append(spec)
    return specs
