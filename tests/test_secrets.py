"""A secret that stands in no file is in no file afterwards, nor in anything that is printed."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pytest
import yaml

import forked
from flipmeter.redaction import (
    SHOWN,
    hidden,
    is_secret_name,
    literal_secret,
    looks_like_key,
    masked,
    name_secret,
)

PLANTED = "q7Zt4mWx/Pv+2LrK8sDn5HcB"
ITEM_LINES = "text,label\n" + "".join(
    f"Text number {n}.,{('bad', 'good')[n % 2]}\n" for n in range(6)
)
STUDY: dict[str, Any] = {
    "datasets": [{"file": "items.csv", "text": "text", "label": "label", "scale": ["bad", "good"]}],
    "probes": ["label_order"],
    "repeats": 1,
    "base": {"shots": 0},
}
Verb = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def verb(tmp_path: Path) -> Verb:
    """The console script, in a project of its own, with a secret in its environment."""
    (tmp_path / "items.csv").write_text(ITEM_LINES, encoding="utf-8")

    def call(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "FLIPMETER_CONFIG": str(tmp_path / "c")}
        environment = {**os.environ, **own, "MY_SECRET": PLANTED, **variables}
        return forked.run(*arguments, cwd=tmp_path, env=environment)

    return call


class Echo:
    """A server that answers with what it was sent."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.url = ""
        self.status = 200


