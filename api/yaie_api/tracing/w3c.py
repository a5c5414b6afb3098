"""W3C trace context, level 1: which trace a request belongs to, read from its headers. Pure."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MEMBER: Final = re.compile(
    r"[ \t]*([a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256})?[ \t]*"
)
_MOST_MEMBERS: Final = 32
_SAMPLED: Final = 1
_KNOWN_FLAGS: Final = 3


@dataclass(frozen=True)
class TraceContext:
    """A place in a trace: 32 and 16 hexadecimal digits. `state`: what other tracers have noted."""

    trace_id: str
    span_id: str
    flags: int = 0
    state: str = ""

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & _SAMPLED)

    @property
    def header(self) -> str:
        """The value of `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    @classmethod
    def new(cls) -> Self:
        """Begin a trace that nobody has sampled."""
        return cls(os.urandom(16).hex(), _new_span_id())

    def child(self) -> Self:
        """Return a new place below this one."""
        return replace(self, span_id=_new_span_id())

    def sampled(self, sampled: bool) -> Self:  # noqa: FBT001 - what it sets
        """Return the same place with the decision whether it is recorded."""
        return replace(self, flags=self.flags & ~_SAMPLED | int(sampled))


def read(parents: Sequence[str], states: Sequence[str] = ()) -> TraceContext | None:
    """Read the values of `traceparent` and `tracestate`; None: there is no valid `traceparent`.

    An invalid `tracestate` is left out. Versions after 00 are read as far as 00 is known.
    """
    found = _PARENT.fullmatch(parents[0].strip(" \t")) if len(parents) == 1 else None
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) * int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, int(flags, 16) & _KNOWN_FLAGS, _state(states))


def _state(values: Sequence[str]) -> str:
    members = ",".join(values).split(",") if values else []
    kept = [member.strip(" \t") for member in members if member.strip(" \t")]
    keys = {member.partition("=")[0] for member in kept}
    if len(kept) > _MOST_MEMBERS or len(keys) < len(kept) or not all(map(_MEMBER.fullmatch, kept)):
        return ""
    return ",".join(kept)


def _new_span_id() -> str:
    return os.urandom(8).hex()
