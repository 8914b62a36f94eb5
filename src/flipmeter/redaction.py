"""The one redactor: no secret of this process stands in what it writes or shows, however spelled.

It knows the values of the variables that hold the keys of models, and of all that are named as
secrets. Fields of files that are named as secrets hold `env:NAME`, never a value.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from html import escape, unescape
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import unquote

from flipmeter.errors import Problem

SHORTEST_SECRET, LONG = 8, 20
"""Servers without accounts take any key ("EMPTY", "1"); hiding such a word would change replies."""
SHOWN = "[key]"
GROUP = 3
"""Base64 writes three bytes as four characters."""


# --- a text without secrets -------------------------------------------------------------------


def masked(text: str, *more: str) -> str:
    """A text without secrets, `more` than those known; a short one is none, and stays."""
    if len(text) < SHORTEST_SECRET:
        return text
    known = _secrets.values() + more
    return _redactor(known).masked(text) if known else text


def all_masked(*texts: str) -> tuple[str, ...]:
    """Texts without secrets, which are sought in all of them at once."""
    whole = "\x1f".join(texts)
    return texts if masked(whole) == whole else tuple(map(masked, texts))


def masked_bytes(content: bytes, *more: str) -> bytes:
    """A server's answer without secrets, as UTF-8; JSON may come in other encodings."""
    encoding = json.detect_encoding(content)
    is_usual = encoding.startswith("utf-8")
    text = content.decode(encoding, "surrogateescape" if is_usual else "replace")
    return masked(text, *more).encode("utf-8", "surrogateescape")


def spellings() -> tuple[str, ...]:
    """All spellings of the secrets, for those who search many texts at once."""
    return _redactor(_secrets.values()).spellings


def refuse_hidden(what: str, *texts: str) -> None:
    """Refuse data that are read again and have a secret in them: hidden, they are other data."""
    spelled = "\n".join(form for one in texts for form in (one, one.upper(), one.lower()))
    if masked(spelled) == spelled:
        return
    for name, parts in _secrets.by_name():
        if _redactor(parts).masked(spelled) != spelled:
            raise Problem(
                f"{what} has the value of the variable {name} in it, which is hidden as a secret "
                f"wherever it is written or read; change one of the two, or unset {name}"
            )


class Redacted:
    """A text stream without secrets; it has no `buffer`, through which they could pass."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def raw(self) -> object:
        """The file below, to ask it how it is."""
        return getattr(self._stream, "buffer", None)

    def write(self, text: str) -> int:
        self._stream.write(masked(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self._stream.writelines(map(masked, lines))

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self._stream, name)


class _Redactor:
    """Some secrets, and all their spellings, those of the longest first."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        hidden = sorted(filter(_can_be_hidden, secrets), key=len, reverse=True)
        found = (text for one in hidden for text in _spellings(one))
        self.spellings = tuple(dict.fromkeys(text.replace("\\", "") for text in found))

    def masked(self, text: str) -> str:
        found = self._found(text)
        for spelling in found:
            text = _spelling_pattern(spelling).sub(SHOWN, text)
        if found and self._found(text):  # by an escape that the pattern does not have
            text = _unescape_text(text).replace("\\", "")
            for spelling in found:
                text = text.replace(spelling, SHOWN)
        return text

    def _found(self, text: str) -> list[str]:
        plain = _unescape_text(text)
        read = text if plain is text or plain == text else f"{text}\n{plain}"
        read = read.replace("\\", "")
        return [one for one in self.spellings if one in read]


def _can_be_hidden(secret: str) -> bool:
    """Whether a secret can be told from what else is read and written: no number can."""
    return len(secret) >= (LONG if _NUMBER.fullmatch(secret) else SHORTEST_SECRET)


_redactor = lru_cache(maxsize=64)(_Redactor)
_NUMBER = re.compile(r"[-+]?[\d.,:]+")
_ESCAPE = re.compile(r"(?:(?<!\\)\\++(?:u00|x)|%(?:25)*)([2-7][0-9a-fA-F])")
"""An escape of a printable character in JSON, Python or an address."""


