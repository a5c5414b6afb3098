"""Log-probabilities in the forms of the APIs: OpenAI's for chats and text completions, vLLM's for
prompts.

JSON has no infinity: an impossible token gets `LOWEST`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from yaie.core.messages import TokenLogprobs

LOWEST: Final = -9999.0
_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling(Protocol):
    """The part of a tokenizer that is used here."""

    @property
    def byte_level(self) -> bool: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def token_text(self, token_id: int) -> str: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...


class TokenForms:
    """Texts and bytes of single tokens. `as_ids`: the text of a token is `token_id:ID`, which is
    unique.
    """

    def __init__(self, tokenizer: Spelling, *, as_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids

    def text(self, token_id: int) -> str:
        if self._as_ids:
            return f"token_id:{token_id}"
        if self._tokenizer.byte_level:
            return self._tokenizer.token_bytes(token_id).decode(errors="replace")
        return self._inner_text(token_id)

    def bytes(self, token_id: int) -> bytes:
        if self._tokenizer.byte_level:
            return self._tokenizer.token_bytes(token_id)
        byte = _BYTE_TOKEN.fullmatch(self._tokenizer.token_text(token_id))
        return bytes.fromhex(byte[1]) if byte else self._inner_text(token_id).encode()

    def _inner_text(self, token_id: int) -> str:
        """Return a token's text inside a longer text: some decoders strip the first space."""
        once = self._tokenizer.decode([token_id], skip_special_tokens=False)
        twice = self._tokenizer.decode([token_id, token_id], skip_special_tokens=False)
        return twice[len(once) :]


def chat_logprobs(forms: TokenForms, entries: Sequence[TokenLogprobs]) -> dict[str, Any]:
    """Return the `logprobs` object of a chat choice or chunk."""
    return {
        "content": [
            _chat_token(forms, entry.token_id, entry.logprob)
            | {
                "top_logprobs": [
                    _chat_token(forms, token_id, logprob)
                    for token_id, logprob in zip(entry.top_ids, entry.top_logprobs, strict=True)
                ]
            }
            for entry in entries
        ],
        "refusal": None,
    }


def _chat_token(forms: TokenForms, token_id: int, logprob: float) -> dict[str, Any]:
    return {
        "token": forms.text(token_id),
        "logprob": finite(logprob),
        "bytes": list(forms.bytes(token_id)),
    }


class CompletionLogprobs:
    """The `logprobs` objects of one completion choice. Offsets continue from call to call."""

    def __init__(self, forms: TokenForms) -> None:
        self._forms = forms
        self._offset = 0

    def prompt(self, token_ids: Sequence[int], entries: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """Return those of an echoed prompt. Its first token has none: nothing comes before it."""
        if not token_ids:
            return self.output(())
        first = self._write(token_ids[:1], [None], [None])
        return together(first, self.output(entries))

    def output(self, entries: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """Return those of generated tokens. `top_logprobs` includes the chosen token."""
        return self._write(
            [entry.token_id for entry in entries],
            [finite(entry.logprob) for entry in entries],
            [self._top(entry) for entry in entries],
        )

    def _write(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[float | None],
        top: Sequence[Mapping[str, float] | None],
    ) -> dict[str, Any]:
        texts = [self._forms.text(token_id) for token_id in token_ids]
        offsets: list[int] = []
        for text in texts:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": list(logprobs),
            "top_logprobs": list(top),
            "text_offset": offsets,
        }

    def _top(self, entry: TokenLogprobs) -> dict[str, float]:
        """Return candidates by text. Of two tokens with the same text, the likelier one counts."""
        found = {self._forms.text(entry.token_id): finite(entry.logprob)}
        for token_id, logprob in zip(entry.top_ids, entry.top_logprobs, strict=True):
            text = self._forms.text(token_id)
            found[text] = max(found.get(text, LOWEST), finite(logprob))
        return found


def together(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Concatenate two `logprobs` objects of one completion."""
    return {name: first[name] + second[name] for name in first}


def prompt_logprobs(
    forms: TokenForms, entries: Sequence[TokenLogprobs]
) -> list[dict[str, Any] | None]:
    """Return vLLM's `prompt_logprobs`: for each token but the first, its candidates by id."""
    return [None, *(_candidates(forms, entry) for entry in entries)]


def _candidates(forms: TokenForms, entry: TokenLogprobs) -> dict[str, Any]:
    top = zip(entry.top_ids, entry.top_logprobs, strict=True)
    ranked = [(token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(top, 1)]
    return {
        str(token_id): {
            "logprob": finite(logprob),
            "rank": rank,
            "decoded_token": forms.text(token_id),
        }
        for token_id, logprob, rank in [(entry.token_id, entry.logprob, entry.rank), *ranked]
    }


def finite(logprob: float) -> float:
    return max(logprob, LOWEST)
