"""The probes as tasks of Inspect: `inspect eval flipmeter/label_order --model ...`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
)
from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    NOANSWER,
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    Value,
    accuracy,
    metric,
    scorer,
)
from inspect_ai.solver import TaskState, generate

from flipmeter.bridge.logs import reply_of
from flipmeter.bridge.samples import (
    ANYBODY,
    METADATA,
    READING,
    PromptSample,
    extract_of,
    figures,
    offered,
    questions,
    span_of,
)
from flipmeter.errors import Problem
from flipmeter.prompt.parsing import parse
from flipmeter.prompt.probes import contrasts_of, shown_in
from flipmeter.stats.estimates import measure
from flipmeter.study.file import Study, find_study, read_study
from flipmeter.types import Answer, Decoding, Mode, Prompt, Rank

SPEAKERS: dict[str, type[ChatMessage]] = {
    "system": ChatMessageSystem,
    "user": ChatMessageUser,
    "assistant": ChatMessageAssistant,
}


def _register_task(name: str, probes: Sequence[str] | None = None) -> Callable[..., Task]:
    """Register a task of some probes; without probes, of those that the study names."""

    def build(
        dataset: str | None = None,
        shots: int | None = None,
        seed: int | list[int] | None = None,
        test_size: int | None = None,
        label_format: str | None = None,
        study: str | None = None,
    ) -> Task:
        changes = {
            "probes": probes,
            "datasets": dataset,
            "seeds": [seed] if isinstance(seed, int) else seed,
            "test_size": test_size,
            "base.shots": shots,
            "base.label_format": label_format,
        }
        given = {key: value for key, value in changes.items() if value is not None}
        # Whom to ask, and when to stop, is for Inspect to say.
        source = {"name": name, "datasets": ["reviews"]} if study is None else find_study(study)
        theirs = {"models": [ANYBODY], "vary_models": [], "budget": None, "until": None}
        folder = os.environ.get("FLIPMETER_DATA")
        data_dir = Path(folder) if folder else None
        return as_task(read_study(source, given | theirs, data_dir=data_dir))

    made: Callable[..., Task] = task(name=name)(build)
    return made


label_order = _register_task("label_order", ["label_order"])
demo_order = _register_task("demo_order", ["demo_order"])
placement = _register_task("placement", ["placement"])
pair_order = _register_task("pair_order", ["pair_order"])
option_order = _register_task("option_order", ["option_order"])
positions = _register_task("positions")


def as_task(study: Study) -> Task:
    """A study as a task, one sample for every item and view."""
    raters = [rater for level in study.levels().values() for rater in study.raters(level)]
    longest = max((rater.decoding for rater in raters), key=lambda how: how.max_tokens)
    return Task(
        dataset=MemoryDataset(
            [_inspect_sample(question) for question in questions(study)], study.name
        ),
        solver=generate(),
        scorer=label(),
        metrics=[flips(study.probes, study.mode, study.aggregate_includes_base)],
        config=_inspect_config(longest),
        epochs=1,  # repeats are samples of their own
        metadata={METADATA: {"study": study.model_dump(mode="json"), "folder": str(study.folder)}},
    )


def _inspect_sample(question: PromptSample) -> Sample:
    prompt, gold = question.call.prompt, question.call.ask.item.gold
    return Sample(
        input=[SPEAKERS[one.role](content=one.content) for one in prompt.script.messages],
        target=_target_answer(prompt, gold) if gold else "",
        id=question.id,
        metadata=question.metadata,
    )


def _target_answer(prompt: Prompt, gold: Rank) -> str:
    """The right answer: a label, or a number."""
    if prompt.span is None:
        return prompt.answers[prompt.ranks.index(gold)]
    return prompt.span.name(prompt.span.mirrored(gold) if prompt.is_mirrored else gold)


def _inspect_config(decoding: Decoding) -> GenerateConfig:
    """The decoding settings in Inspect's terms."""
    fields = decoding.body()
    for name in ("min_p", "repetition_penalty"):
        if name in fields:
            raise Problem(f"Inspect has no field for `{name}`; leave it out of `decoding`")
    stop = fields.pop("stop", None)
    return GenerateConfig(**fields, stop_seqs=stop)


@scorer(metrics=[accuracy()])
def label() -> Scorer:
    """Read the label as flipmeter does, and undo the order in which labels were listed."""

    async def score(state: TaskState, target: Target) -> Score:
        read = parse(reply_of(state.output), offered(state.metadata), extract_of(state.metadata))
        shown = offered(state.metadata).label(read.slot) if read.slot else None
        return Score(
            value=_inspect_score_value(read, state.metadata),
            answer=shown,
            explanation=read.fault or state.output.completion,
            metadata={"rank": read.rank, "slot": read.slot, "fault": read.fault or ""},
        )

    return score


def _inspect_score_value(read: Answer, metadata: Mapping[str, Any]) -> Value:
    span, gold = span_of(metadata), metadata["gold"]
    if not read.rank:
        return NOANSWER
    if gold is None:
        return read.rank if span is None else span.score(read.rank)
    tolerance = 0 if span is None else span.tolerance
    return CORRECT if abs(read.rank - gold) <= tolerance else INCORRECT


@metric
def flips(
    probes: list[str], mode: Mode = "recommended", aggregate_includes_base: bool = True
) -> Metric:
    """Flip rates of the contrasts of some probes, with their intervals and the noise floor."""

    def measured(scores: list[SampleScore]) -> Value:
        if not scores:  # Inspect asks this before anything is there
            return {}
        table = pl.DataFrame([_score_row(score) for score in scores], infer_schema_length=None)
        made = contrasts_of(probes, includes_base=aggregate_includes_base)
        contrasts = shown_in(made, table["view"].unique().to_list())
        return figures(measure(table, contrasts, mode=mode), contrasts)

    return measured


def _score_row(score: SampleScore) -> dict[str, Any]:
    where, read = score.sample_metadata or {}, score.score.metadata or {}
    plain = {name: value for name, value in where.items() if name not in READING}
    return plain | {"rater": "", "rank": read["rank"]}
