"""Choose the setting of the demo by a rule that was fixed before anything was asked.

    python benchmarks/demo_settings.py [--out FOLDER]

Twelve settings of the embedded model (raw text or chat template; two sets of class names; one
demonstration of a class, none, or a sentence to complete) rate 30 bundled reviews that the demo
does not use, with the label list in both orders. The score of a setting is the lower of its two
accuracies; the highest wins, the cheaper one of equals. The winner then rates the demo's own 60
reviews under every view. It is competent if the lower 95 % end of accuracy is above chance in all.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipmeter import Run, Study
from flipmeter.report.table import markdown_table
from flipmeter.study.grid import conditions
from flipmeter.types import Condition, Item

EMBEDDED = "local/smollm2-135m"
NAMES = (("negative", "neutral", "positive"), ("bad", "okay", "good"))
CHANCE = 1 / 3
BASE: dict[str, Any] = {"label_format": "natural_language", "cardinality": 3, "shots": 1}
COMPLETED = """\
{% for demo in demos %}
Review: {{ demo.text }}
In one word from [{{ labels }}], this review is {{ demo.label }}

{% endfor %}
Review: {{ text }}
In one word from [{{ labels }}], this review is
"""


@dataclass(frozen=True)
class Setting:
    """Interface, class names and form of the prompt."""

    interface: str
    names: tuple[str, ...]
    form: str

    def __str__(self) -> str:
        return f"{self.interface}, {'/'.join(self.names)}, {self.form}"

    def study(
        self, items: Path, n_items: int, demos: Path, probes: Sequence[str], prompt: Path
    ) -> Study:
        is_bare = self.form == "no demonstrations"
        low, _, high = self.names
        words = {"title": "Sentiment Classification", "noun": "Sentence", "aspect": "sentiment"}
        task = {**words, "low": low, "high": high}
        data = {"file": str(items), "scale": list(self.names), "id": "id", "task": task}
        return Study(
            name="setting",
            models=[{"model": EMBEDDED, "interface": self.interface}],
            datasets=[data],
            seeds=[0],
            test_size=n_items,
            probes=list(probes),
            repeats=1,
            base={"label_format": "natural_language", "shots": 0 if is_bare else 1},
            **({} if is_bare else {"demos": {"file": str(demos)}}),
            **({"prompt": str(prompt)} if self.form == "completion" else {}),
            decoding={"temperature": 0, "max_tokens": 8},
        )


def settings() -> Iterator[Setting]:
    for interface in ("completions", "chat"):
        for names in NAMES:
            for form in ("one demonstration", "no demonstrations", "completion"):
                yield Setting(interface, names, form)


def drawn(n_items: int) -> Condition:
    """The demo's first items and demonstrations, with the seed 0."""
    probes = ["label_order"]
    study = Study(
        models=["sim/honest"],
        datasets=["reviews"],
        seeds=[0],
        test_size=n_items,
        probes=probes,
        base=BASE,
    )
    return conditions(study)[0]


def written(path: Path, items: Sequence[Item], names: Sequence[str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text", "label"])
        rows.writerows([one.id, one.fields["text"], names[(one.gold or 1) - 1]] for one in items)
    return path


def accuracies(run: Run) -> dict[str, dict[str, Any]]:
    """Accuracy by view; an unreadable answer is a wrong one."""
    rows = run.estimates.filter(metric="accuracy", policy="strict")
    return {row["view"]: row for row in rows.to_dicts()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/demo-settings"))
    asked = parser.parse_args()
    out: Path = asked.out
    out.mkdir(parents=True, exist_ok=True)
    prompt = out / "completed.md"
    prompt.write_text(COMPLETED, encoding="utf-8")
    own, more = drawn(60), drawn(90)
    known = {item.id for item in own.items}
    spare = [item for item in more.items if item.id not in known]

    rows = [["setting", "lower accuracy of both label lists", "natural", "reversed", "tokens"]]
    scored: list[tuple[float, float, Setting]] = []
    for number, setting in enumerate(settings()):
        items = written(out / "spare.csv", spare, setting.names)
        demos = written(out / "demos.csv", own.demos, setting.names)
        run = setting.study(items, len(spare), demos, ["label_order"], prompt).run(
            out / f"setting-{number}", anyway=True
        )
        found = [row["value"] for row in accuracies(run).values()]
        tokens = float(run.decisions["prompt_tokens"].mean() or 0)  # type: ignore[arg-type]
        scored.append((min(found), -tokens, setting))
        numbers = [f"{value:.2f}" for value in (min(found), *found)]
        rows.append([str(setting), *numbers, f"{tokens:.0f}"])
        print(" | ".join(rows[-1]), flush=True)
    print(f"\n{len(spare)} reviews that the demo does not use\n\n{markdown_table(rows)}\n")

    best = max(scored, key=lambda one: one[:2])[2]
    items = written(out / "own.csv", own.items, best.names)
    demos = written(out / "demos.csv", own.demos, best.names)
    probes = ["label_order"]
    if best.form != "no demonstrations":
        probes += ["demo_order"] + ["placement"] * (best.form != "completion")
    run = best.study(items, len(own.items), demos, probes, prompt).run(out / "winner", anyway=True)
    views = [["view", "accuracy [95 %]"]]
    by_view = accuracies(run)
    for view, row in by_view.items():
        views.append([view, f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"])
    is_competent = all(row["low"] > CHANCE for row in by_view.values())
    print(f"chosen: {best}; on the demo's {len(own.items)} reviews\n\n{markdown_table(views)}\n")
    print(f"above chance in every view: {'yes' if is_competent else 'no'}")


if __name__ == "__main__":
    main()
