"""Prompt file -> Prompt: words of the user's own, in which a view fills the named places.

The file is a Jinja2 template of names, `if`, one level of `for` and listed filters; a line
`--- system`, `--- user` or `--- assistant` begins a message. What an item says is put in as it is
and never read as a template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, get_args

from jinja2 import (
    StrictUndefined,
    TemplateError,
    TemplateSyntaxError,
    Undefined,
    meta,
    nodes,
    pass_context,
)
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from flipmeter.chance import n_shared
from flipmeter.documents import PROMPT_STEPS, PROMPT_STEPS_PER_CHARACTER, PROMPT_TOKENS
from flipmeter.errors import Problem
from flipmeter.prompt.judge import placed
from flipmeter.prompt.levels import HeaderParts, listed_labels
from flipmeter.registry import suggestion
from flipmeter.types import Head, Item, Label, Message, Places, Script, Speaker, Style, Task, View

LABELS, CRITERIA = "labels", "criteria"
DEMOS, BEFORE, AFTER = "demos", "demos_before", "demos_after"
OPTIONS = "options"
PLACES = (LABELS, DEMOS, BEFORE, AFTER, CRITERIA, OPTIONS)
"""The placeholders filled by a view; every other one is a field of the item."""

# No text holds a NUL, so none can begin a message of its own.
_TURN = "\0"
_SPEAKERS = "|".join(get_args(Speaker))
_MARK = re.compile(rf"^---[ \t]*({_SPEAKERS})[ \t]*$", re.MULTILINE)
_TURNS = re.compile(f"{_TURN}({_SPEAKERS}){_TURN}")
_UNKNOWN_MARK = re.compile(r"^---[ \t]*(\w+)[ \t]*$", re.MULTILINE)

_WRONG = (TemplateError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError)
# Python takes no template that nests too deeply, each version of it in its own way.
_TOO_DEEP = (RecursionError, SyntaxError, MemoryError)

T = TypeVar("T")


# --- the language of prompt files -------------------------------------------------------------

NODES = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Name),
    *(nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Const, nodes.Filter, nodes.Keyword),
    *(nodes.Test, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not),
    *(nodes.CondExpr, nodes.Concat, nodes.Tuple, nodes.Neg),
)
FILTERS = {
    *("capitalize", "count", "d", "default", "first", "indent", "join", "last", "length", "lower"),
    *("map", "replace", "string", "title", "tojson", "trim", "truncate", "upper", "wordcount"),
}
TESTS = {"defined", "divisibleby", "even", "in", "none", "odd", "string", "undefined"}
MOST_FILTERS = 4
"""Filters in a row."""
LONGEST_CONSTANT = 40
"""Characters of a text that a filter puts in, and columns that it indents."""

_left: ContextVar[int] = ContextVar("characters that a rendering may still read or write")


class TooMuch(SecurityError):
    """A template has what is not in the language, or makes more text than a prompt needs."""


def _charge_value(value: Any) -> Any:
    """Charge for a value that is printed or filtered; what prints differently each time is none."""
    if isinstance(value, Undefined):
        return str(value)  # which says what is undefined
    if callable(value) or isinstance(value, Iterator):
        raise TooMuch(f"this prints a {type(value).__name__}, which has no text of its own")
    left = _left.get() - len(value if isinstance(value, str) else str(value))
    if left < 0:
        raise TooMuch("this makes text far beyond any prompt's needs")
    _left.set(left)
    return value


def _charge_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is charged for what it reads and makes, and not run while compiling."""
    takes = getattr(getattr(function, "jinja_pass_arg", None), "name", "")

    def run(context: Any, value: Any, *arguments: Any, **named: Any) -> Any:
        if not isinstance(value, Iterator | Undefined):
            _charge_value(value)
        given = {"context": context, "environment": context.environment}
        first = [({**given, "eval_context": context.eval_ctx})[takes]] if takes else []
        found = function(*first, value, *arguments, **named)
        return found if isinstance(found, Iterator) else _charge_value(found)

    return pass_context(run)


