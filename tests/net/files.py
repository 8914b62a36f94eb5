"""Files that studies of the net read, invented and the same every time, and a server that fails."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from shutil import copy, copytree
from typing import Any, ClassVar

WORDS = ["river", "stone", "lamp", "green", "quick", "market", "winter", "paper", "cloud", "bread"]
MOODS = {"low": "fine and calm", "medium": "a bit broken", "high": "burning and lost"}
QUOTED = '"A, comma and ""quotes"" \u201eund\u201c",high'


def phrase(chance: Random, n: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(n))


def table(columns: str, rows: Iterable[Sequence[object]], *more: str) -> str:
    """A CSV whose cells hold no comma."""
    return "\n".join([columns, *(",".join(map(str, row)) for row in rows), *more]) + "\n"


def tickets() -> str:
    chance, names = Random(1), list(MOODS)
    moods = [MOODS[names[k * 5 % 3]] for k in range(60)]
    texts = [f"The {phrase(chance, 3)} is {mood}." for mood in moods]
    rows = [(text, names[k * 7 % 3]) for k, text in enumerate(texts)]
    return table("body,severity", rows, QUOTED)


def unlabelled() -> str:
    return "".join(f"{line.partition(',')[0]}\n" for line in tickets().splitlines()[:31])


def pairs() -> str:
    chance, systems, rows = Random(2), ("ant", "bee", "cat"), []
    for k in range(80):
        answers = phrase(chance, 2 + k % 5), phrase(chance, 2 + k * 3 % 7)
        better = ("a", "b", "tie", "a", "b")[k * 3 % 5]
        rows.append((f"Why {k // 2}?", *answers, better, systems[k % 3], systems[(k + 1) % 3]))
    return table("prompt,answer_1,answer_2,preferred,system_a,system_b", rows)


def candidates() -> str:
    chance = Random(3)
    three = [[phrase(chance, n) for n in (3, 5, 2)] for _ in range(40)]
    rows = [(f"How {k}?", *answers, "abc"[k * 5 % 3]) for k, answers in enumerate(three)]
    return table("prompt,x,y,z,best", rows)


def questions() -> str:
    chance, rows = Random(4), []
    for k in range(50):
        size = 4 - k % 2
        options = [f"{phrase(chance, 2)} {k}.{o}" for o in range(size)] + [""] * (4 - size)
        rows.append((f"What is {k}?", *options, "ABCD"[chance.randrange(size)]))
    return table("question,a,b,c,d,answer", rows)


def essays() -> str:
    chance = Random(5)
    return table(
        "essay,score", [(f"The {phrase(chance, 4)} {k}.", k * 7 % 21 / 2) for k in range(30)]
    )


def grades() -> str:
    chance = Random(6)
    return table("q,a,grade", [(f"Who {k}?", phrase(chance, 4), k * 5 % 11) for k in range(44)])


def colours() -> str:
    chance, names = Random(7), ("red", "green", "blue", "yellow")
    rows = [(f"{names[k % 4]} {phrase(chance, 2)} {k}", names[k * 7 % 4]) for k in range(48)]
    return table("text,colour", rows)


def shown() -> str:
    return "text,label\nLate and broken.,very negative\nNo more.,neutral\nA joy.,very positive\n"


def predictions() -> str:
    chance, scale, rows = Random(8), list(MOODS), []
    for place in range(2 * 24 * 3 * 2):
        item, condition = place // 6 % 24, ("long", "short", "none")[place // 2 % 3]
        moved = chance.random() < (0.4 if condition == "none" else 0.1)
        label = "" if (item, condition) == (3, "short") else scale[(item * 5 + moved) % 3]
        model, gold = ("one", "two")[place // 144], scale[item * 5 % 3]
        rows.append((model, condition, place % 2, f"i{item}", label, gold, f"g{item // 2}"))
    return table("model,condition,repeat,item,label,gold,cluster", rows)


def verdicts() -> str:
    chance, rows = Random(9), []
    for k in range(40):
        first = chance.choice("ab")
        second = first if chance.random() < 0.7 else "ab"[first == "a"]
        rows.append((f"q{k}", first, second, "ab"[k % 2]))
    return table("item,as_given,swapped,gold", rows)


def scores() -> str:
    chance, rows = Random(10), []
    for k in range(60):
        gold = k // 2 * 7 % 21 / 2
        moved = chance.choice((0, 0, 0.5, 1.5, -1))
        rows.append((f"e{k // 2}", ("first", "last")[k % 2], min(10, max(0, gold + moved)), gold))
    return table("item,condition,label,gold", rows)


PROMPT = """--- system
You rate reviews for a shop by these rules:
{{ criteria }}
Answer with one of [{{ labels }}] and nothing else.
--- user
{% for demo in demos_before %}
Review: {{ demo.text }}
Label: {{ demo.label }}

