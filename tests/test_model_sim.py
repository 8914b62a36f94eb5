"""A simulated rater that reads any prompt of the paper answers as it was planted to."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import product
from statistics import NormalDist
from typing import Any

import pytest

from flipmeter.ask.family import World
from flipmeter.ask.sim import REFUSAL, SimRater, latents
from flipmeter.ask.tilts import SIMS, SimSpec, sim_spec
from flipmeter.errors import Problem
from flipmeter.types import Item, Message, Reply, Request, Scale, Script
from planted_flips import Positions, predict_flip_rate
from read_prompts import Reader, ReadingRater, reading

FIVE = Scale(("very negative", "negative", "neutral", "positive", "very positive"))
TWO = Scale(("non-hate", "hate"))
NATURAL, REVERSED, MIXED = (1, 2, 3, 4, 5), (5, 4, 3, 2, 1), (4, 1, 5, 2, 3)
FORMATS = ("numeric", "letter", "natural_language", "neutral_id")
SEPARATORS, CONNECTORS = (": ", " ", "\t"), ("\n", " ", "\n\t")
MOODS = {
    "imperative": (
        "Please perform Sentiment Classification task.",
        "Given the sentence, assign a label from {}.",
    ),
    "interrogative": (
        "What is the sentiment of the following sentence?",
        "Which label from {} do you assign?",
    ),
    "indicative": (
        "You are performing Sentiment Classification task.",
        "Given the sentence, you assign a label from {}.",
    ),
}
ORDERED = (
    "Classify the sentiment into one of the following ordered categories, "
    "where 1 is most negative and 5 is most positive:"
)
CUES = ("", "repeat", "point")

DEMOS = [Item(f"d{k}", {"text": f"Demonstration {k} of many ."}, gold=k % 5 + 1) for k in range(10)]
TRICKY = [
    "It says 'Label: 3' on the box .",
    "Bad label [1: very positive] , [2] .",
    "One paragraph .\n\nAnother one : longer .",
    "Great .\nLabel: 5\n\nSentence: Bad .",
    "Great .\n\nSentence: Bad .\nLabel: 1",
    "Wrong .\nLabel:\n\nSentence: Right .",
    "I lost my Label",
    "Sentence: twice",
]
QUERIES = [Item(f"q{k}", {"text": text}, gold=k % 5 + 1) for k, text in enumerate(TRICKY)]
PLAIN = Item("plain", {"text": "Everywhere the camera looks there is something worth seeing ."}, 4)
ITEMS = [*DEMOS, *QUERIES, PLAIN]


def labels_of(order: Sequence[int], label_format: str, scale: Scale = FIVE) -> list[str]:
    """Return the label in each slot."""
    shown = {
        "numeric": lambda slot: str(slot + 1),
        "letter": lambda slot: "ABCDE"[slot],
        "natural_language": lambda slot: scale.name(order[slot]),
        "neutral_id": lambda slot: f"Option_{slot + 1}",
    }
    return [shown[label_format](slot) for slot in range(len(order))]


def listing(order: Sequence[int], label_format: str, scale: Scale = FIVE) -> str:
    labels = labels_of(order, label_format, scale)
    if label_format != "natural_language":
        names = [scale.name(rank) for rank in order]
        labels = [f"{label}: {name}" for label, name in zip(labels, names, strict=True)]
    return f"[{', '.join(labels)}]"


def prompt(
    query: Item = PLAIN,
    demos: Sequence[Item] = DEMOS,
    *,
    order: Sequence[int] = NATURAL,
    label_format: str = "numeric",
    clarity: str = "explicit",
    mood: str = "imperative",
    separator: str = ": ",
    connector: str = "\n",
    n_before: int | None = None,
    cue: str = "",
    noun: str = "Sentence",
    scale: Scale = FIVE,
) -> str:
    """Write a prompt in the paper's form; without `n_before` all demonstrations come first."""
    labels = labels_of(order, label_format, scale)
    first, ask = MOODS[mood]
    lines = [first, ask.format(listing(order, label_format, scale)), "Return label only ."]
    if clarity == "ordinal_explicit":
        lines[0] = ORDERED
    header = "Classify the sentiment:" if clarity == "minimal" else "\n".join(lines)

    def block(text: str, label: str = "") -> str:
        return f"{noun}{separator}{text}{connector}Label{separator}{label}".rstrip()

    blocks = [block(demo.text, labels[order.index(demo.gold or 0)]) for demo in demos]
    place = len(blocks) if n_before is None else n_before
    ends = {"": [], "repeat": [block(query.text)], "point": [block("the sentence above")]}
    return "\n\n".join([header, *blocks[:place], block(query.text), *blocks[place:], *ends[cue]])


