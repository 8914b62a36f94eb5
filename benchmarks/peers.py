"""Ask one study with flipmeter, lm-eval, Inspect and a raw client, and print the ratios.

    python benchmarks/peers.py --data-dir DATA [--items 40] [--shots 5] [--rounds 1]

The study: 5 shots, three conditions (base, labels reversed, demonstrations in descending order), on
SST-5 or, without a data folder, on the bundled reviews. Everything is measured in this one run. A
time is that of a whole command. The peers ask a llama.cpp server that is already up, with an empty
cache; how long its start took stands beside. flipmeter starts the same engine in its own process.
Prompt tokens are the engine's own count, without those it had in its cache; the minimum is the
number of nodes in the token trie of all prompts. The peers are installed into the cache folder.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import peers_tools as tools
from goals import Goal, show_goals
from peers_server import HOST_CACHE, served, trie_size
from peers_study import (
    Content,
    Labels,
    Question,
    labels,
    many_prefixes,
    questions,
    share_equal,
    three_conditions,
    write_study,
)
from rich.console import Console
from rich.table import Table

from flipmeter.ask.llama import engine, n_cores
from flipmeter.ask.weights import local_models

ORIGINAL, DEFAULT = "smollm2-135m-q4_1", "smollm2-135m"
Ask = Callable[[Sequence[Question], str, Path], tools.Ran]


@dataclass(frozen=True)
class Weights:
    """A weights file: how a study names it and how its numbers are stored."""

    path: Path
    address: str
    format: str


@dataclass(frozen=True)
class Row:
    """Cost of one tool; `server` is the start of the server, which is not in `seconds`."""

    name: str
    weights: str
    seconds: float
    labels: Labels
    tokens: int | None = None
    server: float | None = None


@dataclass(frozen=True)
class Bench:
    """The study, its questions and where runs leave their files, each in a folder of its own."""

    data_dir: Path | None
    n_items: int
    shots: int
    asked: Sequence[Question]
    scratch: Path
    minimum: int
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def title(self) -> str:
        name = "reviews" if self.data_dir is None else "sst5"
        return (
            f"{name}, {self.shots} shots, {len(self.asked)} prompts, {self.minimum} tokens at least"
        )

    def folder(self) -> Path:
        folder = self.scratch / str(next(self.numbers))
        folder.mkdir()
        return folder

    def study(self, weights: Weights) -> Content:
        return three_conditions(weights.address, self.data_dir, self.n_items, self.shots)


@dataclass(frozen=True)
class Short:
    """Tokens that our engine processed for many short prompts."""

    n_prompts: int
    minimum: int
    tokens: int
    host_cache_mib: int

    @property
    def title(self) -> str:
        cache = f"host cache {self.host_cache_mib} MiB"
        return f"tokens / minimum, {self.n_prompts} short prompts, {cache}"


def original_weights(chosen: Path | None) -> Path:
    """The file as it is published."""
    return chosen or local_models[ORIGINAL].fetch()


def default_weights(chosen: Path | None) -> tuple[Path, str]:
    """The file that flipmeter uses by default, and its name in a study."""
    if chosen is not None:
        return chosen.resolve(), f"llamacpp/{chosen.resolve()}"
    return local_models[DEFAULT].fetch(), f"local/{DEFAULT}"


def with_format(path: Path, address: str) -> Weights:
    with served(path) as server:
        return Weights(path, address, server.weights_format())


def minimum(asked: Sequence[Question], weights: Path) -> int:
    """The least number of prompt tokens that some questions need."""
    with served(weights) as server:
        return trie_size([server.tokenize(one.text) for one in asked])


def with_flipmeter(bench: Bench, weights: Weights) -> Row:
    folder = bench.folder()
    study = write_study(bench.study(weights), folder / "study.yaml")
    ran, tally = tools.flipmeter(study, bench.data_dir, folder)
    read = labels(bench.asked, ran.replies)
    return Row("flipmeter", weights.format, ran.seconds, read, tally.tokens)


def with_server(
    bench: Bench, weights: Weights, name: str, ask: Ask, host_cache: int = HOST_CACHE
) -> Row:
    with served(weights.path, host_cache=host_cache) as server:
        ran = ask(bench.asked, server.base_url, bench.folder())
        tokens = server.processed()
    read = labels(bench.asked, ran.replies)
    return Row(name, weights.format, ran.seconds, read, tokens, server.seconds)


def with_hf(bench: Bench, weights: Weights) -> Row:
    ran = tools.lm_eval_hf(bench.asked, weights.path, bench.folder())
    read = labels(bench.asked, ran.replies)
    return Row("lm-eval, hf", f"{ran.dtype} from {weights.format}", ran.seconds, read)


def commands(bench: Bench, weights: Weights) -> list[Callable[[], Row]]:
    """The three tools on one file and one engine, ours first."""
    return [
        partial(with_flipmeter, bench, weights),
        partial(with_server, bench, weights, "lm-eval, local-completions", tools.lm_eval),
        partial(with_server, bench, weights, "Inspect, openai-api-completions", tools.inspect),
    ]


def raw_clients(bench: Bench, weights: Weights, *, is_slow: bool) -> list[Callable[[], Row]]:
    """A client that does nothing but send, with and without the server's host cache."""
    return [
        partial(with_server, bench, weights, f"raw client, {name}{note}", ask, host_cache)
        for host_cache, note in ((HOST_CACHE, ""), (0, ", no host cache"))
        for name, ask in tools.RAW_CLIENTS.items()
        if is_slow or host_cache or name == "sorted"
    ]


