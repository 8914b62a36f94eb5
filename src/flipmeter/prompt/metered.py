"""Prompt templates that end: every step of one costs, and what is printed depends on inputs alone.

A step costs as much as the texts that it reads and makes. One that could make far more than it
reads (a power, a repetition, a width, a replacement) is charged before it is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from itertools import islice
from types import GeneratorType, SimpleNamespace
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from flipmeter.base.files.reading_limits import (
    LARGEST_ARGUMENT,
    NUMBER_BITS,
    PROMPT_STEPS,
    PROMPT_STEPS_PER_CHARACTER,
    PROMPT_TOKENS,
)

STEP = 5
"""The cost of a step besides its texts: an iteration, a call, an operator."""
SHOWN, COUNTED, READ = "to print", "to loop over", "to compare"
"""Filters that are put into a template here; no template can name them."""
CHANGING = {
    "random": "the filter `random` picks another value every time",
    "lipsum": "`lipsum` writes another text every time",
}
_FIELD = re.compile(r"\{[^{}]*\{|:[^{}]*\d{4}")
_PRINTF = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(?:\*|\d{4}|\d*\.(?:\*|\d{4}))")
_TAKES_ITERATORS = frozenset(
    f"{COUNTED}|{READ}|list|join|first|last|map|select|reject|selectattr|rejectattr|sum|sort|unique|"
    "batch|slice|min|max|groupby|reverse|length|count|default|d|iterable|defined|undefined|none".split(
        "|"
    )
)


class TooMuch(SecurityError):
    """A template does more than a prompt needs."""


class Changing(SecurityError):
    """A template prints what is not a function of its inputs."""


@dataclass
class Allowance:
    """The remaining budget of one rendering."""

    left: int

    def charge(self, n_steps: int) -> None:
        self.left -= n_steps
        if self.left < 0:
            raise TooMuch("this loops or multiplies text far beyond any prompt's needs")

    def before(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """Charge for a filter, test or method before it runs, and refuse what it must not see."""
        self.charge(STEP + size_of(value, self.left))
        for one in arguments:
            self.charge(size_of(one, self.left))
            if isinstance(one, int) and abs(one) > LARGEST_ARGUMENT:
                raise TooMuch(f"{name} gets {one:.3g}; a prompt needs no such number")
        if name not in _TAKES_ITERATORS:
            refuse_changing(value)
        self.charge(_product(name, value, arguments))

    def after(self, found: Any) -> Any:
        if isinstance(found, GeneratorType):
            return self._each(found)
        self.charge(size_of(found, self.left))
        return found

    def _each(self, found: Iterator[Any]) -> Iterator[Any]:
        for one in found:
            self.charge(STEP + size_of(one, self.left))
            yield one


_ALLOWANCE: ContextVar[Allowance] = ContextVar("allowance")


@contextmanager
def metered(values: Mapping[str, Any]) -> Iterator[None]:
    """Let what is rendered inside do as much as these values are worth."""
    steps = PROMPT_STEPS + PROMPT_STEPS_PER_CHARACTER * size_of(dict(values), 2**40)
    token = _ALLOWANCE.set(Allowance(steps))
    try:
        yield
    finally:
        _ALLOWANCE.reset(token)


def size_of(value: Any, most: int) -> int:
    """Number of characters that a value prints, counted up to `most`."""
    size, waiting = 0, [value]
    while waiting and size <= most:
        one = waiting.pop()
        size += len(one) if isinstance(one, str | bytes | range) else 1
        if isinstance(one, int):
            size += one.bit_length() // 8
        elif isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += one
        elif isinstance(one, SimpleNamespace) or is_dataclass(one):
            waiting += vars(one).values()
    return size


def refuse_changing(value: Any) -> None:
    """Refuse what prints its place in memory: generators, functions and their kind."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            waiting += one
        elif not _is_plain(one):
            kind = type(one).__name__
            raise Changing(f"this prints a {kind}, which prints differently every time; use |list")


def _is_plain(value: Any) -> bool:
    plain = (str, int, float, range, SimpleNamespace, Undefined)
    return value is None or isinstance(value, plain) or is_dataclass(value)


