"""Files from somebody who wishes us ill: each ends in one message, soon and in little memory."""

from __future__ import annotations

import math
import re
import sqlite3
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from bounded import CPU_SECONDS, bounded
from conftest import Cli
from flipmeter import documents as reading_limits
from flipmeter.ask.prices import read_prices
from flipmeter.ask.store import Store
from flipmeter.bridge.logs import open_log
from flipmeter.choose.card import EstimateEntry, read_card
from flipmeter.choose.gate import read_gate
from flipmeter.data.files import load_file
from flipmeter.errors import Problem
from flipmeter.parquet import _unpacked, check_parquet
from flipmeter.prompt import parsing as extraction
from flipmeter.prompt.parsing import check as check_extract
from flipmeter.prompt.parsing import extract
from flipmeter.prompt.template import Listed, Template
from flipmeter.run.folder import check_table
from flipmeter.run.generation import FORMAT
from flipmeter.run.predictions import read_predictions
from flipmeter.stats.conclude import verdict
from flipmeter.stats.estimates import phase0_table
from flipmeter.stats.formulas import wilson
from flipmeter.stats.limits import Limit, hold_limits
from flipmeter.study.file import read_study
from flipmeter.types import Extract, Item, Label, Scale, Task
from report_runs import simulated

Write = Callable[[str, str], Path]

STUDY = "models: sim/honest\ndatasets: reviews\n"
READERS: Mapping[str, Callable[[Path], object]] = {
    "study": read_study,
    "gate": read_gate,
    "card": read_card,
    "prices": read_prices,
}


def laughs(start: str, line: str, n_lines: int = 40) -> str:
    """A YAML file in which every line doubles the one before."""
    return start + "".join(line.format(n=n, m=n - 1) for n in range(1, n_lines))


BOMBS = {
    "aliases in lists": laughs("a0: &a0 [x, x]\n", "a{n}: &a{n} [*a{m}, *a{m}]\n"),
    "aliases in mappings": laughs("a0: &a0 {k: x}\n", "a{n}: &a{n} {{k: *a{m}, l: *a{m}}}\n"),
    "merge keys": laughs("a0: &a0 {k0: x}\n", "a{n}: &a{n} {{<<: [*a{m}, *a{m}], k{n}: x}}\n"),
    "an alias of itself": "a: &a [*a]\n",
    "an alias of nothing": "a: *b\n",
    "lists in lists": "a: " + "[" * 100_000,
    "closed lists in lists": "a: " + "[" * 500 + "]" * 500,
    "mappings in mappings": "".join(f"{' ' * n}a:\n" for n in range(300)),
    "many values": "a: [" + "1," * 2_000_000 + "]\n",
    "many keys": "".join(f"k{n}: 1\n" for n in range(200_000)),
    "a long number": f"a: {'9' * 5_000}\n",
    "a long number in base 60": f"a: 1{':0' * 200_000}\n",
    "a large number": f"a: 0x{'f' * 80}\n",
    "not a number": "a: .nan\n",
    "an infinity": "a: [1, {b: -.inf}]\n",
    "no boolean": "a: !!bool x\n",
    "no integer": "a: !!int ''\n",
    "no time": "a: !!timestamp x\n",
    "a date": "a: 2024-01-01\n",
    "a set": "a: !!set {x, y}\n",
    "bytes": "a: !!binary aGVsbG8=\n",
    "an object": "a: !!python/object/apply:os.system [true]\n",
    "half a character": 'a: "\\uD800"\n',
    "two documents": "a: 1\n---\na: 2\n",
    "a NUL": "a: \0\n",
    "a key of a list": "? [a, b]\n: 1\n",
    "nothing": "",
    "a text": "hello\n",
    "17 MB": "a: " + "x" * 17_000_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("reader", READERS)
def test_hostile_yaml_ends_in_one_message(reader: str, bomb: str, write: Write) -> None:
    path = write("file.yaml", BOMBS[bomb])
    with bounded(), pytest.raises(Problem) as raised:
        READERS[reader](path)
    assert "file.yaml" in str(raised.value)
    assert len(str(raised.value)) < 2000


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" + "[]," * 2_000_000 + "[]]", '{"data": 1e999}']
)
def test_a_hostile_price_list_ends_in_one_message(text: str, write: Write) -> None:
    with bounded(), pytest.raises(Problem, match=r"p\.json"):
        read_prices(write("p.json", text))


