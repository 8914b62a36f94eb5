"""Names and rows -> LaTeX: tables with booktabs that pdflatex sets, whatever the names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_letters

LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after a line break it would be read as an option
    "]": "{]}",
    "*": "{*}",  # there, too
    "±": r"$\pm$",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    "ρ": r"$\rho$",
    "·": r"$\cdot$",
    "…": r"\ldots{}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "’": "'",
}
LATIN = "ÆæØøßŁłŒœ"
"""Letters that every font of pdflatex has, beside those that are one of ours with an accent."""
OGONEK, LAST_LATIN = "\u0328", "\u017f"
LATEX_HEAD = r"""% needs \usepackage{booktabs,graphicx} and \usepackage[table]{xcolor}
\definecolor{residualPositive}{HTML}{C65F5F}
\definecolor{residualNegative}{HTML}{4C78A8}
% no wider than a line; lines of one cell; a character by its code point, which you may define as
% \newcommand{\flipcode}[1]{\symbol{"#1}} where your fonts have it
\providecommand{\flipfit}[1]{\noindent
  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{#1}}
\providecommand{\flipstack}[2][c]{\begin{tabular}{@{}#1@{}}#2\end{tabular}}
\providecommand{\flipcode}[1]{{\scriptsize U+#1}}
"""
BREAK = r"\\"
LONG, TALL = 36, 48
"""Number of characters of a name per line of LaTeX, and of lines per page."""


@dataclass(frozen=True)
class Block:
    """Rows of a LaTeX table that stay on one page; what they have in common stands once above."""

    rows: Sequence[Sequence[str]]
    title: str | None = None

    @property
    def n_lines(self) -> int:
        return sum(_n_lines(row) for row in self.rows)


def _n_lines(row: Sequence[str]) -> int:
    return 1 + max(cell.count(BREAK) for cell in row)


def latex_tables(columns: str, head: Sequence[str], blocks: Iterable[Block]) -> str:
    """Tables with booktabs, as many as pages are needed, each no wider than a line."""
    tables = []
    for page in _pages(blocks):
        lines = [f"\\flipfit{{\\begin{{tabular}}{{{columns}}}", r"\toprule", *head]
        lines += _rows(page)
        tables.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}}%"]))
    return "\n\n\\medskip\n".join(tables)


def _pages(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    page: list[Block] = []
    for block in blocks:
        if page and sum(one.n_lines for one in (*page, block)) > TALL:
            yield page
            page = []
        page.append(block)
    yield page


def _rows(page: Sequence[Block]) -> Iterator[str]:
    for place, block in enumerate(page):
        is_new = place == 0 or block.title != page[place - 1].title
        if is_new:
            yield r"\midrule"
        for row in block.rows:
            titles = [] if block.title is None else [block.title if is_new else ""]
            room = "[2pt]" if _n_lines(row) > 1 else ""
            yield f"{' & '.join([*titles, *row])} {BREAK}{room}"
            is_new = False


def latex_stack(lines: Sequence[str], column: str = "c") -> str:
    """Lines of a cell above each other."""
    if len(lines) == 1:
        return lines[0]
    option = "" if column == "c" else f"[{column}]"
    return rf"\flipstack{option}{{" + BREAK.join(lines) + "}"


def latex_name(text: str) -> str:
    """A name escaped for LaTeX, on several lines if it is long and has gaps."""
    lines = [""]
    for word in re.split(r"(?<=[, ])", " ".join(text.split())):
        if lines[-1] and len(lines[-1] + word) > LONG:
            lines.append("")
        lines[-1] += word
    return latex_stack([escape_latex(line) for line in lines], "l")


def escape_latex(text: str) -> str:
    """A text escaped for LaTeX, in any font; two hyphens stay two.

    What no font of pdflatex has, as Chinese or emoji, is shown by its code point.
    """
    text = "".join(_latex_sign(sign) for sign in " ".join(text.split()))
    return re.sub(r"([-'`,])(?=\1)|(?<=[?!])(?=`)", r"\1{}", text)


def _latex_sign(sign: str) -> str:
    if sign in LATEX:
        return LATEX[sign]
    is_known = sign.isprintable() if sign.isascii() else sign in LATIN or _is_accented(sign)
    return sign if is_known else f"\\flipcode{{{ord(sign):04X}}}"


def _is_accented(sign: str) -> bool:
    parts = unicodedata.normalize("NFD", sign) if sign <= LAST_LATIN else sign
    return parts[0] in ascii_letters and OGONEK not in parts
