"""Run -> Prompt: what an item was shown as, rebuilt from the study or read from the reply store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from flipmeter.decide import open_pipeline
from flipmeter.model import Store
from flipmeter.run.perform import Run
from flipmeter.run.rate import panel_of, writer
from flipmeter.run.rows import digest_of
from flipmeter.study.file import Study
from flipmeter.study.grid import conditions
from flipmeter.types import Ask, Condition, Item, Problem, Prompt

PROMPT = "SELECT texts.text, rest FROM replies JOIN texts ON texts.id = prefix WHERE key = ?"

Where = tuple[str, str, str, int, str]
"""Rater, dataset, level, seed and view."""


@dataclass
class Shown:
    """Looks up texts and prompts of a run; None where neither the data nor the store has them."""

    run: Run
    store: Store | None = None
    data_dir: Path | None = None
    trouble: list[str] = field(default_factory=list)
    _writers: dict[Where, Callable[[Ask], Prompt]] = field(default_factory=dict)
    _items: dict[int, dict[str, Item]] = field(default_factory=dict)

    @cached_property
    def grid(self) -> dict[Where, Condition]:
        """Return the conditions of the study, without repeats; none if its data are gone."""
        if self.run.scales:
            self.trouble.append("a table of predictions holds no prompts")
            return {}
        try:
            grid = conditions(self.study)
        except Problem as problem:
            self.trouble.append(f"the study's data cannot be read again: {problem}")
            return {}
        return {_where(condition): condition for condition in grid if not condition.view.repeat}

    @property
    def study(self) -> Study:
        """Return the study with a folder for its files: the run's, else where we are."""
        study = self.run.study.model_copy(update={"data_dir": self.data_dir})
        named = [
            spec["file"] for spec in study.datasets if isinstance(spec, dict) and "file" in spec
        ]
        named += [study.demos.file] if study.demos else []
        is_here = all((study.folder / name).is_file() for name in named)
        return study if is_here else study.model_copy(update={"folder": Path()})

    @cached_property
    def scales(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the classes by dataset."""
        known = {where[1]: condition.task.scale.names for where, condition in self.grid.items()}
        return known or self.run.scales

    def item(self, where: Where, name: str) -> Item | None:
        """Return an item that was asked about under a condition, or what a table says of it."""
        if where in self.grid:
            items = self.grid[where].items
            if id(items) not in self._items:  # most conditions share theirs
                self._items[id(items)] = {item.id: item for item in items}
            if known := self._items[id(items)].get(name):
                return known
        text = self.run.texts.get((where[1], name))
        return Item(name, {"text": text}) if text else None

    def prompt(self, where: Where, item: Item, digest: str) -> str | None:
        """Return the first prompt of an item as one text, if it is the one that was asked."""
        if where not in self.grid:
            return None
        condition = self.grid[where]
        if where not in self._writers:
            self._writers[where] = writer(condition)
        alone = panel_of(replace(condition, items=(item,)))
        asks = open_pipeline(condition.rater.pipeline).asks(alone, {})
        prompts = [self._writers[where](ask) for ask in asks if ask.item == item]
        if digest_of([prompt.digest for prompt in prompts]) != digest:
            self._say("some prompts are not shown: the data or the wording changed since the run")
            return None
        return prompts[0].text

    def _say(self, trouble: str) -> None:
        if trouble not in self.trouble:
            self.trouble.append(trouble)

    def stored_prompt(self, key: str) -> tuple[str, str] | None:
        """Return a prompt that the store has: the part that items share, and the rest."""
        if self.store is None or not key:
            return None
        rows = self.store.read(PROMPT, [bytes.fromhex(key)])
        return next(((_unframed(prefix), rest) for prefix, rest in rows), None)


def _unframed(prefix: str) -> str:
    """Return a stored head as a model is shown it: messages with a blank line between them."""
    return prefix.replace("\x1e", "\n\n").replace("\x1f", ":\n")


def _where(condition: Condition) -> Where:
    name, view = condition.rater.name, condition.view.name
    return name, condition.dataset, condition.level, condition.seed, view