def fastest(runs: Sequence[Callable[[], Row]], rounds: int) -> list[Row]:
    """Run all in turns, so that a slow spell hits none alone, and keep each one's fastest."""
    turns = [[_told(run()) for run in runs] for _ in range(rounds)]
    return [min(rows, key=lambda row: row.seconds) for rows in zip(*turns, strict=True)]


def _told(row: Row) -> Row:
    print(f"  {row.name} on {row.weights}: {row.seconds:.1f} s", flush=True)
    return row


def short_prompts(bench: Bench, weights: Weights, n_prefixes: int) -> Short:
    """Count what our engine processes when prefixes are many and short."""
    content, folder = many_prefixes(weights.address, n_prefixes), bench.folder()
    asked = questions(content, None)
    least = minimum(asked, weights.path)
    ran, tally = tools.flipmeter(write_study(content, folder / "study.yaml"), None, folder)
    print(f"  flipmeter on {weights.format}, short prompts: {ran.seconds:.1f} s", flush=True)
    return Short(len(asked), least, tally.tokens, tally.host_cache_mib)


def table(title: str, rows: Sequence[Row], least: int) -> Table:
    """Compare rows with the first one, which is ours."""
    ours = rows[0]
    columns = (
        "",
        "weights",
        "tokens",
        "/ minimum",
        "seconds",
        "server start",
        "x ours",
        "same labels",
    )
    shown = Table(title=title, title_justify="left")
    for place, name in enumerate(columns):
        shown.add_column(name, justify="right" if place > 1 else "left", no_wrap=True)
    for row in rows:
        shown.add_row(
            row.name,
            row.weights,
            "" if row.tokens is None else f"{row.tokens}",
            "" if row.tokens is None else f"{row.tokens / least:.3f}",
            f"{row.seconds:.1f}",
            "" if row.server is None else f"{row.server:.1f}",
            f"{row.seconds / ours.seconds:.2f}",
            f"{share_equal(ours.labels, row.labels):.0%}",
        )
    return shown


