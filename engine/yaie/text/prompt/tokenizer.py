"""Text to token ids and back, and the chat template. `tokenizers` and jinja2 only.

Special-token strings that come inside messages or template variables never become control tokens:
they are marked before the template is rendered and encoded as plain text afterwards.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer as FastTokenizer

from yaie.text.prompt.byte_vocab import spelling_of
from yaie.text.prompt.special_token_escape import any_of, broken, guard_for
from yaie.text.prompt.template import RENDER_S, ChatTemplate, load_chat_template
from yaie_api.errors import ContextLengthError, InvalidRequestError

# Each text is encoded in the thread that asks: the library's own pool would gain nothing and warns
# whenever a process that has used it starts another one.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

MANY_IDS: Final = 4096
MOST_NORMALIZED: Final = 4
"""Bytes of a text that composed normal forms make one byte of, at most (rounded up)."""


class Tokenizer:
    """One model's tokenizer. Safe to share between threads: nothing changes after loading."""

    def __init__(self, fast: FastTokenizer, template: ChatTemplate | None) -> None:
        fast.no_padding()
        fast.no_truncation()
        self._fast = fast
        self._plain = FastTokenizer.from_str(fast.to_str())
        self._plain.encode_special_tokens = True
        self.template = template
        added = fast.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in added.items() if token.special)
        self._special_by_content = {t.content: (i, t) for i, t in added.items() if t.special}
        self._special_pattern = any_of(list(self._special_by_content))
        decoder = json.loads(fast.to_str()).get("decoder") or {}
        self.byte_level: bool = decoder.get("type") == "ByteLevel"
        self._spelling = spelling_of(decoder)
        self._bytes: dict[int, bytes] = {}  # filled on demand, bounded by the vocabulary
        self.vocab_size: int = fast.get_vocab_size()

    @classmethod
    def load(cls, folder: str | Path, chat_template: Path | None = None) -> "Tokenizer":
        """Read `tokenizer.json` and the chat template from a model folder.

        `chat_template`: a file to use instead of the model's own template.

        Raises:
            InvalidRequestError: no tokenizer.json, or a file that cannot be read.

        """
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            raise InvalidRequestError(
                "The model's folder has no tokenizer. Add its tokenizer.json, or name a folder "
                "that has one with --tokenizer.",
                param="model",
            )
        try:
            fast = FastTokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise InvalidRequestError(
                f"The model's tokenizer.json cannot be read: {error}. Download it again.",
                param="model",
            ) from error
        return cls(fast, load_chat_template(Path(folder), chat_template))

    @property
    def template_source(self) -> str | None:
        """The chat template as it is written; None: there is none."""
        return None if self.template is None else self.template.source

    @cached_property
    def most_bytes_of_a_token(self) -> int | None:
        """No token stands for more bytes of a text; None: there is no such bound, since unknown
        words or blanks of any length are one token.
        """
        added = self._fast.get_added_tokens_decoder().values()
        if not self.byte_level or any(token.lstrip or token.rstrip for token in added):
            return None
        longest = max(len(token.encode()) for token in self._fast.get_vocab())
        return longest if self._fast.normalizer is None else MOST_NORMALIZED * longest

    def check_fits(self, text: str, limit_tokens: int, *, param: str) -> None:
        """Refuse, before anybody counts its tokens, a text that has too many whatever they are: a
        character takes at least a byte, and no token stands for more than so many.

        Raises:
            ContextLengthError: it cannot fit.

        """
        longest = self.most_bytes_of_a_token
        if longest is not None and len(text) > limit_tokens * longest:
            least = len(text) // longest
            raise ContextLengthError(limit_tokens, least, None, param=param, at_least=True)

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
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
        limit_s: float = RENDER_S,
        limit_tokens: int | None = None,
    ) -> list[int]:
        """Token ids of a conversation, rendered with the model's chat template.

        `continue_final_message`: end with the last message's text, so that the answer goes on
        from there. `limit_tokens`: see `check_fits`.

        Raises:
            ContextLengthError: the rendered text cannot fit in `limit_tokens`.
            InvalidRequestError: no chat template, or the template refuses the messages.
            TemplateTimeoutError: the template takes longer than `limit_s`.

        """
        variables = variables or {}
        pattern = self._special_pattern
        guard = guard_for(pattern, (messages, variables))
        if pattern is not None and guard:
            messages, variables = broken((messages, variables), pattern, guard)
        if self.template is None:
            raise InvalidRequestError(
                "This model has no chat template. Use /v1/completions.", param="messages"
            )
        text = self.template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            variables=variables,
            limit_s=limit_s,
        )
        if continue_final_message:
            text = _until_last_message(text, messages)
        if limit_tokens is not None:
            self.check_fits(text, limit_tokens, param="messages")
        if pattern is None or not guard:
            return self.encode(text, add_special_tokens=False)
        return self._encode_guarded(text, pattern, guard)

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

    @property
    def is_exact(self) -> bool:
        """Whether text is exactly the tokens' bytes, joined and decoded as UTF-8."""
        return self._spelling is not None

    @property
    def strips_space(self) -> bool:
        """Whether one space at the text's beginning is left out."""
        return self._spelling is not None and self._spelling.strips_space

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token where `is_exact`; empty for an unknown id."""
        known = self._bytes.get(token_id)
        if known is None:
            text, spelling = self.token_text(token_id), self._spelling
            known = text.encode() if spelling is None else spelling.bytes_of(text)
            self._bytes[token_id] = known
        return known

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it; empty for an unknown id."""
        token: str | None = self._fast.id_to_token(token_id)
        return token or ""

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


def _until_last_message(text: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """The rendered text up to the end of the last message's own text."""
    last = str(messages[-1]["content"]).strip()
    place = text.rfind(last) if last else -1
    if place < 0:
        raise InvalidRequestError(
            "The last message has no text that the chat template shows: it cannot be continued.",
            param="continue_final_message",
        )
    return text[: place + len(last)]