def _product(name: str, value: Any, arguments: tuple[Any, ...]) -> int:
    """Number of characters that a filter or method can make of its value."""
    texts = [one for one in arguments if isinstance(one, str)]
    longest = max(map(len, texts), default=0)
    widths = [one for one in arguments if isinstance(one, int)]
    width = max(map(abs, widths), default=4)
    text = value if isinstance(value, str) else ""
    if name == "replace":
        return (text.count(texts[0]) if texts else 0) * longest
    if name in ("indent", "expandtabs"):
        return (text.count("\n") + text.count("\t") + 1) * (width + longest)
    if name == "wordwrap":
        return (len(text) // max(min(widths, default=79), 1) + 1) * (longest + 1)
    if name == "join":
        n_parts = len(arguments[0]) if arguments and hasattr(arguments[0], "__len__") else 0
        return n_parts * len(text) if text else len_of(value) * longest
    if name in ("tojson", "pprint"):
        return size_of(value, 10**9) * width
    if name in ("translate", "maketrans"):
        raise TooMuch(f"{name} is not allowed in prompts; use replace")
    if name == "format":
        check_widths(text, _PRINTF)
        return text.count("%") * sum(size_of(one, 10**9) for one in arguments)
    return 0


def len_of(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 0


def check_widths(text: str, wild: re.Pattern[str]) -> None:
    """Refuse a format whose widths have four digits or are computed."""
    if wild.search(text):
        raise TooMuch("a width of 1,000 or more, or a computed one, is not allowed in prompts")


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox in which all that can take time or memory is charged for."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
        )
        for name in CHANGING:
            self.filters.pop(name, None)
            self.globals.pop(name, None)
        kinds: tuple[dict[str, Any], ...] = (self.filters, self.tests)
        for kind in kinds:
            kind.update({name: _charged(name, kind[name]) for name in [*kind]})
        self.filters |= {SHOWN: _shown, COUNTED: _counted, READ: _read}

    def compiled(self, tree: nodes.Template) -> Any:
        """The template of a parsed source, with an allowance in every loop and comparison."""
        code = self.compile(_Metering().visit(tree))
        return self.template_class.from_code(self, code, self.make_globals(None))

    def parsed(self, source: str) -> nodes.Template:
        """Parse a source that is not too long to be read, and means the same every time."""
        if next(islice(self.lex(source), PROMPT_TOKENS, None), None) is not None:
            raise TooMuch(f"the prompt has more than {PROMPT_TOKENS:,} words inside its tags")
        tree = self.parse(source)
        for node in tree.find_all((nodes.Filter, nodes.Name, nodes.For)):
            _refuse(node)
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        allowance = _ALLOWANCE.get()
        allowance.charge(STEP + _made(operator, left, right, allowance.left))
        found = super().call_binop(context, operator, left, right)
        if isinstance(found, int) and found.bit_length() > NUMBER_BITS:
            raise TooMuch("a number of thousands of digits; a prompt needs no such number")
        return found

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        allowance = _ALLOWANCE.get()
        own = getattr(__obj, "__self__", None)
        given = (*args, *kwargs.values())
        allowance.before(
            getattr(__obj, "__name__", "a macro"), own if _is_plain(own) else None, given
        )
        return allowance.after(super().call(__context, __obj, *args, **kwargs))

    def getitem(self, obj: Any, argument: Any) -> Any:
        found = super().getitem(obj, argument)
        return _ALLOWANCE.get().after(found) if isinstance(argument, slice) else found

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text = value.__self__
        check_widths(text, _FIELD)

        def formatted(*args: Any, **kwargs: Any) -> str:
            given = (*args, *kwargs.values())
            refuse_changing(given)
            allowance = _ALLOWANCE.get()
            allowance.charge(text.count("{") * sum(size_of(one, allowance.left) for one in given))
            return wrapped(*args, **kwargs)

        return formatted


def _refuse(node: nodes.Node) -> None:
    if isinstance(node, nodes.For) and node.recursive:
        raise TooMuch(f"line {node.lineno}: recursive loops are not allowed in prompts")
    name = getattr(node, "name", "")
    if name in CHANGING and isinstance(node, nodes.Filter) == (name == "random"):
        raise Changing(
            f"line {node.lineno}: {CHANGING[name]}, and a prompt must be a function of its item"
        )


def _made(operator: str, left: Any, right: Any, most: int) -> int:
    """Number of characters that an operator can make, or a TooMuch for an extreme one."""
    if operator == "**":
        is_small = not isinstance(right, int) or abs(right) * _bits(left) <= NUMBER_BITS
        if not is_small:
            raise TooMuch("a power of thousands of digits; a prompt needs no such number")
    if operator == "*":
        counts = [one for one in (left, right) if isinstance(one, int)]
        parts = [size_of(one, most) for one in (left, right) if not isinstance(one, int | float)]
        return max(counts, default=1) * max(parts, default=0)
    if operator == "%" and isinstance(left, str):
        check_widths(left, _PRINTF)
        made = len(left) + left.count("%") * size_of(right, most)
        if made <= most:
            refuse_changing(right)
        return made
    return size_of(left, most) + size_of(right, most) if operator == "+" else 1


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 1


def _charged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that is charged for, and never run while a template is compiled."""
    wants = getattr(getattr(function, "jinja_pass_arg", None), "name", "")

    @pass_context
    def step(context: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        allowance = _ALLOWANCE.get()
        if name == "join" and not hasattr(value, "__len__"):
            value = list(allowance.after(value))
        allowance.before(name, value, (*args, *kwargs.values()))
        if name == "join":
            refuse_changing([*value])
        first = {"context": context, "environment": context.environment}
        given = [(first | {"eval_context": context.eval_ctx})[wants]] if wants else []
        return allowance.after(function(*given, value, *args, **kwargs))

    return step


@pass_context
def _shown(_: Any, value: Any) -> Any:
    """Charge for what is printed."""
    allowance = _ALLOWANCE.get()
    allowance.charge(1 + size_of(value, allowance.left))
    refuse_changing(value)
    return value


@pass_context
def _read(_: Any, value: Any) -> Any:
    """Charge for what is compared."""
    allowance = _ALLOWANCE.get()
    allowance.charge(size_of(value, allowance.left))
    return value


@pass_context
def _counted(_: Any, values: Any, weight: int) -> Iterator[Any]:
    """Charge for every turn of a loop, with the text that the loop itself prints."""
    allowance = _ALLOWANCE.get()
    for value in values:
        allowance.charge(STEP + weight)
        yield value


class _Metering(NodeTransformer):
    """Puts an allowance into loops, comparisons and joined texts."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        weight = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.iter = _filtered(node.iter, COUNTED, nodes.Const(weight))
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filtered(node.expr, READ)
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, READ)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Concat:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(one, SHOWN) for one in node.nodes]
        return node


def _filtered(node: Any, name: str, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(arguments), [], None, None, lineno=node.lineno)