def find_data(chosen: Path | None) -> Path | None:
    """The folder that holds SST-5, None where there is none."""
    return chosen.resolve() if chosen is not None and (chosen / "sst5").is_dir() else None


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = os.environ.get("FLIPMETER_DATA")
    parser.add_argument("--data-dir", type=Path, default=Path(folder) if folder else None)
    parser.add_argument("--items", type=int, default=40, help="items under each condition")
    parser.add_argument("--shots", type=int, default=5, help="demonstrations of each class")
    parser.add_argument("--prefixes", type=int, default=168, help="of short prompts; 0 is none")
    parser.add_argument("--rounds", type=int, default=1, help="the fastest of so many counts")
    parser.add_argument("--weights", type=Path, help="the original GGUF file")
    parser.add_argument("--default-weights", type=Path, help="the GGUF file that is our default")
    parser.add_argument("--slow", action="store_true", help="random, no host cache: ten minutes")
    parser.add_argument("--no-hf", action="store_true", help="leave out lm-eval's hf (torch)")
    return parser.parse_args()


def prepare(chosen: argparse.Namespace, scratch: Path) -> Bench:
    """Write the questions down and count what they need at least."""
    original = original_weights(chosen.weights).resolve()
    data_dir = find_data(chosen.data_dir)
    content = three_conditions(f"llamacpp/{original}", data_dir, chosen.items, chosen.shots)
    asked = questions(content, data_dir)
    return Bench(data_dir, chosen.items, chosen.shots, asked, scratch, minimum(asked, original))


def measure(chosen: argparse.Namespace, bench: Bench, console: Console) -> None:
    """Run everything, one model process at a time, and print it."""
    path = original_weights(chosen.weights).resolve()
    original = with_format(path, f"llamacpp/{path}")
    default = with_format(*default_weights(chosen.default_weights))
    files = [original] if default.path == original.path else [original, default]
    runs = [run for file in files for run in commands(bench, file)]
    if not chosen.no_hf:
        runs.append(partial(with_hf, bench, original))
    found = fastest(runs, chosen.rounds)
    same, others, hf = found[:3], found[3 : 3 * len(files)], found[3 * len(files) :]
    mine, theirs = (others or same)[0], [*hf, *same[1:]]
    clients = fastest(raw_clients(bench, original, is_slow=chosen.slow), 1)
    limit = fastest([raw_clients(bench, default, is_slow=False)[0]], chosen.rounds)
    short = short_prompts(bench, default, chosen.prefixes) if chosen.prefixes else None

    console.print(table(f"One file, one engine. {bench.title}", [*same, *clients], bench.minimum))
    rows = [mine, *theirs, *([*others[1:], same[0]] if others else []), *limit]
    console.print(table(f"Our default against theirs. {bench.title}", rows, bench.minimum))
    show_goals(goals(bench, same, mine, theirs, short))
    console.print(
        f"A bare client on the same weights, its server already up, takes {_lead(limit, mine):.2f} "
        f"of the time of our default, which is {_lead(theirs, limit[0]):.2f} times as fast as the "
        "faster peer: what is left is the engine."
    )


def goals(
    bench: Bench, same: Sequence[Row], mine: Row, theirs: Sequence[Row], short: Short | None
) -> list[Goal]:
    """Say what must be reached: in tokens, in time on one file, and in time of the defaults."""
    tokens = (same[0].tokens or 0) / bench.minimum
    found = [Goal("prompt tokens / minimum, three prefixes", tokens, "<=", 1.01)]
    if short is not None:
        found.append(Goal(f"prompt {short.title}", short.tokens / short.minimum, "<=", 1.05))
    return [
        *found,
        Goal("seconds of the faster peer / ours, one file", _lead(same[1:], same[0]), ">=", 1.15),
        Goal("seconds of the faster peer / our default", _lead(theirs, mine), ">=", 2.0),
    ]


def _lead(peers: Sequence[Row], ours: Row) -> float:
    return min(row.seconds for row in peers) / ours.seconds


def main() -> None:
    chosen = options()
    console = Console(width=130)
    names = ("lm-eval", "inspect") if chosen.no_hf else ("lm-eval", "inspect", "lm-eval-hf")
    for name in names:
        tools.program(name)
    load = f", load before {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{engine()}, {n_cores()} cores{load}")
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        measure(chosen, prepare(chosen, Path(folder)), console)


if __name__ == "__main__":
    main()
