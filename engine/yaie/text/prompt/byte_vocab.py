"""How a vocabulary's tokens encode bytes. If this is known, a text is exactly its tokens' bytes,
joined and decoded as UTF-8, so a token can be decoded without its neighbours.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_MARK: Final = "▁"
_FALLBACK_DECODERS: Final = (["Replace", "ByteFallback", "Fuse"], ["Strip"])


@dataclass(frozen=True, slots=True)
class Spelling:
    """The byte encoding of a vocabulary.

    `bytes_of`: returns a token's bytes. `strips_space`: one space at the beginning of a text is
    removed.
    """

    bytes_of: Callable[[str], bytes]
    strips_space: bool = False


def spelling_of(decoder: Mapping[str, Any] | None) -> Spelling | None:
    """The byte encoding that a decoder in tokenizer.json reverses; None if it is another kind."""
    if decoder is None:
        return None
    if decoder.get("type") == "ByteLevel":
        return Spelling(_byte_level)
    steps = decoder.get("decoders") or []
    kinds = [step.get("type") for step in steps]
    always, last = _FALLBACK_DECODERS
    if kinds not in (always, always + last) or not _marks_spaces(steps[0]):
        return None
    if kinds == always:
        return Spelling(_byte_fallback)
    strip = steps[-1]
    one_space = (strip.get("content"), strip.get("start"), strip.get("stop")) == (" ", 1, 0)
    return Spelling(_byte_fallback, strips_space=True) if one_space else None


def _marks_spaces(replace: Mapping[str, Any]) -> bool:
    return replace.get("pattern") == {"String": _SPACE_MARK} and replace.get("content") == " "


def _byte_level(token: str) -> bytes:
    """A token in GPT-2's byte alphabet; a token with other characters (an added one) is literal."""
    try:
        return bytes(_BYTE_OF_CHARACTER[c] for c in token)
    except KeyError:
        return token.encode()


def _byte_fallback(token: str) -> bytes:
    """A token in SentencePiece's form: `▁` for spaces, and 256 tokens `<0x..>` for single bytes."""
    if (byte := _BYTE_TOKEN.fullmatch(token)) is not None:
        return bytes.fromhex(byte[1])
    return token.replace(_SPACE_MARK, " ").encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable characters for bytes (`bytes_to_unicode` of its encoder): visible Latin-1
    stands for itself, the other bytes for characters from U+0100 on.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    table = {chr(byte): byte for byte in visible}
    table |= {chr(0x100 + index): byte for index, byte in enumerate(hidden)}
    return table


_BYTE_OF_CHARACTER: Final = _byte_alphabet()