def reader(
    spec: SimSpec, table: dict[str, float], names: tuple[str, ...] = FIVE.names
) -> ReadingRater:
    """A simulated rater that is given the words of a prompt alone."""
    return ReadingRater(SimRater(spec, table, names), Reader(World(table, names)))


def honest(**settings: Any) -> ReadingRater:
    return reader(SimSpec("test", **settings), latents(ITEMS, FIVE, spread=0.1))


def understands(rater: ReadingRater, query: Item = PLAIN, **levels: Any) -> bool:
    """Say whether the rater answers with the label of the query's gold class."""
    order = levels.get("order", NATURAL)
    labels = labels_of(order, str(levels.get("label_format", "numeric")))
    wanted = labels[order.index(query.gold)]
    return bool(rater.reply(prompt(query, **levels)) == wanted)


def ask(rater: ReadingRater, text: str, params: str = "{}", **fields: Any) -> Reply:
    request = Request(rater.identity, Script.of([Message("user", text)]), params, **fields)
    return asyncio.run(rater.ask(request))


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize("label_format", FORMATS)
@pytest.mark.parametrize("clarity", ["explicit", "ordinal_explicit"])
@pytest.mark.parametrize("order", [NATURAL, REVERSED, MIXED])
def test_the_list_says_what_a_label_means(
    label_format: str, clarity: str, order: tuple[int, ...]
) -> None:
    rater = honest()
    for mood, query in product(MOODS, [PLAIN, *QUERIES]):
        levels = {"label_format": label_format, "clarity": clarity, "order": order, "mood": mood}
        assert understands(rater, query, **levels), (levels, query)


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("cue", CUES)
def test_every_form_and_placement_of_a_block_is_read(
    separator: str, connector: str, cue: str
) -> None:
    rater = honest()
    for n_before, label_format, query in product((None, 0, 5), FORMATS, [PLAIN, *QUERIES]):
        levels = {"separator": separator, "connector": connector, "label_format": label_format}
        end = {"n_before": n_before, "cue": "" if n_before is None else cue}
        assert understands(rater, query, order=REVERSED, **levels, **end), (levels, end, query)


@pytest.mark.parametrize("label_format", ["numeric", "letter", "neutral_id"])
@pytest.mark.parametrize("order", [NATURAL, REVERSED, MIXED])
def test_without_a_list_the_demonstrations_say_what_a_label_means(
    label_format: str, order: tuple[int, ...]
) -> None:
    levels: dict[str, Any] = {"label_format": label_format, "order": order, "clarity": "minimal"}
    assert understands(honest(), **levels)
    assert understands(honest(), separator=" ", connector=" ", n_before=0, **levels)


def test_without_a_list_words_mean_what_they_say() -> None:
    rater = honest()
    assert rater.reply(prompt(clarity="minimal", label_format="natural_language")) == "positive"
    assert rater.reply(prompt(demos=[], clarity="minimal")) == "positive"


def test_a_prompt_needs_no_demonstrations() -> None:
    for separator, connector in product(SEPARATORS, CONNECTORS):
        text = prompt(demos=[], order=REVERSED, separator=separator, connector=connector)
        assert honest().reply(text) == "2"


def test_a_noun_may_have_two_words() -> None:
    for separator in SEPARATORS:
        text = prompt(order=MIXED, noun="Support ticket", separator=separator)
        assert honest().reply(text) == "1"


def test_a_name_inside_another_name_is_not_taken_for_it() -> None:
    items = [Item("a", {"text": "Go home ."}, gold=2), Item("b", {"text": "Come in ."}, gold=1)]
    rater = reading("sim/honest", World(latents(items, TWO, spread=0.1), TWO.names))
    texts = [
        prompt(items[0], items[1:], order=order, label_format="natural_language", scale=TWO)
        for order in ((1, 2), (2, 1))
    ]
    assert [rater.reply(text) for text in texts] == ["hate", "hate"]


