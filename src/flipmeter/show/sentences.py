"""Verdicts -> sentences: what a reader should take away, one for a rater on a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from flipmeter.show.estimate_tables import KEYS
from flipmeter.show.format import Record, interval, percent, short_percent, whole_percent
from flipmeter.show.pairs import (
    FIRST,
    HIGHER,
    HIGHER_SCORES,
    LAST,
    LOWER,
    LOWER_SCORES,
    SHOWN_FIRST,
    SHOWN_SECOND,
)
from flipmeter.types import JUDGED, Contrast

WHEN = {
    "P1": "when the label list is reversed",
    "P2a": "between demos in random and in ascending order",
    "P2b": "between demos in random and in descending order",
    "P2c": "when the demos are reshuffled",
    "P3a": "when the demos come after the query",
    "P3b": "when the demos surround the query",
    "P4a": "when the criteria are reversed",
    "P4b": "when the first criterion comes last",
    "P5": "when the instructions are in the user's message",
    "P6": "when the two answers are swapped",
    "P7": "when the options change places",
    "P7x": "when the options change places",
    "P7c": "when the candidates change places",
}
POLARITY, TURNED = "by polarity", "when the question is negated"
NO_VIEW = "not applicable: no view"
NOT_SHOWN = "not shown after Holm's correction over its contrasts"


@dataclass(frozen=True)
class Sentence:
    """The verdict on a rater, at the base of its study; `word` is that of all its contrasts."""

    rater: str
    dataset: str
    word: str
    text: str

    def __str__(self) -> str:
        return f"{self.rater} on {self.dataset} {self.text}."


def verdict_sentences(
    verdicts: pl.DataFrame, contrasts: Sequence[Contrast], words: pl.DataFrame
) -> list[Sentence]:
    """A sentence for every rater on every dataset, from the rows of its verdicts, worst first.

    `words` are those of raters, which hold over all of their contrasts.
    """
    known = {contrast.name: contrast for contrast in contrasts}
    word_of = {(r, d): word for r, d, word in words.select("rater", "dataset", "word").iter_rows()}
    return [
        _rater_sentence(rows.to_dicts(), known, word_of[key[0], key[1]])
        for key, rows in verdicts.filter(level="").group_by("rater", "dataset", maintain_order=True)
    ]


def _rater_sentence(rows: Sequence[Record], known: Mapping[str, Contrast], word: str) -> Sentence:
    rater, dataset = rows[0]["rater"], rows[0]["dataset"]
    measured = [row for row in rows if row["status"] in JUDGED]
    if not measured:
        reasons = dict.fromkeys(str(row["reason"]) for row in rows)
        if all(reason.startswith(NO_VIEW) for reason in reasons):
            reasons = dict.fromkeys(["no contrast has all of its views"])
        text = f"could not be measured: {'; '.join(reasons)}"
        return Sentence(rater, dataset, "not identified", text)
    # The first is the worst; a word may rest on others where the worst is not shown over all.
    head = next((row for row in measured if row["word"] == word), measured[0])
    return Sentence(rater, dataset, word, "; ".join(_verdict_clauses(head, measured, known)))


def _verdict_clauses(
    head: Record, measured: Sequence[Record], known: Mapping[str, Contrast]
) -> Iterator[str]:
    moved = TURNED if POLARITY in str(head["reason"]) else when(head["contrast"], known)
    unread = f"{short_percent(head['unreadable'] or 0.0)} % of its pairs could not be read"
    if head["value"] is None and head["unreadable"] is None:
        yield f"cannot be judged {moved}: no pair was answered"
    elif head["word"] == "unreadable" or head["value"] is None:
        yield f"cannot be judged {moved}: {unread}"
    else:
        yield f"flips {_ended_rate(head)} of its answers {moved}{_construction_clause(head)}"
        if head["word"] == "stable" and head["status"] == "measured":
            yield _stability_bound_text(head)
        yield _noise_sentence(head)
        if lean := lean_text(head, known[head["contrast"]]):
            yield lean
        if head["unreadable"]:
            yield unread
    yield from _worst_clauses(head, measured, known)
    beside = zip(head["findings"], head["notes"], strict=True)
    yield from (note for name, note in beside if note and name != "noisy")


def _construction_clause(row: Record) -> str:
    return f", {row['reason']}" if row["status"] == "by construction" else ""


def finding_lines(verdicts: pl.DataFrame) -> list[str]:
    """The findings on the verdicts, a line for each rater, dataset, level and finding.

    Every surface that shows verdicts shows these lines; contrasts with the same finding share one.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in verdicts.filter(pl.col("status") != "not applicable").to_dicts():
        where = " · ".join(str(row[key]) for key in ("rater", "dataset", "level") if row[key])
        for name, note in zip(row["findings"], row["notes"], strict=True):
            found.setdefault((where, name, note), []).append(row["contrast"])
    return [
        f"{where} · {', '.join(contrasts)}: {name}" + (f" ({note})" if note != name else "")
        for (where, name, note), contrasts in found.items()
    ]


