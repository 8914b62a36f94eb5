"""Plant hard cases whose truth is known, and count how often words, tests and intervals are wrong.

    python benchmarks/calibration.py [--studies 2000] [--verbs 200] [--only 'compare*']
                                     [--results FILE] [--write]

`--studies` is of each cell of the core's functions, `--verbs` of each cell of `measure`, `check`,
`compare` and `select` on tables of predictions. `--write` puts the tables into docs/calibration.md;
with `--only` the other cells stay as the page has them. All of it takes about half an hour on an
idle core; `--only` and fewer studies cut it down, and `--results` keeps what was counted, so that
another run goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path

import calibration_aspects
import calibration_core
import calibration_verbs
from calibration_cells import Cell, Limit, ManyCell, Rate, rates

PAGE = Path(__file__).parents[1] / "docs" / "calibration.md"
KEPT = "\n## Planted effects\n"
"""The part of the page that benchmarks/planted_effects.py writes, which stays."""

HEAD = """# Calibration

Error rates of verdicts, tests and intervals on hard cases whose truth is known. Written by
`{command}`;
do not edit by hand. Without `--studies` and `--verbs` it counts 2,000 and 200 studies per cell. The
numbers are defined in [method.md](method.md).

A cell plants answers whose true rates are computed, at least {studies:,} times through the
functions of the core and {verbs:,} times through the verbs, with fixed seeds. A row has a share
of these studies (or a mean) with its Monte Carlo error, and its upper or lower limit; a limit is
broken if the share is more than two Monte Carlo errors beyond it. Margins are 10 %, intervals
95 %, tests 5 %. A share counts the studies in which the number is defined; their number is in the
last column.

{broken}
"""
SECTIONS = {
    "verdict": "Verdicts on small, noisy, correlated, faulty, copied and constant answers",
    "stop": "Early stopping",
    "select": "Selection among 1, 10 and 40 candidates",
    "compare": "Differences between two similar raters that are rarely wrong",
    "aspects": "Intervals of the aspects, by planted case",
    "tests": "Tests under the null hypothesis",
    "verbs": "Through the verbs: `measure`, `check`, `compare`, `select`, `measure --show`",
}


def cells() -> Iterator[Cell | ManyCell]:
    """Every cell, those of the verbs last."""
    yield from calibration_core.cells()
    yield from calibration_aspects.interval_cells()
    yield from calibration_aspects.test_cells()
    yield from calibration_verbs.cells()


def section_of(cell: str) -> str:
    return cell.partition(":")[0]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def line(rate: Rate) -> list[str]:
    case = rate.cell.partition(": ")[2]
    shown = f"{rate.rate:.3f} ± {rate.error:.3f}"
    held = str(rate.limit) if rate.holds else f"**{rate.limit}: broken**"
    return [case, rate.outcome, shown, held, f"{rate.n:,}"]


def page(found: Sequence[Rate], command: str, studies: int, verbs: int) -> str:
    """All rates as a page; what is broken is said at the top."""
    limited = [rate for rate in found if str(rate.limit)]
    broken = [rate for rate in limited if not rate.holds]
    told = f"{len(broken)} of {len(limited)} limits are broken."
    told += "".join(
        f"\n- {rate.cell}, {rate.outcome}: {rate.rate:.3f}, {rate.limit}" for rate in broken
    )
    parts = [HEAD.format(command=command, studies=studies, verbs=verbs, broken=told)]
    for section, title in SECTIONS.items():
        own = [rate for rate in found if section_of(rate.cell) == section]
        if own:
            parts.append(f"\n## {title}\n\n")
            parts.append(table(["case", "outcome", "share", "limit", "studies"], map(line, own)))
    return "".join(parts)


def printed(text: str) -> Iterator[Rate]:
    """The rates that a page has, to the digits it prints."""
    sections = {title: section for section, title in SECTIONS.items()}
    section = None
    for row in text.partition(KEPT)[0].splitlines():
        if row.startswith("## "):
            section = sections.get(row[3:])
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        if section is None or len(cells) != 5 or " ± " not in cells[2]:
            continue
        case, outcome, shown, limit, n = cells
        rate, error = map(float, shown.split(" ± "))
        name = f"{section}: {case}"
        yield Rate(name, outcome, rate, error, int(n.replace(",", "")), limited(limit))


def limited(text: str) -> Limit:
    """A limit as the page prints it."""
    words = text.strip("*").removesuffix(": broken").split()
    if not words:
        return Limit()
    return Limit(**{words[1]: float(words[2])})


def in_order(found: Sequence[Rate], kept: Iterable[Rate]) -> list[Rate]:
    """Rates in the order of the cells, those of cells not studied now as they were kept."""
    new = {rate.cell for rate in found}
    both = [*found, *(rate for rate in kept if rate.cell not in new)]
    place = {cell.name: at for at, cell in enumerate(cells())}
    return sorted((rate for rate in both if rate.cell in place), key=lambda x: place[x.cell])


def counted(cell: Cell | ManyCell, n: int, results: Path | None) -> list[Rate]:
    """Study a cell, unless a file of results has it with as many studies or more; add it there."""
    kept = results.read_text(encoding="utf-8").splitlines() if results and results.exists() else []
    known = [one for one in map(json.loads, kept) if one["cell"] == cell.name and one["n"] >= n]
    if known:
        return [
            Rate(**{**one, "limit": Limit(**one["limit"])})
            for one in max(known, key=lambda one: one["n"])["rates"]
        ]
    start = time.process_time()
    found = list(rates(cell, n))
    print(f"{cell.name:50}  {time.process_time() - start:.1f} s", file=sys.stderr, flush=True)
    if results is not None:
        entry = {"cell": cell.name, "n": n, "rates": [asdict(rate) for rate in found]}
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--verbs", type=int, default=200)
    parser.add_argument("--only", default="*", help="cells to study, as a file name pattern")
    parser.add_argument("--results", type=Path, help="a file that keeps what was counted")
    parser.add_argument("--list", action="store_true", help="only name the cells")
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md")
    options = parser.parse_args()
    chosen = [cell for cell in cells() if fnmatch(cell.name, options.only)]
    if options.list:
        print(*(cell.name for cell in chosen), sep="\n")
        return 0
    found: list[Rate] = []
    for cell in chosen:
        n = options.verbs if section_of(cell.name) == "verbs" else options.studies
        for rate in counted(cell, n, options.results):
            found.append(rate)
            print(f"{rate.cell:50}", *line(rate)[1:], sep="  ", flush=True)
    if options.write:
        asked = f"--studies {options.studies} --verbs {options.verbs}"
        kept = " --results FILE" if options.results else ""
        command = f"python benchmarks/calibration.py {asked}{kept} --write"
        before = PAGE.read_text(encoding="utf-8")
        _, title, planted = before.partition(KEPT)
        everything = in_order(found, printed(before))
        text = page(everything, command, options.studies, options.verbs)
        PAGE.write_text(text + title + planted, encoding="utf-8")
    return int(any(not rate.holds for rate in found))


if __name__ == "__main__":
    sys.exit(main())
