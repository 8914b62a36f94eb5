"""The studies of the peers benchmark and their questions, as every tool gets them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from peers_ours import PROBE

from flipmeter.prompt.parsing import parse
from flipmeter.run.rate import Rating, seat
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Prompt, Rank, Reply

MAX_TOKENS = 8
STOP = "\n"
N_QUERIES = 3

Content = dict[str, Any]
Labels = Mapping[str, Rank]


@dataclass(frozen=True)
class Question:
    """One prompt of a study, with an id that every tool keeps."""

    id: str
    prompt: Prompt

    @property
    def text(self) -> str:
        return self.prompt.text


def three_conditions(model: str, data_dir: Path | None, n_items: int, shots: int) -> Content:
    """A study with three long prefixes: base, labels reversed, demonstrations turned."""
    dataset = "reviews" if data_dir is None else "sst5"
    return _study(model, dataset, seeds=[0], n_items=n_items, shots=shots) | {
        "probes": ["label_order", PROBE]
    }


def many_prefixes(model: str, n_prefixes: int) -> Content:
    """A study with many short prefixes: three classes, one shot, three queries each."""
    seeds = list(range(n_prefixes))
    content = _study(model, "reviews", seeds=seeds, n_items=N_QUERIES, shots=1)
    content["base"]["cardinality"] = 3
    return content | {"probes": []}


def _study(model: str, dataset: str, *, seeds: list[int], n_items: int, shots: int) -> Content:
    return {
        "name": "peers",
        "models": [model],
        "datasets": [dataset],
        "seeds": seeds,
        "test_size": n_items,
        "repeats": 1,
        "base": {"shots": shots},
        "decoding": {"temperature": 0, "max_tokens": MAX_TOKENS, "stop": [STOP]},
    }


def write_study(content: Content, path: Path) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def questions(content: Content, data_dir: Path | None) -> list[Question]:
    """The distinct prompts in the order of the study: one condition after the other."""
    study: Study = read_study(content, data_dir=data_dir)
    grid = conditions(study)
    calls = Rating(grid, {seat(condition): "any" for condition in grid}).calls()
    found: dict[str, Question] = {}
    for call in calls:
        at = grid[call.condition]
        name = question_id(at.seed, at.view.name, call.ask.item.id)
        found.setdefault(call.prompt.text, Question(name, call.prompt))
    return list(found.values())


def question_id(seed: int, view: str, item: str) -> str:
    return f"{seed}/{view}/{item}"


def write_questions(asked: Sequence[Question], path: Path) -> Path:
    """Write one JSON object a line; the names of the fields suit lm-eval and Inspect."""
    rows = [{"id": one.id, "input": one.text, "target": ""} for one in asked]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def labels(asked: Sequence[Question], replies: Mapping[str, str]) -> Labels:
    """Read every tool's replies with the same parser; a reply that is missing is an error."""
    return {one.id: parse(Reply(text=replies[one.id]), one.prompt).rank for one in asked}


def share_equal(a: Labels, b: Labels) -> float:
    return sum(a[name] == b[name] for name in a) / len(a)
