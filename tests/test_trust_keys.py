"""A key goes to its own host only, and nothing that is stored shows it."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from conftest import Cli
from flipmeter import OrdinalClassifier, Problem, Study
from flipmeter.ask.endpoints import endpoint_of, providers
from flipmeter.ask.names import open_backend
from flipmeter.choose.card import Card
from flipmeter.consent import trusting
from flipmeter.redaction import masked, masked_bytes
from flipmeter.types import Model

KEY = "sk-proj-7Hs+w/Qq9=Zk_Lm3"
GOOD = {
    "model": "any",
    "choices": [{"message": {"role": "assistant", "content": "1"}, "finish_reason": "stop"}],
}
STUDY: dict[str, Any] = {
    "datasets": ["reviews"],
    "test_size": 5,
    "probes": ["label_order"],
    "repeats": 1,
    "base": {"shots": 0},
}


class Ledger:
    """What a stranger's server was sent: every request's headers, as one text."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.url = ""
        self.answer: bytes = json.dumps(GOOD).encode()
        self.status = 200
        self.headers: dict[str, str] = {}

    def has_key(self) -> bool:
        return any(KEY in one for one in self.seen)


@contextmanager
def listening() -> Iterator[Ledger]:
    ledger = Ledger()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            ledger.seen.append(f"{self.path} {self.headers}")
            self.send_response(ledger.status)
            for name, value in ledger.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(ledger.answer)))
            self.end_headers()
            self.wfile.write(ledger.answer)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        ledger.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield ledger
        server.shutdown()


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """A server that a study names, and every family's key in the environment."""
    for family in providers():
        monkeypatch.setenv(f"{family.upper()}_API_KEY", KEY)
        monkeypatch.delenv(f"{family.upper()}_BASE_URL", raising=False)
    with listening() as ledger:
        yield ledger


def study_at(ledger: Ledger, address: str, **entry: Any) -> dict[str, Any]:
    return STUDY | {"models": [{"model": address, "base_url": ledger.url, **entry}]}


