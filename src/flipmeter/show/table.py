"""The one table: columns and rows, for a terminal, a page, Markdown, LaTeX and CSV.

    Table.of("Title", [Column("p", lambda row: p_value(row["p"])), "n"], records)
    Table("Title", ["rater", Column("items", align="right")], groups_of(rows))

A cell is a text or a `Cell`. `console.print(table)` and `say(table)` fit it to any width, and leave
out columns by their `priority`; `table.html()` is escaped markup; `markdown(table)` and
`latex(tables)` are texts; `write_table(frame, path)` writes all rows of a frame in the form that
the file's ending names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
from markupsafe import Markup

from flipmeter.errors import Problem
from flipmeter.files import open_output, write_output
from flipmeter.printed import CONTROLS, without_controls
from flipmeter.show.format import Record, counted, visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table as RichTable
    from rich.text import Text

GAP = 2
"""Spaces between columns without lines."""
STYLES = {
    **dict.fromkeys(("stable", "met", "shown", "holds"), "bold green"),
    **dict.fromkeys(("flips", "unreadable", "missed", "refuted", "fails"), "bold red"),
    "higher": "bold",
    "lower": "bold",
    "not distinguishable": "",
    "not identified": "dim",
    "yes": "green",
    "no": "red",
}
"""The style of a verdict on a terminal; others are yellow."""


@dataclass(frozen=True)
class Cell:
    """The text of a cell, what it is sorted and shaded by, its kind, and the items it links to.

    Lines of a text stand above each other. `kind` has the cell's classes on a page; of them "name"
    and "word ..." have a style on a terminal, too, and "why" says why there is no number.
    """

    text: str | Markup = ""
    sort: float | str | None = None
    kind: str = ""
    query: str = ""

    @property
    def style(self) -> str:
        if self.kind == "name":
            return "bold"
        _, is_word, verdict = self.kind.partition("word ")
        return STYLES.get(verdict, "yellow") if is_word else ""


def word(verdict: str, told: str = "") -> Cell:
    """A verdict; `told` is what its cell says, where that is more than the word."""
    return Cell(told or verdict, verdict, f"word {verdict}" if verdict else "")


@dataclass(frozen=True)
class Column:
    """A column: its title, and how a record is shown in it, by default its field of that name.

    Columns with a `priority` are left out of a narrow terminal, the lowest first; 0 is never. In
    LaTeX names are left and may be broken, numbers are shaded by their size with strength `shade`
    (negative: in the colour of negative numbers), and `over` is a heading over several columns.
    """

    title: str | Markup
    show: Callable[[Record], str | Cell] | None = None
    align: Literal["left", "right"] = "left"
    priority: int = 0
    footer: str = ""
    is_name: bool = False
    shade: float = 0.0
    over: str = ""

    def cell(self, record: Record) -> Cell:
        if self.show is not None:
            return as_cell(self.show(record))
        value = record[str(self.title)]
        return Cell("" if value is None else str(value), value)


@dataclass(frozen=True)
class Group:
    """Rows that belong together, under a title."""

    rows: Sequence[Sequence[Cell]]
    title: str = ""


def as_cell(shown: str | Cell) -> Cell:
    return shown if isinstance(shown, Cell) else Cell(shown)


def groups_of(*groups: Iterable[Sequence[str | Cell]]) -> list[Group]:
    """Groups of rows whose cells are texts or cells."""
    return [Group([[as_cell(cell) for cell in row] for row in rows]) for rows in groups]


@dataclass(frozen=True)
class Table:
    """Rows in groups under columns, how they were made, and what was left out.

    `kind` names how it looks on a page, where plain ones and the forest can be sorted, and `lines`
    how it looks on a terminal, where `caption` stands under it. `notes` are for pages and files.
    A terminal too narrow for columns with priorities gets what `stack` makes of its width.
    """

    title: str
    columns: Sequence[Column | str]
    groups: Sequence[Group]
    notes: Sequence[str] = ()
    kind: str = "plain"
    is_detail: bool = False
    lines: Literal["all", "head", "no", "bare"] = "all"
    caption: str = ""
    caption_style: str = ""
    stack: Callable[[int], RenderableType] | None = None

    @classmethod
    def of(
        cls, title: str, columns: Sequence[Column | str], records: Iterable[Record], **more: Any
    ) -> Table:
        """A table with a row for each record."""
        specified = [one if isinstance(one, Column) else Column(one) for one in columns]
        rows = [[column.cell(record) for column in specified] for record in records]
        return cls(title, specified, [Group(rows)], **more)

    @property
    def specified(self) -> list[Column]:
        return [one if isinstance(one, Column) else Column(one) for one in self.columns]

    @property
    def heads(self) -> list[str | Markup]:
        return [column.title for column in self.specified]

    @property
    def rows(self) -> list[Sequence[Cell]]:
        return [row for group in self.groups for row in group.rows]

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    # --- terminal -----------------------------------------------------------------------------

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        from flipmeter.printed import fitted

        places = self.fitting(options.max_width)
        if places:
            yield fitted(self.rich(places), console, options)
            yield from left_out(
                str(head) for place, head in enumerate(self.heads) if place not in places
            )
        elif self.stack is not None and self.columns:
            yield self.stack(options.max_width)

    def fitting(self, width: int) -> list[int]:
        """The places of the columns that fit, by priority; none if rows must be stacked."""
        columns = self.specified
        if self.stack is None:
            return [*range(len(columns))]
        widths = [
            max([len(str(column.title)), *(len(row[place].text) for row in self.rows)])
            for place, column in enumerate(columns)
        ]
        for least in sorted({0, *(column.priority for column in columns)}):
            shown = [
                place for place, column in enumerate(columns) if not 0 < column.priority <= least
            ]
            if sum(widths[place] + GAP for place in shown) - GAP <= width:
                return shown
        return []

    def rich(self, shown: Sequence[int]) -> RichTable:
        """Some of the columns for a terminal, at their natural width."""
        from rich.box import HEAVY_HEAD, SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        columns, is_bare = self.specified, self.lines == "bare"
        table = RichTable(
            title=Text(self.title, style="table.title") if self.title else None,
            title_justify="left",
            caption=Text(self.caption, style=self.caption_style) if self.caption else None,
            caption_justify="left",
            box={"all": HEAVY_HEAD, "head": SIMPLE_HEAD}.get(self.lines),
            padding={"head": (0, 1, 0, 0), "bare": (0, GAP, 0, 0)}.get(self.lines, (0, 1)),
            pad_edge=not is_bare,
            show_header=any(self.heads),
            show_footer=any(column.footer for column in columns),
        )
        for place in shown:
            column = columns[place]
            head, footer = Text(str(column.title)), Text(column.footer)
            table.add_column(head, footer, justify=column.align, no_wrap=is_bare)
        for group in self.groups:
            if group.title:
                table.add_row(Text(group.title, style="bold"), *(Text() for _ in shown[1:]))
            for row in group.rows:
                table.add_row(*(Text(row[at].text, row[at].style) for at in shown))
            table.add_section()
        return table

    # --- page ---------------------------------------------------------------------------------

    @property
    def is_folded(self) -> bool:
        """Say whether the table is there to be opened: a detail, or one that goes on and on."""
        return self.is_detail or (self.n_rows > TALL and self.kind == "plain")

    @property
    def is_tall(self) -> bool:
        """Whether the table scrolls in a frame of its own: one that nearly fits never does."""
        return self.n_rows > TALL or (self.kind == "matrix" and self.n_rows > TALL // 2)

    def html(self, items_at: str = "") -> Markup:
        """The table for a page; `items_at` is where its cells' items are listed, "" on the page."""
        title, heads = shown(self.title), [shown(head) for head in self.heads]
        stacked = heads if self.kind in ("matrix", "forest") else [Markup()] * len(heads)
        scope = '<th scope="col">{}</th>'
        head = "".join(Markup(scope).format(one) if one else "<td></td>" for one in heads)
        bodies = (_table_body(group, stacked, items_at) for group in self.groups)
        table = Markup(
            '<div class="scroll{}" role="region" tabindex="0" aria-label="{}">\n'
            '<table class="{}">\n<caption><span>{}</span></caption>\n'
            "<thead><tr>{}</tr></thead>\n{}</table>\n</div>\n{}"
        ).format(
            *(" tall" if self.is_tall else "", title, self.kind, title, Markup(head)),
            *(Markup().join(bodies), Markup().join(map(_note_markup, self.notes))),
        )
        if not self.is_folded:
            return table
        rows = counted(self.n_rows, "row")
        summary = Markup('<details class="more"><summary>{} ({})</summary>\n{}</details>\n')
        return summary.format(title, rows, table)


