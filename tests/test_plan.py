"""Call -> Request."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from flipmeter.ask.plan import plan, price
from flipmeter.types import Ask, Call, Item, Message, Prompt, Request, Script, View


def call(text: str, *, anchor: int = 0, item: int = 0, repeat: int = 0, model: str = "m") -> Call:
    script = Script.of([Message("user", text)], anchor)
    request = Request(model, script, '{"max_tokens":8}', repeat=repeat)
    ask = Ask(Item(str(item), {"text": text}), View("base", (1, 2)))
    return Call(0, ask, Prompt(script, ("1", "2"), (1, 2)), request)


def test_a_prompt_that_is_needed_twice_is_asked_once() -> None:
    planned = plan([call("same", item=0), call("same", item=1), call("other")])
    assert (planned.n_calls, len(planned.requests)) == (3, 2)


def test_a_repeat_is_another_request() -> None:
    assert len(plan([call("same"), call("same", repeat=1)]).requests) == 2


def test_the_order_of_calls_changes_nothing() -> None:
    calls = [call(f"{head} {k}", anchor=1) for head in "abc" for k in range(5)]
    mixed = Random(0).sample(calls, len(calls))
    assert plan(mixed).requests == plan(calls).requests


def test_requests_behind_one_prefix_stay_together() -> None:
    calls = [call(f"{head}{k}", anchor=1) for k in range(4) for head in "ba"]
    prefixes = [request.script.head.text for request in plan(calls).requests]
    assert sum(a != b for a, b in pairwise(prefixes)) == 1
    assert [group.head.text for group in plan(calls).groups] == ["a", "b"]


def test_a_price_counts_a_shared_prefix_once() -> None:
    planned = plan([call("x" * 400 + tail, anchor=400) for tail in ("1111", "2222")])
    cost = price(planned)["m"]
    assert (cost.characters, cost.characters_new) == (808, 408)
    assert cost.completion_tokens_at_most == 16


def test_what_is_stored_costs_nothing() -> None:
    planned = plan([call("abcd" * 10), call("efgh" * 10)])
    cost = price(planned, [planned.requests[0].key])["m"]
    assert (cost.distinct, cost.stored, cost.to_ask, cost.characters) == (2, 1, 1, 40)


def test_the_key_of_a_request_is_pinned() -> None:
    """A key that changes by accident makes every store of every user worthless."""
    script = Script.of([Message("user", "Grüße 🙂")], 3)
    request = Request("m@1", script, '{"max_tokens":8}', (), 1)
    assert request.key == "7584a9a30b6b7574875fd53d0c8465546766f56fc105cdac8804bcdcf97a35f1"
