"""The `litellm/` family: real calls of the library to local servers that refuse as vendors do.

`make test-vendors` runs this in an environment that has LiteLLM.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import flipmeter as fm
import strict_vendors
from strict_vendors import Vendor, vendor
from test_vendors import ran, study

pytest.importorskip("litellm")
# LiteLLM warns of its own types, and leaves connections to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")

MODELS = {
    "litellm/openai/gpt-4o": ("openai", "OPENAI", "sk-openai-test-key", "/v1"),
    "litellm/anthropic/claude-sonnet-4-5": ("anthropic", "ANTHROPIC", "sk-ant-test-key", ""),
    "litellm/mistral/mistral-small": ("mistral", "MISTRAL", "mistral-test-key", "/v1"),
}
Serve = Callable[[str], AbstractContextManager[Vendor]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    @contextmanager
    def served(model: str) -> Iterator[Vendor]:
        name, stem, key, path = MODELS[model]
        with vendor(getattr(strict_vendors, name)) as server:
            monkeypatch.setenv(f"{stem}_API_KEY", key)
            monkeypatch.setenv(f"{stem}_API_BASE", server.url + path)
            yield server

    return served


@pytest.mark.parametrize("model", [*MODELS])
def test_a_provider_is_asked_through_litellm_and_its_replies_are_read(
    model: str, serve: Serve, tmp_path: Path
) -> None:
    with serve(model) as server:
        run = ran(study(model), tmp_path)
    assert set(server.statuses) == {200}
    assert set(run.decisions["fault"]) == {""}
    assert set(run.calls["completion_tokens"]) == {1}


def test_log_probabilities_come_through(serve: Serve, tmp_path: Path) -> None:
    model = "litellm/openai/gpt-4o"
    with serve(model):
        run = ran(study(model, scores=True), tmp_path)
    assert None not in run.decisions["probabilities"].to_list()


def test_a_field_that_a_model_refuses_is_learned_and_left_out(serve: Serve, tmp_path: Path) -> None:
    with serve("litellm/openai/gpt-4o") as server:
        run = ran(study("litellm/openai/gpt-5.4"), tmp_path)
    assert set(run.decisions["fault"]) == {""}
    assert all("temperature" not in body for body in server.taken)


def test_a_wrong_key_is_said_with_its_variable_and_not_shown(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve("litellm/openai/gpt-4o"):
        monkeypatch.setenv("OPENAI_API_KEY", "not-the-right-key")
        with pytest.raises(fm.Problem, match="OPENAI_API_KEY is set but not accepted") as found:
            ran(study("litellm/openai/gpt-4o"), tmp_path)
    assert "not-the-right-key" not in str(found.value)


def test_a_variable_in_a_file_beside_the_study_sends_no_key_elsewhere(tmp_path: Path) -> None:
    """LiteLLM would read `.env` of the working folder, which may be somebody else's."""
    (tmp_path / ".env").write_text("OPENAI_API_BASE=http://127.0.0.1:9/v1\n")
    code = (
        "import os\nfrom flipmeter.model.via_litellm import _litellm\n_litellm()\n"
        "print(os.environ.get('OPENAI_API_BASE'))"
    )
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI", "LITELLM"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=bare | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "None"
