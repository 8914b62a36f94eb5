"""GGUF files in any format: small random models with the tokenizer of the embedded one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from flipmeter.ask.weights import copy_field, local_models

WIDTH, INNER, HEADS, KV_HEADS, LAYERS = 512, 1024, 8, 2, 3
MIXED = {"Q4_K_M": ("Q4_K", "Q6_K"), "Q5_K_M": ("Q5_K", "Q6_K"), "Q6_K": ("Q6_K", "Q6_K")}
"""The format of most weights and that of the finest, as llama.cpp mixes them."""
PLAIN = {"Q4_0": ("Q4_0", "Q4_0"), "F16": ("F16", "F16")}


def random_model(into: Path, name: str) -> Path:
    """Write a random model, block by block, with the embedded model's tokenizer."""
    import gguf

    reader = gguf.GGUFReader(local_models["smollm2-135m"].fetch())
    writer = gguf.GGUFWriter(into, "llama")
    _copy_fields(reader, writer, "general.architecture", "llama.")
    _add_sizes(writer, reader.fields["llama.vocab_size"].contents())
    most, finest = (gguf.GGMLQuantizationType[one] for one in (MIXED | PLAIN)[name])
    rng = np.random.default_rng(0)

    def add(tensor: str, rows: int, columns: int, kind: Any = most) -> None:
        blocks = _blocks(rng, kind, rows, columns)
        writer.add_tensor(f"{tensor}.weight", blocks, raw_dtype=kind)

    add("token_embd", reader.fields["llama.vocab_size"].contents(), WIDTH, finest)
    writer.add_tensor("output_norm.weight", np.full(WIDTH, 3, np.float32))
    narrow = WIDTH // HEADS * KV_HEADS
    for layer in (f"blk.{n}" for n in range(LAYERS)):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{layer}.{norm}.weight", np.ones(WIDTH, np.float32))
        add(f"{layer}.attn_q", WIDTH, WIDTH)
        add(f"{layer}.attn_k", narrow, WIDTH)
        add(f"{layer}.attn_v", narrow, WIDTH, finest)
        add(f"{layer}.attn_output", WIDTH, WIDTH)
        add(f"{layer}.ffn_gate", INNER, WIDTH)
        add(f"{layer}.ffn_up", INNER, WIDTH)
        add(f"{layer}.ffn_down", WIDTH, INNER, finest)
    return _written(writer, into)


def _blocks(rng: np.random.Generator, kind: Any, rows: int, columns: int) -> Any:
    """Random quants and scales; the factors of a block make weights of about the usual size."""
    import gguf

    n_weights, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    usual = columns**-0.5
    if kind.name == "F16":
        return (usual * rng.standard_normal((rows, columns), np.float32)).astype(np.float16)
    raw = rng.integers(0, 256, (rows, columns // n_weights, n_bytes), dtype=np.uint8)
    if kind.name == "Q4_0":
        factors = {0: usual / 4.6}
    elif kind.name == "Q6_K":
        factors = {n_bytes - 2: usual / 1400}
    else:
        levels = 15 if kind.name == "Q4_K" else 31
        factors = {0: usual / (11 * levels), 2: usual / 22}
    for place, factor in factors.items():
        raw[:, :, place : place + 2] = np.array([factor], np.float16).view(np.uint8)
    return raw.reshape(rows, -1)


def _copy_fields(reader: Any, writer: Any, *but: str) -> None:
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", *but)):
            copy_field(writer, name, field)


def _add_sizes(writer: Any, n_tokens: int) -> None:
    writer.add_block_count(LAYERS)
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(1e5)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_tokens)


def _written(writer: Any, into: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return into
