"""One setting of another program, and what becomes of a value of it: it is ours under another name,
it asks for what happens anyway, or it is refused with the reason. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias


class Harmless(NamedTuple):
    """The value asks for what happens anyway. `why`: one sentence."""

    why: str


class Mapped(NamedTuple):
    """The value is the value `value` of our setting `ours`."""

    ours: str
    value: Any


class Refused(NamedTuple):
    """The value cannot be had. `why`: one sentence that says what to write, or why not."""

    why: str


Verdict: TypeAlias = Harmless | Mapped | Refused
Scalar: TypeAlias = bool | int | float | str
SWITCH: Final = (True, False)
"""Harmless values of a switch that changes nothing whichever way it is set."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A setting that another program has.

    Attributes:
        name: its keyword; its flag has `-` for `_`.
        why: one sentence that is true of every value: what is done here instead.
        harmless: values that ask for what happens anyway; None: every value does. Booleans make a
            switch of the flag.
        ours: our setting that it is; values that are not harmless become values of it.
        convert: our value from the given one; raises ValueError where there is none.
        short: the flag's short forms.
        several: whether the flag takes several values.

    """

    name: str
    why: str
    harmless: tuple[Scalar, ...] | None = ()
    ours: str | None = None
    convert: Callable[[Any], Any] | None = None
    short: tuple[str, ...] = ()
    several: bool = False

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_switch(self) -> bool:
        return any(isinstance(value, bool) for value in self.harmless or ())

    def verdict(self, given: Any) -> Verdict:
        """What becomes of a value: text of a command line, or a keyword's object."""
        if _is_nothing(given) or self.harmless is None or _text(given) in map(_text, self.harmless):
            return Harmless(self.why)
        if self.ours is None:
            return Refused(self.why)
        try:
            return Mapped(self.ours, self.convert(given) if self.convert else given)
        except (ValueError, TypeError):
            return Refused(self.why)


def settings(why: str, **harmless: Scalar | tuple[Scalar, ...] | None) -> list[Foreign]:
    """Settings that one sentence explains, by name with what is harmless."""
    return [
        Foreign(name, why, value if isinstance(value, tuple) or value is None else (value,))
        for name, value in harmless.items()
    ]


def table(
    *groups: list[Foreign], short: Mapping[str, str], several: frozenset[str] = frozenset()
) -> Mapping[str, Foreign]:
    """All groups by name. `short`: short flags by name. `several`: names with several values."""
    found: dict[str, Foreign] = {}
    for one in (one for group in groups for one in group):
        forms = (short[one.name],) if one.name in short else ()
        found[one.name] = replace(one, short=forms, several=one.name in several)
    return found


def _is_nothing(given: Any) -> bool:
    """Whether a keyword's value leaves the setting alone."""
    return given is None or (isinstance(given, dict | list | tuple | set) and not given)


def _text(value: Any) -> str:
    """Values as they are compared: `1`, `1.0` and "1" are one, so are True and "true"."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip().lower()
