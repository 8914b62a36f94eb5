"""Item -> key: when two texts are the same, and what a dataset's digest is."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence

from flipmeter.types import Item, Scale, canonical_json

_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")


def is_blank(text: str) -> bool:
    """Say whether a reader would see nothing: white space, control and zero-width characters."""
    return all(unicodedata.category(character) in _INVISIBLE for character in text)


def content_key(item: Item) -> str:
    """The content of an item; items share it if they differ only in case and white space."""
    return canonical_json(
        {name: " ".join(value.casefold().split()) for name, value in item.fields.items()}
    )


def content_digest(item: Item) -> bytes:
    """16 bytes for an item's content: what is kept of every item of a large file is small."""
    return hashlib.sha256(content_key(item).encode()).digest()[:16]


def item_digest(item: Item) -> str:
    """12 hex digits of the SHA-256 of an item's content, which tell items of a dataset apart."""
    return content_digest(item).hex()[:12]


def unit_digests(item: Item) -> set[str]:
    """Digests of an item and of its cluster: what shares one with it is not independent of it."""
    cluster = hashlib.sha256(f"cluster {item.cluster}".encode()).hexdigest()[:12]
    return {item_digest(item), *([cluster] if item.cluster else [])}


def dataset_digest(scale: Scale, pool: Sequence[Item], test: Sequence[Item]) -> str:
    """The SHA-256 of the classes and of all items' fields and gold, in order; not of ids."""
    digest = hashlib.sha256(canonical_json(list(scale.names)).encode())
    if scale.nominal:
        digest.update(b"\nnominal")
    if scale.span is not None:
        digest.update(f"\nfrom {scale.span.low} to {scale.span.high}".encode())
    for name, items in (("pool", pool), ("test", test)):
        digest.update(f"\n{name} {len(items)}".encode())
        for item in items:
            digest.update(b"\n" + canonical_json([dict(item.fields), item.gold]).encode())
    return digest.hexdigest()