def test_what_is_set_on_the_command_line_is_bounded_too(cli: Cli) -> None:
    for value in ("[" * 5_000, "9" * 5_000, ".nan", "!!timestamp x"):
        code, _, err = cli("plan", "demo", "--set", f"margin={value}")
        assert (code, err.count("Traceback")) == (2, 0)


def test_a_study_in_python_may_not_hold_itself() -> None:
    content: dict[str, Any] = {"models": "sim/honest", "datasets": "reviews"}
    content["base"] = content
    with pytest.raises(Problem, match="refers to itself"):
        read_study(content)


def test_long_texts_and_shared_values_are_fine(write: Write) -> None:
    text = "x" * 100_000
    plain = write("s.yaml", f"{STUDY}name: &n long\nvary: {{}}\ncriteria: [{text}, *n]\n")
    assert read_study(plain).criteria == [text, "long"]


# --- numbers that mean something else ---------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.95, 0.51, 1, 0, -0.05, math.nan, math.inf])
def test_an_alpha_that_is_no_error_rate_is_refused(alpha: float) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: read_gate({"alpha": alpha, "flips": 0.7}),
        lambda: verdict([[1, 2]], alpha=alpha),
        lambda: hold_limits(None, (), {("r", "d", ""): [Limit("flips", "P1", 0.1)]}, alpha=alpha),  # type: ignore[arg-type]
        lambda: phase0_table(None, alpha=alpha),  # type: ignore[arg-type]
    )
    for call in calls:
        with pytest.raises(Problem, match="alpha"):
            call()


def test_a_gate_with_a_confidence_for_alpha_is_told_what_was_meant(write: Write) -> None:
    with pytest.raises(Problem, match=r"gate\.yaml: alpha is 0\.95.*did you mean 0\.05\?"):
        read_gate(write("gate.yaml", "alpha: 0.95\nflips: 0.70\n"))


def test_an_interval_of_a_level_that_is_an_error_is_told_what_was_meant() -> None:
    with pytest.raises(Problem, match=r"did you mean 0\.95\?"):
        wilson(1, 4, level=0.05)


@pytest.mark.parametrize(
    "change",
    [
        {"base": {"cardinality": 1}},
        {"base": {"cardinality": True}},
        {"base": {"cardinality": -3}},
        {"base": {"shots": -1}},
        {"seeds": [-1]},
        {"margin": math.nan},
        {"margin": 1},
        {"min_interval": math.inf},
        {"budget": {"usd": math.nan}},
        {"decoding": {"temperature": math.inf}},
        {"models": [{"model": "sim/honest", "timeout": math.inf}]},
        {"models": [{"model": "sim/honest", "extra_body": {"x": [math.nan]}}]},
        {"test_size": 10**30},
    ],
    ids=str,
)
def test_a_number_that_means_nothing_is_refused(change: Mapping[str, Any]) -> None:
    with pytest.raises(Problem):
        read_study({"models": "sim/honest", "datasets": "reviews", **change})


def test_more_classes_than_the_scale_has_are_refused(cli: Cli) -> None:
    code, _, err = cli("try", "demo", "--dry", "--set", "base.cardinality=9")
    assert code == 2
    assert "cannot be merged to 9" in err


def test_an_interval_the_wrong_way_round_is_refused() -> None:
    with pytest.raises(Problem, match="must be in order"):
        EstimateEntry(value=0.5, low=0.6, high=0.4)


