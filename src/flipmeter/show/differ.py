"""Two prompts side by side, with what differs marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

MARK = "reverse"
WORDS = re.compile(r"\s+|\w+|[^\w\s]")


def side_by_side(titles: Sequence[str], texts: Sequence[str], footers: Sequence[str] = ()) -> Table:
    """Lay texts out beside each other; what is not as in the first is marked.

    Marks are reverse video and, where there is no colour, «these quotes».
    """
    grid = Table.grid(expand=True, padding=(0, 1))
    for _ in texts:
        grid.add_column(ratio=1)
    feet = list(footers) or [""] * len(texts)
    marked = [
        _mark_differences(text, texts[0] if place else texts[-1])
        for place, text in enumerate(texts)
    ]
    panels = [
        Panel(
            text,
            title=Text(title),
            subtitle=Text(foot) if foot else None,
            title_align="left",
            subtitle_align="left",
        )
        for text, title, foot in zip(marked, titles, feet, strict=True)
    ]
    grid.add_row(*panels)
    return grid


def _mark_differences(text: str, other: str) -> Text:
    mine, theirs = WORDS.findall(text), WORDS.findall(other)
    shown = Text()
    # autojunk would call frequent words junk and mark whole demonstrations.
    for tag, start, end, _, _ in difflib.SequenceMatcher(
        None, mine, theirs, autojunk=False
    ).get_opcodes():
        piece = "".join(mine[start:end])
        if tag == "equal" or not piece.strip():
            shown.append(piece)
        else:
            shown.append(f"«{piece}»", style=MARK)
    return shown
