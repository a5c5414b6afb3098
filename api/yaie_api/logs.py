"""Logging of all yaie processes: text on a terminal, JSON lines otherwise.

A record is a constant message plus keys: `log.info("model ready", extra=fields(model="demo"))`. The
current request's id is kept in a context variable and added to each record, and so is its trace's.
Prompts and outputs are never logged unless the user enables it. Uses the standard library only.
"""

import contextvars
import functools
import json
import logging
import sys
import time
from typing import Any, Final, Literal, TextIO

LogFormat = Literal["auto", "text", "json"]

request_id: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("request_id", default="")
"""Id of the request that the current task serves; empty outside requests."""


trace_id: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("trace_id", default="")
"""Id of the trace that this request belongs to; empty if there is none."""


def fields(**values: Any) -> dict[str, dict[str, Any]]:
    """Make the `extra` argument for a log record's keys, which may have any name."""
    return {"fields": values}


def configure(
    *,
    level: int | str = logging.INFO,
    log_format: LogFormat = "auto",
    stream: TextIO | None = None,
) -> None:
    """Send all records of this process to `stream` (default: standard error) in one format.

    `auto` is text when the stream is a terminal and JSON lines otherwise. Replaces any handler
    that was set before, so calling it twice does not double the lines.
    """
    target = sys.stderr if stream is None else stream
    if log_format == "auto":
        log_format = "text" if target.isatty() else "json"
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextFormatter() if log_format == "text" else JsonFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)
    _collect_no_more_than_is_written()


def _collect_no_more_than_is_written() -> None:
    """Spare each record what no line shows, as `logging` documents it: a walk over the stack to
    find the caller, and the thread, the process and the task.
    """
    logging._srcfile = None  # noqa: SLF001 - the documented switch
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False
    logging.logAsyncioTasks = False  # type: ignore[attr-defined, unused-ignore] # from 3.12 on


_encode: Final = json.JSONEncoder(default=str, ensure_ascii=False).encode


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (RFC 3339, UTC), level, logger, message, request_id, trace_id,
    keys.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if current := request_id.get():
            entry["request_id"] = current
        if current := trace_id.get():
            entry["trace_id"] = current
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return _encode(entry)


class TextFormatter(logging.Formatter):
    """`12:00:00 INFO logger: message  key=value`, line breaks in values escaped."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        keys = dict(getattr(record, "fields", {}))
        if current := trace_id.get():
            keys = {"trace_id": current} | keys
        if current := request_id.get():
            keys = {"request_id": current} | keys
        tail = "".join(f"  {key}={plain(value)}" for key, value in keys.items())
        message = one_line(record.getMessage())
        line = f"{clock} {record.levelname:<7} {record.name}: {message}{tail}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _utc(created_s: float) -> str:
    return f"{_utc_second(int(created_s))}.{int(created_s % 1 * 1000):03d}Z"


@functools.lru_cache(maxsize=2)
def _utc_second(created_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created_s))


def plain(value: object) -> str:
    """A value of a key in a line of text: without line breaks, in quotes if it has spaces."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = one_line(str(value))
    return f'"{text}"' if " " in text or not text else text


def one_line(text: str) -> str:
    """Escape line breaks and other control characters, so that a value cannot forge a log line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
