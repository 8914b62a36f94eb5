"""Phrases that may not come back: what a native technical writer of this field would not write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT

PHRASES = {
    r'(?m)^\s*(?:[rf]?""")Returns? ': "say what it is or does: 'Share of items whose ...'",
    r"\bnobody\b": "no one for people; for things: 'no configuration', 'not dominated'",
    r"\bsomebody\b": "'someone', or name the thing",
    r"\bsurely\b": "'shown to be', with its confidence level",
    r"\b(?:that|which|what|as) (?:are|is) there\b": "leave it out, or name the things",
    r"\bthere is not\b": "'unknown', 'does not exist'",
    r"\basks? (?:them|it|those|only those) again\b": "'retries', 'sends again'",
    r"\blooks? anew\b": "'examines again'",
    r"(?<![-`\w])anew(?![=`\w])": "'again', 'from scratch'",
    r"\bmend(?:s|ed|ing|able)?\b": "'fix', 'repair'; user-fixable error",
    r"\bfor good\b": "'after retries', 'permanently'",
    r"\bwho answers\b": "'the model'",
    r"(?<!there )\bis no (?:limit|text|file|number|label|run|class|card|table)\b": "is not a",
    r"\bname another\b": "'use another'",
    r"\bis there already\b": "'already exists'",
    r"\bhold(?:s)? (?:a|the) run to\b": "'test a run against'",
    r"\bwhat is read here\b": "'an input'",
    r"\bsays? --": "'pass --', 'use --'",
    r"\bin which order are the classes\b": "'cannot infer the order of the classes'",
    r"\bthese are they\b": "'classes found'",
    r"\bhowever often one looks\b": "'anytime-valid'",
    r"\bnothing to measure it on\b": "name what is needed",
    r"\bgive the space back\b": "'free the space'",
    r"\bthe machine stood\b": "'machine details'",
    r"\bwhole job\b": "'whole study'",
}
"""A pattern, and what to write instead."""