def test_the_last_demonstration_is_the_last_in_the_prompt() -> None:
    rater = honest(recency=1000.0)
    for cue, n_before in product(CUES, (0, 5)):
        assert rater.reply(prompt(order=MIXED, n_before=n_before, cue=cue)) == "3"
    assert rater.reply(prompt(demos=DEMOS[:6], order=MIXED)) == "2"
    assert rater.reply(prompt(demos=[*DEMOS[:6], QUERIES[3]], order=MIXED)) == "1"


def test_the_header_may_be_a_message_of_its_own() -> None:
    header, _, rest = prompt(order=MIXED).partition("\n\n")
    messages = (Message("system", header), Message("user", rest))
    assert asyncio.run(honest().ask(Request("", Script.of(messages)))).text == "1"


def test_an_unknown_text_is_an_error_that_names_it() -> None:
    stranger = Item("x", {"text": "Nobody wrote this ."})
    assert "'Nobody wrote this .'" in ask(honest(), prompt(stranger)).error
    with pytest.raises(Problem, match="Nobody wrote this"):
        honest().reply(prompt(stranger))


@pytest.mark.parametrize("text", ["", "Hello?", "Passage A: x\nPassage B: y\nWhich is better?"])
def test_a_prompt_that_asks_for_no_label_is_an_error(text: str) -> None:
    assert "no block of a text and a 'Label'" in ask(honest(), text).error


def test_a_list_of_other_classes_is_an_error() -> None:
    assert "does not show the classes" in ask(honest(), prompt(order=(1, 2), demos=[])).error


def test_a_prompt_without_a_query_is_an_error() -> None:
    text = prompt().rpartition("\n\n")[0]
    assert "no query" in ask(honest(), text).error


# ---------------------------------------------------------------------- the tilt


def test_a_tilt_acts_on_slots_and_not_on_classes() -> None:
    for name, slot in (("first-slot", "1"), ("last-slot", "5")):
        rater = reader(sim_spec(f"sim/{name}?strength=99"), latents(ITEMS, FIVE))
        assert {rater.reply(prompt(order=order)) for order in (NATURAL, REVERSED, MIXED)} == {slot}


def test_a_slope_moves_the_answer_by_its_share_of_the_sharpness() -> None:
    rater = reader(SimSpec("tilted", sharpness=2.0, slope=2.2), {PLAIN.text: 3.0})
    assert rater.reply(prompt()) == "4"
    assert rater.reply(prompt(order=REVERSED)) == "4"


def test_scores_are_the_planted_log_odds() -> None:
    scores = ask(honest(sharpness=2.0, first=1.5), prompt(order=REVERSED)).scores
    latent = latents([PLAIN], FIVE, spread=0.1)[PLAIN.text]
    assert scores is not None
    assert sum(map(math.exp, scores)) == pytest.approx(1)
    assert scores[0] - scores[1] == pytest.approx(1.5 - 2 * ((latent - 5) ** 2 - (latent - 4) ** 2))


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_replies_are_drawn_from_the_scores_at_the_temperature_of_the_noise(noise: float) -> None:
    rater = honest(sharpness=0.4, first=0.7, noise=noise)
    text, n = prompt(order=MIXED), 4_000
    labels = tuple("12345")
    scores = ask(rater, text, answers=labels).scores
    assert scores is not None
    weights = [math.exp(score / noise) for score in scores]
    drawn = [rater.reply(text, repeat) for repeat in range(n)]
    for label, weight in zip(labels, weights, strict=True):
        share = weight / sum(weights)
        close = 4 * math.sqrt(share * (1 - share) / n)
        assert drawn.count(label) / n == pytest.approx(share, abs=close)


def test_scores_follow_the_answers_that_are_asked_for() -> None:
    rater, text = honest(first=0.7), prompt(label_format="letter")
    forward, back = (ask(rater, text, answers=tuple(order)).scores for order in ("ABCDE", "EDCBA"))
    assert forward is not None
    assert forward == (back or ())[::-1]
    assert ask(rater, text, answers=("A", "Z")).scores is None


def test_a_text_without_content_shows_the_tilt_alone() -> None:
    null = Item("null", {"text": "N/A"}, role="null")
    rater = reader(sim_spec("sim/first-slot"), latents([*ITEMS, null], FIVE))
    scores = ask(rater, prompt(null, order=MIXED)).scores
    assert scores is not None
    assert [score - scores[1] for score in scores] == pytest.approx([1.5, 0, 0, 0, 0])