def left_out(heads: Iterable[str]) -> Iterator[Text]:
    """A line that names the columns for which there is no room."""
    from rich.text import Text

    if named := ", ".join(heads):
        yield Text(f"left out at this width: {named}", style="dim")


TALL = 30
"""Rows of a page's table that is folded, or has a frame of its own."""
QUOTED = re.compile(r"`([^`]+)`")


def shown(text: str | Markup) -> Markup:
    """A text with what it hides made visible; what is markup already was made from such texts."""
    return text if isinstance(text, Markup) else Markup.escape(visible(str(text)))


def noted(note: str | Markup) -> Markup:
    """A note of our own: what stands between backticks is code."""
    if isinstance(note, Markup):
        return note
    code = Markup('<code class="code">{}</code>')
    parts = enumerate(QUOTED.split(visible(note)))
    return Markup().join(code.format(part) if k % 2 else part for k, part in parts)


def _note_markup(note: str | Markup) -> Markup:
    return Markup('<p class="how">{}</p>\n').format(noted(note))


def _table_body(group: Group, stacked: Sequence[Markup], items_at: str) -> Markup:
    title = Markup('<tr class="group"><th scope="rowgroup" colspan="{}">{}</th></tr>').format(
        len(stacked), shown(group.title)
    )
    rows = (
        Markup("<tr>{}</tr>\n").format(
            Markup().join(
                _cell_markup(cell, place, stacked, items_at) for place, cell in enumerate(row)
            )
        )
        for row in group.rows
    )
    body = Markup("<tbody>{}\n{}</tbody>\n")
    return body.format(title if group.title else "", Markup().join(rows))