EXEMPT: set[str] = {
    "CONTRIBUTING.md",
    "docs/aggregators.md",
    "docs/batch.md",
    "docs/calibration.md",
    "docs/errata.md",
    "docs/flip-proof.md",
    "docs/inspect.md",
    "docs/judges.md",
    "docs/method.md",
    "docs/plugins.md",
    "docs/raters.md",
    "docs/scale.md",
    "docs/start.md",
    "docs/threats.md",
    "docs/view.md",
    "src/flipmeter/base/chance.py",
    "src/flipmeter/base/common_prefix.py",
    "src/flipmeter/base/drain.py",
    "src/flipmeter/base/files/atomic.py",
    "src/flipmeter/base/files/fetch.py",
    "src/flipmeter/base/files/lock.py",
    "src/flipmeter/base/files/reading_limits.py",
    "src/flipmeter/base/pareto.py",
    "src/flipmeter/base/printed.py",
    "src/flipmeter/base/process.py",
    "src/flipmeter/bridge/logs.py",
    "src/flipmeter/bridge/other_tools.py",
    "src/flipmeter/bridge/replies.py",
    "src/flipmeter/bridge/samples.py",
    "src/flipmeter/bridge/tasks.py",
    "src/flipmeter/data/bundled.py",
    "src/flipmeter/data/cardinality.py",
    "src/flipmeter/data/catalog.py",
    "src/flipmeter/data/digest.py",
    "src/flipmeter/data/files.py",
    "src/flipmeter/data/guess.py",
    "src/flipmeter/data/hub.py",
    "src/flipmeter/data/items.py",
    "src/flipmeter/data/labels.py",
    "src/flipmeter/data/published_files.py",
    "src/flipmeter/data/sampling.py",
    "src/flipmeter/data/tables.py",
    "src/flipmeter/decide/aggregators/votes.py",
    "src/flipmeter/decide/debiasers/calibraeval.py",
    "src/flipmeter/design/arrays.py",
    "src/flipmeter/design/cells.py",
    "src/flipmeter/design/coding.py",
    "src/flipmeter/design/designs.py",
    "src/flipmeter/design/exchange.py",
    "src/flipmeter/design/quality.py",
    "src/flipmeter/measure/aspects/confidence.py",
    "src/flipmeter/measure/aspects/excess.py",
    "src/flipmeter/measure/aspects/severity.py",
    "src/flipmeter/measure/aspects/slots.py",
    "src/flipmeter/measure/effects/additive.py",
    "src/flipmeter/measure/effects/baselines.py",
    "src/flipmeter/measure/effects/crossed.py",
    "src/flipmeter/measure/effects/gee.py",
    "src/flipmeter/measure/effects/greedy.py",
    "src/flipmeter/measure/effects/held_out.py",
    "src/flipmeter/measure/effects/interactions.py",
    "src/flipmeter/measure/effects/measured_items.py",
    "src/flipmeter/measure/effects/pareto.py",
    "src/flipmeter/measure/effects/propose.py",
    "src/flipmeter/measure/effects/residuals.py",
    "src/flipmeter/measure/effects/variance_shares.py",
    "src/flipmeter/measure/estimates/flips.py",
    "src/flipmeter/measure/estimates/long_table.py",
    "src/flipmeter/measure/estimates/readings.py",
    "src/flipmeter/measure/estimates/scores.py",
    "src/flipmeter/measure/estimates/tokens.py",
    "src/flipmeter/measure/inference/asserted.py",
    "src/flipmeter/measure/inference/judge.py",
    "src/flipmeter/measure/inference/randomisation/randomise.py",
    "src/flipmeter/measure/inference/sequential/boundaries.py",
    "src/flipmeter/measure/inference/weighted.py",
    "src/flipmeter/measure/panel/checked.py",
    "src/flipmeter/measure/panel/frame.py",
    "src/flipmeter/measure/panel/groups.py",
    "src/flipmeter/measure/panel/panel.py",
    "src/flipmeter/measure/statistics/correlation.py",
    "src/flipmeter/measure/statistics/means.py",
    "src/flipmeter/measure/statistics/resample.py",
    "src/flipmeter/model/backends/backend.py",
    "src/flipmeter/model/backends/batch.py",
    "src/flipmeter/model/backends/hf/hf.py",
    "src/flipmeter/model/backends/http.py",
    "src/flipmeter/model/backends/llama.py",
    "src/flipmeter/model/backends/logged.py",
    "src/flipmeter/model/backends/python.py",
    "src/flipmeter/model/backends/ray.py",
    "src/flipmeter/model/backends/response.py",
    "src/flipmeter/model/backends/sim/sim.py",
    "src/flipmeter/model/backends/user_code.py",
    "src/flipmeter/model/endpoints.py",
    "src/flipmeter/model/engine/budget.py",
    "src/flipmeter/model/engine/engine.py",
    "src/flipmeter/model/engine/limiter.py",
    "src/flipmeter/model/engine/pool.py",
    "src/flipmeter/model/engine/replicas.py",
    "src/flipmeter/model/store/export.py",
    "src/flipmeter/model/store/leases.py",
    "src/flipmeter/model/store/received.py",
    "src/flipmeter/model/store/room.py",
    "src/flipmeter/model/store/store.py",
    "src/flipmeter/model/wires/wire.py",
    "src/flipmeter/paper/bench.py",
    "src/flipmeter/paper/errata/aggregation_rules.py",
    "src/flipmeter/parse/answer.py",
    "src/flipmeter/plan.py",
    "src/flipmeter/probe/orders.py",
    "src/flipmeter/probe/probes.py",
    "src/flipmeter/prompt/comparing.py",
    "src/flipmeter/prompt/pointwise.py",
    "src/flipmeter/prompt/question.py",
    "src/flipmeter/prompt/template.py",
    "src/flipmeter/report/additive.py",
    "src/flipmeter/report/claims.py",
    "src/flipmeter/report/effects.py",
    "src/flipmeter/report/estimate_tables.py",
    "src/flipmeter/report/latex.py",
    "src/flipmeter/report/page/__init__.py",
    "src/flipmeter/report/page/compared.py",
    "src/flipmeter/report/page/draw.py",
    "src/flipmeter/report/page/filters.py",
    "src/flipmeter/report/page/leaderboards.py",
    "src/flipmeter/report/page/markup.py",
    "src/flipmeter/report/page/origin.py",
    "src/flipmeter/report/page/places.py",
    "src/flipmeter/report/page/rates.py",
    "src/flipmeter/report/page/scores.py",
    "src/flipmeter/report/page/texts.py",
    "src/flipmeter/report/pairs.py",
    "src/flipmeter/report/readings.py",
    "src/flipmeter/report/residuals.py",
    "src/flipmeter/report/table_files.py",
    "src/flipmeter/report/whole.py",
    "src/flipmeter/run/batch.py",
    "src/flipmeter/run/fallbacks.py",
    "src/flipmeter/run/perform.py",
    "src/flipmeter/run/preview.py",
    "src/flipmeter/run/rate.py",
    "src/flipmeter/run/record/folder.py",
    "src/flipmeter/run/record/generation.py",
    "src/flipmeter/run/record/heartbeat.py",
    "src/flipmeter/run/record/joined.py",
    "src/flipmeter/run/record/received.py",
    "src/flipmeter/run/record/rows.py",
    "src/flipmeter/run/record/spill.py",
    "src/flipmeter/run/results/flipped_items.py",
    "src/flipmeter/run/results/gather.py",
    "src/flipmeter/run/results/single_items.py",
    "src/flipmeter/run/tables/__init__.py",
    "src/flipmeter/run/tables/prediction_rows.py",
    "src/flipmeter/run/tables/predictions.py",
    "src/flipmeter/run/until.py",
    "src/flipmeter/types.py",
    "src/flipmeter/view/flip_pages.py",
    "src/flipmeter/view/folders.py",
    "src/flipmeter/view/jobs.py",
    "src/flipmeter/view/live.py",
    "src/flipmeter/view/server.py",
}
"""Files still to be read once more; the list only ever gets shorter."""

PAGES = [
    path
    for path in (
        *sorted((ROOT / "src").rglob("*.py")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    )
    if path.name not in ("log.md",) and "adr" not in path.parts
]


def texts(path: Path) -> Iterator[str]:
    """The strings and docstrings of a module with the comments; a page as it is."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield content
        return
    yield from re.findall(r'(?m)^\s*"""Returns? .*', content)
    yield from re.findall(r"#\s.*", content)
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def found(path: Path) -> list[str]:
    return [
        f"...{text[max(0, hit.start() - 30) : hit.end() + 30]!r}: {instead}"
        for text in texts(path)
        for phrase, instead in PHRASES.items()
        for hit in re.finditer(phrase, text)
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_text_is_plain_english(path: Path) -> None:
    hits = found(path)
    if str(path.relative_to(ROOT)) in EXEMPT:
        assert hits, "nothing is left to reword here: take the file off EXEMPT"
    else:
        assert hits == []
