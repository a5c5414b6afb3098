"""The sandbox of chat templates, which limits the time and the output size of rendering.

jinja2's sandbox keeps templates from accessing Python internals, but not from running endlessly or
filling the memory. Here every loop iteration and every macro call checks the clock, and no
operator, filter or method can create a text longer than `MAX_CHARACTERS`. So a template can be
rendered in any thread and needs no separate process.
"""

import datetime as dt
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARACTERS: Final = 16 * 1024 * 1024
MAX_INTEGER: Final = 2**63
_MAX_WIDTH: Final = 10_000
_NESTED_WIDTH: Final = re.compile(r":[^}]*\{")

_PADDING: Final = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})


class TemplateRefusedError(jinja2.TemplateError):
    """The template called `raise_exception`; its message is for the user."""


class TemplateLimitError(Exception):
    """A text would become too large."""


class TemplateTimeoutError(Exception):
    """Rendering takes too long."""


class Sandbox(ImmutableSandboxedEnvironment):
    """The jinja2 environment of all templates. Thread-safe."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,  # the output is a prompt, not HTML
            extensions=[loopcontrols, GenerationBlock],
        )
        self._of_thread = threading.local()
        self.filters |= {"tojson": _to_json, "indent": _bounded_filter(self.filters["indent"])}
        self.filters["center"] = _center
        self.filters["format"] = self._format
        self.filters["join"] = _bounded_join(self.filters["join"])
        self.filters["replace"] = _replace
        for slow in ("wordwrap", "urlize", "striptags", "pprint"):
            del self.filters[slow]
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise
        self.globals["strftime_now"] = _strftime_now

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Limit the time of rendering in this block and thread."""
        self._of_thread.deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            del self._of_thread.deadline

    def tick(self) -> str:
        """Check the time; templates call this at each loop iteration and macro call.

        Raises:
            TemplateTimeoutError: the time limit has passed.

        """
        deadline = getattr(self._of_thread, "deadline", None)
        if deadline is not None and time.monotonic() > deadline:
            raise TemplateTimeoutError
        return ""

    def concat_all(self, *values: Any) -> str:
        """Implements the `~` operator, with a check of the size."""
        texts = [str(value) for value in values]
        _check_size(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            _check_product(left, right)
        elif operator == "**":
            _check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            return self._format(left, *(right if isinstance(right, tuple) else (right,)))
        elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            _check_size(len(left) + len(right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, /, *args: Any, **named: Any) -> Any:
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            _check_method(owner, function.__name__, args, named)
        return super().call(context, function, *args, **named)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """A string's `format` method, with a check of the size.

        Raises:
            TemplateLimitError: a width in the pattern is given by a field.

        """
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        pattern: str = value.__self__
        if _NESTED_WIDTH.search(pattern):
            raise TemplateLimitError

        def bounded(*args: Any, **named: Any) -> str:
            _check_filled(pattern, "{", [*args, *named.values()])
            return wrapped(*args, **named)

        return bounded

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for kind in (nodes.For, nodes.Macro, nodes.CallBlock):
            for loop in template.find_all(kind):
                tick = nodes.Output([_call("tick", [], loop.lineno)], lineno=loop.lineno)
                loop.body.insert(0, tick)  # type: ignore[attr-defined]  # all three have one
        _replace_concats(template)
        template.set_environment(self)
        return template

    def _format(self, pattern: str, *values: Any, **named: Any) -> str:
        """Implements `%` and the filter `format`, with a check of widths and of the size."""
        text = str(pattern)
        if "*" in text:
            raise TemplateLimitError
        _check_filled(text, "%", [*values, *named.values()])
        return text % (named or values)


class GenerationBlock(Extension):
    """Renders the content of `{% generation %}…{% endgeneration %}`, which marks text to train."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _call(method: str, values: list[nodes.Expr], lineno: int) -> nodes.Call:
    """A template node that calls a method of the environment."""
    target = nodes.EnvironmentAttribute(method, lineno=lineno)
    return nodes.Call(target, values, [], None, None, lineno=lineno)


def _replace_concats(node: nodes.Node) -> None:
    """Replace every `a ~ b` below this node by a call that checks the size first."""
    for field, value in list(node.iter_fields()):
        items = value if isinstance(value, list) else [value]
        changed = [_without_concat(item) for item in items]
        setattr(node, field, changed if isinstance(value, list) else changed[0])


def _without_concat(item: Any) -> Any:
    if isinstance(item, nodes.Node):
        _replace_concats(item)
    if isinstance(item, nodes.Concat):
        return _call("concat_all", item.nodes, item.lineno)
    return item


def _check_size(size: int) -> None:
    if size > MAX_CHARACTERS:
        raise TemplateLimitError


def _check_product(left: Any, right: Any) -> None:
    for one, other in ((left, right), (right, left)):
        if hasattr(one, "__len__") and isinstance(other, int):
            _check_size(len(one) * other)
        elif isinstance(one, int) and abs(one) > MAX_INTEGER:
            raise TemplateLimitError


def _check_power(base: Any, exponent: Any) -> None:
    if abs(base) > 2**16 or abs(exponent) > 64:
        raise TemplateLimitError


def _check_method(text: str, method: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Refuse a call of a string method whose result could be too long."""
    if method in _PADDING and any(isinstance(arg, int) and arg > _MAX_WIDTH for arg in args):
        raise TemplateLimitError
    if method == "replace" and len(args) >= 2:
        _check_replacement(text, args[0], args[1])
    elif method == "join" and args and hasattr(args[0], "__len__"):
        _check_size(len(text) * len(args[0]) + sum(len(item) for item in args[0]))
    elif method == "translate" or (method in _PADDING and named):
        raise TemplateLimitError


def _check_replacement(text: str, old: str, new: str) -> None:
    times = text.count(old)
    _check_size(len(text) + times * (len(new) - len(old)))


def _check_filled(pattern: str, mark: str, values: list[Any]) -> None:
    """Refuse a pattern with large widths, or whose result could exceed the limit."""
    if any(len(run) > 4 for run in _digit_runs(pattern)):
        raise TemplateLimitError
    longest = max((len(value) for value in values if isinstance(value, str)), default=0)
    _check_size(len(pattern) + pattern.count(mark) * longest)


def _digit_runs(text: str) -> list[str]:
    return "".join(c if c.isdigit() else " " for c in text).split()


def _center(value: Any, width: int = 80) -> str:
    if width > _MAX_WIDTH:
        raise TemplateLimitError
    return str(value).center(width)


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    _check_replacement(str(value), str(old), str(new))
    return str(value).replace(str(old), str(new), -1 if count is None else count)


def _bounded_filter(original: Callable[..., str]) -> Callable[..., str]:
    """Wrap the filter `indent`, whose first argument is a width or a text, with a size check."""

    def bounded(value: Any, width: int | str = 4, *args: Any, **named: Any) -> str:
        length = width if isinstance(width, int) else len(width)
        _check_size(len(str(value)) + length * (str(value).count("\n") + 1))
        return original(str(value), width, *args, **named)

    return bounded


def _bounded_join(original: Callable[..., str]) -> Callable[..., str]:
    @jinja2.pass_eval_context
    def bounded(context: Any, value: Any, d: str = "", attribute: Any = None) -> str:
        items = list(value)
        _check_size(len(d) * len(items))
        if attribute is None:
            _check_size(sum(len(item) for item in items if isinstance(item, str)))
        return original(context, items, d, attribute)

    return bounded


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    if indent is not None and indent > 16:
        raise TemplateLimitError
    return json.dumps(value, ensure_ascii=bool(options.get("ensure_ascii")), indent=indent)


def _raise(message: str) -> None:
    raise TemplateRefusedError(message)


def _strftime_now(pattern: str) -> str:
    if len(pattern) > 256:
        raise TemplateLimitError
    return dt.datetime.now().astimezone().strftime(pattern)