class _Language(ImmutableSandboxedEnvironment):
    """Jinja2 with a whitelist of its syntax: no template can call, compute or loop in a loop."""

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=pass_context(lambda _, value: _charge_value(value)),
        )
        self.globals.clear()
        self.filters = {name: _charge_filter(self.filters[name]) for name in FILTERS}
        self.tests = {name: self.tests[name] for name in TESTS}

    def parsed(self, source: str) -> nodes.Template:
        """Parse a source that is not too long to be read, and stays inside the language."""
        if next(islice(self.lex(source), PROMPT_TOKENS, None), None) is not None:
            raise TooMuch(f"the prompt has more than {PROMPT_TOKENS:,} words inside its tags")
        tree = self.parse(source)
        for node in tree.find_all(nodes.Node):
            if why := _disallowed_reason(node):
                line = getattr(node, "lineno", 1)
                raise TooMuch(f"line {line}: {why} in a prompt file")
        return tree


def _disallowed_reason(node: nodes.Node) -> str:
    """The reason why a node is not in the language of prompt files, "" if it is."""
    if not isinstance(node, NODES):
        return f"{type(node).__name__.lower()} is not allowed"
    if isinstance(node, nodes.For):
        if node.recursive or any(True for part in node.body for _ in _loops(part)):
            return "a loop inside a loop is not allowed"
        if not (isinstance(node.iter, nodes.Name) and node.iter.name in PLACES):
            return f"only {', '.join(PLACES)} can be looped over; anything else is not allowed"
    if isinstance(node, nodes.Filter):
        return _filter_outside(node)
    if isinstance(node, nodes.Slice | nodes.Getitem):
        parts = vars(node).get("arg"), *(getattr(node, end, None) for end in ("start", "stop"))
        if not all(isinstance(one, nodes.Const | nodes.Slice | nodes.Neg | None) for one in parts):
            return "a computed place is not allowed"
    return ""


def _loops(node: nodes.Node) -> Iterator[nodes.For]:
    if isinstance(node, nodes.For):
        yield node
    yield from node.find_all(nodes.For)


def _filter_outside(node: nodes.Filter) -> str:
    depth, inner = 1, node.node
    while isinstance(inner, nodes.Filter):
        depth, inner = depth + 1, inner.node
    if depth > MOST_FILTERS:
        return f"more than {MOST_FILTERS} filters in a row are not allowed"
    given: list[Any] = [*node.args, *(keyword.value for keyword in node.kwargs)]
    if not all(isinstance(one, nodes.Const) for one in given):
        return f"a computed argument of {node.name} is not allowed"
    if node.name == "map" and [keyword.key for keyword in node.kwargs] != ["attribute"]:
        return "map without an attribute is not allowed"
    sizes = [one.value if isinstance(one.value, int) else len(str(one.value)) for one in given]
    if (
        node.name in ("replace", "indent", "join", "tojson")
        and max(sizes, default=0) > LONGEST_CONSTANT
    ):
        return f"an argument of {node.name} over {LONGEST_CONSTANT} is not allowed"
    return ""


_environment = _Language()


@dataclass(frozen=True)
class Listed(Generic[T]):
    """Something that a template prints as one text, or takes one by one in a loop."""

    text: str
    parts: tuple[T, ...]

    def __str__(self) -> str:
        return self.text

    def __iter__(self) -> Iterator[T]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


