"""A log of Inspect -> Run: every logged reply under the key of the request that it answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.bridge.samples import METADATA, PromptSample, questions
from flipmeter.documents import check_zip
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.study.file import Study, read_study
from flipmeter.types import Message, Reply, Script, Usage

FINISHED = {
    "stop": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
}
"""Finish reasons in Inspect's terms and in those of an endpoint."""


def reply_of(output: Any) -> Reply:
    """The reply in a `ModelOutput`, without the reasoning that Inspect keeps apart."""
    if not output.choices:
        return Reply(error=output.error or "the output has no choices")
    finish, content = FINISHED.get(output.stop_reason, ""), output.message.content
    parts = () if isinstance(content, str) else content
    is_refusal = any(getattr(part, "refusal", None) for part in parts)
    return Reply(
        text=output.completion,
        finish="refusal" if is_refusal else finish,
        usage=_inspect_usage(output.usage),
        seconds=output.time or 0.0,
        model=output.model,
    )


def _inspect_usage(usage: Any) -> Usage:
    if usage is None:
        return Usage()
    cached, written = usage.input_tokens_cache_read, usage.input_tokens_cache_write
    # Inspect counts what a cache holds apart; an endpoint counts it among the prompt's tokens.
    prompt = usage.input_tokens + (cached or 0) + (written or 0)
    return Usage(prompt, cached, usage.output_tokens, usage.reasoning_tokens)


def decoding_of(config: Any) -> dict[str, Any]:
    """The `decoding` of a study from a `GenerateConfig`; no option may change the prompt."""
    if config.system_message:
        raise Problem(
            "the log was made with its own system message, which flipmeter's prompts do "
            "not have; run the task without --system-message"
        )
    if config.cache:
        raise Problem(
            "the log was made with Inspect's cache, which answers repeats with the same reply; "
            "run the task without it"
        )
    sent = {
        "temperature": config.temperature,
        "top_k": config.top_k,
        "top_p": config.top_p,
        "seed": config.seed,
        "stop": config.stop_seqs or None,
    }
    return sent | ({"max_tokens": config.max_tokens} if config.max_tokens else {})


UNREAD = {"events", "store", "attachments", "timelines"}


@dataclass(frozen=True)
class Log:
    """The header of a log; its samples are read when needed."""

    path: Path
    header: Any

    @property
    def study(self) -> Study:
        """The study that the task was made from, answered by the model of the log."""
        said = self.header.eval
        about = (said.metadata or {}).get(METADATA)
        if about is None:
            raise Problem(
                f"{self.path} is a log of the task '{said.task}', which is not one of "
                f"flipmeter's; "
                "import one of: inspect eval flipmeter/label_order (demo_order, placement)"
            )
        if (said.config.epochs or 1) > 1:
            raise Problem(
                f"{self.path} has {said.config.epochs} epochs, but a study has repeats of its "
                "own; run the task with --epochs 1"
            )
        config = self.header.plan.config.merge(said.model_generate_config)
        # A log is a record of its own: the same model asked again is another one.
        model = {"model": f"inspect/{said.model}@{said.eval_id}", "name": said.model}
        try:
            told, folder = dict(about["study"]), Path(about["folder"])
            decoding = {**told["decoding"], **decoding_of(config)}
        except (LookupError, TypeError, ValueError) as error:
            raise _no_log(self.path, error) from error
        study = read_study(told, {"models": [model], "decoding": decoding})
        return study.model_copy(update={"folder": folder})

    @property
    def origin(self) -> dict[str, Any]:
        """The origin of a run whose requests were not sent by flipmeter."""
        said = self.header.eval
        return {
            "log": self.path.name,
            "task": said.task,
            "eval_id": said.eval_id,
            "created": said.created,
            "status": self.header.status,
            "model": said.model,
            "base_url": said.model_base_url,
            "packages": said.packages,
        }

    def samples(self) -> Iterator[Any]:
        """Yield what was asked, one sample after the other."""
        from inspect_ai.log import read_eval_log_samples

        try:
            yield from read_eval_log_samples(
                str(self.path), all_samples_required=False, exclude_fields=UNREAD
            )
        except Problem:
            raise
        except Exception as error:  # each format of a log fails in its own way
            raise _no_log(self.path, error) from error


def open_log(path: Path) -> Log:
    """Read the head of a log; the extra `inspect` must be installed."""
    if not path.is_file():
        raise Problem(f"no log {path}; inspect eval writes them to logs/")
    check_zip(path)
    try:
        from inspect_ai.log import read_eval_log
    except ImportError as error:
        raise Problem(
            "reading Inspect logs needs an extra: pip install 'flipmeter[inspect]'"
        ) from error
    try:
        return Log(path, read_eval_log(str(path), header_only=True))
    except Exception as error:  # each format of a log fails in its own way
        raise _no_log(path, error) from error


def _no_log(path: Path, error: Exception) -> Problem:
    return Problem(f"{path} is not an Inspect log ({type(error).__name__}: {error!s:.300})")


def import_log(
    log: Log,
    folder: Path,
    store: Store,
    *,
    data_dir: Path | None = None,
    is_partial: bool = False,
    ledger: Ledger | None = None,
) -> Run:
    """Store the replies of a log and perform its study with them; no model is called.

    Samples that are missing, or failed, are a problem; in a partial run they count as errors.
    """
    study = log.study.model_copy(update={"data_dir": data_dir})
    wanted = {question.id: question for question in questions(study)}
    answered = list(_answered_samples(log, wanted))
    n_missing = len(wanted) - len(answered)
    if n_missing and not is_partial:
        raise Problem(
            f"{log.path} has no reply to {n_missing:,} of {len(wanted):,} prompts; finish it "
            f"(inspect eval-retry {log.path}), or count them as errors with --partial"
        )
    store.put_many((question.call.request, reply) for question, reply in answered)
    return perform(study, folder, store, Terms(ledger or Ledger(), anyway=True), origin=log.origin)


def _answered_samples(
    log: Log, wanted: dict[str, PromptSample]
) -> Iterator[tuple[PromptSample, Reply]]:
    for sample in log.samples():
        question = wanted.get(str(sample.id))
        if question is None:
            raise Problem(
                f"{log.path} has a sample '{sample.id}' that is not in its study; use the same "
                f"data and the same version of flipmeter"
            )
        reply = reply_of(sample.output)
        if sample.error is not None or reply.error:
            continue
        sent = list(sample.messages)
        if sent and sent[-1].role == "assistant":
            sent.pop()
        asked = Script.of([Message(m.role, m.text) for m in sent])
        if asked.digest != question.call.prompt.script.digest:
            raise Problem(
                f"{log.path}: sample '{sample.id}' was asked with a different prompt than its "
                f"study renders; use the same data, and run the task with its own solver"
            )
        yield question, reply
