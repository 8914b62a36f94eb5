"""Keys of a study -> the keys that follow when its models or datasets are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

Keys = Mapping[str, Any]
_DATASET_NAMES = ("name", "catalog", "hub")


def follow(before: Keys, after: Keys) -> dict[str, Any]:
    """The keys after a change, with those that name models and datasets brought into line.

    `vary_models` means the models that stand where the varied ones stood. `only_on` keeps its
    datasets that are still there, and does not concern datasets that the study did not have.
    """
    followed = dict(after)
    for key, names, adapt in (
        ("vary_models", "models", _same_places),
        ("only_on", "datasets", _still_there),
    ):
        is_left = after.get(key) == before.get(key)
        if after.get(key) and is_left and after.get(names) != before.get(names):
            followed[key] = adapt(before, after)
    return followed


def _same_places(before: Keys, after: Keys) -> list[str]:
    old, new = (_listed(keys, "models", ("name", "model")) for keys in (before, after))
    there = zip(old, new, strict=False)
    return [name for was, name in there if was in before["vary_models"]]


def _still_there(before: Keys, after: Keys) -> dict[str, list[str]]:
    old, new = (_listed(keys, "datasets", _DATASET_NAMES) for keys in (before, after))
    return {
        factor: [name for name in new if name in allowed or name not in old]
        for factor, allowed in before["only_on"].items()
    }


def _listed(keys: Keys, key: str, titles: tuple[str, ...]) -> list[str]:
    """The names of what a key lists: texts, or mappings that have a title."""
    listed = keys.get(key) or []
    entries = listed if isinstance(listed, list) else [listed]
    return [_title(entry, titles) for entry in entries]


def _title(entry: Any, titles: tuple[str, ...]) -> str:
    if not isinstance(entry, Mapping):
        return str(entry)
    found = (entry[title] for title in titles if entry.get(title))
    return str(next(found, Path(str(entry.get("file", ""))).stem))
