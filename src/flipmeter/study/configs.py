"""Joint configurations: levels of several factors at once, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flipmeter.registry import Registry


@dataclass(frozen=True, eq=False)
class Config(Mapping[str, Any]):
    """Levels by factor, as `Style` has them, and a sentence; what is not named stays at the base.

    It is a mapping, so that `replace(style, **configs["A"])` is the style of A.
    """

    levels: Mapping[str, Any]
    about: str

    def __getitem__(self, factor: str) -> Any:
        return self.levels[factor]

    def __iter__(self) -> Iterator[str]:
        return iter(self.levels)

    def __len__(self) -> int:
        return len(self.levels)


configs: Registry[Config] = Registry("config")

configs.add(
    "A",
    Config(
        {
            "label_format": "neutral_id",
            "shots": 0,
            "clarity": "ordinal_explicit",
            "mood": "indicative",
        },
        "accuracy; without demonstrations there is no P2 and no P3",
    ),
)
configs.add("P1", Config({"shots": 3, "mood": "indicative"}, "few flips when labels are reversed"))
configs.add(
    "P2a",
    Config(
        {
            "label_format": "natural_language",
            "shots": 1,
            "clarity": "minimal",
            "mood": "indicative",
        },
        "few flips between random and ascending demonstrations",
    ),
)
configs.add(
    "P2b",
    Config(
        {"label_format": "neutral_id", "shots": 1, "mood": "indicative"},
        "few flips between random and descending demonstrations",
    ),
)
configs.add(
    "P3a",
    Config(
        {
            "label_format": "neutral_id",
            "shots": 3,
            "clarity": "minimal",
            "separator": "tab",
            "connector": "space",
            "mood": "interrogative",
        },
        "few flips between demonstrations before and after the query",
    ),
)
configs.add(
    "P3b",
    Config(
        {
            "label_format": "neutral_id",
            "shots": 1,
            "clarity": "minimal",
            "connector": "newline_tab",
        },
        "few flips between demonstrations before and around the query",
    ),
)
