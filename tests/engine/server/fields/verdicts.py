"""What becomes of a field, and what a request with it shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from yaie.core.messages import Generate


@dataclass(frozen=True)
class Seen:
    """What one request shows: the answer, and what the engine was asked for it."""

    status: int
    headers: Mapping[str, str]
    answer: Any
    """The JSON body, or the list of a stream's payloads."""
    commands: tuple[Generate, ...]
    prompt: str

    def at(self, path: str) -> Any:
        """A part of the answer, by dots: `choices.0.index`; None: it is not there."""
        found = self.answer
        for step in path.split("."):
            try:
                found = found[int(step) if step.lstrip("-").isdigit() else step]
            except (KeyError, IndexError, TypeError):
                return None
        return found

    @property
    def result(self) -> Any:
        """All that may not change where a field has no effect: nothing that is drawn or timed."""
        asked = [(c.prompt_token_ids, c.sampling, c.priority, c.salt) for c in self.commands]
        return self.status, _timeless(self.answer), asked


Where = Callable[[Seen], Any]
Fields = Mapping[str, Any]
CHANGED: Final = object()
"""Expected: another value than without the field."""


@dataclass(frozen=True)
class Effect:
    """The field is honoured: with it, `where` is `expected`; without it, it is something else.

    `beside`: fields of both requests. `instead`: fields that the request without it has for it.
    """

    value: Any
    where: Where
    expected: Any = CHANGED
    beside: Fields = field(default_factory=dict)
    instead: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """The field asks for what this server does not do: a 400 that names it.

    `nothing`: values that ask for nothing; with them the request is as without the field.
    """

    value: Any
    nothing: tuple[Any, ...] = ()
    beside: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class NoEffect:
    """The field does not change the result by its own definition."""

    value: Any
    reason: str
    beside: Fields = field(default_factory=dict)


Verdict = Effect | Refused | NoEffect
Verdicts = Mapping[str, Verdict]


def at(path: str) -> Where:
    """The part of the answer at a path."""
    return lambda seen: seen.at(path)


def sampling(name: str) -> Where:
    """One of the sampling parameters that the engine got."""
    return lambda seen: getattr(seen.commands[-1].sampling, name)


def command(name: str) -> Where:
    """A field of the command that the engine got."""
    return lambda seen: getattr(seen.commands[-1], name)


def prompt(seen: Seen) -> str:
    return seen.prompt


def grammar(seen: Seen) -> tuple[str, str] | None:
    """The form that the engine enforces: its kind and its source."""
    found = seen.commands[-1].sampling.grammar
    return None if found is None else (found.kind, found.text)


def media(seen: Seen) -> str:
    return seen.headers["content-type"].partition(";")[0]


def with_field(body: Fields, name: str, value: Any) -> dict[str, Any]:
    """A request with one field more. The name may be that of a field in an object: `a.b`."""
    outer, _, inner = name.partition(".")
    return {**body, outer: {**body.get(outer, {}), inner: value} if inner else value}


_DRAWN: Final = frozenset({"id", "created", "created_at", "completed_at", "item_id", "request_id"})


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in _DRAWN}
    return [_timeless(one) for one in value] if isinstance(value, list) else value
