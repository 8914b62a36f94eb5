"""Recorded verdicts of six real judges in both orders: flips, direction, cost of agreement.

    python benchmarks/llmbar.py FOLDER [--write]

FOLDER holds the verdicts of LLMBar as a table (`verdicts.csv`: subset, item, judge, strategy,
as_given, swapped), its items (`items.jsonl`) and raw replies (`replies.jsonl`). Nothing of them
is in this repository. `--write` puts the tables at their place in docs/judges.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

import flipmeter as fm
from flipmeter.prompt.parsing import parse
from flipmeter.types import Extract, Head, Prompt, Reply, Script

PAGE = Path(__file__).parents[1] / "docs" / "judges.md"
START, END = "<!-- benchmarks/llmbar.py -->", "<!-- end -->"
STRATEGY = "Vanilla_NoRules"
"""The plainest prompt that every judge was given."""
RULES = {
    "CoT": (
        r"(?s)\A(?:.*?Output \((?=a\) is better[^\n])|.*?Output \((?=b\) is better[^\n]))"
        r"(?P<label>[ab])"
    ),
    "": (
        r"(?s)\A\s*(?:(?:.*?\n)? ?Output \((?=a\))|(?:.*?\n)? ?Output \((?=b\)))"
        r"(?P<label>[ab])"
    ),
}
"""The authors' rules (`parsing` in their configuration): a sentence, or the beginning of any line.

Both look for (a) in the whole reply before they look for (b). That of CoT is not used for PaLM2.
"""
PLAIN = (
    r"(?s)\A(?:.*(?=Output \([ab]\) is better)|\s*(?=Output \([ab]\)))"
    r"Output \((?P<label>[ab])\)"
)
"""The last output that is called better, else the one that the reply begins with."""
ORDERS = {"as_given": (1, 2), "swapped": (2, 1)}


# --- verdicts ---------------------------------------------------------------------------------


def with_gold(folder: Path, strategy: str) -> Iterator[dict[str, object]]:
    """Verdicts of one strategy with what people chose; all subsets are one dataset."""
    lines = (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()
    better = {item["id"]: item["better"] for item in map(json.loads, lines)}
    with (folder / "verdicts.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["strategy"] != strategy:
                continue
            item = f"{row['subset']}/{row['item']}"
            told = {"item": item, "judge": row["judge"], "gold": better[item], "dataset": "LLMBar"}
            yield {**told, "as_given": row["as_given"], "swapped": row["swapped"]}


def judged(folder: Path, strategy: str) -> fm.Run:
    """The run that these verdicts might come from."""
    path = Path(tempfile.mkdtemp()) / "verdicts.csv"
    pl.DataFrame(list(with_gold(folder, strategy))).write_csv(path)
    return fm.Run(path)


def judge_table(run: fm.Run) -> str:
    """A line for every judge: flips, verdict, preference, accuracy alone and with agreement."""
    pairs = run.aspects("pairs")
    heads = (
        "judge | n | flips when swapped | verdict | first shown wins | accuracy, one order "
        "| right in both (`pair+agree`, ties wrong) | decided by both | accuracy of these"
    )
    lines = [f"| {heads} |", "| --- " * len(heads.split("|")) + "|"]
    for row in run.verdicts.sort("value").to_dicts():
        own = {r["metric"]: r for r in pairs.filter(rater=row["rater"]).to_dicts()}
        one = (own["accuracy:1"]["value"] + own["accuracy:2"]["value"]) / 2
        both, same = own["accuracy_both"], own["consistency"]
        decided = same["value"] * same["n"] / (same["n"] + same["failed"])
        cells = (
            row["rater"],
            str(row["n_pairs"]),
            _interval(row),
            row["word"],
            _interval(own["first_share"]),
            _percent(one),
            _interval(both),
            _percent(decided),
            _percent(both["value"] / decided if decided else 0.0),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _interval(row: dict[str, Any]) -> str:
    return f"{100 * row['value']:.0f} % [{100 * row['low']:.0f}, {100 * row['high']:.0f}]"


# --- replies ----------------------------------------------------------------------------------


def readings(folder: Path, pattern: str = "") -> Iterator[tuple[dict[str, Any], str, str]]:
    """Every raw reply with the winner as published and as read, "" for none.

    Without a pattern it is read by the rule that the authors set for its judge and strategy.
    """
    for line in (folder / "replies.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        how = Extract(regex=pattern or _rule(row["judge"], row["strategy"]))
        for order, ranks in ORDERS.items():
            prompt = Prompt(Script(Head(), ""), ("a", "b"), ranks)
            answer = parse(Reply(row[order], "stop"), prompt, how)
            told = {"judge": row["judge"], "text": row[order], "ranks": ranks}
            yield told, str(row[f"winner_{order}"] or ""), str(answer.rank or "")


def _rule(judge: str, strategy: str) -> str:
    return RULES[strategy if strategy in RULES and judge != "PaLM2" else ""]


def reason(told: dict[str, Any], published: str) -> str:
    """Reason why a reply is not published as its last words read."""
    said = re.findall(r"Output \(([ab])\) is better", told["text"])
    letters = {str(rank): letter for letter, rank in zip("ab", told["ranks"], strict=True)}
    if not published:
        return "published as unread; it ends without a decision"
    if letters[published] not in said:
        return "never calls the published output better, but a line begins with its name"
    return "calls both better, one after the other"


def reading_table(folder: Path) -> str:
    """Number of replies read as published, and the reasons for the others."""
    lines = []
    for name, pattern in (("the authors' own rules", ""), ("the last `is better`", PLAIN)):
        found = list(readings(folder, pattern))
        apart = [one for one in found if one[1] != one[2]]
        share = 100 * (1 - len(apart) / len(found))
        lines.append(f"- {len(found) - len(apart)} of {len(found)} ({share:.1f} %): {name}")
        reasons = Counter((reason(one[0], one[1]), one[0]["judge"]) for one in apart)
        lines += [f"  - {n} of {judge}: {why}" for (why, judge), n in reasons.most_common()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    text = "\n\n".join(
        (
            f"`{STRATEGY}`, all 419 pairs:",
            judge_table(judged(asked.folder, STRATEGY)),
            "Raw replies read as the authors read them:",
            reading_table(asked.folder),
        )
    )
    print(text)
    if asked.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
