"""Prefix keys: hashes by which a router and an engine recognise requests with equal beginnings.

A request is serialised in a canonical form (a header of all fields that change the rendering, then
its messages or prompt) and cut at every message border and every 512 bytes. Key *i* is a keyed
64-bit hash (BLAKE2b) of all bytes up to cut *i*, so equal keys mean equal beginnings:

    header │ system message      │ user message │ assistant message │ …
           k0        k1          k2             k3                  k4      ← border cuts
                (k every 512 bytes inside a longer message)

No tokenizer is involved, and no JSON body raises an error: a request that the engine will refuse
still gets keys. The *home* key is at the end of the first user message, so all turns of one
conversation share it. Raw prompts have no borders; their home key is at the first 512-byte cut. The
fields `system` and `instructions` of other APIs belong to the header, and `input` is treated as
messages. A message with one text part has the same keys as a message with that text, and cache
marks (`cache_control`) are ignored, because clients move them from turn to turn.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

STRIDE_BYTES: Final = 512
MAX_KEYS: Final = 256

_RENDERING_FIELDS: Final = frozenset(
    (
        "add_generation_prompt",
        "add_special_tokens",
        "cache_salt",
        "chat_template",
        "chat_template_kwargs",
        "continue_final_message",
        "documents",
        "functions",
        "output_config",
        "reasoning",
        "reasoning_effort",
        "suffix",
        "thinking",
        "tool_choice",
        "tools",
    )
)
HEADER_FIELDS: Final = (*sorted(_RENDERING_FIELDS), "system", "instructions")
"""Fields of a body, beside the model's name, that come before its messages or prompt."""
_DIGEST_BYTES: Final = 8
_TEXT, _TOKENS, _JSON = b"T", b"I", b"J"
_INSIDE, _BORDER = b"\x00", b"\x01"
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class PrefixKeys(msgspec.Struct, frozen=True):
    """The keys of one request, in order of their cuts.

    `keys[i]` covers the first `ends[i]` of `total_bytes` canonical bytes; `home` is the index of
    the home key. A request with more than `MAX_KEYS` cuts has keys for its beginning only.
    `is_beginning`: only the request's beginning was read, about as far as its home key.
    """

    keys: tuple[int, ...]
    ends: tuple[int, ...]
    total_bytes: int
    home: int
    is_beginning: bool = False

    @property
    def home_key(self) -> int:
        """The key that all turns of one conversation share."""
        return self.keys[self.home]

    def of_beginning(self, total_bytes: int) -> "PrefixKeys":
        """These keys as those of a request of so many bytes, the beginning of which has them. Who
        has the last of them is taken to have the whole request.
        """
        ends = (*self.ends[:-1], total_bytes)
        return msgspec.structs.replace(self, ends=ends, total_bytes=total_bytes, is_beginning=True)


class _Block(msgspec.Struct, frozen=True):
    """A part of the canonical request that ends at a border. `home`: where the home key may be."""

    data: bytes
    home: str = ""  # "end": at this block's border; "first": at this block's first cut


def tenant_key(key: bytes, tenant: str) -> bytes:
    """The key of a tenant's hashes: equal requests of two tenants have no prefix key in common."""
    if not tenant:
        return key
    return hashlib.blake2b(tenant.encode(), key=key, digest_size=32, person=b"yaie-tenant").digest()


def keys(
    body: Mapping[str, Any], key: bytes, *, model: str | None = None, adapter: str = ""
) -> PrefixKeys:
    """All keys of a parsed request body; `key`: the namespace's secret, at most 64 bytes.

    `model` replaces the body's model name, so that a model and its aliases share prefixes.
    """
    blocks = list(_blocks(body, model, adapter))
    found, ends, are_home = zip(*_cuts(blocks, key), strict=True)
    return PrefixKeys(
        keys=found,
        ends=ends,
        total_bytes=sum([len(block.data) for block in blocks]),
        home=are_home.index(True) if True in are_home else len(found) - 1,
    )


def answer_key(found: PrefixKeys, answer: Mapping[str, Any], key: bytes) -> int | None:
    """The key that the next turn of a conversation has at the end of the message `answer`. `found`:
    the keys of the turn that it answers. None: that would be beyond `MAX_KEYS`.
    """
    if found.ends[-1] < found.total_bytes:
        return None
    block = _Block(_message(answer))
    *_, last = (0, 0), *_cuts((block,), key, after=found.keys)
    return last[0] if last[1] == len(block.data) else None