@pytest.mark.parametrize(
    "arguments",
    [
        ("confirm", "card.yaml", "--items", "0"),
        ("plan", "demo", "--rate", "inf"),
    ],
    ids=" ".join,
)
def test_an_option_that_means_nothing_is_refused(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli(*arguments)[0] == 2


# --- prompt files -----------------------------------------------------------------------------

ITEM = Item("i", {"text": "A text\nof two lines."}, 1)
TASK = Task(Scale(("low", "high")))
DOUBLED = "{% set ns = namespace(x='ab') %}{% for i in range(64) %}"
HOSTILE = {
    "nested ranges": "{% for a in range(99999) %}{% for b in range(99999) %}"
    "{% endfor %}{% endfor %}",
    "a loop that skips all": "{% for a in range(9999) %}{% for b in range(99999) if false %}"
    "{% endfor %}{% endfor %}",
    "a loop in a macro": "{% macro m() %}{% for a in range(99999) %}" + "x" * 5000 + "{% endfor %}"
    "{% endmacro %}{{ m() }}",
    "ranges as lists": "{% for a in range(9999) %}{% set x = range(99999)|list %}{% endfor %}",
    "a power": "{{ 10**5000000 }}",
    "a power of a power": "{{ 9**9**9**9**9 }}",
    "a product of numbers": "{% set ns = namespace(x=9) %}{% for i in range(64) %}"
    "{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "a width": "{{ 'a'|center(10**9) }}",
    "a width of a method": "{{ 'a'.center(10**9) }}",
    "a width of ljust": "{{ 'a'.ljust(1000000000) }}",
    "a mapped width": "{{ ['a']|map('center', 10**9)|list }}",
    "zeros": "{{ 'a'.zfill(10**9) }}",
    "a repeated text": "{{ 'a' * 10**9 }}",
    "a repeated list": "{{ [1] * 10**9 }}",
    "repeated backwards": "{{ 10**9 * 'a' }}",
    "a printf width": "{{ '%1000000000d' % 1 }}",
    "a printf precision": "{{ '%.1000000000f' % 1.5 }}",
    "a printf star": "{{ '%*d' % (10**9, 1) }}",
    "a format filter": "{{ '%1000000000d'|format(1) }}",
    "a format width": "{{ '{:1000000000}'.format(1) }}",
    "a computed format width": "{{ '{:{w}}'.format(1, w=10**9) }}",
    "many fields": "{% set x = 'a' * 9999 %}{{ ('{0}' * 9999).format(x) }}",
    "many printf fields": "{% set x = 'a' * 9999 %}{{ ('%(a)s' * 9999) % {'a': x} }}",
    "tabs": "{{ ('\\t' * 9999).expandtabs(999999) }}",
    "an indent": "{{ ('a\n' * 9999)|indent(999999) }}",
    "replacements": "{{ ('a' * 9999)|replace('a', 'b' * 9999) }}",
    "replacements by a method": "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
    "a join": "{{ range(99999)|join('a' * 9999) }}",
    "a join by a method": "{{ ('a' * 9999).join(('b' * 9999)|list) }}",
    "doubled by ~": DOUBLED + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "doubled by +": DOUBLED + "{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "doubled by a block": DOUBLED + "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
    "doubled lists": DOUBLED + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "doubled lists joined": DOUBLED + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x ~ '' }}",
    "doubled lists as a text": DOUBLED + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
    "{{ ns.x|string }}",
    "doubled lists compared": DOUBLED + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
    "{{ ns.x == ns.x[0] }}",
    "doubled lists as JSON": DOUBLED + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
    "a macro of itself": "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "a macro twice itself": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}"
    "{% endmacro %}{{ m(60) }}",
    "batches": "{{ [1]|batch(10**9, 'x')|list }}",
    "slices": "{{ [1]|slice(10**9)|list }}",
    "brackets": "{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}",
    "sums": "{{ " + "1+" * 9000 + "1 }}",
    "many tags": "{{ 1 }}" * 100_000,
    "blocks in blocks": "{% for a in [1] %}" * 60 + "{% endfor %}" * 60,
    "conditions in conditions": "{% if 1 %}" * 900 + "{% endif %}" * 900,
    "a long number": "{{ " + "9" * 5000 + " }}",
    "random": "{{ [1, 2, 3]|random }}",
    "random by map": "{{ [[1, 2]]|map('random')|list }}",
    "lipsum": "{{ lipsum() }}",
    "a generator": "{{ [1]|map('abs') }}",
    "a generator as a text": "{{ [1]|map('abs')|string }}",
    "a generator joined": "{{ [1]|map('abs') ~ '' }}",
    "a function": "{{ text.upper }}",
    "a formatted function": "{{ '%s' % text.upper }}",
    "a macro": "{% macro m() %}{% endmacro %}{{ m }}",
    "a file": "{% include '/etc/passwd' %}",
    "a class": "{{ text.__class__.__mro__ }}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_prompt_file_ends_in_one_message(kind: str) -> None:
    with bounded(), pytest.raises(Problem, match=r"p\.txt"):
        Template(HOSTILE[kind] + "{{ text }}", "p.txt").check(ITEM, TASK)