def _unescape_text(text: str) -> str:
    if "\\" in text or "%" in text:
        text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    return unescape(text)


def _spellings(secret: str) -> Iterator[str]:
    """A secret as it is, in hexadecimal, and as it stands within any text in Base64."""
    content = secret.encode(errors="surrogateescape")
    yield secret
    yield content.hex()
    yield content.hex().upper()
    for before in range(GROUP):
        first, last = -(-before * 8 // 6), (before + len(content)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + content).decode()[first:last]


@lru_cache(maxsize=1024)
def _spelling_pattern(spelling: str) -> re.Pattern[str]:
    """A pattern of a spelling with any character written by an escape."""
    # A row of backslashes is taken whole, from its first on: a long one costs no more than once.
    return re.compile(r"(?<!\\)" + "".join(map(_character_pattern, spelling)))


def _character_pattern(character: str) -> str:
    """A pattern of a character as it is, or as JSON, JSON in JSON, an address or HTML writes it."""
    code = ord(character)
    digits = f"(?i:{code:02x})"
    return (
        rf"\\*+(?:{re.escape(character)}|{re.escape(escape(character))}|(?:u00|x){digits}"
        rf"|%(?:25)*{digits}|&\#(?:0*+{code}|[xX]0*+{digits});)"
    )


# --- the secrets of this process --------------------------------------------------------------


def name_secret(variable: str) -> None:
    """Note that a variable holds a secret, whatever its name."""
    _secrets.add(variable)


class _Secrets:
    """The values of the variables that hold secrets, looked up again when any has changed."""

    def __init__(self) -> None:
        self._named = frozenset[str]()
        self._seen: object = None
        self._values: tuple[str, ...] = ()

    def add(self, variable: str) -> None:
        if variable not in self._named:
            self._named |= {variable}
            self._seen = None

    def values(self) -> tuple[str, ...]:
        # Read as os.environ holds it: that decodes every name, in every look of a million.
        now = vars(os.environ)["_data"]
        if now != self._seen:
            seen = dict(now)
            found = [part for _, parts in self.by_name() for part in parts]
            self._values, self._seen = tuple(dict.fromkeys(found)), seen
        return self._values

    def by_name(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The variables, each with the secrets in it."""
        return ((name, tuple(self._of(name, value))) for name, value in os.environ.items())

    def _of(self, name: str, value: str) -> Iterator[str]:
        """The secrets in a variable: its value, without a scheme before it, and its long lines."""
        bare = _SCHEME.sub("", value.strip())
        if name not in self._named and not _holds_secret(name, bare):
            return
        yield bare
        if "\n" in bare:
            yield from (line for line in map(str.strip, bare.split("\n")) if len(line) >= LONG)


_secrets = _Secrets()
_SCHEME = re.compile(r"(?:Bearer|Basic|Token)\s+", re.IGNORECASE)
_INNOCENT = re.compile(
    rf"{_NUMBER.pattern}|true|false|none|null|disabled|enabled|/[^/=+]+/[^=+]*|[A-Za-z]:\\.*",
    re.IGNORECASE,
)
"""Numbers, switches and paths."""
WORD = 12
"""Shorter ones of letters alone are words: `AUTH_METHOD=password`."""


def _holds_secret(name: str, value: str) -> bool:
    is_named = is_secret_name(name)
    if len(value) < SHORTEST_SECRET or not (is_named or may_be_secret_name(name)):
        return False
    if _INNOCENT.fullmatch(value) or (value.isalpha() and len(value) < WORD):
        return False
    if not (is_named or len(value) >= LONG or any(map(str.isdigit, value))):
        return False
    try:
        return not Path(value).exists()
    except (OSError, ValueError):  # no name of a file
        return True


# --- names that mean secrets ------------------------------------------------------------------

REFERENCE = re.compile(r"((?:Bearer|Basic|Token) )?env:([A-Za-z_][A-Za-z0-9_]{0,99})")
"""A field that is filled from a variable when it is sent."""
PLACEHOLDER = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]{0,99})\}")
"""A part of an address that is filled from a variable when something is sent there."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET = {
    *("secret", "secrets", "password", "passwords", "passwd", "passphrase", "pwd", "bearer"),
    *("authorization", "authorisation", "credential", "credentials", "cookie", "jwt", "sas"),
    *("apikey", "apikeys", "accesskey", "secretkey", "privatekey", "subscriptionkey", "authkey"),
}
_ENDINGS = ("secret", "password", "passwd", "apikey", "token")
"""Ends of words that are written together: `PGPASSWORD`, `hftoken`."""
_KEYS = {"key", "keys", "token"}
_OF_KEYS = {
    *("api", "access", "auth", "private", "secret", "subscription", "account", "service"),
    *("client", "master", "shared", "signing", "encryption", "admin", "app", "storage"),
    *("refresh", "session", "security", "id", "hf", "github", "gh", "gitlab", "user", "bot"),
}
_ABOUT = {
    *("limit", "count", "type", "name", "file", "path", "dir", "url", "uri", "host", "port"),
    *("method", "mode", "budget", "size", "length", "ttl", "sock", "provider", "endpoint"),
}
"""Last words of names that say something about a secret."""
_FAINT = {
    *("key", "keys", "token", "auth", "sig", "signature", "pass", "cred", "creds"),
    *("pat", "psk", "pw", "passcode"),
}
_NO_SECRET = {"cache", "idempotency", "sort", "partition", "group", "primary", "foreign", "max"}


@lru_cache(maxsize=4096)
def _name_words(name: str) -> tuple[str, ...]:
    found = _WORDS.findall(unicodedata.normalize("NFKC", name))
    return tuple(word.lower() for word in found)


def is_secret_name(name: str) -> bool:
    """Whether a name means a secret: `api_key`, `x-api-key`, `apiKey`; not `max_tokens`."""
    words = _name_words(name)
    if not words or words[-1] in _ABOUT:
        return False
    if words == ("token",) or any(word in _SECRET for word in words):
        return True
    if any(word not in _KEYS and word.endswith(_ENDINGS) for word in words):
        return True
    return any(a in _OF_KEYS and b in _KEYS for a, b in pairwise(words))


def may_be_secret_name(name: str) -> bool:
    """Whether a name may mean a secret, by its value: `key`, `MY_KEY_2`, `sig`."""
    words = _name_words(name)
    if not words or words[-1] in _ABOUT or any(word in _NO_SECRET for word in words):
        return False
    return any(word in _FAINT or word.endswith("key") for word in words)


_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:sk[-_](?=[\w+/=.-]*\d)[\w+/=.-]{12,}"
    r"|(?:pk|rk|key|gh[opsu]|github_pat|glpat|hf|xox[abprs]|gsk|nvapi|xai|pplx)[-_](?:[a-z]+[-_])*"
    r"(?=[A-Za-z0-9]*\d)[A-Za-z0-9]{16,}|AIza[\w-]{30,}|A[KS]IA[A-Z0-9]{16}|ya29\.[\w-]{16,}"
    r"|eyJ[\w-]{12,}\.[\w-]{8,}|(?i:Bearer|Basic)\s+(?!env:)\S{8,})"
)
"""Prefixes of the keys of vendors, and of keys in headers."""
_USER = re.compile(r"\w://[^/\s:@]*:[^/\s@]+@")
"""An address with a password in it."""
_ASSIGNED = re.compile(r"(?<![\w-])([A-Za-z][\w-]*)[\"']?\s*[:=]\s*[\"']?(?=([^\s\"'&,;]{8,99}))")
"""A field within a text: in JSON, a header or an address."""
_ACCOUNT = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_KIND = str.maketrans(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "A" * 26 + "a" * 26 + "0" * 10
)
RUN, MIXED = 24, 0.4
"""Characters in a row, and changes between kinds of characters, that no name has."""