def _cell_markup(cell: Cell, place: int, stacked: Sequence[Markup], items_at: str) -> Markup:
    """A cell; the first of a row is its head, a wide one goes on to the end."""
    about, head = {}, stacked[place]
    if place and head and "svg" not in head:
        about["data-head"] = head.striptags()
    if cell.kind:
        about["class"] = cell.kind
    if "wide" in cell.kind:
        about["colspan"] = str(len(stacked) - place)
    if isinstance(cell.sort, int | float):
        about["data-sort"] = f"{cell.sort:.6g}"
    text = Markup("<br>").join(shown(cell.text).split("\n"))
    if cell.query and items_at:
        text = Markup('<a href="{}?{}">{}</a>').format(items_at, cell.query, text)
    elif cell.query:
        text = Markup('<a href="#items" data-query="{}">{}</a>').format(cell.query, text)
    tag = "td" if place else "th"
    scope = {} if place else {"scope": "row"}
    pairs = (Markup(' {}="{}"').format(*each) for each in {**scope, **about}.items())
    return Markup("<{}{}>{}</{}>").format(tag, Markup().join(pairs), text, tag)


# --- Markdown ---------------------------------------------------------------------------------


def markdown(table: Table, between: str = " ") -> str:
    """The table in Markdown, with its notes as a list; `between` the lines of a cell."""
    heads = [escape_markdown(str(head)).replace(r"\[95 %\]", "[95 %]") for head in table.heads]
    rows = (
        [between.join(map(escape_markdown, cell.text.split("\n"))) for cell in row]
        for row in table.rows
    )
    lines = (heads, ["---"] * len(heads), *rows)
    shown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "".join(f"- {escape_markdown(note)}\n" for note in table.notes)
    return f"{shown}\n\n{notes}" if notes else shown


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; the first is its head."""
    head, *body = rows
    return markdown(Table("", head, groups_of(body)))


def escape_markdown(text: str) -> str:
    """A text escaped for Markdown, on one line, without mentions."""
    line = without_controls(" ".join(text.split()))
    escaped = re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", line)
    return escaped.replace("@", "&#64;")


# --- LaTeX ------------------------------------------------------------------------------------

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
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
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
LONG, HIGH = 36, 48
"""Number of characters of a name per line of LaTeX, and of lines per page."""
FAINTEST, STRONGEST = 8, 80
"""The paper's shades: from 8 % for no difference to 80 % for the largest of the table."""


def latex(table: Table) -> str:
    """The table with booktabs, on as many pages as are needed, each no wider than a line.

    A first column of names has each of them once; its notes are comments.
    """
    columns = table.specified
    sizes = (
        abs(cell.sort)
        for row in table.rows
        for column, cell in zip(columns, row, strict=True)
        if column.shade and isinstance(cell.sort, int | float)
    )
    largest = max(sizes, default=0.0)
    rows = [
        [_latex_cell(cell, column, largest) for column, cell in zip(columns, row, strict=True)]
        for row in table.rows
    ]
    over = _latex_over(columns)
    heads = " & ".join(escape_latex(str(head)) for head in table.heads)
    places = "".join("l" if column.is_name else "c" for column in columns)
    begins = [f"\\flipfit{{\\begin{{tabular}}{{{places}}}", r"\toprule", *over, f"{heads} {BREAK}"]
    ends = [r"\bottomrule", r"\end{tabular}}%"]
    pages = (
        "\n".join([*begins, *_latex_rows(page), *ends])
        for page in _iter_table_pages(rows, sum(column.is_name for column in columns))
    )
    notes = (f"% {' '.join(note.split())}" for note in table.notes)
    return "\n".join(["\n\n\\medskip\n".join(pages), *notes])


def _latex_over(columns: Sequence[Column]) -> list[str]:
    spans = {column.over: 0 for column in columns}
    for column in columns:
        spans[column.over] += 1
    if [*spans] == [""]:
        return []
    parts = (f"\\multicolumn{{{n}}}{{c}}{{{escape_latex(over)}}}" for over, n in spans.items())
    return [f"{' & '.join(parts)} {BREAK}"]


