"""Converts text to token ids and back, and applies the chat template. Needs no torch.

Special-token strings inside messages or template variables never become control tokens: they are
marked before the template is rendered and encoded as plain text afterwards.
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

# Each text is encoded in the calling thread: the library's own thread pool would gain nothing, and
# it warns whenever a process that has used it starts another process.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

MANY_IDS: Final = 4096
MOST_NORMALIZED: Final = 4
"""Most bytes of a text that a composing Unicode normalisation turns into one byte (rounded up)."""


class Tokenizer:
    """One model's tokenizer. Thread-safe: only a cache changes after loading."""

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
            InvalidRequestError: there is no tokenizer.json, or a file cannot be read.

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
        """The source of the chat template; None if there is none."""
        return None if self.template is None else self.template.source

    @cached_property
    def most_bytes_of_a_token(self) -> int | None:
        """Most bytes of a text that one token can represent.

        None: there is no bound, because unknown words or whitespace of any length are one token.
        """
        added = self._fast.get_added_tokens_decoder().values()
        if not self.byte_level or any(token.lstrip or token.rstrip for token in added):
            return None
        longest = max(len(token.encode()) for token in self._fast.get_vocab())
        return longest if self._fast.normalizer is None else MOST_NORMALIZED * longest

    def check_fits(self, text: str, limit_tokens: int, *, param: str) -> None:
        """Refuse, before tokenization, a text that certainly has more than `limit_tokens` tokens.

        A character has at least one byte, and a token represents at most
        `most_bytes_of_a_token`.

        Raises:
            ContextLengthError: the text cannot fit.

        """
        longest = self.most_bytes_of_a_token
        if longest is not None and len(text) > limit_tokens * longest:
            least = len(text) // longest
            raise ContextLengthError(limit_tokens, least, None, param=param, at_least=True)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; special-token strings in it become special tokens.

        Raises:
            InvalidRequestError: the text is not valid Unicode (it contains a lone surrogate).

        """
        return _encode(self._fast, text, add_special_tokens=add_special_tokens)

    def encode_pair(self, first: str, second: str) -> list[int]:
        """Token ids of two texts, joined by the tokenizer's template for pairs.

        Raises:
            InvalidRequestError: a text is not valid Unicode.

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

        `continue_final_message`: end with the last message's text, so that the answer continues
        it. `limit_tokens`: see `check_fits`.

        Raises:
            ContextLengthError: the rendered text cannot fit in `limit_tokens`.
            InvalidRequestError: there is no chat template, or it refuses the messages.
            TemplateTimeoutError: the template takes longer than `limit_s`.

        """
        variables = variables or {}
        pattern = self._special_pattern
        guard = guard_for(pattern, (messages, variables))
        if pattern is not None and guard:
            messages, variables = broken((messages, variables), pattern, guard)
        if self.template is None:
            raise InvalidRequestError(
                "This model has no chat template. Use /v1/completions, or have its server started "
                "with --chat-template FILE.",
                param="messages",
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
        """Text of token ids; unknown ids give no text.

        Long lists are decoded without the interpreter's lock (GIL), as in `encode`.
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
        """Whether a text is exactly its tokens' bytes, joined and decoded as UTF-8."""
        return self._spelling is not None

    @property
    def strips_space(self) -> bool:
        """Whether one space at the beginning of the text is removed."""
        return self._spelling is not None and self._spelling.strips_space

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token (exact if `is_exact`); empty for an unknown id."""
        known = self._bytes.get(token_id)
        if known is None:
            text, spelling = self.token_text(token_id), self._spelling
            known = text.encode() if spelling is None else spelling.bytes_of(text)
            self._bytes[token_id] = known
        return known

    def token_text(self, token_id: int) -> str:
        """The token's string in the vocabulary; empty for an unknown id."""
        token: str | None = self._fast.id_to_token(token_id)
        return token or ""

    def _encode_guarded(self, text: str, pattern: re.Pattern[str], guard: str) -> list[int]:
        """Encode unbroken special-token strings as special tokens, broken ones as plain text."""
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
    """Encode as a batch of one.

    The library's `encode` holds the GIL, for seconds on megabytes; `encode_batch_fast` does not,
    and is three times as fast because it keeps no offsets.
    """
    try:
        (encoding,) = fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    except TypeError:
        raise InvalidRequestError("The text is not valid Unicode.", param="prompt") from None
    ids: list[int] = encoding.ids
    return ids


def _until_last_message(text: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """The rendered text up to the end of the last message's text."""
    last = str(messages[-1]["content"]).strip()
    place = text.rfind(last) if last else -1
    if place < 0:
        raise InvalidRequestError(
            "The last message has no text that the chat template shows: it cannot be continued.",
            param="continue_final_message",
        )
    return text[: place + len(last)]