@dataclass(frozen=True)
class Template:
    """A prompt file: its text and the name that errors call it by."""

    source: str
    name: str = "the prompt file"

    def __post_init__(self) -> None:
        for mark in _UNKNOWN_MARK.finditer(self.source):
            if mark[1] not in get_args(Speaker):
                line = self.source.count("\n", 0, mark.start()) + 1
                known = suggestion(mark[1], [*get_args(Speaker)])
                raise Problem(f"{self.name}, line {line}: no role named '{mark[1]}'{known}")
        try:
            self._compiled  # noqa: B018 - report a syntax error before sending anything
        except TemplateSyntaxError as error:
            raise Problem(f"{self.name}, line {error.lineno}: {error.message}") from error
        except (*_WRONG, *_TOO_DEEP) as error:
            raise Problem(f"{self.name}: {_template_error_line(error)}") from error

    @cached_property
    def _marked(self) -> str:
        return _MARK.sub(rf"{_TURN}\1{_TURN}", self.source)

    @cached_property
    def _tree(self) -> nodes.Template:
        return _environment.parsed(self._marked)

    @cached_property
    def _compiled(self) -> Any:
        code = _environment.compile(_environment.parsed(self._marked))
        return _environment.template_class.from_code(_environment, code, {})

    @cached_property
    def places(self) -> dict[str, int]:
        """The placeholders by name, each with the line of its first use."""
        wanted = meta.find_undeclared_variables(self._tree)
        lines: dict[str, int] = {}
        for node in self._tree.find_all(nodes.Name):
            if node.name in wanted:
                lines[node.name] = min(node.lineno, lines.get(node.name, node.lineno))
        return dict(sorted(lines.items(), key=lambda place: place[1]))

    @property
    def has_demos(self) -> bool:
        return any(place in self.places for place in (DEMOS, BEFORE, AFTER))

    def shows_places(self, places: Places) -> bool:
        """Say whether every field that may change places stands in the prompt."""
        shown = self.places.keys()
        return OPTIONS in shown or "text" in shown or shown >= {*places.fields}

    @property
    def unshown(self) -> frozenset[str]:
        """The probes that have no placeholder in the prompt."""
        shows = {
            "label_order": LABELS in self.places,
            "demo_order": self.has_demos,
            "placement": BEFORE in self.places and AFTER in self.places,
            "criterion_order": CRITERIA in self.places,
            "system_user": any(mark[1] == "system" for mark in _MARK.finditer(self.source)),
        }
        return frozenset(probe for probe, is_shown in shows.items() if not is_shown)

    def check(self, example: Item, task: Task) -> None:
        """Refuse places that items like this cannot fill, or a prompt that shows no item."""
        fields = example.fields
        absent = {CRITERIA: not task.criteria, OPTIONS: task.places is None}
        known = [*fields, *(place for place in PLACES if not absent.get(place))]
        for place, line in self.places.items():
            if place == CRITERIA and place not in known:
                raise Problem(
                    f"{self.name}, line {line}: no criteria to show; list them in the study "
                    "(`criteria: [...]`), or give items a field of that name"
                )
            if place not in known:
                raise Problem(
                    f"{self.name}, line {line}: no placeholder named '{place}'"
                    f"{suggestion(place, known)}"
                )
        if not any(field in self.places for field in fields) and OPTIONS not in self.places:
            some = ", ".join(f"{{{{ {field} }}}}" for field in fields)
            raise Problem(f"{self.name} has no placeholder for the item; add one of: {some}")
        taken = [field for field in fields if field in PLACES and field not in (CRITERIA, OPTIONS)]
        if taken:
            raise Problem(
                f"a field of the items is called '{taken[0]}', the name of a placeholder; rename it"
            )
        self._try(example)

    def _try(self, example: Item) -> None:
        """Render the prompt once: a demonstration's unknown field is only found there."""
        labels = Listed("1", (Label(1, "1", "one", 1),))
        demos = (_template_demo(example.fields, "1"),)
        values = {LABELS: labels, **dict.fromkeys((DEMOS, BEFORE, AFTER), demos)}
        values |= {CRITERIA: listed_criteria("x"), OPTIONS: Listed[Label]("x", ())}
        found = self.messages({**values, **example.fields})
        if not any(message.role == "user" for message in found):
            raise Problem(f"{self.name} has no user message; start one with the line --- user")

    def messages(self, values: Mapping[str, Any]) -> tuple[Message, ...]:
        """Fill in the places; messages that say nothing are left out."""
        size = sum(len(str(value)) for value in values.values())
        token = _left.set(PROMPT_STEPS + PROMPT_STEPS_PER_CHARACTER * size)
        try:
            text = "".join(self._compiled.generate(values))
        except (*_WRONG, *_TOO_DEEP) as error:
            raise Problem(
                f"{self.name}, line {_failing_template_line(error)}: {_template_error_line(error)}"
            ) from error
        finally:
            _left.reset(token)
        first, *rest = _TURNS.split(text)
        turns: Iterator[tuple[Any, str]] = zip(
            ["user", *rest[::2]], [first, *rest[1::2]], strict=True
        )
        return tuple(Message(role, said.strip()) for role, said in turns if said.strip())


@lru_cache(maxsize=64)
def read_template(source: str, name: str = "the prompt file") -> Template:
    """The template of a prompt file, the same one for the same text."""
    return Template(source, name)


def _template_error_line(error: BaseException) -> str:
    """The error in one line."""
    return "nested too deeply" if isinstance(error, _TOO_DEEP) else f"{error}"[:500]


def _failing_template_line(error: BaseException) -> int:
    """The line of a template in which rendering failed."""
    line, step = 1, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == "<template>":
            line = step.tb_lineno
        step = step.tb_next
    return line