def written(path: Path, content: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path.name


VERBS: list[list[str]] = [
    ["plan"],
    ["run"],
    ["run", "--set", "scores=true"],
]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
@pytest.mark.parametrize("family", list(providers()))
def test_no_verb_sends_a_key_to_a_host_that_a_study_names(
    stranger: Ledger, cli: Cli, tmp_path: Path, words: list[str], family: str
) -> None:
    file = written(tmp_path / "study.yaml", study_at(stranger, f"{family}/x"))
    code, _, err = cli(words[0], file, *words[1:])
    assert not stranger.has_key()
    if providers()[family].needs_key:
        told = " ".join(err.split())
        assert code == 2
        assert stranger.seen == []
        assert f"{family.upper()}_API_KEY is for" in told
        assert f"set {family.upper()}_BASE_URL=" in told
        assert "--trust-host 127.0.0.1" in told


@pytest.mark.parametrize("options", [[], ["--key", "HTTP_API_KEY"], ["--key", "OPENAI_API_KEY"]])
@pytest.mark.parametrize("family", list(providers()))
def test_examine_sends_no_key_to_another_host(
    stranger: Ledger, cli: Cli, family: str, options: list[str]
) -> None:
    cli("try", f"{family}/x", "--base-url", stranger.url, *options)
    assert not stranger.has_key()


def test_the_classifier_sends_no_key_to_another_host(stranger: Ledger) -> None:
    model = {"model": "openai/x", "base_url": stranger.url}
    rater = OrdinalClassifier(model, scale=["bad", "good"], shots=0, store=None)
    with pytest.raises(Problem, match="OPENAI_API_KEY is for"):
        rater.fit(["Bad."], ["bad"]).predict(["Good."])
    assert stranger.seen == []


def test_a_vendors_key_is_not_for_another_host_even_if_that_is_trusted(stranger: Ledger) -> None:
    for entry in ({}, {"key": "OPENAI_API_KEY"}):
        for family in ("openai", "http"):
            if family == "http" and not entry:
                continue
            with pytest.raises(Problem, match="OPENAI_API_KEY is for"):
                Study(**study_at(stranger, f"{family}/x", **entry)).run(trust_hosts=["127.0.0.1"])
    assert stranger.seen == []


def test_the_users_own_environment_names_a_host(
    stranger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", stranger.url)
    Study(**STUDY, models=["openai/x"]).run()
    assert stranger.has_key()
    with listening() as another, pytest.raises(Problem, match="OPENAI_API_KEY is for"):
        Study(**study_at(another, "openai/x")).run()


@pytest.mark.parametrize(
    "url",
    [
        "http://api.openai.com/v1",
        "https://api.openai.com:8443/v1",
        "https://api.openai.com.evil.example/v1",
        "https://evil.example/api.openai.com",
        "https://API.OPENAI.COM.evil.example",
        "https://xn--api-openai-com.example",
    ],
)
def test_an_address_that_only_looks_like_the_vendors_gets_no_key(
    stranger: Ledger, url: str
) -> None:
    with pytest.raises(Problem, match="OPENAI_API_KEY is for"):
        endpoint_of(Model("openai/x", base_url=url))


def test_the_vendors_own_address_gets_its_key(stranger: Ledger) -> None:
    for url in (None, "https://api.openai.com/v1/", "https://API.openai.com:443/v2"):
        assert endpoint_of(Model("openai/x", base_url=url)).key == KEY


def test_a_key_of_its_own_needs_a_trusted_host(
    stranger: Ledger, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("FLIPMETER_CONFIG", str(tmp_path / "config"))
    file = written(tmp_path / "study.yaml", study_at(stranger, "openai/x", key="MY_KEY"))
    code, _, err = cli("plan", file)
    told = " ".join(err.split())
    assert (code, stranger.seen) == (2, [])
    assert "the key in MY_KEY to 127.0.0.1" in told
    assert "--trust-host 127.0.0.1" in told
    assert cli("plan", file, "--trust-host", "127.0.0.1:1")[0] == 2
    assert not stranger.has_key()
    assert cli("plan", file, "--trust-host", "127.0.0.1")[0] == 0
    assert stranger.has_key()
    assert cli("run", file)[0] == 2
    cli("run", "--trust-host", "127.0.0.1", "--remember")
    code, _, err = cli("run", file)
    assert code == 0, err
    assert all(f"Bearer {KEY}" in one for one in stranger.seen)


def test_a_key_of_its_own_that_is_not_set_is_named(stranger: Ledger) -> None:
    with pytest.raises(Problem, match="set the variable MY_KEY"):
        open_backend(Model("http/x", base_url=stranger.url, key="MY_KEY"))


def test_a_key_itself_in_a_study_is_refused_and_not_shown() -> None:
    with pytest.raises(Problem, match="name of the variable") as said:
        Study(**STUDY, models=[{"model": "http/x", "key": KEY}])
    assert KEY not in str(said.value)


@pytest.mark.parametrize(
    "url",
    [
        f"https://h.example/v1?key={KEY}",
        f"https://h.example/v1#{KEY}",
        f"https://me:{KEY}@h.example/v1",
        f"https://{KEY}@h.example",
        f"https://evil.example\\@api.openai.com/{KEY}",
        f"https://h.example/v1 ?{KEY}",
    ],
)
def test_an_address_with_a_key_in_it_is_refused_and_not_shown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_BASE_URL", url)
    for make in (
        lambda: Study(**STUDY, models=[{"model": "http/x", "base_url": url}]),
        lambda: Study(**STUDY, models=[{"model": "http/x", "base_url": [url, "http://b"]}]),
        lambda: open_backend(Model("http/x", base_url=url)),
        lambda: open_backend(Model("http/x")),
    ):
        with pytest.raises(Problem) as said:
            make()
        assert KEY not in str(said.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_takes_the_key_along(
    stranger: Ledger, cli: Cli, tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as own:
        monkeypatch.setenv("OPENAI_BASE_URL", own.url)
        own.status, own.headers = status, {"Location": f"{stranger.url}/models"}
        file = written(tmp_path / "study.yaml", STUDY | {"models": ["openai/x"]})
        for verb in ("plan", "run"):
            cli(verb, file)
        cli("try", "openai/x")
        assert own.has_key()
    assert stranger.seen == []


def test_the_variable_of_a_key_does_not_change_what_a_card_is() -> None:
    task = {"scale": ["a", "b"], "title": "T", "noun": "N", "aspect": "x", "low": "a", "high": "b"}
    one, other = (
        Card.model_validate({"model": {"model": "http/x", "key": key}, "task": task})
        for key in ("", "MY_KEY")
    )
    assert one.digest == other.digest


# Echoes


def u(text: str, form: str = "\\u{:04x}") -> str:
    return "".join(form.format(ord(character)) for character in text)


ECHOES: dict[str, Callable[[str], str]] = {
    "plain": lambda key: key,
    "one escape": lambda key: key.replace("+", "\\u002B"),
    "slash": lambda key: key.replace("/", "\\/"),
    "lower": u,
    "upper": lambda key: u(key, "\\u{:04X}"),
    "mixed": lambda key: key[:5] + u(key[5:9]) + key[9:],
    "JSON in JSON": lambda key: json.dumps(json.dumps(u(key)))[3:-3],
    "percent": lambda key: u(key, "%{:02X}"),
    "quoted": lambda key: quote(key, safe=""),
    "HTML": lambda key: u(key, "&#{};"),
    "HTML hexadecimal": lambda key: u(key, "&#x{:x};"),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of a header": lambda key: base64.b64encode(f"me:{key}!".encode()).decode(),
    "base64 for addresses": lambda key: base64.urlsafe_b64encode(f"m:{key}".encode()).decode(),
    "hexadecimal": lambda key: key.encode().hex(),
}


def leaks(text: str) -> bool:
    """Whether the middle of the key can be had from a text, by undoing what may be undone."""
    for _ in range(3):
        try:
            text += json.loads(f'"{text}"')
        except ValueError:
            break
    return KEY in text or KEY.encode().hex() in text


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
@pytest.mark.parametrize("status", [200, 400])
def test_a_key_that_is_echoed_in_any_form_is_stored_nowhere(
    stranger: Ledger,
    tmp_path: Path,
    echo: Callable[[str], str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said, stranger.status = echo(KEY), status
    text = json.dumps(GOOD | {"error": {"message": "@"}} if status == 400 else GOOD)
    text = text.replace('"1"', f'"1 {said}"').replace('"any"', f'"{said}"').replace("@", said)
    stranger.answer = text.encode()
    study = Study(**study_at(stranger, "http/x"))
    told = ""
    try:
        run = study.run("run", trust_hosts=["127.0.0.1"])
        told = run.calls.drop("probabilities").write_csv() + json.dumps(run.environment)
    except Problem as problem:
        told = str(problem)
    assert not leaks(told)
    assert said not in told
    assert stranger.has_key()
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        content = path.read_bytes()
        for form in (KEY, said, said.strip("=")):
            assert form.encode() not in content, path


def test_a_key_that_comes_in_parts_is_stored_nowhere(stranger: Ledger) -> None:
    """Parts of a content are put together, and a name loses what cannot be printed."""
    half = len(KEY) // 2
    message = {"content": [{"text": KEY[:half]}, {"text": KEY[half:]}]}
    answer = {"model": f"{KEY[:4]}\u200b{KEY[4:]}", "choices": [{"message": message}]}
    for encoding in ("utf-8", "utf-16", "utf-32", "utf-8-sig"):
        stranger.answer = json.dumps(answer).encode(encoding)
        with trusting(hosts=["127.0.0.1"]):
            run = Study(**study_at(stranger, "http/x")).run(store=":memory:", anyway=True)
        assert not run.calls.filter(reply=KEY).height
    assert stranger.has_key()


def test_masking_leaves_other_texts_alone() -> None:
    for text in ("", "Caf\u00e9 100% &#38; \\u00e9 \\n", "sk-proj-7Hs", "\\" * 9):
        assert masked(text, KEY) == text
        assert masked_bytes(text.encode(), KEY).decode() == text
    assert masked("1 EMPTY", "EMPTY") == "1 EMPTY"
    assert masked_bytes(b"a\xe9b", KEY) == b"a\xe9b"


def test_masking_a_long_row_of_backslashes_ends() -> None:
    assert masked("\\" * 300_000 + "%41", KEY).endswith("%41")