def looks_like_key(text: str) -> bool:
    """Whether a text is a key by its beginning or its disorder; an account's number is none."""
    bare = unquote(text).strip()
    if _PREFIXED.search(bare):
        return True
    if _ACCOUNT.fullmatch(bare) or not bare.isprintable() or " " in bare:
        return False
    runs = re.findall(r"[A-Za-z0-9]+", bare)
    has_digit = any(map(str.isdigit, bare))
    if any(len(run) >= RUN and (has_digit or len(run) >= RUN + SHORTEST_SECRET) for run in runs):
        return True
    kinds = "".join(runs).translate(_KIND)
    n_changes = sum(a != b for a, b in pairwise(kinds))
    return has_digit and len(kinds) >= LONG and n_changes >= MIXED * len(kinds)


def literal_secret(content: object, name: str = "", *, is_inside: bool = False) -> str | None:
    """The first field that holds a secret and not `env:NAME`, None if there is none."""
    is_inside = is_inside or is_secret_name(name.rpartition(".")[2])
    if isinstance(content, Mapping):
        fields = [(f"{name}.{key}" if name else str(key), one) for key, one in content.items()]
        if name.endswith(".properties"):  # a JSON Schema, which describes fields of these names
            fields = [(name if isinstance(one, Mapping) else key, one) for key, one in fields]
        told = (str(content.get(one)) for one in ("name", "key"))  # a list of headers
        fields += [(one, content.get("value")) for one in told if is_secret_name(one)]
    elif isinstance(content, list | tuple):
        fields = [(name, one) for one in content]
        if len(content) == 2 and all(isinstance(one, str) for one in content):  # a header
            fields.append((name, f"{content[0]}: {content[1]}"))
    else:
        return name if _is_literal_secret(content, name, is_inside=is_inside) else None
    found = (literal_secret(one, below, is_inside=is_inside) for below, one in fields)
    return next((one for one in found if one is not None), None)


