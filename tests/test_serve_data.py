"""flipmeter serve --dataset: simulated raters that know a user's own file."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Cli
from flipmeter.model import Store
from flipmeter.run.perform import perform
from flipmeter.study.file import read_study

ENTRY = "{file: tickets.csv, text: body, label: severity, scale: [low, medium, high]}"


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    rows = [
        f"ticket {k} about thing {k * 7 % 11},{['low', 'medium', 'high'][k % 3]}" for k in range(60)
    ]
    (tmp_path / "tickets.csv").write_text("\n".join(["body,severity", *rows]))
    return tmp_path


def study(entries: str, url: str) -> str:
    model = f"{{model: http/anybody, base_url: '{url}'}}"
    return (
        f"models: [{model}]\ndatasets: [{entries}]\ntest_size: 12\nprobes: [label_order]\n"
        "base: {shots: 0}\nrepeats: 1\n"
    )


@pytest.mark.parametrize("dataset", ["mine.yaml", "mine.yaml:tickets", ENTRY])
def test_a_study_of_ones_own_file_is_rehearsed(tickets: Path, dataset: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    mine = tickets / "mine.yaml"
    mine.write_text(study(ENTRY, f"http://127.0.0.1:{port}/v1"))
    command = [sys.executable, "-c", "from flipmeter.cli import main; main()", "serve"]
    options = ["*=sim/honest", "--dataset", dataset, "--port", str(port)]
    with subprocess.Popen(
        [*command, *options], cwd=tickets, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            assert "serving" in server.stderr.readline()
            run = perform(read_study(mine), tickets / "run", Store())
        finally:
            server.kill()
    here = read_study(mine, {"models": ["sim/honest"]})
    expected = perform(here, tickets / "here", Store()).decisions
    told = ["view", "item", "rank", "fault"]
    assert run.decisions.select(told).sort(told).equals(expected.select(told).sort(told))
    assert expected["rank"].n_unique() == 3  # it knows the texts: a stranger's are all alike


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("two.yaml", "has 2 datasets (a, b); choose one: --dataset two.yaml:a"),
        ("two.yaml:c", "two.yaml has no dataset 'c'"),
        ("{file: none.csv, scale: [low, high]}", "none.csv does not exist"),
        ("{file: tickets.csv", "is not valid YAML"),
        ("none.yaml", "none.yaml"),
        ("tickets.csv", "a file needs a scale too"),
    ],
)
def test_a_dataset_that_cannot_be_known_is_refused(
    tickets: Path, cli: Cli, dataset: str, message: str
) -> None:
    two = ", ".join(ENTRY.replace("{", f"{{name: {name}, ") for name in "ab")
    (tickets / "two.yaml").write_text(study(two, "http://127.0.0.1:1/v1"))
    code, _, err = cli("serve", "sim/honest", "--dataset", dataset)
    assert code == 2
    assert message in " ".join(err.split())
