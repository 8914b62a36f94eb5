"""Findings -> the headline: how many are stable, what is worst, and what to use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from flipmeter.choose.select import Choice, shown_configuration, worst_flips
from flipmeter.show.estimate_tables import beyond_text
from flipmeter.show.format import Record, count, interval, percent, whole_percent
from flipmeter.show.sentences import Sentence, lean, when
from flipmeter.types import JUDGED, Contrast, Estimate

ARE = {
    "stable": ("is stable", "are stable"),
    "flips": ("flips", "flip"),
    "unreadable": ("is unreadable", "are unreadable"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "not identified": ("cannot be measured", "cannot be measured"),
}


MOST_NAMED = 3
"""Rows that a line names before it only counts them."""


@dataclass(frozen=True)
class Phrase:
    """A phrase of a line; a name is set off from the words around it."""

    text: str
    is_name: bool = False


Line = Sequence[Phrase]


def plain(line: Line) -> str:
    """A line as one text."""
    return "".join(part.text for part in line)


def whose(verdicts: pl.DataFrame) -> tuple[str, ...]:
    """The units of a headline: configurations, raters or datasets."""
    n = {key: verdicts[key].n_unique() for key in ("rater", "level", "dataset")}
    if n["level"] > 1:
        return ("rater", "level")
    return ("dataset",) if n["rater"] == 1 and n["dataset"] > 1 else ("rater",)


@dataclass(frozen=True)
class Headline:
    """The summary of a run: verdicts adjusted over all their rows, and the recommendation.

    `words` are the core's (Holm over all rows), one per unit; `verdicts` are their rows, worst
    first.
    """

    words: pl.DataFrame
    verdicts: pl.DataFrame
    contrasts: Mapping[str, Contrast]
    sentences: Sequence[Sentence]
    choices: Sequence[Choice]
    unrated: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        words: pl.DataFrame,
        verdicts: pl.DataFrame,
        contrasts: Sequence[Contrast],
        sentences: Sequence[Sentence],
        choices: Sequence[Choice] = (),
        unrated: Sequence[str] = (),
    ) -> Headline:
        """The headline over the rows that `words` speak of: all levels, or the base alone."""
        spoken_of = verdicts if "level" in words.columns else verdicts.filter(level="")
        known = {contrast.name: contrast for contrast in contrasts}
        return cls(words, spoken_of, known, sentences, choices, unrated)

    @property
    def keys(self) -> list[str]:
        return [name for name in self.words.columns if name in ("rater", "level", "dataset")]

    @property
    def lines(self) -> list[Line]:
        """The answer: counts with the worst, who is missing from them, then what to use."""
        names = ", ".join(self.unrated)
        missing = [[Phrase(f"Not rated, because the run stopped early: {names}.")]] if names else []
        return [*self._found(), *missing, *self._uses()]

    def _found(self) -> Iterator[Line]:
        if len(self.words) == 1:
            sentence = self.sentences[0]
            is_open = sentence.word in ("stable", "inconclusive")
            told = f" is {sentence.word}: it" if is_open else ""
            yield [Phrase(sentence.rater, is_name=True), Phrase(f"{told} {sentence.text}.")]
            return
        yield [Phrase(self._counts()), *self._worst()]
        yield from ([Phrase(line)] for line in self._left_out())

    def _counts(self) -> str:
        n = dict(self.words.group_by("word_among").len().iter_rows())
        total, stable = len(self.words), n.pop("stable", 0)
        noun = self.keys[0] if len(self.keys) == 1 else "configuration"
        others = [f"{n[word]} {are[n[word] > 1]}" for word, are in ARE.items() if word in n]
        if noun == "dataset":
            others = [f"{word} on {n[word]}" for word in ARE if word in n]
            told = f"Stable on {stable} of {total} datasets"
        elif not others:
            told = f"All {total} {noun}s are stable"
        else:
            told = f"{stable or 'None'} of {total} {noun}s {ARE['stable'][stable > 1]}"
        n_datasets = self.verdicts["dataset"].n_unique()
        several = "both" if n_datasets == 2 else f"all {n_datasets}"
        is_told = n_datasets < 2 or "dataset" in self.keys
        where = "" if is_told else f" on {several} datasets"
        return f"{told}{where}" + (f"; {', '.join(others)}" if others else "") + "."

    def _worst(self) -> Iterator[Phrase]:
        """The worst row, of those that the worst word of all rests on."""
        row = self._lead()
        if row is None:
            return
        moved = when(row["contrast"], self.contrasts)
        is_bad = row["word"] in ("flips", "unreadable")
        beyond = " beyond noise" if self._is_beyond_noise(row) else ""
        yield Phrase(f" The worst{beyond} is " if is_bad else f" Largest{beyond}: ")
        yield Phrase(self._name(row), is_name=True)
        if row["word"] == "unreadable" or row["value"] is None:
            yield Phrase(f": {percent(row['unreadable'] or 0)} of pairs are unreadable {moved}.")
            return
        towards = lean(row, self.contrasts[row["contrast"]])
        way = f", mostly towards the {towards}" if towards else ""
        yield Phrase(f": {interval(row)} of answers flip {moved}{way}{_noise_clause(row)}.")

    def _is_beyond_noise(self, row: Record) -> bool:
        """Whether noise is subtracted from the row, or from one whose rate is higher."""
        if row["word"] == "unreadable" or row["value"] is None:
            return False
        higher = self.verdicts.filter(pl.col("value") > row["value"])["noise"]
        own = row["noise"] and row["value"] > row["noise"]
        return bool(own or (higher > 0).any())

    def _lead(self) -> Record | None:
        shown = self.words.select(*self.keys, among="word_among")
        rows = self.verdicts.filter(pl.col("status").is_in(JUDGED)).join(
            shown, on=self.keys, maintain_order="left"
        )
        own = rows.filter(pl.col("word") == pl.col("among"))
        found = own if len(own) else rows
        return found.row(0, named=True) if len(found) else None

    def _name(self, row: Record) -> str:
        several = [key for key in ("rater", "level") if self.verdicts[key].n_unique() > 1]
        parts = [str(row[key]) or "base" for key in several] or [str(row["rater"])]
        on = f" on {row['dataset']}" if self.verdicts["dataset"].n_unique() > 1 else ""
        return " · ".join(parts) + on

    def _left_out(self) -> Iterator[str]:
        """Name the rows that flip, or are stable, by themselves and not in the counts."""
        alone = self.words.filter(pl.col("alone").list.len() > 0)
        if len(alone):
            n = len(self.verdicts.filter(pl.col("status").is_in(JUDGED)))
            flip = "flip by their own tests" if len(alone) > 1 else "flips by its own test"
            yield (
                f"Not in these counts: {self._first_of(alone)}, which {flip} but not after Holm's "
                f"correction over all {count(n)} rows."
            )
        unsure = self.words.filter(pl.col("word") == "stable", pl.col("word_among") != "stable")
        if len(unsure):
            own = (
                "are stable by their own tests" if len(unsure) > 1 else "is stable by its own test"
            )
            named = self._first_of(unsure.drop("alone"))
            yield (
                f"Not counted as stable: {named}, which {own} but not after Holm's "
                f"correction over all {count(len(self.words))}."
            )

    def _first_of(self, rows: pl.DataFrame) -> str:
        """The first rows by what tells them apart, each with the contrasts that flip alone."""
        keys = [key for key in self.keys if self.words[key].n_unique() > 1]
        names = [
            " · ".join(str(row[key]) or "base" for key in keys)
            + (f" ({', '.join(row['alone'])})" if "alone" in row else "")
            for row in rows.head(MOST_NAMED).to_dicts()
        ]
        more = f" and {len(rows) - MOST_NAMED} more" if len(rows) > MOST_NAMED else ""
        return f"{', '.join(names)}{more}"

    def _uses(self) -> Iterator[Line]:
        compared = [c for c in self.choices if not c.trouble and len(c.standings) > 1]
        for same in together(compared):
            yield [Phrase("Use "), *used_parts(same, len(self.choices))]
        nothing = [choice for choice in compared if choice.chosen is None]
        is_read = (self.words["word_among"] != "unreadable").any()
        if nothing and is_read:  # that nothing could be read was said before
            some = f" on {', '.join(one.dataset for one in nothing)}" if len(compared) > 1 else ""
            is_all = nothing == compared and len(compared) > 1
            yield [Phrase(none_shown(nothing[0], " on any dataset" if is_all else some))]


def together(choices: Sequence[Choice]) -> list[list[Choice]]:
    """Choices of the same configuration on several datasets, those with most datasets first."""
    found: dict[tuple[str, str], list[Choice]] = {}
    for choice in choices:
        if choice.chosen is not None:
            found.setdefault((choice.chosen.rater, choice.chosen.level), []).append(choice)
    return sorted(found.values(), key=len, reverse=True)


def where_used(same: Sequence[Choice], n_datasets: int) -> str:
    """The datasets that a configuration is chosen on, "" where there is only one."""
    if n_datasets == 1:
        return ""
    is_all = 1 < len(same) == n_datasets
    named = ", ".join(choice.dataset for choice in same)
    return f" on all {n_datasets} datasets" if is_all else f" on {named}"


def used_parts(same: Sequence[Choice], n_datasets: int) -> Iterator[Phrase]:
    """A chosen configuration with its score, and what it flips most under, over its datasets."""
    first = same[0]
    raters = {one.rater for one in first.standings}
    used = [(choice.chosen, choice.dataset) for choice in same if choice.chosen is not None]
    name = shown_configuration(used[0][0], several_raters=len(raters) > 1)
    yield Phrase(name, is_name=True)
    yield Phrase(f"{where_used(same, n_datasets)}: {first.by} ")
    by_score = sorted(used, key=lambda one: one[0].score.value)
    ends = [by_score[0], by_score[-1]] if len(used) > 1 else used
    on = [f" on {dataset}" if len(used) > 1 else "" for _, dataset in ends]
    scores = (shown(one.score, first.by) + on_it for (one, _), on_it in zip(ends, on, strict=True))
    yield Phrase(" to ".join(scores))
    flips = [found for one, _ in used if (found := worst_flips(one.flips))]
    if flips:
        contrast, worst = max(flips, key=lambda found: found[1].value)
        named = f"worst contrast {contrast}" if worst.value else "no flips under any contrast:"
        yield Phrase(f", {named} {shown(worst)}")
    yield Phrase(f" (intervals over all {len(first.standings)} compared).")


def none_shown(choice: Choice, where: str = "") -> str:
    """The sentence for a selection without a choice."""
    least = ", ".join(dict.fromkeys(map(whole_percent, choice.limits.values())))
    noun = "configuration" if any(one.level for one in choice.standings) else "rater"
    return (
        f"No {noun} is shown to flip less than {least} under every contrast{where}, noise "
        f"included (95 %, over all {len(choice.standings)} compared)."
    )


def shown(one: Estimate, by: str = "") -> str:
    """An estimate with its interval: a share in percent, an error in classes."""
    row = {"value": one.value, "low": one.low, "high": one.high}
    return interval(row, is_percent=by != "mae")


def _noise_clause(row: Record) -> str:
    if row["is_reproducible"] or row["noise"] is None:
        return ""
    beyond = beyond_text(row)
    return f", against noise of {percent(row['noise'])}" + (f" ({beyond} it)" if beyond else "")
