"""Lines of logs: their order over several pods, and how they look to people.

A line is what a process wrote: mostly JSON of the common format (`yaie_api.logs`), sometimes text
of a library, or a part of a traceback.
"""

import heapq
import json
import time
from calendar import timegm
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from yaie_api.logs import one_line, plain

_SHOWN: Final = ("time", "level", "logger", "message", "exception")
_DIM, _RED, _YELLOW, _NORMAL = "\033[2m", "\033[31m", "\033[33m", "\033[0m"
_COLOURS: Final = {"warning": _YELLOW, "error": _RED, "critical": _RED}
_TIME: Final = b'{"time": "'


def merged(streams: Sequence[Iterable[bytes]]) -> Iterator[bytes]:
    """The lines of all streams by their time; those of one stream keep their order."""
    keyed = [_keyed(stream) for stream in streams]
    return (line for _, line in heapq.merge(*keyed, key=lambda pair: pair[0]))


def by_time(lines: Sequence[bytes]) -> list[bytes]:
    """Lines that came together, by their time; those without one stay behind the line before."""
    return [line for _, line in sorted(_keyed(lines), key=lambda pair: pair[0])]


def rendered(line: bytes, *, colours: bool) -> str:
    """A line as people read it: `12:00:00 INFO  ready  url=http://…`, with its pod before it. A
    line of another format is shown as it is, without control characters.
    """
    pod, text = _split(line.decode(errors="replace").rstrip("\n"))
    entry = _entry(text)
    start = _in(_DIM, pod, colours=colours)
    return start + (one_line(text) if entry is None else _formatted(entry, colours=colours))


def _formatted(entry: dict[str, Any], *, colours: bool) -> str:
    level = str(entry.get("level", ""))
    keys = "".join(f"  {plain(k)}={plain(v)}" for k, v in entry.items() if k not in _SHOWN)
    words = [
        _in(_DIM, _clock(str(entry.get("time", ""))), colours=colours),
        _in(_COLOURS.get(level, ""), f"{one_line(level).upper():<7}", colours=colours),
        one_line(str(entry["message"])) + _in(_DIM, keys, colours=colours),
    ]
    trace = [one_line(part) for part in str(entry.get("exception", "")).splitlines()]
    return "\n".join((" ".join(words), *trace))


def _in(code: str, text: str, *, colours: bool) -> str:
    return f"{code}{text}{_NORMAL}" if colours and code and text else text


def _clock(stamp: str) -> str:
    """`2026-01-31T12:00:00.123Z` as the time of day where the reader is."""
    try:
        seconds = timegm(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return one_line(stamp)
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def _split(text: str) -> tuple[str, str]:
    """The prefix of a line that names its pod, and the rest."""
    if not text.startswith("["):
        return "", text
    pod, found, rest = text.partition("] ")
    return (f"{one_line(pod)}] ", rest) if found else ("", text)


def _entry(text: str) -> dict[str, Any] | None:
    """A line of our JSON log; None for any other line."""
    if not text.startswith("{"):
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and "message" in entry else None


def _keyed(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    last: bytes = b""
    for line in lines:
        last = _stamp(line) or last
        yield last, line


def _stamp(line: bytes) -> bytes:
    """The time of a line as it is written there; b"" if it has none."""
    start = line.find(_TIME)
    if start < 0 or not (start == 0 or line.startswith(b"[")):
        return b""
    start += len(_TIME)
    return line[start : line.find(b'"', start)]
