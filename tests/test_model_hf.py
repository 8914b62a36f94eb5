"""transformers in this process: tiny models built on the spot, and the embedded weights."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import runpy
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from flipmeter.ask.hf import HfBackend, hf_models, hf_spec
from flipmeter.ask.hf_loading import Said, Wording
from flipmeter.ask.names import (
    can_be_reproducible,
    identity_of,
    interface_of,
    open_backend,
    request_for,
)
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.run.perform import perform
from flipmeter.study.file import read_study
from flipmeter.types import Decoding, Message, Model, Prompt, Reply, Request, Script
from tiny_models import ARCHITECTURES, build, build_scripted, tokenizer

ROOT = Path(__file__).parents[1]
HEAD = "Classify the sentiment.\nSentence: It was dull. Label: 1\nSentence: "
TEXTS = ("The soup was worth the wait.", "Dull", "It was far too long, and the wait was worse.")
GREEDY = Decoding(max_tokens=6)
ANSWERS = ("1", "2", "very negative", "very positive")

has_hf = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
needs_hf = pytest.mark.skipif(not has_hf, reason="needs the extra: pip install 'flipmeter[hf]'")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("hf") / "tiny")


def of(folder: Path, **options: Any) -> Model:
    return Model(f"hf/{folder}", options={"device_map": "cpu", **options})


def prompts(head: str = HEAD, texts: Sequence[str] = TEXTS) -> list[Prompt]:
    scripts = [Script.of([Message("user", f"{head}{t} Label:")], len(head)) for t in texts]
    return [Prompt(script, ANSWERS, (1, 2, 3, 4)) for script in scripts]


def requests(model: Model, decoding: Decoding = GREEDY, *, scored: bool = True) -> list[Request]:
    identity = identity_of(model)
    made = [request_for(model, identity, prompt, decoding, 0) for prompt in prompts()]
    return made if scored else [replace(request, answers=()) for request in made]


def ask(backend: Any, asked: Sequence[Request], *, together: bool = False) -> list[Reply]:
    async def go() -> list[Reply]:
        if together:
            return list(await asyncio.gather(*(backend.ask(request) for request in asked)))
        return [await backend.ask(request) for request in asked]

    return asyncio.run(go())


def unshared(backend: Any, asked: Sequence[Request]) -> list[Reply]:
    """Ask with every prompt computed whole."""
    ask(backend, asked[:1])
    backend._engine._shares = False
    return ask(backend, asked)


# Without the extra


def test_every_model_of_the_paper_is_there() -> None:
    assert len(list(hf_models)) == 8
    assert {entry.architecture for _, entry in hf_models.items()} == set(ARCHITECTURES)


def test_a_study_is_planned_without_the_packages_and_thinks_where_it_should() -> None:
    plain, thinking = (Model(f"hf/{name}") for name in ("qwen3-8b", "qwen3-8b-thinking"))
    assert identity_of(plain) == identity_of(thinking)
    assert identity_of(plain).startswith("hf/Qwen/Qwen3-8B@main ")
    bodies = [
        json.loads(request_for(model, "x", prompts()[0], GREEDY, 0).params)
        for model in (plain, thinking, replace(thinking, max_tokens=99))
    ]
    switches = [body["chat_template_kwargs"]["enable_thinking"] for body in bodies]
    assert switches == [False, True, True]
    assert [body["max_tokens"] for body in bodies] == [6, 4096, 99]


def test_a_base_model_reads_raw_text() -> None:
    assert interface_of(Model("hf/qwen3-8b-base")) == "completions"
    assert interface_of(Model("hf/Qwen/Qwen3-8B-Base")) == "chat"


def test_what_changes_a_reply_is_in_the_identity() -> None:
    options = {"revision": "abc", "dtype": "bfloat16", "device_map": "cuda:0", "batch_size": 8}
    identity = identity_of(Model("hf/a/b", options=options))
    assert identity.startswith("hf/a/b@abc dtype=bfloat16 device_map=cuda:0 batches of 8 ")


def test_only_a_lone_request_on_a_processor_is_reproducible() -> None:
    claims = [
        can_be_reproducible(Model("hf/a/b", options=options), GREEDY)
        for options in (
            {"device_map": "cpu"},
            {"device_map": "cpu", "batch_size": 2},
            {"device_map": "cuda"},
        )
    ]
    assert claims == [True, False, False]


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(Problem, match="no option named 'dtyp'; did you mean 'dtype'"):
        hf_spec(Model("hf/a/b", options={"dtyp": "float32"}))
    with pytest.raises(Problem, match="option batch_size is 'many'; it must be int"):
        hf_spec(Model("hf/a/b", options={"batch_size": "many"}))
    with pytest.raises(Problem, match="takes no `options`"):
        identity_of(Model("sim/honest", options={"dtype": "float32"}))


def test_an_unknown_name_answers_with_the_nearest() -> None:
    with pytest.raises(Problem, match="did you mean 'qwen3-8b'"):
        identity_of(Model("hf/qwen-8b"))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no folder"):
        identity_of(Model(f"hf/{tmp_path}/nowhere"))


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    model = Model("hf/a/b", options={"device_map": "cpu"})
    with pytest.raises(Problem, match=r"pip install 'flipmeter\[hf\]'"):
        ask(HfBackend(hf_spec(model)), requests(model))


# Tiny models


@needs_hf
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_answers_the_same_with_and_without_a_shared_head(
    architecture: str, tmp_path: Path
) -> None:
    model = of(build(tmp_path / "m", architecture))
    backend = open_backend(model)
    asked = requests(model)
    shared, whole = ask(backend, asked), unshared(backend, asked)
    assert [r.error for r in shared] == ["", "", ""]
    assert [r.text for r in shared] == [r.text for r in whole]
    assert (shared[1].usage.cached or 0) > 10
    assert whole[1].usage.cached == 0
    for one, other in zip(shared, whole, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-4)


@needs_hf
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_padded_batch_says_what_each_says_alone(architecture: str, tmp_path: Path) -> None:
    """Greedy text; the window of the Gemma models is shorter than these prompts."""
    built = build(tmp_path / "m", architecture)
    alone, batched = of(built), of(built, batch_size=4)
    backend = open_backend(batched)
    together = ask(backend, requests(batched, scored=False), together=True)
    single = ask(open_backend(alone), requests(alone, scored=False))
    assert [r.text for r in together] == [r.text for r in single]
    assert len({r.usage.prompt for r in together}) == 3
    assert not backend.is_reproducible


@needs_hf
@pytest.mark.parametrize("architecture", ["qwen3", "gemma3"])
def test_a_padded_batch_scores_what_each_scores_alone(architecture: str, tmp_path: Path) -> None:
    built = build(tmp_path / "m", architecture)
    batched, alone = of(built, batch_size=4), of(built)
    together = ask(open_backend(batched), requests(batched), together=True)
    single = ask(open_backend(alone), requests(alone))
    assert [r.text for r in together] == [r.text for r in single]
    for one, other in zip(together, single, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-4)


@needs_hf
def test_scores_change_no_word(folder: Path) -> None:
    model = of(folder)
    for decoding in (GREEDY, Decoding(temperature=1.5, max_tokens=8)):
        texts = [
            [r.text for r in ask(open_backend(model), requests(model, decoding, scored=scored))]
            for scored in (True, False)
        ]
        assert texts[0] == texts[1]


@needs_hf
def test_a_cache_of_other_layers_is_scored_one_by_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = of(folder, batch_size=4)
    plain = ask(open_backend(model), requests(model), together=True)
    generate = import_module("flipmeter.ask.hf_generate")
    monkeypatch.setattr(generate, "PLAIN_LAYERS", set())
    other = ask(open_backend(model), requests(model), together=True)
    assert [r.text for r in other] == [r.text for r in plain]
    for one, two in zip(plain, other, strict=True):
        assert one.scores == pytest.approx(two.scores, abs=1e-4)


@needs_hf
def test_no_reply_depends_on_what_was_asked_before(folder: Path) -> None:
    model = of(folder)
    first, second = open_backend(model), open_backend(model)
    asked = requests(model)
    other = requests(replace(model, interface="completions"))
    forth = ask(first, asked)
    back = ask(second, [*other, *asked[::-1], *other, *asked])[-3:]
    assert [(r.text, r.scores) for r in forth] == [(r.text, r.scores) for r in back]


@needs_hf
def test_scores_are_the_log_probabilities_of_the_answers(folder: Path) -> None:
    """Against one plain forward pass over prompt and answer, for both ways to write it."""
    import torch
    import transformers as hf

    model = of(folder)
    request = requests(replace(model, interface="completions"))[0]
    scores = ask(open_backend(model), [request])[0].scores
    made = hf.AutoTokenizer.from_pretrained(folder)
    weights = hf.AutoModelForCausalLM.from_pretrained(folder).eval()
    start = made(request.script.messages[0].content)["input_ids"]

    def total(text: str) -> float:
        more = made(text, add_special_tokens=False)["input_ids"]
        with torch.inference_mode():
            shares = weights(torch.tensor([start + more])).logits[0].log_softmax(-1)
        return sum(float(shares[len(start) + n - 1, token]) for n, token in enumerate(more))

    expected = [
        float(torch.logsumexp(torch.tensor([total(a), total(f" {a}")]), 0)) for a in ANSWERS
    ]
    assert scores == pytest.approx(expected, abs=1e-4)


@needs_hf
def test_a_label_that_another_goes_on_from_is_scored_without_it(folder: Path) -> None:
    model = of(folder)
    labels = [("1", "12", "2"), ("1", "2"), ("12", "2")]
    one = requests(model)[0]
    backend = open_backend(model)
    both, short, long = (
        [math.exp(score) for score in ask(backend, [replace(one, answers=some)])[0].scores or ()]
        for some in labels
    )
    assert both[0] + both[1] == pytest.approx(short[0])
    assert both[1:] == pytest.approx(long)


@needs_hf
def test_a_token_that_reaches_over_the_end_of_the_head_is_kept_whole() -> None:
    wording = Wording(tokenizer(), "tiny")
    long = max((wording.decode([n]) for n in range(len(wording.tokenizer))), key=_length)
    text, middle = f"A{long} A", len(long) // 2
    script = Script.of([Message("user", text)], middle)
    prompt = wording.prompted(Request("m", script), "completions")
    assert prompt.ids == wording.tokenizer(text)["input_ids"]
    assert wording.decode(prompt.ids[: prompt.n_head]) == "A"


def _length(token: str) -> int:
    return len(token) if token.strip().isalpha() else 0


@needs_hf
def test_the_template_is_used_and_a_model_without_one_says_so(folder: Path, tmp_path: Path) -> None:
    chat, raw = of(folder), replace(of(folder), interface="completions")
    backend = open_backend(chat)
    longer, shorter = (ask(backend, requests(m)[:1])[0].usage.prompt for m in (chat, raw))
    assert (longer or 0) > (shorter or 0)
    base = of(build(tmp_path / "base", template=None))
    with pytest.raises(Problem, match="no chat template; set `interface: completions`"):
        ask(open_backend(base), requests(base))
    assert not ask(open_backend(base), requests(replace(base, interface="completions")))[0].error


@needs_hf
def test_a_thought_is_cut_off_and_counted(tmp_path: Path) -> None:
    made = tokenizer()
    last = made.convert_ids_to_tokens(made("<|im_start|>assistant")["input_ids"])[-1]
    chain = [last, "<think>", "h", "m", "</think>", "2", "<|im_end|>"]
    built = build_scripted(tmp_path / "m", chain)
    on, off = of(built, thinking=True), of(built, thinking=False)
    backend = open_backend(on)
    thought, plain = (ask(backend, requests(m)[:1])[0] for m in (on, off))
    assert (thought.text, thought.finish, thought.usage.reasoning) == ("2", "stop", 4)
    assert (plain.text, plain.finish, plain.usage.reasoning) == ("2", "stop", 0)
    assert (thought.scores, plain.scores is None) == (None, False)
    assert (thought.usage.completion, plain.usage.completion) == (6, 2)
    short = ask(backend, requests(replace(on, max_tokens=3))[:1])[0]
    assert (short.text, short.finish, short.usage.reasoning) == ("", "length", 3)


@needs_hf
def test_a_thought_that_the_template_opens_is_cut_off_too() -> None:
    wording = Wording(tokenizer(), "tiny")
    prompt = replace(wording.prompted(requests_raw("x"), "completions"), text="<think>\n")
    said = Said(wording, prompt, ("\n",))
    for token in wording.tokenizer("hm\n</think>\n\n2\n")["input_ids"]:
        if not said.finish:
            said.add(token)
    assert (said.text, said.finish) == ("2", "stop")


def requests_raw(text: str) -> Request:
    return Request("m", Script.of([Message("user", text)]))


@needs_hf
def test_a_stop_ends_the_text(tmp_path: Path) -> None:
    made = tokenizer()
    last = made.convert_ids_to_tokens(made("Label:")["input_ids"])[-1]
    line_end = made.convert_ids_to_tokens(made("\n")["input_ids"])[-1]
    built = build_scripted(tmp_path / "m", [last, "4", line_end, "4"])
    model = replace(of(built), interface="completions")
    reply = ask(open_backend(model), requests(model, Decoding(max_tokens=9, stop=("\n",))))[0]
    assert (reply.text, reply.finish, reply.usage.completion) == ("4", "stop", 2)


@needs_hf
def test_a_sampled_reply_belongs_to_its_request(folder: Path) -> None:
    model = of(folder)
    hot = Decoding(temperature=1.5, top_k=50, top_p=0.95, min_p=0.01, repetition_penalty=1.1)
    first = requests(model, replace(hot, max_tokens=12))[0]
    again = replace(first, repeat=1)
    texts = [ask(open_backend(model), [r])[0].text for r in (first, first, again)]
    assert texts[0] == texts[1] != texts[2]


@needs_hf
def test_a_prompt_that_does_not_fit_is_a_named_error_and_its_neighbours_are_answered(
    folder: Path,
) -> None:
    model = of(folder, batch_size=2)
    identity = identity_of(model)
    shown = prompts("", ["far too long " * 900, "short"])
    asked = [request_for(model, identity, prompt, GREEDY, 0) for prompt in shown]
    long, short = ask(open_backend(model), asked, together=True)
    assert "the limit of the model is 2048" in long.error
    assert not short.error


@needs_hf
@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"device_map": "auto"}])
def test_precision_and_place_are_options(folder: Path, options: dict[str, Any]) -> None:
    model = of(folder, **options)
    reply = ask(open_backend(model), requests(model)[:1])[0]
    assert (reply.error, reply.usage.completion) == ("", 6)
    assert options.get("dtype", "auto") in reply.fingerprint


@needs_hf
def test_other_weights_are_another_model(folder: Path, tmp_path: Path) -> None:
    other = build(tmp_path / folder.name, "granite")
    assert identity_of(of(folder)) == identity_of(of(folder))
    assert identity_of(of(folder)) != identity_of(of(other))


@needs_hf
def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    model = of(tmp_path)
    with pytest.raises(Problem, match="is it a model's folder"):
        ask(open_backend(model), requests(model))


@needs_hf
def test_a_hub_out_of_reach_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    model = Model("hf/nobody/nothing-at-all")
    with pytest.raises(Problem, match=r"cannot get nobody/nothing-at-all .*hf/\./FOLDER"):
        ask(open_backend(model), requests(model))


@needs_hf
def test_a_study_on_a_folder_runs_and_asks_nothing_twice(folder: Path, tmp_path: Path) -> None:
    study = read_study(
        {
            "models": [{"model": f"hf/{folder}", "options": {"device_map": "cpu"}}],
            "datasets": ["reviews"],
            "test_size": 4,
            "probes": ["label_order"],
            "base": {"shots": 1},
            "decoding": {"max_tokens": 4},
        }
    )
    with Store(tmp_path / "r.sqlite") as store:
        first = perform(study, tmp_path / "a", store)
        again = perform(study, tmp_path / "b", store)
    assert first.environment["asked"]["asked"] > 0
    assert again.environment["asked"]["asked"] == 0


# The embedded weights


@needs_hf
@pytest.mark.real
def test_llama_cpp_and_transformers_agree_on_the_embedded_weights(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench = runpy.run_path(str(ROOT / "benchmarks" / "hf_agreement.py"))
    found = bench["compare"](n_items=4)
    with capsys.disabled():
        print("\n" + bench["told"](found))
    assert found.n_far == 0
    assert found.n_agree / found.n >= 0.8
    assert found.n_read >= 8
