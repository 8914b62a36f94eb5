"""The tools of the peers benchmark: how each is installed and how it asks the questions.

A run is a whole command, start-up included. Every tool reads the same prompts from a file and asks
in the order that is its own default.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess  # the tools are programs
import sys
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
from peers_ours import TALLY
from peers_study import MAX_TOKENS, STOP, Question, question_id, write_questions

from flipmeter.fetch import cache_folder
from flipmeter.run.folder import Run

REQUIREMENTS = {
    "lm-eval": ["lm_eval[api]==0.4.13"],
    "lm-eval-hf": ["lm_eval[hf]==0.4.13", "transformers", "torch==2.13.0", "gguf"],
    "inspect": ["inspect_ai==0.3.285", "openai"],
    "clients": ["aiohttp", "httpx", "openai", "rich"],
}
# Nothing is fetched from a hub, and no key is needed on loopback.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "NO_PROXY": "127.0.0.1",
    "OPENAI_API_KEY": "none",
    "LOCAL_API_KEY": "none",
}

LM_EVAL_TASK = """\
task: study
dataset_path: json
dataset_kwargs: {{data_files: {{test: {questions}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{input}}}}"
doc_to_target: "{{{{target}}}}"
generation_kwargs: {{until: [{stop}], do_sample: false, temperature: 0, max_gen_toks: {max_tokens}}}
metric_list: [{{metric: exact_match}}]
"""
INSPECT_TASK = """\
from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset
from inspect_ai.model import GenerateConfig
from inspect_ai.solver import generate

@task
def study():
    config = GenerateConfig(temperature=0, max_tokens={max_tokens}, stop_seqs=[{stop}])
    return Task(dataset=json_dataset({questions}), solver=generate(), config=config)
"""

Replies = dict[str, str]


@dataclass(frozen=True)
class Ran:
    """Cost of one whole command, its replies by question, and its number format if it says."""

    seconds: float
    replies: Replies
    dtype: str = ""


@dataclass(frozen=True)
class Tally:
    """Counts of the engine of our own command."""

    tokens: int
    host_cache_mib: int


def program(name: str) -> Path:
    """The folder of a peer's programs; what is missing is installed first."""
    folder = cache_folder() / "peers" / name
    done = folder / "installed.txt"
    wanted = "\n".join(REQUIREMENTS[name])
    if not done.is_file() or done.read_text(encoding="utf-8") != wanted:
        print(f"installing {', '.join(REQUIREMENTS[name])} into {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True, symlinks=sys.platform != "win32")
        pip = [str(_programs(folder) / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *REQUIREMENTS[name]], check=True)
        done.write_text(wanted, encoding="utf-8")
    return _programs(folder)


def _programs(folder: Path) -> Path:
    return folder / ("Scripts" if sys.platform == "win32" else "bin")


def run(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str]) -> float:
    """Run a command to its end and return its seconds; what it says goes to a file."""
    log = folder / "output.txt"
    environment = {**os.environ, **OFFLINE, "HF_HOME": str(folder / "hf"), **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # no tool is to compile itself every time
    start = time.perf_counter()
    with log.open("w", encoding="utf-8") as file:
        ended = subprocess.run(
            list(map(str, command)), cwd=folder, env=environment, stdout=file, stderr=file
        )
    seconds = time.perf_counter() - start
    if ended.returncode:
        said = log.read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"{Path(command[0]).name} failed:\n{said[-3000:]}")
    return seconds


def flipmeter(study: Path, data_dir: Path | None, folder: Path) -> tuple[Ran, Tally]:
    """Run a study with flipmeter's own command, its store empty."""
    ours, tally, out = Path(__file__).with_name("peers_ours.py"), folder / "tally", folder / "run"
    command: list[str | Path] = [sys.executable, ours, "run", study, "--out", out]
    command += ["--store", folder / "replies.sqlite"]
    if data_dir is not None:
        command += ["--data-dir", data_dir]
    seconds = run(command, folder, {TALLY: str(tally)})
    calls = Run(out).calls.select("seed", "view", "item", "reply").rows()
    replies = {question_id(seed, view, item): text for seed, view, item, text in calls}
    return Ran(seconds, replies), Tally(**json.loads(tally.read_text(encoding="utf-8")))


def lm_eval(asked: Sequence[Question], base_url: str, folder: Path, connections: int = 1) -> Ran:
    """Ask a server with lm-eval's `local-completions`."""
    at = f"base_url={base_url}/completions,model=local,tokenizer_backend=none"
    if connections > 1:
        at += f",num_concurrent={connections}"
    return _lm_eval("lm-eval", "local-completions", f"{at},tokenized_requests=False", asked, folder)


def lm_eval_hf(asked: Sequence[Question], weights: Path, folder: Path) -> Ran:
    """Ask with lm-eval's default, `hf`: transformers reads the GGUF file into floats."""
    at = f"pretrained={weights.parent},gguf_file={weights.name}"
    return _lm_eval("lm-eval-hf", "hf", at, asked, folder)


def _lm_eval(
    name: str, model: str, model_args: str, asked: Sequence[Question], folder: Path
) -> Ran:
    path = write_questions(asked, folder / "questions.jsonl")
    _fill(LM_EVAL_TASK, path, folder / "study.yaml")
    command: list[str | Path] = [program(name) / "lm-eval", "run", "--model", model]
    command += ["--model_args", model_args, "--tasks", "study", "--include_path", folder]
    command += ["--log_samples", "--output_path", folder / "out"]
    seconds = run(command, folder, {})
    (samples,) = (folder / "out").rglob("samples_*.jsonl")
    rows = map(json.loads, samples.read_text(encoding="utf-8").splitlines())
    replies = {row["doc"]["id"]: row["resps"][0][0] for row in rows}
    (results,) = (folder / "out").rglob("results_*.json")
    config = json.loads(results.read_text(encoding="utf-8"))["config"]
    return Ran(seconds, replies, str(config.get("model_dtype", "")).removeprefix("torch."))


def inspect(
    asked: Sequence[Question], base_url: str, folder: Path, connections: int | None = None
) -> Ran:
    """Ask a server with Inspect's provider for raw completions."""
    path = write_questions(asked, folder / "questions.jsonl")
    task = _fill(INSPECT_TASK, path, folder / "study.py").name  # a path must be relative
    command: list[str | Path] = [program("inspect") / "inspect", "eval", task, "--display", "plain"]
    command += ["--model", "openai-api-completions/local/local", "--log-dir", folder / "logs"]
    command += ["--log-format", "json"]
    if connections is not None:
        command += ["--max-connections", str(connections)]
    seconds = run(command, folder, {"LOCAL_BASE_URL": base_url})
    (log,) = (folder / "logs").glob("*.json")
    samples = json.loads(log.read_text(encoding="utf-8"))["samples"]
    return Ran(seconds, {one["id"]: one["output"]["completion"] for one in samples})


def _fill(template: str, path: Path, task: Path) -> Path:
    stop, name = json.dumps(STOP), json.dumps(str(path))
    filled = template.format(questions=name, stop=stop, max_tokens=MAX_TOKENS)
    task.write_text(filled, encoding="utf-8")
    return task


def raw_client(
    order: Callable[[Sequence[Question]], list[Question]],
    asked: Sequence[Question],
    base_url: str,
    folder: Path,
) -> Ran:
    """Ask a server with aiohttp and nothing else, one question after the other."""
    start = time.perf_counter()
    replies = asyncio.run(_send(order(asked), f"{base_url}/completions"))
    return Ran(time.perf_counter() - start, replies)


async def _send(asked: Sequence[Question], url: str) -> Replies:
    replies: Replies = {}
    body = {"model": "local", "temperature": 0, "max_tokens": MAX_TOKENS, "stop": [STOP]}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        for one in asked:
            async with session.post(url, json={"prompt": one.text, **body}) as response:
                replies[one.id] = (await response.json())["choices"][0]["text"]
    return replies


def _sorted(asked: Sequence[Question]) -> list[Question]:
    return sorted(asked, key=lambda one: one.text)


def _random(asked: Sequence[Question]) -> list[Question]:
    return random.Random(0).sample(asked, len(asked))


RAW_CLIENTS = {"sorted": partial(raw_client, _sorted), "random": partial(raw_client, _random)}
