"""LaTeX tables: what pdflatex makes of them, whatever the names, and that they fit on a page."""

from __future__ import annotations

import re
import shutil
import string
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.show.gather import gather
from flipmeter.show.residuals import residuals_latex
from flipmeter.show.table import (
    BREAK,
    HIGH,
    LATEX_HEAD,
    LONG,
    STRONGEST,
    Cell,
    Column,
    Table,
    escape_latex,
    groups_of,
    latex,
)
from flipmeter.show.whole import report_latex
from report_runs import HOSTILE, simulated
from test_report_residuals import row, table

LATIN = "".join(map(chr, range(0xA0, 0x180)))
NAMES = [
    string.punctuation,
    *(f"{sign} first" for sign in string.punctuation),
    *(LATIN[start : start + 32] for start in range(0, len(LATIN), 32)),
    "a--b---c ``q'' ,,low'' <<x>> ?` !` {\\bf x} \\input{x} %",
    "模型 · модель · μοντέλο · مودل · मॉडल",
    "robot 🤖 family 👨\u200d👩\u200d👧 flag 🇨🇭 e\u0301 \ufe0f",
    "tab\tnull\0bell\x07escape\x1bdelete\x7f",
    "– — ‘single’ “double” • → × − ± ρ … ≤ ≈ ™ € ½",
    *(text[:60] for text in HOSTILE.values()),
    "label_format=natural_language,clarity=minimal,separator=tab,connector=newline_tab",
    "an_address_without_any_gap/" * 6,
]

needs_latex = pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="no pdflatex: apt-get install texlive-latex-base texlive-latex-recommended",
)


def compiled(text: str, folder: Path) -> str:
    """Compile tables in a plain document, and return what pdflatex said; an error stops it."""
    (folder / "tables.tex").write_text(text, encoding="utf-8")
    (folder / "page.tex").write_text(
        r"\documentclass{article}\usepackage{booktabs,graphicx}\usepackage[table]{xcolor}"
        "\n\\begin{document}\n\\tracinglostchars=2 \\input{tables}\n\\end{document}\n",
        encoding="utf-8",
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, said[-2_000:]
    return said


def of_names(mode: str) -> pl.DataFrame:
    """Return residuals whose models, levels and datasets all have bad names."""
    rows: list[dict[str, Any]] = [
        row(factor=factor, level=name, rater=name, dataset=dataset, metric=metric, mode=mode)
        for factor in ("config", "model", NAMES[0])
        for name in NAMES
        for dataset in ("", NAMES[0], NAMES[-3])
        for metric in ("accuracy", "spearman", "mae", "P1", "P2a", NAMES[0])
    ]
    return table(*rows)


@needs_latex
@pytest.mark.parametrize("mode", ["recommended", "paper"])
def test_pdflatex_sets_residuals_whatever_the_names(mode: str, tmp_path: Path) -> None:
    said = compiled(residuals_latex(of_names(mode)), tmp_path)
    assert "Overfull" not in said
    assert "Missing character" not in said


@needs_latex
def test_pdflatex_sets_the_report_of_a_run(tmp_path: Path) -> None:
    run = simulated(
        tmp_path / "run",
        models=[
            {"model": "sim/first-slot?strength=4", "name": f"*{string.punctuation}"},
            {"model": "sim/biased-noisy", "name": "模型 🤖 é"},
        ],
        seeds=[0, 1],
        test_size=6,
        vary={"label_format": ["letter"]},
    )
    said = compiled(report_latex(gather(run)), tmp_path)
    assert "Overfull" not in said
    assert "Missing character" not in said


@given(st.text())
def test_an_escaped_text_has_nothing_that_a_font_may_lack(text: str) -> None:
    shown = escape_latex(text)
    letters = {unicodedata.normalize("NFD", sign)[0] for sign in shown if not sign.isascii()}
    assert letters <= set(string.ascii_letters + "ÆæØøßŁłŒœ")
    assert all(sign.isprintable() for sign in shown)
    bare = re.sub(r"\\flipcode\{[0-9A-F]{4,6}\}|\\[a-z]+\{\}|\\[&%$#_{}]|\$\\[a-z]+\$", "", shown)
    assert not set(
        bare.replace("{[}", "").replace("{]}", "").replace("{*}", "").replace("{}", "")
    ) & set("\\&%$#_{}~^<>|[]*")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("e\u0301 é ü Ł", r"e\flipcode{0301} é ü Ł"),
        ("Ą", r"\flipcode{0104}"),
        ("模", r"\flipcode{6A21}"),
        ("🤖", r"\flipcode{1F916}"),
        ("\x07", r"\flipcode{0007}"),
        ("a--b—", r"a-{}-b\textemdash{}"),
        ("?` ''", r"?{}` '{}'"),
    ],
)
def test_what_is_no_latin_letter_is_its_code_point(text: str, shown: str) -> None:
    assert escape_latex(text) == shown


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5)), min_size=1, max_size=90))
def test_tables_part_between_rows_and_name_what_they_go_on_with(
    rows: list[tuple[str, int]],
) -> None:
    named = [
        (name, "\n".join(f"{place}.{k}" for k in range(n))) for place, (name, n) in enumerate(rows)
    ]
    whole = Table("", [Column("name", is_name=True), "n"], groups_of(named))
    bodies = [
        [line.split(" & ") for line in one.split(r"\midrule", 1)[1].splitlines() if " & " in line]
        for one in latex(whole).split(r"\medskip")
    ]
    lines = [[1 + cells[1].count(BREAK, 0, -8) for cells in body] for body in bodies]
    assert all(0 < sum(body) <= HIGH for body in lines)
    assert all(body[0][0] for body in bodies)
    shown = [cells[1] for body in bodies for cells in body]
    assert len(shown) == len(rows)
    assert all(f"{place}.0" in one for place, one in enumerate(shown))


def test_a_long_name_has_several_lines() -> None:
    level = "label_format=natural_language,clarity=minimal,separator=tab,connector=space"
    text = residuals_latex(table(row(factor="joint", level=level)))
    (found,) = re.findall(r"\\flipstack\[l\]\{(.*?)\} &", text)
    lines = found.replace(r"\_", "_").split(r"\\")
    assert "".join(lines) == level
    assert len(lines) > 1
    assert max(map(len, lines)) <= LONG


def test_black_text_can_be_read_on_every_shade() -> None:
    for code in re.findall(r"\{HTML\}\{(\w{6})\}", LATEX_HEAD):
        light = 0.0
        for part, weight in zip(bytes.fromhex(code), (0.2126, 0.7152, 0.0722), strict=True):
            mixed = (part * STRONGEST + 255 * (100 - STRONGEST)) / 100 / 255
            light += weight * ((mixed + 0.055) / 1.055) ** 2.4
        assert (light + 0.05) / 0.05 > 4.5  # WCAG AA


def test_a_number_that_is_missing_is_no_mathematics() -> None:
    columns = (Column("rater", is_name=True), Column("P1", shade=1.0))
    told = latex(Table("", columns, groups_of([[Cell("a"), Cell("–", None)]])))
    assert "$" not in told
    assert r"a & \textendash{}" in told


def test_no_page_begins_within_a_level() -> None:
    columns = tuple(Column(head, is_name=True) for head in ("factor", "level", "dataset"))
    rows = [
        ["mood", f"level {k}" if not part else "", f"{part}"]
        for k in range(HIGH)
        for part in range(5)
    ]
    pages = latex(Table("", columns, groups_of(rows))).split(r"\midrule")[1:]
    assert len(pages) > 1
    assert all(page.lstrip().startswith("mood & level") for page in pages)
