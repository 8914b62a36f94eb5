"""Joint configurations: levels of several factors at once, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flipmeter.registry import Registry


class Config(dict[str, Any]):
    """Levels by factor, as `Style` has them, and a sentence; what is not named stays at the base.

    `replace(style, **configs["A"])` is the style of A.
    """

    def __init__(self, levels: Mapping[str, Any], about: str) -> None:
        super().__init__(levels)
        self.about = about


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
