"""Compare raters that cannot flip with others at equal cost, on simulated raters with a tilt.

    python benchmarks/flipproof.py [--items 120] [--classes 5] [--write]

Each tilt is planted in a simulated rater. Accuracy under the base
view and flips when labels are reversed (P1) and demonstrations shuffled (P2c) come with 95 % Wilson
intervals; calls are those of one item, tokens words of its prompts. Sampled votes (temperature 0.7)
and averages over random label orders get as many calls as `orbit` takes, and many more.
`--write` puts the table at its place in docs/flip-proof.md.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from flipmeter.ask.sim import SimRater, latents
from flipmeter.ask.tilts import sim_spec
from flipmeter.chance import draw
from flipmeter.prompt.probes import probes
from flipmeter.run.conditions import orbits_of
from flipmeter.run.rate import Rating, seat
from flipmeter.stats.formulas import wilson
from flipmeter.study.entries import DecodingEntry, make_rater
from flipmeter.types import Condition, Item, Model, Reply, Scale, Style, Task, View

PAGE = Path(__file__).parents[1] / "docs" / "flip-proof.md"
START, END = "<!-- benchmarks/flipproof.py -->", "<!-- end of flipproof -->"
NAMES = ("very negative", "negative", "neutral", "positive", "very positive")
TILTS = {
    "none": "sim/honest",
    "first slot, 1.5": "sim/first-slot",
    "first slot, 4": "sim/first-slot?strength=4",
    "late slots, 1 each": "sim/honest?slope=1",
    "last demonstration, 3": "sim/recency?strength=3",
}
TEMPERATURE = 0.7
CONTENDERS = {
    "words": "pointwise",
    "words, batch calibration": "pointwise+batch",
    **{
        f"`{name}`": name
        for name in (
            *("votes(2)", "votes(16)", "random_orders(2)", "random_orders(16)"),
            *("orbit", "orbit(batch)"),
        )
    },
}


def condition_of(pipeline: str, n_items: int, n_classes: int) -> Condition:
    names = NAMES if n_classes == 5 else NAMES[1::2] if n_classes == 2 else NAMES[1:4]
    task = Task(Scale(names))
    items = tuple(
        Item(f"i{k}", {"text": f"This is text number {k} of many."}, k % n_classes + 1)
        for k in range(n_items)
    )
    demos = tuple(
        Item(f"d{r}", {"text": f"Shown for class {r}."}, r, "demo")
        for r in sorted(task.scale.ranks, key=lambda rank: draw("demo", rank))
    )
    style = Style(label_format="natural_language", shots=1)
    rater = make_rater(Model("sim/honest"), style, pipeline, DecodingEntry(), has_scores=True)
    view = View("base", tuple(task.scale.ranks))
    return Condition(rater, "texts", task, 0, view, demos, items)


@dataclass(frozen=True)
class Measured:
    """Effect of a pipeline on a rater."""

    right: int
    flips: list[int]
    ruled_out: list[bool]
    n: int
    calls: float
    tokens: float


def rated(
    condition: Condition, sim: SimRater, said: dict[str, Reply]
) -> tuple[list[int], float, float]:
    """The classes of all items, and what one of them takes in calls and words of prompts."""
    rating = Rating([condition], {seat(condition): "sim"})
    calls = list(rating.calls())
    for call in calls:
        if call.request.key not in said:
            said[call.request.key] = asyncio.run(sim.ask(call.request))
    rating.hear(calls, said)
    words = sum(said[call.request.key].usage.prompt or 0 for call in calls)
    n = len(condition.items)
    return [one.decision.rank for one in rating.settle()], len(calls) / n, words / n


def measured(pipeline: str, spec: str, n_items: int, n_classes: int) -> Measured:
    condition = condition_of(pipeline, n_items, n_classes)
    noise = TEMPERATURE if pipeline.startswith("votes") else 0.0
    known = (*condition.items, *condition.demos)
    scale = condition.task.scale
    sim = SimRater(replace(sim_spec(spec), noise=noise), latents(known, scale), scale.names)
    said: dict[str, Reply] = {}
    base, calls, tokens = rated(condition, sim, said)
    others = [probes["label_order"].views(n_classes)[1], probes["demo_order"].views(n_classes)[3]]
    moved = [replace(condition, view=view) for view in others]
    found = [rated(one, sim, said)[0] for one in moved]
    flips = [sum(a != b for a, b in zip(base, one, strict=True)) for one in found]
    orbit, *orbits = (orbits_of(one)(condition.items[0]) for one in (condition, *moved))
    ruled_out = [one == orbit != "" for one in orbits]
    right = sum(a == item.rank for a, item in zip(base, condition.items, strict=True))
    return Measured(right, flips, ruled_out, n_items, calls, tokens)


def share(k: int, n: int) -> str:
    low, high = wilson(k, n)
    return f"{100 * k / n:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def lines(n_items: int, n_classes: int) -> Iterator[str]:
    yield f"{n_items} texts, {n_classes} classes, one demonstration of each; percent."
    yield ""
    yield "| tilt | rater | calls | tokens | accuracy [95 %] | P1 [95 %] | P2c [95 %] |"
    yield "| --- | --- | ---: | ---: | --- | --- | --- |"
    for tilt, spec in TILTS.items():
        for shown, pipeline in CONTENDERS.items():
            found = measured(pipeline, spec, n_items, n_classes)
            each = zip(found.flips, found.ruled_out, strict=True)
            p1, p2 = (rate(k, found.n, is_ruled_out) for k, is_ruled_out in each)
            cost = f"{found.calls:.0f} | {found.tokens:.0f}"
            yield f"| {tilt} | {shown} | {cost} | {share(found.right, found.n)} | {p1} | {p2} |"


def rate(k: int, n: int, is_ruled_out: bool) -> str:
    """A measured rate, or that there is none to measure."""
    assert not (is_ruled_out and k)
    return "0 by construction" if is_ruled_out else share(k, n)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--items", type=int, default=120)
    parser.add_argument("--classes", type=int, default=5, choices=(2, 3, 5))
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    asked = parser.parse_args()
    text = "\n".join(lines(asked.items, asked.classes))
    print(text)
    if asked.write:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(START)
        _, after = rest.split(END)
        PAGE.write_text(f"{before}{START}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