def _is_literal_secret(value: object, name: str, *, is_inside: bool) -> bool:
    if isinstance(value, int | float):
        is_long = len(str(value)) >= SHORTEST_SECRET
        return is_inside and is_long and not isinstance(value, bool)
    if not isinstance(value, str) or not value or REFERENCE.fullmatch(value):
        return False
    if is_inside or masked(value) != value or _PREFIXED.search(value) or _USER.search(value):
        return True
    fields = [*_ASSIGNED.findall(value), (name.rpartition(".")[2], value)]
    named = (one for of, one in fields if is_secret_name(of) or may_be_secret_name(of))
    return any(map(looks_like_key, named))


def hidden(content: Any) -> Any:
    """A value to be shown in a message: what is a secret in it, by its name or looks, is not."""
    if isinstance(content, Mapping):
        return {
            key: SHOWN if literal_secret(one, str(key)) is not None else hidden(one)
            for key, one in content.items()
        }
    if isinstance(content, list | tuple):
        return [hidden(one) for one in content]
    return SHOWN if isinstance(content, str) and looks_like_key(content) else content


def references(content: object) -> Iterator[str]:
    """The names of the variables that fill fields, however deep they are."""
    if isinstance(content, Mapping):
        for one in content.values():
            yield from references(one)
    elif isinstance(content, list | tuple):
        for one in content:
            yield from references(one)
    elif isinstance(content, str) and (found := REFERENCE.fullmatch(content)):
        yield found[2]


def filled(content: Any, values: Mapping[str, str]) -> Any:
    """A value with the fields that name these variables filled."""
    if isinstance(content, Mapping):
        return {name: filled(one, values) for name, one in content.items()}
    if isinstance(content, list | tuple):
        return [filled(one, values) for one in content]
    found = REFERENCE.fullmatch(content) if isinstance(content, str) else None
    if found is None or found[2] not in values:
        return content
    return f"{found[1] or ''}{values[found[2]]}"