def _cuts(
    blocks: Iterable[_Block], key: bytes, after: Sequence[int] = ()
) -> Iterator[tuple[int, int, bool]]:
    """Yield (key, end in bytes, whether it is the home key) for the first `MAX_KEYS` cuts.
    `after`: keys of the blocks before, of which a key is the digest.
    """
    digest, end, count = b"", 0, len(after)
    if after:
        digest = after[-1].to_bytes(_DIGEST_BYTES, "big")
    if count == MAX_KEYS:
        return
    for block in blocks:
        size = len(block.data)
        for start in range(0, max(size, 1), STRIDE_BYTES):
            piece = block.data[start : start + STRIDE_BYTES]
            border = start + STRIDE_BYTES >= size
            digest = hashlib.blake2b(
                digest + (_BORDER if border else _INSIDE) + piece,
                digest_size=_DIGEST_BYTES,
                key=key,
            ).digest()
            end, count = end + len(piece), count + 1
            is_home = block.home == "first" or (block.home == "end" and border)
            yield int.from_bytes(digest, "big"), end, is_home
            if count == MAX_KEYS:
                return


def key_of(text: str) -> bytes:
    """The secret key that a setting holds in hexadecimal digits.

    Raises:
        ValueError: it is something else, or has more than 64 bytes.

    """
    key = bytes.fromhex(text)
    if len(key) > hashlib.blake2b.MAX_KEY_SIZE:
        raise ValueError(f"a key has at most {hashlib.blake2b.MAX_KEY_SIZE} bytes")
    return key


def _canonical(value: object) -> bytes:
    """Compact JSON with sorted keys. The fallback handles lone surrogates (half an emoji), which
    are valid in JSON but not in UTF-8.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _blocks(body: Mapping[str, Any], model: str | None, adapter: str) -> Iterator[_Block]:
    named = _RENDERING_FIELDS.intersection(body)
    header = {name: body[name] for name in named if body[name] is not None}
    name = model if model is not None else body.get("model")
    head = _Block(_canonical([name, adapter, header]))
    for name in ("system", "instructions"):
        if body.get(name) is not None:
            head = _Block(head.data + _canonical([name, _content(body[name])]))
    for name in ("messages", "input"):
        if name in body:
            return chain((head,), _messages(body[name]))
    return chain((head,), _prompts(body.get("prompt")))


def _messages(messages: object) -> Iterator[_Block]:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list):
        yield _Block(_JSON + _canonical(messages), home="end")
        return
    pending = "end"  # only the first user message can be home
    for message in messages:
        is_user = isinstance(message, dict) and message.get("role") == "user"
        yield _Block(_message(message), home=pending if is_user else "")
        pending = "" if is_user else pending


def _message(message: object) -> bytes:
    """A message with role first and content last, so that equal beginnings share their cuts. An
    absent field equals null: clients send an answer back with or without its empty fields.
    """
    if not isinstance(message, Mapping):
        return _JSON + _canonical(message)
    rest = {
        k: v for k, v in message.items() if v is not None and k not in ("role", "content", "type")
    }
    if message.get("type", "message") != "message":
        rest["type"] = message["type"]
    return _TEXT + _canonical([message.get("role"), rest, _content(message.get("content"))])


def _content(content: object) -> object:
    """The content without cache marks; a single text part becomes its text."""
    if not isinstance(content, list):
        return content
    parts = [_unmarked(part) for part in content]
    match parts:
        case [{"type": "text" | "input_text", "text": str(text), **rest}] if not rest:
            return text
    return parts


def _unmarked(part: object) -> object:
    if isinstance(part, dict) and "cache_control" in part:
        return {k: v for k, v in part.items() if k != "cache_control"}
    return part


def _prompts(prompt: object) -> Iterator[_Block]:
    """Blocks of a completions prompt: text, token ids, or a list of either."""
    if isinstance(prompt, list) and prompt and not _is_token_ids(prompt):
        for index, one in enumerate(prompt):
            yield _Block(_prompt(one), home="" if index else "first")
    else:
        yield _Block(_prompt(prompt), home="first")


def _prompt(prompt: object) -> bytes:
    if isinstance(prompt, str):
        return _TEXT + prompt.encode("utf-8", "surrogatepass")
    if isinstance(prompt, list) and _is_token_ids(prompt):
        return _TOKENS + struct.pack(f"<{len(prompt)}I", *prompt)
    return _JSON + _canonical(prompt)


def _is_token_ids(prompt: list[Any]) -> bool:
    return all(type(token) is int and 0 <= token < 1 << 32 for token in prompt)