{% endfor %}
Review: {{ text }}
Label:
{% for demo in demos_after %}

Review: {{ demo.text }}
Label: {{ demo.label }}
{% endfor %}
{% if demos_after %}

Review: {{ text }}
Label:
{% endif %}
"""
RATER = '''"""A rater that counts words, and one that takes the first label."""


def rate(question):
    return 1 + sum(map(ord, question.text)) % len(question.labels)


class First:
    version = "1"

    def __call__(self, question):
        n = len(question.labels)
        shares = [0.6] + [0.4 / (n - 1)] * (n - 1)
        return {"label": question.labels[0].text, "probabilities": shares}
'''
GATE = "rules:\n  - {flips: {P1: 0.30}}\n  - {accuracy: 0.40}\n"
FILES: dict[str, Callable[[], str]] = {
    "tickets.csv": tickets,
    "plain.csv": unlabelled,
    "pairs.csv": pairs,
    "three.csv": candidates,
    "mcq.csv": questions,
    "essays.csv": essays,
    "grades.csv": grades,
    "colours.csv": colours,
    "shown.csv": shown,
    "long.csv": predictions,
    "verdicts.csv": verdicts,
    "scores.csv": scores,
    "prompt.md": lambda: PROMPT,
    "my_rater.py": lambda: RATER,
    "gate.yaml": lambda: GATE,
}


@contextmanager
def prepare(names: Sequence[str], studies: Path) -> Iterator[str]:
    """Write the files of a study into the current folder; give the address of `server`."""
    for name in names:
        if name in FILES:
            Path(name).write_text(FILES[name](), encoding="utf-8")
        elif (studies / name).is_dir():
            copytree(studies / name, name)
        elif name != "server":
            copy(studies / name, name)
    if "server" not in names:
        yield ""
        return
    Path("server").touch()
    Faulty.n_asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Faulty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


class Faulty(BaseHTTPRequestHandler):
    """Chat completions decided by a hash of the messages: labels, and every kind of fault."""

    protocol_version = "HTTP/1.1"
    n_asked: ClassVar[dict[str, int]] = {}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        told = json.dumps(body.get("messages", ""), sort_keys=True)
        lot = int(hashlib.sha256(told.encode()).hexdigest()[:8], 16)
        self.n_asked[told] = self.n_asked.get(told, 0) + 1
        if lot % 23 == 0 and self.n_asked[told] == 1:
            return self.answer(429, {"error": {"message": "slow down"}})
        if lot % 29 == 0:
            return self.answer(400, {"error": {"message": "context length exceeded"}})
        said = {0: "I cannot help with that.", 1: "what?", 2: "1 or 5", 3: ""}.get(lot % 17)
        content = str(1 + lot // 17 % 5) if said is None else said
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if lot % 31 == 0:
            message = {"role": "assistant", "content": None, "refusal": "No."}
        finish = "length" if lot % 17 == 3 else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        usage = {"prompt_tokens": len(told) // 4, "completion_tokens": 1}
        return self.answer(200, {"model": "fake", "choices": [choice], "usage": usage})

    def do_GET(self) -> None:
        self.answer(404, {"error": {"message": "no"}})

    def answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "0.01")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""
