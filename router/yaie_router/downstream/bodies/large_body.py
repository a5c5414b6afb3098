"""What the router reads of a large body: enough to route it, in a bounded time.

To decode 8 MiB of `[],[],…` makes millions of lists and stops the event loop for more than a
second. So a large body's values are skipped over, not built, which still checks that it is JSON
(52 ms where building them took 3.7 s, on two busy cores). Then only the beginning of what decides
the home key is decoded. The result is a body that has the same home key as the whole one wherever
its beginning is not itself huge.
"""

import asyncio
import hashlib
import json
import re
from typing import Any, Final

import msgspec

from yaie_api import prefix

LARGE_BYTES: Final = 128 << 10
"""Bodies up to this size are decoded whole: the worst of them takes 20 ms."""
_MOST_NAME_BYTES: Final = 4096
_MOST_MESSAGES: Final = 64
_PROMPT_BYTES: Final = 4096
_PLAIN: Final = ("model", "stream", "previous_response_id")
_TURNS: Final = ("messages", "input")
_ABSENT: Final = msgspec.Raw(b"")
_Fields: Final = msgspec.defstruct(
    "_Fields",
    [(name, msgspec.Raw, _ABSENT) for name in (*_PLAIN, *_TURNS, "prompt", *prefix.HEADER_FIELDS)],
    gc=False,
)
_decoder: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Fields)
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_MOST_HALVES: Final = 10_000
_scan: Final = json.JSONDecoder().raw_decode


async def read(body: bytes) -> dict[str, Any]:
    """Return a body with the fields that routing needs.

    Raises:
        ValueError: it is not JSON, or no object.
        RecursionError: it is nested too deeply.

    """
    try:
        return _read(body)
    except msgspec.ValidationError:
        raise
    except ValueError:
        await asyncio.sleep(0)  # others have their turn
        # Half an emoji is JSON that msgspec refuses. It is forwarded as it came.
        mended, count = _HALF.subn(rb"\\ufffd", body, _MOST_HALVES)
        if not count:
            raise
        await asyncio.sleep(0)
        return _read(mended)


def _read(body: bytes) -> dict[str, Any]:
    fields = _decoder.decode(body)
    found: dict[str, Any] = {}
    for name in _PLAIN:
        if named := bytes(getattr(fields, name)):
            found[name] = msgspec.json.decode(named) if len(named) <= _MOST_NAME_BYTES else None
    left = LARGE_BYTES
    for name in prefix.HEADER_FIELDS:
        if raw := memoryview(getattr(fields, name)):
            found[name] = _whole(raw) if len(raw) <= left else _digest(raw)
            left -= min(left, len(raw))
    for name in _TURNS:
        if raw := memoryview(getattr(fields, name)):
            found[name] = _first_messages(raw)
    if raw := memoryview(fields.prompt):
        found["prompt"] = _first_of_prompt(raw)
    return found


def _first_messages(raw: memoryview) -> Any:
    """The messages up to the first of the user; those that are huge are known by a digest."""
    if bytes(raw[:1]) != b"[":
        return _whole(raw) if len(raw) <= LARGE_BYTES else _digest(raw)
    text = str(raw[1 : LARGE_BYTES + 1], "utf-8", "replace")
    messages: list[Any] = []
    at = 0
    while len(messages) < _MOST_MESSAGES:
        at += len(text) - at - len(text[at:].lstrip(" \t\r\n,"))
        try:
            message, at = _scan(text, at)
        except (ValueError, RecursionError):  # the list's end, or a message that is cut
            break
        messages.append(message)
        if isinstance(message, dict) and message.get("role") == "user":
            return messages
    return [*messages, _digest(raw)]


def _first_of_prompt(raw: memoryview) -> Any:
    """The beginning of a prompt, which is longer than the first cut of its keys."""
    if len(raw) <= _PROMPT_BYTES:
        return _whole(raw)
    cut = bytes(raw[:_PROMPT_BYTES])
    try:
        if cut[:1] == b'"':
            return _cut_string(cut)
        return msgspec.json.decode(cut[: cut.rindex(b",")] + b"]")
    except ValueError:
        return _digest(raw)


def _cut_string(cut: bytes) -> str:
    """A string's beginning; the cut may have gone through an escape or a character."""
    for back in range(12):
        try:
            return msgspec.json.decode(cut[: len(cut) - back] + b'"', type=str)
        except ValueError:
            continue
    raise ValueError("no string begins here")


def _whole(raw: memoryview) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return _digest(raw)


def _digest(raw: memoryview) -> str:
    """What stands for a value that is too large to decode: equal beginnings, equal digests."""
    return hashlib.blake2b(raw[:LARGE_BYTES], digest_size=16).hexdigest()