def test_noise_is_fresh_for_each_repeat_and_the_same_for_the_same_one() -> None:
    rater = honest(sharpness=0.1, noise=1.0)
    first, again = ([rater.reply(prompt(), repeat) for repeat in range(50)] for _ in range(2))
    assert first == again
    assert len(set(first)) > 2
    assert first != [rater.reply(prompt(), repeat, seed=7) for repeat in range(50)]


def test_repeats_agree_as_often_as_independent_draws() -> None:
    spec, table = SimSpec("noisy", noise=2.0), {f"Text {k}": 4.0 for k in range(2000)}
    rater = reader(spec, table)
    texts = [prompt(Item("", {"text": text}), []) for text in table]
    shown, shares = Positions(REVERSED), [0, 0, 0, 1, 0]
    planted = predict_flip_rate(spec, 5, shown, shown, spread=0, gold_shares=shares)
    found = sum(rater.reply(text, 0) != rater.reply(text, 1) for text in texts) / 2000
    assert found == pytest.approx(planted, abs=4 * math.sqrt(planted * (1 - planted) / 2000))


def test_a_refused_text_is_refused_in_every_view() -> None:
    texts = [f"Text {k}" for k in range(1000)]
    rater = reader(sim_spec("sim/refusing"), dict.fromkeys(texts, 2.0))
    refused = [
        {
            text
            for text in texts
            if rater.reply(prompt(Item("", {"text": text}), [], order=order)) == REFUSAL
        }
        for order in (NATURAL, REVERSED)
    ]
    assert refused[0] == refused[1]
    assert len(refused[0]) == pytest.approx(200, abs=50)


def test_hidden_tokens_are_counted_and_use_up_the_budget() -> None:
    rater = honest(hidden=30)
    usage = ask(rater, prompt(), '{"max_tokens":32}').usage
    assert (usage.completion, usage.reasoning) == (31, 30)
    cut = ask(rater, prompt(), '{"max_tokens":16}')
    assert (cut.text, cut.finish, cut.usage.completion, cut.usage.reasoning) == (
        "",
        "length",
        16,
        16,
    )


def test_two_factors_together_shift_a_text_and_neither_does_alone() -> None:
    rater = honest(joint=-2)
    answers = [
        rater.reply(prompt(label_format=label_format, separator=separator))
        for label_format, separator in product(("numeric", "letter"), (": ", "\t"))
    ]
    assert answers == ["4", "2", "B", "D"]


# ---------------------------------------------------------------------- names and tables


def test_a_name_can_change_every_number() -> None:
    spec = sim_spec("sim/first-slot?strength=0.25&noise=0.3&hidden=4")
    assert spec == SimSpec("first-slot", first=0.25, noise=0.3, hidden=4)
    assert sim_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sim/first-slit", "did you mean 'first-slot'"),
        ("sim/honest?noize=1", "did you mean 'noise'"),
        ("sim/honest?strength=1", "has no strength"),
        ("sim/noisy?noise=loud", "noise='loud'"),
        ("sim/noisy?noise=1&strength=2", "sets noise twice"),
        ("sim/noisy?noise=-1", "cannot have noise=-1"),
        ("sim/refusing?refuse=1.5", "cannot have refuse=1.5"),
        ("sim/honest?hidden=0.5", "not a whole number"),
        ("sim/honest?slope=nan", "cannot have slope=nan"),
    ],
)
def test_a_wrong_name_is_told_what_is_wrong_with_it(name: str, message: str) -> None:
    with pytest.raises(Problem, match=message):
        sim_spec(name)


def test_an_identity_changes_with_the_table_and_the_tilt() -> None:
    table = latents(ITEMS, FIVE)
    raters = [
        SimRater(sim_spec("sim/honest"), table, FIVE.names),
        SimRater(sim_spec("sim/honest?first=1e-9"), table, FIVE.names),
        SimRater(sim_spec("sim/honest"), table, FIVE.names[::-1]),
        SimRater(sim_spec("sim/honest"), latents(ITEMS, FIVE, seed=1), FIVE.names),
    ]
    assert len({rater.identity for rater in raters}) == 4
    assert raters[0].identity.startswith("sim/honest?sharpness=2@")


