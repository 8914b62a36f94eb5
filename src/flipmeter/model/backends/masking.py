"""Secret -> mask: a key that a server echoes is taken out of whatever it says, however written."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from functools import lru_cache

SHORTEST_SECRET = 8
"""Servers without accounts take any key ("EMPTY", "1"); hiding such a word would change replies."""
SHOWN = "[key]"
GROUP = 3
"""Base64 writes three bytes as four characters."""


MARKS = ("\\u00", "\\x", "%", "&#")
_ESCAPES = re.compile(r"(?:\\u00|\\x|%|&\#[xX]?0*+)[2-7]")
"""Escapes of printable characters; most replies have none and need no further check."""


@lru_cache(maxsize=64)
def _known(secret: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """A secret's spellings, and a pattern of them with any character written by an escape."""
    spellings = tuple(dict.fromkeys(text.replace("\\", "") for text in _spellings(secret)))
    # A row of backslashes is taken whole, from its first on: a long one costs no more than once.
    patterns = (r"(?<!\\)" + "".join(map(_forms, text)) for text in spellings)
    return spellings, re.compile("|".join(patterns))


def _spellings(secret: str) -> Iterator[str]:
    """A secret as it is, in hexadecimal, and as it stands within any text in Base64."""
    content = secret.encode()
    yield secret
    yield content.hex()
    yield content.hex().upper()
    for before in range(GROUP):
        first, last = -(-before * 8 // 6), (before + len(content)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + content).decode()[first:last]


def _forms(character: str) -> str:
    """A pattern of a character as it is, or as JSON, JSON in JSON, an address or HTML writes it."""
    code = ord(character)
    digits = f"(?i:{code:02x})"
    return (
        rf"\\*+(?:{re.escape(character)}|(?:u00|x){digits}|%{digits}"
        rf"|&\#(?:0*+{code}|[xX]0*+{digits});)"
    )


def masked(text: str, secret: str) -> str:
    """A text without a secret, however it is written there; a short one is none, and stays."""
    if len(secret) < SHORTEST_SECRET:
        return text
    spellings, pattern = _known(secret)
    bare = text.replace("\\", "")
    is_escaped = any(mark in text for mark in MARKS) and _ESCAPES.search(text) is not None
    if not is_escaped and not any(spelling in bare for spelling in spellings):
        return text
    return pattern.sub(SHOWN, text)


def masked_bytes(content: bytes, secret: str) -> bytes:
    """A server's answer without a secret, as UTF-8; JSON may come in other encodings."""
    encoding = json.detect_encoding(content)
    is_usual = encoding.startswith("utf-8")
    text = content.decode(encoding, "surrogateescape" if is_usual else "replace")
    return masked(text, secret).encode("utf-8", "surrogateescape")