def _iter_table_pages(rows: Sequence[Sequence[str]], n_names: int) -> Iterator[list[Sequence[str]]]:
    """Rows by page; one without a second name belongs to the row before it, and stays with it."""
    blocks: list[list[Sequence[str]]] = []
    for row in rows:
        if blocks and n_names > 1 and not row[1]:
            blocks[-1].append(row)
        else:
            blocks.append([row])
    page: list[Sequence[str]] = []
    for block in blocks:
        if page and sum(map(_n_lines, (*page, *block))) > HIGH:
            yield page
            page = []
        page += block
    yield page


def _n_lines(row: Sequence[str]) -> int:
    return 1 + max(cell.count(BREAK) for cell in row)


def _latex_rows(page: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows of a page, with a line above each new first name."""
    before = None
    for first, *rest in page:
        if first != before:
            yield r"\midrule"
        room = "[2pt]" if _n_lines([first, *rest]) > 1 else ""
        yield f"{' & '.join(['' if first == before else first, *rest])} {BREAK}{room}"
        before = first


def _latex_cell(cell: Cell, column: Column, largest: float) -> str:
    if column.is_name:
        return latex_name(cell.text)
    if not column.shade or cell.kind == "why" or not isinstance(cell.sort, int | float):
        lines = latex_stack([escape_latex(line) for line in cell.text.split("\n")])
        return rf"\cellcolor{{gray!20}}{lines}" if cell.kind == "why" else lines
    value, gap, ends = re.fullmatch(r"(\S*)(\s?)(.*)", cell.text, re.DOTALL).groups()  # type: ignore[union-attr]
    parts = [f"${value}$"] if value else [""]
    ends = ends.replace("±", r"\pm ")
    parts += [f"{{\\scriptsize ${ends}$}}"] if ends else []
    told = latex_stack(parts) if gap == "\n" else " ".join(parts)
    if not re.search("[1-9]", value):
        return told
    colour = "Positive" if cell.sort * column.shade > 0 else "Negative"
    strength = round(abs(column.shade) * shade_of(cell.sort, largest))
    return f"\\cellcolor{{residual{colour}!{strength}}}{told}"


def shade_of(value: float, largest: float) -> int:
    """The strength of a cell's colour in percent, as the paper's tables have it."""
    part = abs(value) / largest if largest else 0.0
    return round(FAINTEST + (STRONGEST - FAINTEST) * part)


def latex_stack(lines: Sequence[str], column: str = "c") -> str:
    """Lines of a cell above each other."""
    if len(lines) == 1:
        return lines[0]
    option = "" if column == "c" else f"[{column}]"
    return rf"\flipstack{option}{{" + BREAK.join(lines) + "}"


def latex_name(text: str) -> str:
    """A name escaped for LaTeX, on several lines if it is long and has gaps."""
    lines = [""]
    for part in re.split(r"(?<=[, ])", " ".join(text.split())):
        if lines[-1] and len(lines[-1] + part) > LONG:
            lines.append("")
        lines[-1] += part
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


# --- files ------------------------------------------------------------------------------------


def write_table(
    frame: pl.DataFrame,
    path: Path,
    texts: Mapping[str, Callable[[pl.DataFrame], str]] | None = None,
    way_out: str = "use another path",
) -> None:
    """Write all rows of a frame to a .csv or .parquet file, or as a text by the name's ending."""
    writers = {".csv": safe_csv, **(texts or {})}
    if path.suffix not in (*writers, ".parquet"):
        raise Problem(f"cannot write {path}: the name must end in {', '.join(writers)} or .parquet")
    try:
        if path.suffix == ".parquet":
            with open_output(path) as file:
                frame.write_parquet(file)
        else:
            write_output(path, writers[path.suffix](frame))
    except OSError as error:
        raise Problem(f"cannot write {path} ({error.strerror or error}); {way_out}") from error


def safe_csv(frame: pl.DataFrame) -> str:
    """A frame as CSV that neither a spreadsheet nor a terminal obeys.

    A text that would be run as a formula gets a quote, a control character becomes U+FFFD. Lists
    are written in one cell, with semicolons.
    """
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    frame = frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join("; "))
    plain = pl.col(pl.String).str.replace_all("\r\n", "\n", literal=True)
    frame = frame.with_columns(plain.str.replace_all(CONTROLS.pattern, "\ufffd"))
    text = pl.col(pl.String)
    is_formula = text.str.contains(r"^\s*[=+\-@\t\r\n]")
    return frame.with_columns(
        pl.when(is_formula).then(pl.lit("'") + text).otherwise(text).name.keep()
    ).write_csv()
