"""The paper's local models by name: which weights, how they are asked, how long they may think."""

from __future__ import annotations

from dataclasses import dataclass

from flipmeter.registry import Registry
from flipmeter.types import Interface

THINKING_TOKENS = 4096
"""The paper gives no budget, and 32 tokens do not hold one thought; a study may say otherwise."""


@dataclass(frozen=True)
class HubModel:
    """Weights on the Hugging Face hub and how they are asked.

    `architecture` is the `model_type` of transformers. `thinking` is passed to the chat template
    as `enable_thinking`, None for a template without that switch. `doubt` says what could not be
    looked up: the hub is out of reach where this was written, so no revision is pinned.
    """

    hub_id: str
    architecture: str
    about: str
    interface: Interface = "chat"
    thinking: bool | None = None
    max_tokens: int | None = None
    revision: str | None = None
    doubt: str = "revision not pinned"

    @property
    def note(self) -> str:
        """One line for a list of models."""
        return f"{self.hub_id}, {self.about} ({self.doubt})" if self.doubt else self.about


hf_models: Registry[HubModel] = Registry("hf model")

hf_models.add(
    "qwen3-8b-base",
    HubModel("Qwen/Qwen3-8B-Base", "qwen3", "base model, raw text", interface="completions"),
)
hf_models.add("qwen3-8b", HubModel("Qwen/Qwen3-8B", "qwen3", "thinking off", thinking=False))
hf_models.add(
    "qwen3-8b-thinking",
    HubModel(
        "Qwen/Qwen3-8B",
        "qwen3",
        f"thinking on, {THINKING_TOKENS} tokens; its authors advise against greedy decoding",
        thinking=True,
        max_tokens=THINKING_TOKENS,
    ),
)
hf_models.add("qwen3-4b", HubModel("Qwen/Qwen3-4B", "qwen3", "thinking off", thinking=False))
hf_models.add("gemma3-12b", HubModel("google/gemma-3-12b-it", "gemma3", "gated on the hub"))
hf_models.add(
    "ministral-3-8b",
    HubModel(
        "mistralai/Ministral-3-8B-Instruct-2512-BF16",
        "mistral3",
        "instruct, as bfloat16 (the id without -BF16 is quantised to 8 bits)",
        doubt="revision not pinned; unclear which of the two the paper used",
    ),
)
hf_models.add(
    "gemma4-12b",
    HubModel(
        "google/gemma-4-12B-it",
        "gemma4_unified",
        "thinking off",
        thinking=False,
        doubt="revision not pinned, architecture not checked",
    ),
)
hf_models.add(
    "granite-4-8b",
    HubModel(
        "ibm-granite/granite-4.1-8b",
        "granite",
        "instruct",
        doubt="revision not pinned; the paper says Granite-4-8B, the hub has 4.1 in that size",
    ),
)
