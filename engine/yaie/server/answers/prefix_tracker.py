"""Has the engine publish the prefix keys of a request, and that of its answer.

Key *i* of a prompt covers as much of its tokens as of its canonical bytes. A conversation goes on
from the answer, so the key that its next turn will have there is published, too. That turn shows
the model no reasoning, in most templates: after reasoning, the key covers only the prompt.
"""

from collections.abc import Callable, Sequence
from typing import Any

from yaie.core.kv_cache.radix_tree import pack
from yaie.core.messages import TiePrefixKeys
from yaie.text.parts import Part, ReasoningPart, TextPart, tool_calls
from yaie_api.prefix import PrefixKeys, answer_key


class PrefixTracker:
    """Follows one request.

    Args:
        found: its keys.
        key: the secret of all keys.
        salt: of its place in the cache.
        prompt: its token ids.
        is_chat: whether it has one answer that can become a message.
        tie: sends the keys to the engine.

    """

    def __init__(
        self,
        found: PrefixKeys,
        key: bytes,
        *,
        salt: str,
        prompt: Sequence[int],
        is_chat: bool,
        tie: Callable[[TiePrefixKeys], None],
    ) -> None:
        self._found = found
        self._key = key
        self._salt = salt
        self._num_prompt = len(prompt)
        self._packed = pack(prompt)
        self._is_chat = is_chat
        self._tie = tie
        self._output: list[int] = []
        self._parts: list[Part] = []
        self._started = False

    def take(self, token_ids: Sequence[int]) -> None:
        """Note more tokens of the answer. With the first ones, the prompt is computed."""
        if not self._started:
            self._started = True
            keys = zip(self._found.keys, self._covered(), strict=True)
            self._tie(TiePrefixKeys(self._salt, self._packed, tuple(keys)))
        if self._is_chat:
            self._output += token_ids

    def resume(self, token_ids: Sequence[int]) -> None:
        """Note tokens that another engine has made: here, nothing is computed yet."""
        if self._is_chat:
            self._output += token_ids

    def text(self, text: str) -> None:
        """Note more text of the answer."""
        if self._is_chat:
            self._parts.append(TextPart(text))

    def parts(self, parts: Sequence[Part]) -> None:
        """Note other parts of it."""
        if self._is_chat:
            self._parts += parts

    def finish(self, num_tokens: int) -> None:
        """The answer is complete. `num_tokens`: up to the end of its text; the last token that was
        sampled has not been computed.
        """
        if not self._is_chat or not self._started:
            return
        key = answer_key(self._found, message_of(self._parts), self._key)
        if key is None:
            return
        reasons = any(isinstance(part, ReasoningPart) for part in self._parts)
        answer = [] if reasons else self._output[: max(num_tokens - 1, 0)]
        covered = self._num_prompt + len(answer)
        self._tie(TiePrefixKeys(self._salt, self._packed + pack(answer), ((key, covered),)))

    def _covered(self) -> list[int]:
        """How many tokens each key covers: of the prompt, the share of its bytes, rounded up."""
        n, total = self._num_prompt, max(self._found.total_bytes, 1)
        return [-(-n * end // total) for end in self._found.ends]


def message_of(parts: Sequence[Part]) -> dict[str, Any]:
    """The answer as clients send it back. Fields that are null there do not count."""
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in tool_calls(parts)
    ]
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": text or None, "tool_calls": calls}