def _worst_clauses(
    head: Record, measured: Sequence[Record], known: Mapping[str, Contrast]
) -> Iterator[str]:
    """Name a worse contrast that the word leaves out, or the worst one that could be read."""
    worst = measured[0]
    if worst is not head and worst["word"] == "flips":
        yield f"flips {_ended_rate(worst)} {when(worst['contrast'], known)}, which is {NOT_SHOWN}"
    elif head["word"] == "unreadable":
        read = [row for row in measured if row["word"] != "unreadable" and row["value"]]
        if read:
            yield f"flips {_ended_rate(read[0])} {when(read[0]['contrast'], known)}"


def when(contrast: str, known: Mapping[str, Contrast]) -> str:
    """The move of a contrast, as the end of a sentence."""
    about = known[contrast].about if contrast in known else "a contrast"
    return WHEN.get(contrast) or f"under {contrast} ({about})"


def lean_text(row: Record, contrast: Contrast) -> str:
    """The direction of flips, if the core shows one: the end, and the flips towards it."""
    towards = lean(row, contrast)
    if not towards:
        return ""
    if row["moved_up"] is None:  # classes without an order: what is left is the slot
        return f"mostly {'towards' if row['leans'] == 'up' else 'away from'} the {towards}"
    up, down = row["moved_up"], row["moved_down"]
    k = up if row["leans"] == "up" else down
    if not up + down:  # decimal scores that move, none of them by enough to be a flip
        return f"drifts towards the {towards}, within the tolerance"
    if k == up + down:
        return f"all {k:,} towards the {towards}" if k > 1 else f"towards the {towards}"
    return f"mostly towards the {towards} ({k:,} of {up + down:,})"


def lean(row: Record, contrast: Contrast) -> str:
    """The end that flips lean to, "" where no direction is shown."""
    is_up = row["leans"] == "up"
    if not row["leans"] or POLARITY in str(row["reason"]):
        return ""
    if row["moved_up"] is None:
        return FIRST
    if contrast.reverses_labels:
        # A list reversed puts the higher class first: up is towards what stands first there.
        return FIRST if is_up else LAST
    if contrast.swaps_answers and row["up_is_first"] is not None:
        return SHOWN_FIRST if is_up == row["up_is_first"] else SHOWN_SECOND
    lower, higher = (LOWER_SCORES, HIGHER_SCORES) if row["decimal"] else (LOWER, HIGHER)
    return higher if is_up else lower


def _stability_bound_text(row: Record) -> str:
    """The evidence for a stable rater: its one-sided bound, if its interval reaches the margin."""
    most = f"at most {percent(max(row['upper'], 0.0))}"
    what = {
        "rate": most,
        "excess": f"{most} beyond noise",
        "drift": f"scores move one way in {most} more of the pairs than the other",
    }
    found = what.get(row["bound_on"], f"class shares move by {most}")
    return f"{found} (one-sided {whole_percent(1 - row['alpha'])})"


def _noise_sentence(row: Record) -> str:
    if row["is_reproducible"]:
        return "its replies are reproducible"
    if row["noise"] is None:
        return "its own noise was not measured"
    return f"its own noise is {short_percent(row['noise'])} %"


def _ended_rate(row: Record) -> str:
    ends = f"[{short_percent(row['low'])}, {short_percent(row['high'])}]"
    return f"{short_percent(row['value'])} % {ends}"


OVERRIDE = {"follows": "follow the flipped words", "keeps": "keep the meaning", "other": "neither"}


def reading_lines(estimates: pl.DataFrame) -> list[str]:
    """One sentence for every rater with word labels on a dataset, level and seed."""
    is_reading = pl.col("metric").str.contains("_semantic$|_position$|_position:|_override:")
    rows = estimates.filter(is_reading, policy="complete")
    lines = []
    for key, group in rows.group_by(*KEYS, maintain_order=True):
        by_metric = {row["metric"]: row for row in group.to_dicts()}
        names = [name.removesuffix("_semantic") for name in by_metric if "_semantic" in name]
        where = " · ".join(str(part) for part in key[:3] if part)
        lines += [
            f"{where} · seed {key[3]} · {_reading_sentence(name, by_metric)}" for name in names
        ]
    return lines


def _reading_sentence(name: str, rows: Mapping[str, Record]) -> str:
    meaning, position = rows[f"{name}_semantic"], rows[f"{name}_position"]
    unmoved = rows.get(f"{name}_position:unmoved")
    parts = [
        f"{name} of words: by meaning {interval(meaning)}",
        f"by position {interval(position)}",
    ]
    if unmoved is not None:
        parts[1] += f", where a model that ignores the order gets {interval(unmoved)}"
    parts.append("by position is not comparable with identifier formats")
    if meaning["mode"] == "paper":
        parts.append("the tables show the one by position, tests and verdicts are by meaning")
    shares = {end: rows.get(f"{name}_override:{end}") for end in OVERRIDE}
    told = [f"{interval(row)} {OVERRIDE[end]}" for end, row in shares.items() if row]
    return "; ".join([*parts, ", ".join(told)] if told else parts)
