"""Log-probabilities of a message's text, in the form of the responses API.

An answer's tokens also spell reasoning, tags and calls. Those of a text are found by their bytes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from yaie.core.messages import TokenLogprobs
from yaie.server.answers.output import Delta
from yaie.server.openai.logprobs import TokenForms, chat_logprobs
from yaie.text.parts import TextPart


class TextLogprobs:
    """Holds the log-probabilities of the delta that is being written."""

    def __init__(self, forms: TokenForms) -> None:
        self._forms = forms
        self._entries: Sequence[TokenLogprobs] = ()
        self._only_text = False

    def hold(self, delta: Delta) -> None:
        """Take those of a delta, before its parts are written."""
        self._entries = delta.logprobs
        self._only_text = all(isinstance(part, TextPart) for part in delta.parts)

    def take(self, text: str) -> list[dict[str, Any]]:
        """Return those of the tokens that spell this text of the delta. A later text of the same
        delta gets later ones.
        """
        if not self._entries:
            return []
        start, end = self._place(text)
        taken, self._entries = self._entries[start:end], self._entries[end:]
        told: list[dict[str, Any]] = chat_logprobs(self._forms, taken)["content"]
        return told

    def _place(self, text: str) -> tuple[int, int]:
        """Return the range of entries whose bytes hold the text. Where only text is told, tokens
        that are not shown come before it. Not found: all entries there, none elsewhere.
        """
        spelled = [self._forms.bytes(entry.token_id) for entry in self._entries]
        whole, wanted = b"".join(spelled), text.encode()
        begin = whole.rfind(wanted) if self._only_text else whole.find(wanted)
        if begin < 0:
            return 0, len(spelled) if self._only_text else 0
        ends = list(accumulate(map(len, spelled)))
        return bisect_right(ends, begin), bisect_left(ends, begin + len(wanted)) + 1
