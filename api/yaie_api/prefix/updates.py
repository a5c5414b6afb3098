"""What an engine tells routers about its prefix cache and its load: lines of JSON on one stream.

`GET` of `names.PATH_PREFIXES` never ends. It begins with a snapshot; then come lines when keys were
added or removed, at most every 100 ms, and at least one line a second:

    {"epoch":7,"sequence":41,"added":[[key,tokens],…],"load":{…},"parts":1}      a snapshot
    {"epoch":7,"sequence":42,"added":[[key,tokens]],"removed":[key],"load":{…}}  changes
    {"epoch":7,"sequence":42,"load":{…}}                                         heartbeat

The sequence rises by one with each line of changes, and only then. The epoch is a number that an
engine draws at its start: another epoch means an empty cache and begins with a snapshot. A reader
that is too slow gets a new snapshot in the middle of its stream. `PrefixIndex` reads all this.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Final

import msgspec

KEYS_PER_LINE: Final = 1024
"""A line has at most this many added and this many removed keys, so it stays under 64 KiB."""

Count = Annotated[int, msgspec.Meta(ge=0)]
Key = Annotated[int, msgspec.Meta(ge=0)]
"""64 bits, unsigned: more than a JSON reader that has only doubles can tell apart."""


class Load(msgspec.Struct, frozen=True):
    """How busy an engine is. Tokens of the KV cache: total = free + cached + in use.

    `waiting`, `running`: outputs of requests. `queued_tokens`: prompt tokens of requests that have
    not started, some of which the cache may have, and what is left of prompts that run.
    `requests`: that have come since the engine's start.
    """

    waiting: Count = 0
    running: Count = 0
    queued_tokens: Count = 0
    kv_tokens_total: Count = 0
    kv_tokens_free: Count = 0
    kv_tokens_cached: Count = 0
    requests: Count = 0


class PrefixUpdate(msgspec.Struct, frozen=True, omit_defaults=True, tag="prefixes"):
    """One line. Changes of the keys, or with `parts` > 0 a part of a snapshot.

    Attributes:
        epoch: which start of the engine this is about.
        sequence: number of the last change that it tells.
        added: (key, tokens): the first `tokens` tokens of a request with that key are cached. A key
            may come again with another number.
        removed: keys that are not cached any more. No key is both added and removed.
        load: as of now, in every line.
        part: which part of a snapshot, from 0.
        parts: number of lines of the snapshot; they share epoch and sequence, in order, with no
            other line between them. 0: this is no snapshot.

    """

    epoch: Count
    sequence: Count
    added: tuple[tuple[Key, Count], ...] = ()
    removed: tuple[Key, ...] = ()
    load: Load = Load()
    part: Count = 0
    parts: Count = 0


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(PrefixUpdate).decode


def encode(update: PrefixUpdate) -> bytes:
    """As a line, with its end."""
    return _encode(update) + b"\n"


def decode(line: bytes) -> PrefixUpdate:
    """Read a line.

    Raises:
        ValueError: it is something else (`msgspec.DecodeError` is one).

    """
    return _decode(line)


def snapshot(
    tokens: Mapping[int, int],
    *,
    epoch: int,
    sequence: int,
    load: Load,
    keys_per_line: int = KEYS_PER_LINE,
) -> Iterator[PrefixUpdate]:
    """The lines of a snapshot; one line if there are no keys. `tokens`: by key."""
    parts = max(1, -(-len(tokens) // keys_per_line))
    items = iter(tuple(tokens.items()))
    for part in range(parts):
        added = tuple(islice(items, keys_per_line))
        yield PrefixUpdate(epoch, sequence, added, load=load, part=part, parts=parts)