def test_an_ordinary_prompt_file_may_use_all_of_the_language() -> None:
    source = """\
{% for label in labels %}{{ loop.index }}/{{ loop.length }} {{ label.text }}
{{- ", " if not loop.last }}
{% endfor %}
{% for demo in demos %}{{ demo.text|indent(2)|upper }} -> {{ demo.label }}
{%- if loop.index is divisibleby 2 %}!{% endif %}
{% endfor %}
{{ text[:6] }} {{ labels|map(attribute="text")|join("-") }}
{{ text|replace("two", "2") }} {{ text ~ "!" }} {{ labels }}
{% if "lines" in text and text|length > 3 %}{{ text|truncate(9) }}{% endif %}
"""
    template = Template(source, "p.txt")
    template.check(ITEM, TASK)
    said = template.messages(
        {
            "text": ITEM.text,
            "labels": Listed("1, 2", (Label(1, "1", "low", 1), Label(2, "2", "high", 2))),
            "demos": (SimpleNamespace(text="one\ntwo", label="1"),) * 2,
        }
    )
    assert said[0].content == (
        "1/2 1, \n2/2 2\nONE\n  TWO -> 1ONE\n  TWO -> 1!A text 1-2\n"
        "A text\nof 2 lines. A text\nof two lines.! 1, 2\nA..."
    )


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{% set x = text %}", "line 1: assign is not allowed in a prompt file"),
        ("{% macro m() %}{% endmacro %}", "macro is not allowed"),
        ("{{ 7 * 7 }}", "mul is not allowed"),
        ("{{ text.upper() }}", "call is not allowed"),
        ("{{ text|center(9) }}", "No filter named 'center'"),
        ("{{ text|truncate(labels) }}", "a computed argument of truncate"),
        ("{% for c in text %}{% endfor %}", "only labels, demos, .* can be looped over"),
        (
            "{% for d in demos %}\n{% for e in demos %}{% endfor %}{% endfor %}",
            "a loop inside a loop",
        ),
        ("{{ text|trim|lower|upper|trim|lower }}", "more than 4 filters in a row"),
    ],
)
def test_what_is_outside_of_the_language_is_named(source: str, why: str) -> None:
    with pytest.raises(Problem, match=why):
        Template(source + "{{ text }}", "p.txt")


def test_a_long_text_and_many_demonstrations_are_no_matter_for_a_prompt_file() -> None:
    source = "{% for demo in demos %}{{ demo.text|trim|lower }}{% endfor %}{{ text|trim|upper }}"
    demos = (SimpleNamespace(text="x" * 10_000, label="1"),) * 100
    said = Template(source).messages({"text": "y" * 100_000, "demos": demos})
    assert len(said[0].content) == 1_100_000


# --- tables -----------------------------------------------------------------------------------

