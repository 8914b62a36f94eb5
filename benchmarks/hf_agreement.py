"""Ask llama.cpp and transformers the same prompts with the same weights, and count what differs.

    python benchmarks/hf_agreement.py [--items 30]

The file is SmolLM2-135M as it is published (Q4_1). llama.cpp rounds what it multiplies to 8 bits,
transformers computes with 32: where the best two labels are closer than the margin, either may win.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from flipmeter.ask.names import identity_of, open_backend, request_for
from flipmeter.ask.weights import local_models
from flipmeter.data.load import load
from flipmeter.data.sampling import merge, sample
from flipmeter.prompt.parsing import parse
from flipmeter.prompt.pointwise import render
from flipmeter.prompt.probes import expand
from flipmeter.types import Answer, Decoding, Model, Prompt, Reply, Style

MARGIN = 0.5
"""Nats between the best two labels, by transformers: below it the two engines may differ."""
GREEDY = Decoding(max_tokens=4, stop=("\n",))
NAME = "smollm2-135m-q4_1"


@dataclass(frozen=True)
class Agreement:
    """Number of equal greedy labels, and the margin of the best two labels for the others.

    A reply in which no label can be read agrees with another such reply; `n_read` counts the rest.
    `shift` is the largest difference between what both engines give a label of a prompt.
    """

    n: int
    n_read: int
    n_agree: int
    gaps: tuple[float, ...]
    shift: float

    @property
    def n_far(self) -> int:
        return sum(gap >= MARGIN for gap in self.gaps)


def compare(n_items: int) -> Agreement:
    """Agreement of the two engines on the label."""
    file = local_models[NAME].fetch()
    options = {"gguf_file": file.name, "device_map": "cpu", "dtype": "float32"}
    theirs = Model(f"hf/{file.parent}", interface="completions", options=options)
    prompts = _prompts(n_items)
    ours = _ask(Model(f"local/{NAME}"), prompts)
    others = _ask(theirs, prompts)
    read = [
        (parse(a, p), parse(b, p), b.scores or ())
        for a, b, p in zip(ours, others, prompts, strict=True)
    ]
    gaps = tuple(_gap(scores) for one, other, scores in read if one.slot != other.slot)
    n_read = sum(bool(one.slot or other.slot) for one, other, _ in read)
    shift = max(_shift(one, other) for one, other, _ in read)
    return Agreement(len(read), n_read, len(read) - len(gaps), gaps, shift)


def told(found: Agreement) -> str:
    worst = f", at most {max(found.gaps):.3f} nats apart there" if found.gaps else ""
    return (
        f"llama.cpp and transformers on {NAME}: {found.n_agree} of {found.n} greedy labels agree "
        f"({found.n - found.n_read} where neither names one); {len(found.gaps)} differ{worst}; "
        f"{found.n_far} differ with {MARGIN} nats or more between the best two labels; "
        f"probabilities of labels are at most {found.shift:.3f} apart"
    )


def _gap(scores: Sequence[float]) -> float:
    best, second = sorted(scores, reverse=True)[:2]
    return best - second


def _shift(one: Answer, other: Answer) -> float:
    pairs = zip(one.probabilities or (), other.probabilities or (), strict=True)
    return max(abs(a - b) for a, b in pairs)


def _prompts(n_items: int) -> list[Prompt]:
    data = merge(load("reviews"), 3)
    drawn = sample(data, test_size=n_items, shots=1, seed=0)
    views = expand(["label_order"], 3)
    styles = [Style(label_format=kind, shots=1) for kind in ("natural_language", "numeric")]
    return [
        render(data.task, style, view, drawn.demos, item)
        for style in styles
        for view in views
        for item in drawn.test
    ]


def _ask(model: Model, prompts: Sequence[Prompt]) -> list[Reply]:
    identity, backend = identity_of(model), open_backend(model)
    asked = [request_for(model, identity, prompt, GREEDY, 0) for prompt in prompts]

    async def go() -> list[Reply]:
        try:
            return [await backend.ask(request) for request in asked]
        finally:
            await backend.close()

    return asyncio.run(go())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=30)
    print(told(compare(parser.parse_args().items)))