def test_latent_scores_are_the_same_on_every_machine() -> None:
    assert latents([PLAIN], FIVE) == {PLAIN.text: pytest.approx(4.441442199, abs=1e-9)}


def test_latent_scores_stay_on_the_scale_and_near_the_gold() -> None:
    items = [Item(str(k), {"text": f"Text {k}"}, gold=k % 5 + 1) for k in range(2000)]
    table = latents(items, FIVE)
    assert min(table.values()) == 0.5
    assert max(table.values()) == 5.5
    middle = [table[item.text] - 3 for item in items if item.gold == 3]
    assert sum(middle) / len(middle) == pytest.approx(0, abs=0.1)


def test_an_item_without_a_gold_has_no_latent_score() -> None:
    with pytest.raises(Problem, match="item 'x' has gold None"):
        latents([Item("x", {"text": "?"})], FIVE)


# ---------------------------------------------------------------------- the planted value

N_TEXTS = 20_000
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3)
GOLDS = [rank for rank, share in enumerate(SHARES, 1) for _ in range(round(N_TEXTS * share))]
CORPUS = [Item(str(k), {"text": f"Text {k}"}, gold=gold) for k, gold in enumerate(GOLDS)]
LAST = {rank: Item(f"last{rank}", {"text": f"Last {rank}"}, gold=rank) for rank in (2, 5)}
CORPUS_TABLE = latents([*CORPUS, *LAST.values()], FIVE)


def measured(spec: SimSpec, a: Positions, b: Positions, every: int) -> float:
    rater = reader(spec, CORPUS_TABLE)
    frames = []
    for shown in (a, b):
        demos = [LAST[shown.last_demo]] if shown.last_demo else []
        before, after = prompt(PLAIN, demos, order=shown.label_order).split(PLAIN.text)
        frames.append((before, after, shown.label_order))
    flips = 0
    for item in CORPUS[::every]:
        pair = [order[int(rater.reply(x + item.text + y)) - 1] for x, y, order in frames]
        flips += pair[0] != pair[1]
    return flips * every / N_TEXTS


@pytest.mark.parametrize(
    ("name", "a", "b", "every"),
    [
        ("first-slot", Positions(NATURAL), Positions(REVERSED), 1),
        ("recency", Positions(NATURAL, 2), Positions(NATURAL, 5), 4),
        ("biased-noisy", Positions(NATURAL, 2), Positions(MIXED, 5), 4),
    ],
)
def test_the_measured_share_of_flips_is_the_planted_one(
    name: str, a: Positions, b: Positions, every: int
) -> None:
    spec = SIMS[name].spec
    planted = predict_flip_rate(spec, 5, a, b, gold_shares=SHARES)
    error = math.sqrt(planted * (1 - planted) * every / N_TEXTS)
    assert 0.05 < planted < 0.6
    assert measured(spec, a, b, every) == pytest.approx(planted, abs=4 * error)


@pytest.mark.parametrize("name", ["honest", "refusing"])
def test_an_untilted_rater_is_planted_at_zero(name: str) -> None:
    spec = SIMS[name].spec
    assert predict_flip_rate(spec, 5, Positions(NATURAL, 2), Positions(MIXED, 5)) == 0
    texts = [prompt(item, DEMOS, order=MIXED) for item in (PLAIN, *QUERIES)]
    assert [MIXED[int(honest().reply(text)) - 1] for text in texts] == [4, 1, 2, 3, 4, 5, 1, 2, 3]


def test_a_bonus_for_the_first_slot_has_a_closed_form() -> None:
    spec = SimSpec("closed", sharpness=2.0, first=1.0)
    planted = predict_flip_rate(
        spec, 2, Positions((1, 2)), Positions((2, 1)), gold_shares=[0.75, 0.25]
    )
    around = [NormalDist(gold, 0.6) for gold in (1, 2)]
    masses = [normal.cdf(1.5 + 0.25) - normal.cdf(1.5 - 0.25) for normal in around]
    assert planted == pytest.approx(0.75 * masses[0] + 0.25 * masses[1], abs=1e-4)


def test_views_of_different_scales_cannot_be_compared() -> None:
    with pytest.raises(Problem, match="must cover the 5 classes"):
        predict_flip_rate(SimSpec(), 5, Positions(NATURAL), Positions((1, 2)))