TABLES: dict[str, str | bytes] = {
    "endless line.csv": "text,label\n" + "a" * 9_000_000,
    "open quote.csv": 'text,label\n"' + "a\n" * 5_000_000,
    "many columns.csv": "a," * 3_000_000,
    "same columns.tsv": "a\t" * 9_000 + "\n",
    "deep.jsonl": '{"text": ' + "[" * 200_000,
    "values.jsonl": '{"text": [' + "[]," * 2_500_000 + "[]]}",
    "number.jsonl": '{"text": ' + "9" * 10_000 + "}",
    "utf-16.csv": "text,label\n".encode("utf-16"),
    "noise.csv": bytes(range(256)) * 100,
    "noise.parquet": bytes(range(256)) * 100,
    "magic.parquet": b"PAR1" + b"\xff" * 1000 + b"\xe8\x03\0\0PAR1",
    "empty.parquet": b"",
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("reader", [load_file, read_predictions])
def test_a_hostile_table_ends_in_one_message(
    reader: Callable[..., object], name: str, tmp_path: Path
) -> None:
    content, path = TABLES[name], tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with bounded(), pytest.raises(Problem, match=re.escape(name)):
        reader(path, scale=["low", "high"])


def repeated(text: str, n: int) -> pl.LazyFrame:
    return pl.LazyFrame({"a": [1]}).select(pl.repeat(text, n).alias("text"))


LIST = pl.List(pl.Int64)
PARQUET_BOMBS: Mapping[str, Callable[[], pl.LazyFrame]] = {
    "rows": lambda: repeated("a", 10_000_000),
    "one text": lambda: repeated("a" * 100_000, 5_000),
    "zeros": lambda: pl.LazyFrame({"text": ["0" * 70_000_000]}),
    "a list": lambda: pl.LazyFrame({"text": np.zeros((1, 9_000_000), np.int64)}).cast(LIST),
}


@pytest.mark.parametrize("kind", PARQUET_BOMBS)
def test_a_parquet_file_that_unpacks_to_far_more_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    PARQUET_BOMBS[kind]().with_columns(label=pl.lit("low")).sink_parquet(path)
    assert path.stat().st_size < 2_000_000
    with bounded(), pytest.raises(Problem, match=r"t\.parquet.*unpack"):
        load_file(path, scale=["low", "high"])


def test_decisions_of_many_raters_on_shared_prompts_are_read(tmp_path: Path) -> None:
    """They compress far better than a table of texts: 30 raters, 36 levels and ten items."""
    one = simulated(tmp_path / "run", test_size=3, probes=["label_order"]).decisions.head(1)
    n, chance = 200_000, np.random.default_rng(0)
    rows = one[np.zeros(n, np.int64)].with_columns(
        rank=pl.Series(chance.integers(1, 6, n)).cast(one["rank"].dtype),
        item=pl.Series(chance.integers(0, 500, n)).cast(pl.String),
    )
    path = tmp_path / "decisions.parquet"
    rows.write_parquet(path)
    assert check_table(path, FORMAT) == path
    with pytest.raises(Problem, match="unpack"):
        check_parquet(path)


def test_what_a_parquet_file_unpacks_to_is_read_from_its_footer(tmp_path: Path) -> None:
    texts = [f"text {n} of some words" for n in range(3_000)]
    pl.DataFrame({"text": texts, "n": range(3_000)}).write_parquet(tmp_path / "t.parquet")
    with (tmp_path / "t.parquet").open("rb") as file:
        n_values, n_bytes = _unpacked(file, (tmp_path / "t.parquet").stat().st_size)
    assert n_values >= 6_000
    assert n_bytes > sum(map(len, texts))


def test_a_text_of_a_hundred_thousand_characters_is_read(tmp_path: Path) -> None:
    rows = [{"text": f"{n}" + "long " * 20_000, "label": label} for n, label in enumerate("ab" * 3)]
    table = pl.DataFrame(rows)
    for name, write in {
        "t.csv": table.write_csv,
        "t.jsonl": table.write_ndjson,
        "t.parquet": table.write_parquet,
    }.items():
        write(tmp_path / name)  # type: ignore[operator]
        assert len(load_file(tmp_path / name, scale=["a", "b"]).test) == 6


def test_a_zip_bomb_in_a_log_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b"0" * 80_000_000)
    with bounded(), pytest.raises(Problem, match=r"log\.eval would unpack"):
        open_log(path)


# --- patterns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(\w+\s?)+$", "word " * 2_000 + "!"),
        (r"(a|aa)+$", "a" * 5_000 + "!"),
        (r"(.*?,){25}P", "1," * 3_000),
    ],
)
def test_a_pattern_that_backtracks_ends(
    pattern: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reading_limits.PATTERN_SECONDS < CPU_SECONDS
    monkeypatch.setattr(extraction, "PATTERN_SECONDS", 0.2)
    with bounded(), pytest.raises(Problem, match=r"0\.2 s"):
        extract(text, Extract(regex=pattern))


@pytest.mark.parametrize(
    "pattern", ["(" * 4_000, "(?P<x>a", "a" * 6_000, "a{9999999999999}", "[z-a]"]
)
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with bounded(), pytest.raises(Problem, match="answer: "):
        check_extract(Extract(regex=pattern))


# --- stores -----------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


@pytest.mark.parametrize(
    "script",
    [
        f"DROP TABLE replies; CREATE VIEW replies AS {ENDLESS};",
        "CREATE TRIGGER t AFTER INSERT ON texts BEGIN DELETE FROM replies; END;",
        "CREATE TABLE more (a, b GENERATED ALWAYS AS (zeroblob(900000000)));",
        "CREATE VIRTUAL TABLE words USING fts5(a);",
    ],
)
def test_a_store_with_programs_in_it_is_refused(script: str, tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    Store(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)
    with bounded(), pytest.raises(Problem, match=r"s\.sqlite"):
        Store(path)