def _template_demo(fields: Mapping[str, str], label: str) -> SimpleNamespace:
    return SimpleNamespace(
        **{**{key: _escape_turn_mark(text) for key, text in fields.items()}, "label": label}
    )


def _escape_turn_mark(text: str) -> str:
    return text.replace(_TURN, "\ufffd")


def listed_criteria(text: str, order: str = "base") -> Listed[str]:
    """Criteria, one per line, in an order; printed, they are a numbered list."""
    parts = tuple(line.strip() for line in text.splitlines() if line.strip())
    shown = {"base": parts, "reversed": parts[::-1], "rotated": parts[1:] + parts[:1]}[order]
    return Listed("\n".join(f"{n}. {part}" for n, part in enumerate(shown, 1)), shown)


@dataclass(frozen=True)
class Filled:
    """A template with all that the items of a condition share filled in."""

    template: Template
    shared: Mapping[str, Any]
    view: View
    criteria: str
    label_format: str = "numeric"
    places: Places | None = None

    def script(self, item: Item) -> Script:
        """The messages about an item, split where items begin to differ."""
        return self._split(self._messages(item))

    def _split(self, messages: tuple[Message, ...]) -> Script:
        head, last = self._head, messages[-1]
        is_shared = (messages[:-1], last.role) == (head.before, head.role)
        if is_shared and last.content.startswith(head.start):
            return Script(head, last.content[len(head.start) :])
        return Script.of(messages)

    @cached_property
    def _head(self) -> Head:
        """The messages and whole lines shared by two items that have nothing in common."""
        nulls = (Item(text, {"text": text}, role="null") for text in ("A", "B"))
        try:
            one, other = (self._messages(item) for item in nulls)
        except Problem:  # a prompt that takes texts apart may need more of them
            return Head()
        *before, last = one
        if other[:-1] != tuple(before):
            return Head(role=last.role)
        start = last.content[: n_shared(last.content, other[-1].content)]
        # Up to the end of a line: a tokenizer may join the start of a line with what follows.
        return Head(tuple(before), last.role, start[: start.rfind("\n") + 1].rstrip())

    def _messages(self, item: Item) -> tuple[Message, ...]:
        known = {key: _escape_turn_mark(text) for key, text in item.fields.items()}
        if item.role == "null":  # it has no content in any field; the study's criteria stay
            own_places = (
                place for place in self.template.places if place != CRITERIA or not self.criteria
            )
            known = {**dict.fromkeys(own_places, item.text), **known}
        own = known.get(CRITERIA, self.criteria)
        criteria = {CRITERIA: listed_criteria(own, self.view.criterion_order)}
        options = {} if self.places is None else {OPTIONS: self._options(known, self.places)}
        messages = self.template.messages({**options, **known, **self.shared, **criteria})
        return _in_user(messages) if self.view.instructions == "user" else messages

    def _options(self, known: Mapping[str, str], places: Places) -> Listed[tuple[str, str]]:
        """The fields that may change places, one a line under its heading."""
        parts = tuple(placed(places, self.label_format, known, known.get("text", "")))
        return Listed("\n".join(f"{head}: {text}" for head, text in parts), parts)


def _in_user(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Put what the system says at the start of what the user says first."""
    said = [message.content for message in messages if message.role == "system"]
    spoken = [message for message in messages if message.role != "system"]
    place = next(n for n, message in enumerate(spoken) if message.role == "user")
    spoken[place] = Message("user", "\n\n".join([*said, spoken[place].content]))
    return tuple(spoken)


def fill(
    template: Template,
    shown: HeaderParts,
    style: Style,
    view: View,
    demos: Sequence[Item],
    labels: Sequence[str],
) -> Filled:
    """Fill in the labels and the demonstrations, each with its label, as a view shows them."""
    all_demos = tuple(
        _template_demo(demo.fields, label) for demo, label in zip(demos, labels, strict=True)
    )
    n_before = {"before": len(demos), "after": 0, "split": len(demos) // 2}[view.placement]
    shared = {
        LABELS: Listed(shown.listing, listed_labels(shown)),
        DEMOS: all_demos,
        BEFORE: all_demos[:n_before],
        AFTER: all_demos[n_before:],
    }
    criteria = "\n".join(shown.task.criteria)
    return Filled(template, shared, view, criteria, style.label_format, shown.task.places)
