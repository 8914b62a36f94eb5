"""Models of a few thousand weights, built on the spot: one of each architecture, one scripted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

CORPUS = [
    "Classify the sentiment into one of the following categories.",
    "Sentence: The soup was worth the wait. Label: 4",
    "Sentence: It was dull and far too long. Label: 1",
    "very negative, negative, neutral, positive, very positive",
]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% endif %}"
)
SPECIAL = ["<pad>", "<s>", "<|im_start|>", "<|im_end|>"]
ENDS = ("<pad>", "<s>", "<|im_end|>")
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 3,
}
SEEING: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 8,
    "image_size": 28,
    "patch_size": 14,
}
WINDOW = 16


def tokenizer(template: str | None = TEMPLATE) -> Any:
    """Return a byte-level tokenizer with a few merges; thoughts are ordinary added tokens."""
    import tokenizers as tk
    import transformers as hf

    inner = tk.Tokenizer(tk.models.BPE())
    inner.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tk.decoders.ByteLevel()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL,
        initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(CORPUS, trainer)
    inner.add_tokens(["<think>", "</think>"])
    names = dict(zip(("pad_token", "bos_token", "eos_token"), ENDS, strict=True))
    made = hf.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    made.chat_template = template
    return made


def _text_only(kind: str, **more: Any) -> Callable[[Any, int], Any]:
    return lambda hf, n: getattr(hf, kind)(**{**SIZES, "vocab_size": n, **more})


def _gemma3(hf: Any, n: int) -> Any:
    text = hf.Gemma3TextConfig(
        **{**SIZES, "vocab_size": n + 3, "sliding_window": WINDOW},
        layer_types=["sliding_attention", "full_attention"],
    )
    return hf.Gemma3Config(
        text_config=text.to_dict(),
        vision_config=hf.SiglipVisionConfig(**SEEING).to_dict(),
        mm_tokens_per_image=4,
        image_token_id=n,
        boi_token_id=n + 1,
        eoi_token_id=n + 2,
    )


def _gemma4(hf: Any, n: int) -> Any:
    text = hf.Gemma4UnifiedTextConfig(
        **{**SIZES, "vocab_size": n, "sliding_window": WINDOW},
        layer_types=["sliding_attention", "full_attention"],
        global_head_dim=8,
    )
    return hf.Gemma4UnifiedConfig(text_config=text.to_dict())


def _mistral3(hf: Any, n: int) -> Any:
    text = hf.Ministral3Config(**{**SIZES, "vocab_size": n + 1})
    return hf.Mistral3Config(
        text_config=text.to_dict(),
        vision_config=hf.PixtralVisionConfig(**SEEING).to_dict(),
        image_token_index=n,
    )


ARCHITECTURES: dict[str, Callable[[Any, int], Any]] = {
    "qwen3": _text_only("Qwen3Config"),
    "gemma3": _gemma3,
    "mistral3": _mistral3,
    "gemma4_unified": _gemma4,
    "granite": _text_only("GraniteConfig"),
}
"""A tiny config of every architecture that the catalogue names."""


def build(folder: Path, architecture: str = "qwen3", *, template: str | None = TEMPLATE) -> Path:
    """Save a random model of an architecture, with its tokenizer, and return its folder."""
    import torch
    import transformers as hf

    made = tokenizer(template)
    config = ARCHITECTURES[architecture](hf, len(made))
    torch.manual_seed(1)
    known = hf.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    is_plain = config.model_type in known
    kind = hf.AutoModelForCausalLM if is_plain else hf.AutoModelForImageTextToText
    model = kind.from_config(config)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:  # larger than usual: a random model should have opinions
                weights.normal_(0, 0.15)
    model.generation_config.eos_token_id = 3
    model.save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


def build_scripted(folder: Path, *chains: list[str]) -> Path:
    """Save a model that says one token after another: each chain says what follows what."""
    import torch
    import transformers as hf

    made = tokenizer()
    n = len(made)
    config = hf.Qwen3Config(**{**SIZES, "vocab_size": n, "hidden_size": n, "num_hidden_layers": 1})
    model = hf.AutoModelForCausalLM.from_config(config)
    layer, follows = model.model.layers[0], torch.zeros(n, n)
    for chain in chains:
        ids = [made.convert_tokens_to_ids(token) for token in chain]
        for one, after in pairwise(ids):
            follows[after, one] = 1.0
    with torch.no_grad():
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(n))
        model.lm_head.weight.copy_(follows)
    model.save_pretrained(folder)
    made.save_pretrained(folder)
    return folder