@contextmanager
def echoing() -> Iterator[Echo]:
    echo = Echo()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            echo.paths.append(self.path)
            echo.bodies.append(json.loads(sent or b"{}"))
            said = f"1 {self.path} {self.headers} {sent.decode()}"
            message = {"role": "assistant", "content": said}
            answer = {"model": PLANTED, "choices": [{"message": message, "finish_reason": "stop"}]}
            failed = {"error": {"message": said, "type": PLANTED}}
            content = json.dumps(answer if echo.status == 200 else failed).encode()
            self.send_response(echo.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        echo.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield echo
        server.shutdown()


def write_study(folder: Path, **entry: Any) -> None:
    text = yaml.safe_dump(STUDY | {"models": [entry]})
    (folder / "study.yaml").write_text(text, encoding="utf-8")


def spelled(secret: str) -> list[str]:
    """A secret as it may stand in a text; in Base64, behind a name of any length."""
    size = len(secret)
    coded = [base64.b64encode(bytes(n) + secret.encode()).decode() for n in range(3)]
    pairs = [code[-(-n * 4 // 3) : (n + size) * 4 // 3] for n, code in enumerate(coded)]
    escaped = json.dumps(secret)[1:-1].replace("/", "\\/")
    return [secret, quote(secret, safe=""), *pairs, escaped, secret.encode().hex()]


def texts_in(path: Path) -> Iterator[str]:
    """What a file says: its bytes, and the cells of a table or a database."""
    content = path.read_bytes()
    yield content.decode("latin-1")
    if content.startswith(b"PAR1"):
        yield str(pl.read_parquet(path).to_dicts())
    if content.startswith(b"SQLite"):
        with sqlite3.connect(path) as db:
            for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
                yield str(db.execute(f"SELECT * FROM {table}").fetchall())


def assert_nowhere(folder: Path, *printed: str, besides: tuple[str, ...] = ()) -> None:
    found = [
        (path, text) for path in folder.rglob("*") if path.is_file() for text in texts_in(path)
    ]
    assert found
    for form in spelled(PLANTED):
        leaks = [path.name for path, text in found if form in text and path.name not in besides]
        assert not leaks
        for text in printed:
            assert form not in text


def said(*done: subprocess.CompletedProcess[str]) -> list[str]:
    return [text for one in done for text in (one.stdout, one.stderr)]


VERBS = [
    ["plan", "study.yaml"],
    ["try", "study.yaml", "--limit", "2"],
    ["run", "study.yaml", "--out", "run"],
]
AFTER = [
    ["report", "run", "--out", "report.html"],
    ["report", "run", "--out", "report.md"],
    ["cache", "export", ".flipmeter/replies.sqlite", "--out", "replies.jsonl"],
    ["cache", "export", ".flipmeter/replies.sqlite", "--out", "replies.parquet"],
]

FIELDS: dict[str, dict[str, Any]] = {
    "extra_body": {"extra_body": {"api_key": PLANTED}},
    "nested": {"extra_body": {"metadata": {"x": [{"clientSecret": PLANTED}]}}},
    "headers": {"extra_body": {"headers": [{"name": "X-Api-Key", "value": PLANTED}]}},
    "bearer": {"extra_body": {"note": f"Bearer {PLANTED}"}},
    "any name": {"extra_body": {"note": f"see {PLANTED}"}},
    "provider": {"provider": {"credentials": {"id": PLANTED}}},
    "path": {"base_url": f"http://127.0.0.1:1/v1/{quote(PLANTED, safe='')}/openai"},
    "path, not known": {"base_url": "http://127.0.0.1:1/v1/Zk3vT9pLw2Rq8Xn5Bd7Hs4Mf6Jc1Gy0A/x"},
    "path, by name": {"base_url": "http://127.0.0.1:1/v1;api_key=secret/x"},
    "wrong kind": {"extra_body": PLANTED},
    "wrong kind of key": {"key": [PLANTED]},
}


@pytest.mark.parametrize("entry", FIELDS.values(), ids=FIELDS)
def test_a_key_in_a_study_is_refused_and_not_shown(
    verb: Verb, tmp_path: Path, entry: dict[str, Any]
) -> None:
    write_study(tmp_path, model="http/x", **{"base_url": "http://127.0.0.1:1/v1"} | entry)
    done = verb("run", "study.yaml", "--out", "run")
    assert done.returncode == 2, done.stderr
    assert "env:MY_KEY" in done.stderr or entry is FIELDS["wrong kind"] or "key" in entry
    assert_nowhere(tmp_path, *said(done), besides=("study.yaml",))
    assert not (tmp_path / "run").exists()


def test_a_key_for_a_callable_is_refused_and_not_shown(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "rater.py").write_text("def rate(q, api_key): return q.labels[0]\n")
    write_study(tmp_path, model="python/rater.py:rate", options={"api_key": PLANTED})
    done = verb("run", "study.yaml", "--out", "run", "--trust")
    assert done.returncode == 2
    assert "'options.api_key' contains a key" in " ".join(done.stderr.split())
    assert_nowhere(tmp_path, *said(done), besides=("study.yaml",))


def test_a_setting_that_cannot_be_made_does_not_show_a_key(verb: Verb, tmp_path: Path) -> None:
    write_study(
        tmp_path, model="http/x", base_url="http://127.0.0.1:1", extra_body={"token": PLANTED}
    )
    done = verb("plan", "study.yaml", "--set", "models.x=1")
    assert done.returncode == 2
    assert_nowhere(tmp_path, *said(done), besides=("study.yaml",))


def test_a_variable_fills_fields_and_the_address_and_is_stored_nowhere(
    verb: Verb, tmp_path: Path
) -> None:
    with echoing() as echo:
        url = f"{echo.url}/v1/{{env:MY_GATE}}/openai"
        fields = {"api_key": "env:MY_FIELD", "nested": [{"authorization": "Bearer env:MY_FIELD"}]}
        write_study(tmp_path, model="http/x", base_url=url, extra_body=fields)
        given = {"MY_GATE": PLANTED, "MY_FIELD": PLANTED, "MY_SECRET": ""}
        refused = verb("run", "study.yaml", "--out", "run", **given)
        assert refused.returncode == 2
        assert "--trust-host 127.0.0.1" in " ".join(refused.stderr.split())
        assert PLANTED not in str(echo.bodies)
        trust = ("--trust-host", "127.0.0.1")
        done = [verb(*words, *trust, **given) for words in VERBS]
        assert [one.returncode for one in done] == [0, 0, 0], done[-1].stderr
        n_asked = len(echo.bodies)
        asked = [body for body in echo.bodies if body]
        assert all(f"/v1/{quote(PLANTED, safe='')}/openai/" in path for path in echo.paths)
        assert all(body["api_key"] == PLANTED for body in asked)
        assert all(body["nested"] == [{"authorization": f"Bearer {PLANTED}"}] for body in asked)
        done += [verb(*words, **given) for words in AFTER]
        assert {one.returncode for one in done[3:]} <= {0, 1}, [one.stderr for one in done[3:]]
        again = verb(*VERBS[-1], *trust, "--force", **given)
        done += [again, verb("batch", "export", "study.yaml", *trust, **given)]
        asked_again = [body for body in echo.bodies[n_asked:] if body]
        assert not asked_again, again.stderr
    assert_nowhere(tmp_path, *said(refused, *done))
    kept = (tmp_path / "run").rglob("study.yaml")
    assert all("env:MY_FIELD" in path.read_text() for path in kept)


def test_a_variable_that_is_not_set_is_named(verb: Verb, tmp_path: Path) -> None:
    write_study(tmp_path, model="http/x", base_url="http://127.0.0.1:1/{env:NOT_SET}")
    done = verb("run", "study.yaml", "--out", "run", "--trust-host", "127.0.0.1")
    assert done.returncode == 2
    assert "set the variable NOT_SET" in " ".join(done.stderr.split())


@pytest.mark.parametrize("url", ["http://{env:MY_SECRET}/v1", "http://h.{env:MY_SECRET}.example"])
def test_a_variable_fills_no_host(verb: Verb, tmp_path: Path, url: str) -> None:
    write_study(tmp_path, model="http/x", base_url=url)
    done = verb("run", "study.yaml", "--out", "run")
    assert done.returncode == 2
    assert "has a brace" in done.stderr


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_what_an_endpoint_echoes_is_stored_nowhere(verb: Verb, tmp_path: Path, status: int) -> None:
    with echoing() as echo:
        echo.status = status
        write_study(tmp_path, model="http/x", base_url=f"{echo.url}/v1", key="MY_FIELD")
        given = {"MY_FIELD": PLANTED, "MY_SECRET": ""}
        trust = ("--trust-host", "127.0.0.1")
        done = [verb(*words, *trust, **given) for words in (VERBS[1:] if status < 500 else [])]
        done.append(verb("try", "http/x", "--base-url", f"{echo.url}/v1"))
    assert_nowhere(tmp_path, *said(*done))


RATERS = {
    "reply": "return f'{q.labels[0].text} {key}'",
    "quoted reply": "return urllib.parse.quote(key, safe='')",
    "encoded reply": "return base64.b64encode(('me:' + key).encode()).decode()",
    "exception": "raise RuntimeError(f'401 for {key}')",
    "exception with a cause": "raise ValueError({'key': key}) from KeyError(key)",
    "exit": "sys.exit(key)",
    "print": "print(key); print(key, file=sys.stderr); return q.labels[0]",
    "warning": "logging.warning('key %s', key); return q.labels[0]",
    "import": "pass\nraise RuntimeError(os.environ['MY_SECRET'])",
}


@pytest.mark.parametrize("line", RATERS.values(), ids=RATERS)
def test_what_a_callable_says_holds_no_key_of_the_environment(
    verb: Verb, tmp_path: Path, line: str
) -> None:
    (tmp_path / "rater.py").write_text(
        "import base64, logging, os, sys, urllib.parse\n"
        f"def rate(q):\n    key = os.environ['MY_SECRET']\n    {line}\n"
    )
    write_study(tmp_path, model="python/rater.py:rate")
    done = [verb(*VERBS[-1], "--trust")]
    if line == RATERS["reply"]:
        done += [verb("try", "study.yaml", "--trust"), *(verb(*words) for words in AFTER)]
    assert_nowhere(tmp_path, *said(*done))
    if line == RATERS["reply"]:
        calls = pl.read_parquet(next((tmp_path / "run").rglob("calls.parquet")))
        assert calls["reply"].str.contains(SHOWN, literal=True).all()


def test_a_callable_gets_the_value_and_its_identity_the_name(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "rater.py").write_text(
        "class Rater:\n    def __init__(self, api_key): self.key = api_key\n"
        "    def __call__(self, q):\n        assert len(self.key) == 24, self.key\n"
        "        return {'label': q.labels[0].text + self.key}\n"
    )
    write_study(tmp_path, model="python/rater.py:Rater", options={"api_key": "env:MY_FIELD"})
    given = {"MY_FIELD": PLANTED, "MY_SECRET": ""}
    done = [verb(*words, "--trust", **given) for words in VERBS[1:]]
    assert "AssertionError" not in str(said(*done))
    assert_nowhere(tmp_path, *said(*done))
    assert "env:MY_FIELD" in next((tmp_path / "run").rglob("study.yaml")).read_text()


# --- names and looks --------------------------------------------------------------------------

SECRETS = (
    "api_key apikey api-key apiKey x-api-key X-API-KEY access_token accessToken token secret "
    "client_secret password passwd authorization Authorization bearer credentials private_key "
    "subscription-key Ocp-Apim-Subscription-Key sas sas_token aws_secret_access_key hf_token "
    "refresh_token OPENAI_API_KEY api_key_2 API_KEYS dbPassword PGPASSWORD"
)
INNOCENTS = (
    "max_tokens max_completion_tokens token_limit tokenizer tokenizers logit_bias logprobs "
    "top_logprobs stop_token_ids prompt_cache_key eos_token bos_token skip_special_tokens key "
    "cache_key thinking_budget_tokens author authority keyword monkey session_id password_file "
    "secretary assassin"
)


def test_names_of_secrets_are_told_from_innocent_ones() -> None:
    assert [name for name in SECRETS.split() if not is_secret_name(name)] == []
    assert [name for name in INNOCENTS.split() if is_secret_name(name)] == []


def test_innocent_fields_stay_as_they_are() -> None:
    told = {
        "max_tokens": 4096000000,
        "prompt_cache_key": "5f2b1c9e8a7d6f3e4b2a1c0d9e8f7a6b5c4d3e2f",
        "logit_bias": {"token": -100, "50256": -100},
        "response_format": {"type": "json_schema", "key": "label"},
        "tokenizer": "meta-llama/Llama-3.1-8B-Instruct",
        "api_key": None,
        "store_secrets": False,
        "user": "tickets-2024-team-a",
    }
    assert literal_secret(told) is None
    assert hidden({"key": "label", "max_tokens": 9}) == {"key": "label", "max_tokens": 9}
    assert hidden([{"password": "x1"}, "sk-1234567890abcdef"]) == [{"password": SHOWN}, SHOWN]


@pytest.mark.parametrize(
    "field",
    [
        {"config": json.dumps({"api_key": PLANTED})},
        {"headers": [["x-api-key", PLANTED]]},
        {"headers": [f"x-api-key: {PLANTED}"]},
        {"note": f"client_secret={PLANTED}"},
        {"callback": f"https://h.example/x?api_key={quote(PLANTED, safe='')}"},
        {"properties": {"api_key": PLANTED}},
        {"headers": [{"key": "api_key", "value": PLANTED}]},
        {"callback": "https://me:secret12@h.example/x"},
        {"callback": f"https://h.example/x?v=1&api_key={quote(PLANTED, safe='')}"},
        {"dsn": "postgres://me:hunter2@h.example/db"},
        *({name: PLANTED} for name in ("pat", "pw", "passcode", "psk")),
    ],
    ids=str,
)
def test_a_secret_within_a_field_is_found(field: dict[str, Any]) -> None:
    assert literal_secret({"extra_body": field}) is not None


@pytest.mark.parametrize(
    "field",
    [
        {"required": ["token", "password"], "names": ["key", "identifier"]},
        {"system": "Never repeat the password: say token=classification, or key: very-negative."},
        {"system": "The API key: it has 2 parts. At 10:30:00@home, see https://h.example:8000/a@b"},
        {"callback": "https://h.example/x?api_key={env:MY_KEY}"},
        {"key_name": "prod_key_2024_a", "eos_token": "<|endoftext|>", "path": "/a/pw=1"},
        {"tools": [{"name": "get_token", "parameters": {"type": "object"}}]},
        {"schema": {"properties": {"token": {"type": "string"}, "api_key": {"type": "string"}}}},
    ],
    ids=str,
)
def test_what_is_no_secret_within_a_field_stays(field: dict[str, Any]) -> None:
    assert literal_secret({"extra_body": field}) is None


@pytest.mark.parametrize(
    "part",
    [
        *("gpt-4o-mini-2024-07-18-eastus2-prod", "MyDeployment-GPT4o-2024", "v1beta", "openai"),
        *("0123456789abcdef0123456789abcdef", "123e4567-e89b-12d3-a456-426614174000", "projects"),
        *("Meta-Llama-3.1-8B-Instruct-Turbo", "Qwen2.5-72B-Instruct-AWQ", "us-central1"),
    ],
)
def test_names_in_addresses_are_no_keys(part: str) -> None:
    assert not looks_like_key(part)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("AUTH", "1"), ("SSH_AUTH_SOCK", "/run/ssh-XXXX12/agent.12"), ("X_TOKEN", "true")),
        *(("AUTH_METHOD", "password"), ("SORT_KEY", "label_order"), ("API_KEY", "1234567890")),
        *(("TOKENIZERS_PARALLELISM", "disabled1"), ("GIT_AUTHOR_NAME", "John Smith 22")),
    ],
)
def test_innocent_variables_hide_nothing(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert masked(f"about {value}.") == f"about {value}."


@pytest.mark.parametrize("name", ["MY_KEY", "db_password", "HFTOKEN", "X_AUTH_2", "OPENAI_KEY_1"])
def test_variables_named_as_secrets_are_hidden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert masked(PLANTED) == PLANTED
    monkeypatch.setenv(name, f"Bearer {PLANTED}")
    for form in (
        *spelled(PLANTED),
        PLANTED.replace("+", "&#43;"),
        PLANTED.replace("/", "\\u002F"),
        quote(quote(PLANTED, safe=""), safe=""),
        PLANTED.replace("/", "&sol;").replace("+", "&plus;"),
    ):
        assert masked(f"a {form} b") != f"a {form} b", form
    monkeypatch.delenv(name)
    assert masked(PLANTED) == PLANTED


# --- data that happen to equal a secret -------------------------------------------------------

WORDS = STUDY | {
    "datasets": [STUDY["datasets"][0] | {"scale": ["not-so-bad", "good"]}],
    "base": {"shots": 0, "label_format": "natural_language"},
    "models": ["python/rater.py:rate"],
}
NAMED = "has the value of the variable MY_BEARER in it"


@pytest.fixture
def words(tmp_path: Path, verb: Verb) -> Verb:
    """A study whose rater answers with the names of classes."""
    (tmp_path / "items.csv").write_text(ITEM_LINES.replace("bad", "not-so-bad"))
    (tmp_path / "rater.py").write_text("def rate(q): return q.labels[0].text\n")
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(WORDS))
    return verb


@pytest.mark.parametrize("value", ["not-so-bad", "t-so-bad", "NOT-SO-BAD"])
def test_a_class_that_would_be_hidden_is_refused(words: Verb, tmp_path: Path, value: str) -> None:
    """Its replies could not be read."""
    done = words(*VERBS[-1], "--trust", MY_BEARER=value)
    assert (done.returncode, NAMED in " ".join(done.stderr.split())) == (2, True), done.stderr
    assert words(*VERBS[-1], "--trust").returncode in (0, 1)


def test_a_class_that_equals_the_key_of_a_model_is_refused(words: Verb, tmp_path: Path) -> None:
    with echoing() as echo:
        entry = {"model": "http/x", "base_url": echo.url, "key": "MY_WORD"}
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(WORDS | {"models": [entry]}))
        done = words(*VERBS[-1], "--trust-host", "127.0.0.1", MY_WORD="not-so-bad")
        assert echo.bodies == []
    assert done.returncode == 2
    assert "the value of the variable MY_WORD in it" in " ".join(done.stderr.split())


