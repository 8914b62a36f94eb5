"""The rows of the paper's tables, and what a study calls them."""

from __future__ import annotations

from collections.abc import Mapping

LEVELS: Mapping[tuple[str, str], str] = {
    ("Label format", "Letter"): "label_format=letter",
    ("Label format", "Natural language"): "label_format=natural_language",
    ("Label format", "Neutral ID"): "label_format=neutral_id",
    ("Scale cardinality", "3-way"): "cardinality=3",
    ("Scale cardinality", "2-way"): "cardinality=2",
    ("Demo count", "0-shot"): "shots=0",
    ("Demo count", "1-shot"): "shots=1",
    ("Demo count", "3-shot"): "shots=3",
    ("Prompt clarity", "Minimal"): "clarity=minimal",
    ("Prompt clarity", "Ordinal-explicit"): "clarity=ordinal_explicit",
    ("Separator", "Space"): "separator=space",
    ("Separator", "Tab"): "separator=tab",
    ("Connector", "Space"): "connector=space",
    ("Connector", "Newline+tab"): "connector=newline_tab",
    ("Mood", "Interrogative"): "mood=interrogative",
    ("Mood", "Indicative"): "mood=indicative",
}
"""Rows of the Phase 1 table; those of its factor `Model` are models by name."""

PIPELINES: Mapping[tuple[str, str], str] = {
    ("Inference paradigm", "Pairwise"): "pipeline=pairwise",
    ("Inference paradigm", "Listwise"): "pipeline=listwise",
    ("Inference paradigm", "Listwise-compare"): "pipeline=listwise_compare",
    ("Aggregation method", "Majority vote"): "pipeline=pairwise+majority_vote",
    ("Aggregation method", "Mean score"): "pipeline=pairwise+mean_score",
    ("Aggregation method", "Weighted sum"): "pipeline=pairwise+weighted_sum",
    ("Aggregation method", "Copeland"): "pipeline=pairwise+copeland",
    ("Aggregation method", "Bradley-Terry"): "pipeline=pairwise+bradley_terry",
    ("Debiasing strategy", "Label averaging"): "pipeline=pointwise+label_average",
    ("Debiasing strategy", "Demo averaging"): "pipeline=pointwise+demo_average",
    ("Debiasing strategy", "PriDe"): "pipeline=pointwise+pride",
    ("Debiasing strategy", "Context. Calib."): "pipeline=pointwise+contextual",
}
"""Rows of the Phase 2 pipeline table, in its three families."""

REFERENCE = "Qwen3-8B (ref.)"
"""The model that the paper chooses its configurations on, as its absolute table calls it."""
