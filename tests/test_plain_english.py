"""Phrases that may not come back: what a native technical writer of this field would not write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from conftest import ROOT

PHRASES = {
    r'(?m)^\s*(?:[rf]?""")Returns? ': "say what it is or does: 'Share of items whose ...'",
    r'(?m)^\s*"""(?:What|How|Where|Who|Why|Which|When) ': "a noun: 'Number of', 'Reason why'",
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
    r"(?<!there )\b(?:is|are) no (?:pattern|generation|host|list|mapping|name)\b": "is not a",
    r"(?<!there )\b(?:is|are) no (?:object|tree|cell|end)\b": "is not a",
    r"\bis no (?:readable|plain|valid|proper|JSON|log|sample|output)\b": "is not a",
    r"\bwhat was (?:answered|under way|found|learned|replied)\b": "'replies', 'open requests', ...",
    r"\bonce for all(?=[;:.,]|$)": "'permanently'",
    r"\bcannot be had\b": "'is not available'",
    r"\bstands? there\b": "'is shown', 'appears'",
    r"\bstands? (?:twice|beside it|in row)\b": "'appears', 'is shown'",
    r"\bturn(?:s|ed)? (?:it |the list |them )?round\b": "'reverse', 'negate'",
    r"\b[Hh]old(?:s|ing)? (?:\w+ ){0,4}against\b": "'compare with'",
    r"\b[Hh]eld (?:against|to (?:a|the|it|that|its))\b": "'compared with', 'tested against'",
    r"\ba file of (?:the user's|your) own\b": "'your own file'",
    r"\bmust be told\b": "'must be given'",
    r"\bthe whole of it\b": "'all of it'",
    r"\bwere there (?:no|not)\b": "'without'",
    r"\ban unmoved model\b": "'a model that ignores the order'",
    r"\bthe very (?:items|messages|same)\b": "'exactly the', 'the'",
    r"\bunless (?:told|said)\b": "'by default', 'unless set'",
    r"(?<!there )\b(?:is|are) no (?!longer)[a-z]+[.,;]": "is not a",
    r"\b(?:your|all your) rights\b": "'permissions'",
    r"\bput a copy back\b": "'restore a backup'",
    r"\b(?:make|has no|free some) room\b": "'space'",
    r"\bends? at once\b|\bended at once\b": "'stops immediately'",
    r"\bnot for prompts\b": "'not allowed in prompts'",
    r"\b(?:gold|scale|body|batch|matrix) holds\b": "'contains', 'has'",
    r", and the scale (?:is|has)\b": "', but the scale is'",
    r"\btake (?:--\w+|fewer|at least|\{\w+\} or)\b": "'use'",
    r"\bhand(?:s|ed)? (?:it |them )?(?:in|over)\b": "'upload', 'pass'",
    r"\b(?:were|was) put to\b": "'tested on'",
    r"\bwho(?:ever)? (?:calls|wants|asks|pays|says)\b": "name the thing",
    r"\b(?:fits?|fit) all of\b": "'matches'",
    r"\b(?:knows?) nothing of\b": "'independent of', 'ignores'",
    r"\bcount who\b|: who \w+s\b": "name the thing",
    r"\bis told\b|\bwhat they ask\b": "'is given', 'is marked'",
    r"(?:needs?|is about) [a-z ]+, and the (?:scale|class)\b": "', but the scale is'",
    r"\bname (?:it|one|a level|fewer \w+) (?:with|in)\b": "'choose one with', 'list fewer'",
    r"\bmust hold one\b|\bholds? (?:no labels|views|only)\b": "'contain', 'has'",
    r"\bcalls? a draw\b": "'per draw'",
    r"\bclass of most draws\b": "'the most frequent class'",
    r"\ball is kept\b": "'nothing is lost'",
}
"""A pattern, and what to write instead."""

PAGES = [
    path
    for path in (
        *sorted((ROOT / "src").rglob("*.py")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "src").rglob("*.html")),
        *sorted((ROOT / "src").rglob("view.js")),
        *sorted((ROOT / "benchmarks").glob("*.py")),
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "Makefile"),
    )
    if path.name != "log.md"
]


def texts(path: Path) -> Iterator[str]:
    """The strings and docstrings of a module with the comments; a page as it is."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield " ".join(content.split())  # a phrase may go over the end of a line
        return
    yield from re.findall(r'(?m)^\s*"""(?:Returns?|What|How|Where|Who|Why|Which|When) .*', content)
    yield from re.findall(r"#\s.*", content)
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())


def found(path: Path) -> list[str]:
    return [
        f"...{text[max(0, hit.start() - 30) : hit.end() + 30]!r}: {instead}"
        for text in texts(path)
        for phrase, instead in PHRASES.items()
        for hit in re.finditer(phrase, text)
    ]


def test_the_text_is_plain_english() -> None:
    hits = {str(path.relative_to(ROOT)): found(path) for path in PAGES}
    assert {path: hit for path, hit in hits.items() if hit} == {}
