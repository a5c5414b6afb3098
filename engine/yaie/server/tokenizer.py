"""Text to token ids and back, and the chat template. `tokenizers` and jinja2 only.

Special-token strings that come inside messages or template variables never become control tokens:
they are marked before the template is rendered and encoded as plain text afterwards.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer as FastTokenizer

from yaie.server.template import ChatTemplate, load_chat_template
from yaie_api.errors import InvalidRequestError

# Each text is encoded in the thread that asks: the library's own pool would gain nothing and warns
# whenever a process that has used it starts another one.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

MANY_IDS: Final = 4096

_GUARDS: Final = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
"""Unicode noncharacters: reserved for internal use, so ordinary text has none of them."""


class Tokenizer:
    """One model's tokenizer. Safe to share between threads: nothing changes after loading."""

    def __init__(self, fast: FastTokenizer, template: ChatTemplate | None) -> None:
        fast.no_padding()
        fast.no_truncation()
        self._fast = fast
        self._plain = FastTokenizer.from_str(fast.to_str())
        self._plain.encode_special_tokens = True
        self._template = template
        added = fast.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in added.items() if token.special)
        self._special_by_content = {t.content: (i, t) for i, t in added.items() if t.special}
        self._special_pattern = _any_of(list(self._special_by_content))
        self.byte_level: bool = _is_byte_level(fast)
        self._bytes: dict[int, bytes] = {}  # filled on demand, bounded by the vocabulary
        self.vocab_size: int = fast.get_vocab_size()

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Read `tokenizer.json` and the chat template from a model folder.

        Raises:
            InvalidRequestError: no tokenizer.json, or one that cannot be read.

        """
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            raise InvalidRequestError("The model folder has no tokenizer.json.", param="model")
        try:
            fast = FastTokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise InvalidRequestError(
                f"The model's tokenizer.json cannot be read: {error}", param="model"
            ) from error
        return cls(fast, load_chat_template(Path(folder)))

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; special-token strings in it become special tokens.

        Raises:
            InvalidRequestError: the text is not Unicode (it holds half a surrogate pair).

        """
        return _encode(self._fast, text, add_special_tokens=add_special_tokens)

    def encode_pair(self, first: str, second: str) -> list[int]:
        """Token ids of two texts, joined as the tokenizer's own template for pairs says.

        Raises:
            InvalidRequestError: a text is not Unicode.

        """
        return _encode(self._fast, (first, second), add_special_tokens=True)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation, rendered with the model's chat template.

        Raises:
            InvalidRequestError: no chat template, or the template refuses the messages.

        """
        variables = variables or {}
        pattern, guard = self._special_pattern, self._guard_for((messages, variables))
        if pattern is not None and guard:
            messages, variables = _map_strings(
                (messages, variables), lambda text: _break_all(pattern, text, guard)
            )
        text = self.render_chat(
            messages, add_generation_prompt=add_generation_prompt, variables=variables
        )
        if pattern is None or not guard:
            return self.encode(text, add_special_tokens=False)
        return self._encode_guarded(text, pattern, guard)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of a conversation as the chat template writes it."""
        if self._template is None:
            raise InvalidRequestError(
                "This model has no chat template. Use /v1/completions.", param="messages"
            )
        return self._template.render(
            messages, add_generation_prompt=add_generation_prompt, variables=variables or {}
        )

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids; unknown ids have none. Long lists leave the interpreter's lock free,
        as `encode` does.
        """
        ids, skip = list(token_ids), skip_special_tokens
        text: str
        if len(ids) < MANY_IDS:
            text = self._fast.decode(ids, skip_special_tokens=skip)
        else:
            (text,) = self._fast.decode_batch([ids], skip_special_tokens=skip)
        return text

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token of a byte-level vocabulary; empty for an unknown id."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = _bytes_of(self.token_text(token_id))
        return known

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it; empty for an unknown id."""
        token: str | None = self._fast.id_to_token(token_id)
        return token or ""

    def _guard_for(self, given: Any) -> str:
        """A character that can break the special-token strings in what the client has given; ""
        when none occur.
        """
        pattern = self._special_pattern
        texts = list(_strings(given))
        if pattern is None or not any(pattern.search(text) for text in texts):
            return ""
        for guard in _GUARDS:
            if not any(guard in text for text in texts):
                return guard
        raise InvalidRequestError(
            "The messages mix special-token strings and Unicode noncharacters.", param="messages"
        )

    def _encode_guarded(self, text: str, pattern: re.Pattern[str], guard: str) -> list[int]:
        """Encode with only unbroken special tokens as such; broken ones are plain text again."""
        ids: list[int] = []
        position = 0
        for match in pattern.finditer(text):
            token_id, token = self._special_by_content[match.group()]
            piece = text[position : match.start()]
            ids += self._encode_plain((piece.rstrip() if token.lstrip else piece), guard)
            ids.append(token_id)
            position = match.end()
            if token.rstrip:
                position += len(text) - position - len(text[position:].lstrip())
        return ids + self._encode_plain(text[position:], guard)

    def _encode_plain(self, text: str, guard: str) -> list[int]:
        return _encode(self._plain, text.replace(guard, ""), add_special_tokens=False)


def _encode(
    fast: FastTokenizer, text: str | tuple[str, str], *, add_special_tokens: bool
) -> list[int]:
    """As a batch of one: `encode` itself holds the interpreter's lock, for seconds on megabytes,
    and this does not (and keeps no offsets, which makes it three times as fast).
    """
    try:
        (encoding,) = fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    except TypeError:
        raise InvalidRequestError("The text is not valid Unicode.", param="prompt") from None
    ids: list[int] = encoding.ids
    return ids


def _any_of(contents: Sequence[str]) -> re.Pattern[str] | None:
    """One pattern for all strings, longest first, as the tokenizer matches them."""
    longest_first = sorted((c for c in contents if c), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _break_all(pattern: re.Pattern[str], text: str, guard: str) -> str:
    """Put `guard` after the first character of each match until none is left (they may nest)."""
    while pattern.search(text):
        text = pattern.sub(lambda match: match.group()[0] + guard + match.group()[1:], text)
    return text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _strings(item)


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_map_strings(item, change) for item in value]
    return value


def _is_byte_level(fast: FastTokenizer) -> bool:
    decoder = json.loads(fast.to_str()).get("decoder") or {}
    return bool(decoder.get("type") == "ByteLevel")


def _bytes_of(token: str) -> bytes:
    """A byte-level token's bytes; one with other characters (an added token) stands for itself."""
    try:
        return bytes(_BYTE_OF_CHARACTER[c] for c in token)
    except KeyError:
        return token.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins: visible Latin-1 for itself, the rest from U+0100 upwards."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    table = {chr(byte): byte for byte in visible}
    table |= {chr(0x100 + index): byte for index, byte in enumerate(hidden)}
    return table


_BYTE_OF_CHARACTER: Final = _byte_alphabet()
