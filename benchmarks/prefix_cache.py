"""Ask vendors that bill like their prefix caches, and compare the bill with what `plan` expected.

    python benchmarks/prefix_cache.py [--items 40] [--shots 12]

Every model is asked three times with an empty store: as flipmeter asks, without waiting for the
first request behind a head, and without any mark. The servers run on this machine and bill as the
vendors' documentation says; no vendor is asked.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest.mock import patch

from billing import VENDORS, Bill, billing
from goals import Goal, show_goals
from rich.console import Console
from rich.table import Table

import flipmeter as fm
from flipmeter.ask.plan import PrefixCache

SENTENCE = (
    "the plot is thin but the acting holds it up and no one in the room was bored for long "
    "although the second half takes its time and the music is a matter of taste"
)
PRICE = {"prompt": 1.0, "completion": 0.0}
LABELS = ("very bad", "bad", "mixed", "good", "very good")
WAYS = ("as asked", "not waiting", "no marks")


def table(path: Path, n_rows: int) -> None:
    """Write labelled texts of about 400 characters, no two alike."""
    chance = random.Random(0)
    rows = (" ".join(chance.choices(SENTENCE.split(), k=80)) for _ in range(n_rows))
    lines = (f"{LABELS[number % 5]},{text} {number}" for number, text in enumerate(rows))
    path.write_text("\n".join(["label,text", *lines]) + "\n", encoding="utf-8")


def study(model: str, data: Path, n_items: int, shots: int) -> fm.Study:
    return fm.Study(
        models=[{"model": model, "price": PRICE, "concurrency": 32}],
        datasets=[{"file": str(data), "text": "text", "label": "label", "scale": list(LABELS)}],
        test_size=n_items,
        probes=["label_order", "demo_order"],
        repeats=2,
        base={"shots": shots},
    )


@contextmanager
def changed(way: str) -> Iterator[None]:
    """Take away one part of how flipmeter asks."""
    parts: dict[str, AbstractContextManager[object]] = {
        "not waiting": patch.object(PrefixCache, "is_cold", lambda *_: False),
        "no marks": patch.object(PrefixCache, "told", property(lambda _: None)),
    }
    if way in parts:
        with parts[way]:
            yield
    else:
        yield


def asked(model: str, way: str, folder: Path, n_items: int, shots: int) -> tuple[float, Bill]:
    """The share of the prompt price that `plan` expects to save, and the bill of the run."""
    stem, data = VENDORS[model][0], folder / "texts.csv"
    with billing(model) as (url, bill), changed(way):
        os.environ |= {f"{stem}_BASE_URL": url, f"{stem}_API_KEY": "no-key-is-needed-here"}
        made = study(model, data, n_items, shots)
        store = folder / f"{model.replace('/', '-')}-{way}.sqlite"
        (seen,) = made.plan(store=store, is_offline=True).forecasts
        made.run(folder / f"{model.replace('/', '-')}-{way}", store=store, is_quiet=True)
    whole = seen.prompt_tokens * PRICE["prompt"] / 1e6
    return (seen.usd_saved_by_cache or 0.0) / whole, bill


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--shots", type=int, default=12)
    options = parser.parse_args()
    shown = Table(title="Share of the price of prompts that the vendor's prefix cache saves")
    for name in ("model", "requests", "expected", *WAYS, "expected / billed"):
        shown.add_column(name, justify="left" if name == "model" else "right")
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        table(folder / "texts.csv", 5 * options.shots * 2 + options.items)
        for model in VENDORS:
            found = {way: asked(model, way, folder, options.items, options.shots) for way in WAYS}
            expected, bill = found["as asked"]
            ratio = (1 - expected) / (1 - bill.saved)
            saved = [f"{100 * found[way][1].saved:.1f} %" for way in WAYS]
            row = f"{bill.n_requests:,}", f"{100 * expected:.1f} %", *saved, f"{ratio:.3f}"
            shown.add_row(model, *row)
            goals.append(Goal(f"{model}: expected / billed, above", ratio, "<=", 1.1))
            goals.append(Goal(f"{model}: expected / billed, below", ratio, ">=", 0.9))
    Console(width=120).print(shown)
    show_goals(goals)


if __name__ == "__main__":
    main()
