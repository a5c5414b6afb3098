"""Prefix keys: what they are, which of them an engine has in its cache, and how it says so."""

from yaie_api.prefix.hashing import (
    HEADER_FIELDS,
    MAX_KEYS,
    STRIDE_BYTES,
    PrefixKeys,
    answer_key,
    key_of,
    keys,
    tenant_key,
)
from yaie_api.prefix.index import Outcome, PrefixIndex
from yaie_api.prefix.updates import KEYS_PER_LINE, Load, PrefixUpdate, decode, encode, snapshot

__all__ = [
    "HEADER_FIELDS",
    "KEYS_PER_LINE",
    "MAX_KEYS",
    "STRIDE_BYTES",
    "Load",
    "Outcome",
    "PrefixIndex",
    "PrefixKeys",
    "PrefixUpdate",
    "answer_key",
    "decode",
    "encode",
    "key_of",
    "keys",
    "snapshot",
    "tenant_key",
]