def test_a_study_is_not_drafted_with_a_class_that_is_hidden(words: Verb, tmp_path: Path) -> None:
    scale = ("--text", "text", "--label", "label", "--scale", "not-so-bad,good")
    done = words("init", "items.csv", *scale, "--out", "new.yaml", MY_BEARER="not-so-bad")
    assert (done.returncode, NAMED in " ".join(done.stderr.split())) == (2, True)
    assert not (tmp_path / "new.yaml").exists()


def test_a_card_is_what_was_measured_or_is_not_written(words: Verb, tmp_path: Path) -> None:
    study = WORDS | {"base": {"shots": 2}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    assert words(*VERBS[-1], "--trust").returncode in (0, 1)
    select = ("select", "run", "--out", "card.yaml")
    done = words(*select, MY_BEARER="Text number")
    assert (done.returncode, NAMED in " ".join(done.stderr.split())) == (2, True)
    assert not (tmp_path / "card.yaml").exists()
    assert words(*select).returncode == 0


def test_ordinary_words_in_variables_change_no_answer(words: Verb, tmp_path: Path) -> None:
    given = {"API_TOKEN": "not-bad", "AUTH_KEY": "12345678", "PASS_KEY": "positive"}
    done = words(*VERBS[-1], "--trust", **given)
    assert done.returncode in (0, 1), done.stderr
    calls = pl.read_parquet(next((tmp_path / "run").rglob("calls.parquet")))
    assert set(calls["reply"]) == {"not-so-bad", "good"}


def test_a_long_row_of_escapes_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile server would stop a run for hours."""
    monkeypatch.setenv("MY_SECRET", PLANTED)
    for row in ("\\" * 300_000, "%25" * 100_000, "%" + "25" * 100_000, "&#" * 100_000):
        assert masked(row) == row
        assert masked(row + PLANTED).endswith(SHOWN)


def test_a_number_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without accounts takes any key, and its answers are full of numbers."""
    monkeypatch.setenv("MY_SECRET", "00000000")
    name_secret("MY_SECRET")
    body = '{"logprob": -1.00000000123, "created": 1200000000, "seed": 12345678}'
    assert masked(body, "12345678") == body
    assert masked("it is 12345678901234567890.", "12345678901234567890") == f"it is {SHOWN}."


def test_a_run_whose_seed_equals_a_key_is_written(verb: Verb, tmp_path: Path) -> None:
    with echoing() as echo:
        write_study(tmp_path, model="http/x", base_url=echo.url, key="MY_DIGITS")
        words = [*VERBS[-1], "--trust-host", "127.0.0.1", "--set", "seeds=[12345678]"]
        done = verb(*words, MY_DIGITS="12345678")
    assert done.returncode in (0, 1), done.stderr
    kept = ("cache", "export", ".flipmeter/replies.sqlite", "--out", "replies.jsonl")
    assert verb(*kept, MY_DIGITS="12345678").returncode == 0
    assert [*map(json.loads, (tmp_path / "replies.jsonl").read_text().splitlines())]
