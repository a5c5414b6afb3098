"""Encodes the chunks of OpenAI's streams. The part that all chunks share is encoded once.

A chunk is one event: `data: <JSON on one line>` and an empty line. The role is sent once. The first
piece of a tool call has its id and name. The last chunk of a choice has its finish_reason. The
chunk with the usage has `choices: []`.
"""

from typing import Any, Final, Literal

import msgspec

from yaie.server.answers.output import Delta
from yaie.text.parts import Part, ReasoningPart, TextPart, ToolCallPart
from yaie_api.http.openai import Usage

json_bytes: Final = msgspec.json.Encoder().encode
_LINE_BREAKS: Final = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"})
"""JSON strings may have these characters, but some clients' event parsers end a line there."""

Kind = Literal["chat.completion.chunk", "text_completion"]
NULL: Final = b"null"
NO_CHAT_IDS: Final = b',"token_ids":null'
NO_TEXT_IDS: Final = b',"prompt_token_ids":null,"token_ids":null'
"""As vLLM, every chunk has these fields, also where they are not asked for: clients read them."""
_NO_END: Final = b',"logprobs":null,"finish_reason":null'
_END_OF_CHAT: Final = b"}" + _NO_END + NO_CHAT_IDS + b"}]"
_NO_STOP: Final = b',"stop_reason":null'
_END_OF_TEXT: Final = _NO_END + _NO_STOP + NO_TEXT_IDS + b"}]"


class ChunkEncoder:
    """Encodes the chunks of one choice of one stream."""

    def __init__(
        self, kind: Kind, answer_id: str, created: int, model: str, *, index: int = 0
    ) -> None:
        head = {"id": answer_id, "object": kind, "created": created, "model": model}
        self._head = b"data: " + json_bytes(head)[:-1]
        self._choice = self._head + b',"choices":[{"index":%d,' % index

    def usage(self, usage: Usage) -> bytes:
        """Encode the chunk before `[DONE]`: it has no choices, only the usage."""
        return self._head + b',"choices":[]' + usage_field(usage) + b"}\n\n"

    def _write(
        self, content: bytes, logprobs: bytes, end: bytes, extra: bytes, top: bytes
    ) -> bytes:
        """`extra`: more fields of the choice; `top`: more fields of the chunk."""
        return b"".join(
            (self._choice, content, b',"logprobs":', logprobs, b',"finish_reason":', end, extra,
             b"}]", top, b"}\n\n")
        )  # fmt: skip


class TextChunks(ChunkEncoder):
    """Encodes the chunks of one choice of a text completion."""

    def __init__(self, answer_id: str, created: int, model: str, *, index: int = 0) -> None:
        super().__init__("text_completion", answer_id, created, model, index=index)
        self._text = self._choice + b'"text":'

    def text(self, text: str, top: bytes) -> bytes:
        """Encode a chunk that has only text, as nearly all do."""
        return b"".join((self._text, encode_text(text), _END_OF_TEXT, top, b"}\n\n"))

    def delta(
        self, delta: Delta, *, logprobs: bytes = NULL, ids: bytes = NO_TEXT_IDS, top: bytes = b""
    ) -> bytes:
        """Encode one chunk. `ids`: its fields `prompt_token_ids` and `token_ids`; `top`: more
        fields of the chunk (`usage_field`).
        """
        text = "".join([part.text for part in delta.parts if isinstance(part, TextPart)])
        extra = _stop_reason(delta) + ids
        return self._write(
            b'"text":' + encode_text(text), logprobs, _finish_reason(delta), extra, top
        )


class ChatChunks(ChunkEncoder):
    """Encodes the chunks of one choice of a chat completion."""

    def __init__(self, answer_id: str, created: int, model: str, *, index: int = 0) -> None:
        super().__init__("chat.completion.chunk", answer_id, created, model, index=index)
        self._text = self._choice + b'"delta":{"content":'

    def role(self, *, top: bytes = b"") -> bytes:
        """Encode the first chunk of a choice: its role, and an empty text. `top`: see `delta`."""
        delta = b'"delta":{"role":"assistant","content":""}'
        return self._write(delta, NULL, NULL, b"", top)

    def delta(
        self, delta: Delta, *, logprobs: bytes = NULL, ids: bytes = NO_CHAT_IDS, top: bytes = b""
    ) -> bytes:
        """Encode one chunk for each part. The last one has the finish_reason and the logprobs.

        `ids`: the field `token_ids` of the last choice; `top`: more fields of each chunk
        (`usage_field`).
        """
        if not delta.parts:
            return self._last(b"{}", delta, logprobs, ids, top)
        *before, last = delta.parts
        chunks = [
            self._write(b'"delta":' + _content(part), NULL, NULL, NO_CHAT_IDS, top)
            for part in before
        ]
        chunks.append(self._last(_content(last), delta, logprobs, ids, top))
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def text(self, text: str, top: bytes) -> bytes:
        """Encode a chunk that has only text, as nearly all do."""
        return b"".join((self._text, encode_text(text), _END_OF_CHAT, top, b"}\n\n"))

    def _last(self, content: bytes, delta: Delta, logprobs: bytes, ids: bytes, top: bytes) -> bytes:
        extra = ids if delta.finish_reason is None else _stop_reason(delta) + ids
        return self._write(b'"delta":' + content, logprobs, _finish_reason(delta), extra, top)


def _content(part: Part) -> bytes:
    if isinstance(part, TextPart):
        return b'{"content":' + encode_text(part.text) + b"}"
    if isinstance(part, ReasoningPart):
        text = encode_text(part.text)
        return b'{"reasoning":' + text + b',"reasoning_content":' + text + b"}"
    return b'{"tool_calls":[' + encode_json(_tool_call(part)) + b"]}"


def _tool_call(part: ToolCallPart) -> dict[str, Any]:
    call: dict[str, Any] = {"index": part.index}
    function = {"arguments": part.arguments}
    if part.name is not None:
        call |= {"id": part.call_id, "type": "function"}
        function = {"name": part.name} | function
    return call | {"function": function}


def _finish_reason(delta: Delta) -> bytes:
    return NULL if delta.finish_reason is None else b'"%b"' % delta.finish_reason.encode()


def _stop_reason(delta: Delta) -> bytes:
    if delta.stop_reason is None:
        return _NO_STOP
    return b',"stop_reason":' + encode_json(delta.stop_reason)


def usage_field(usage: Usage | None) -> bytes:
    """Encode `,"usage":…`, to be put into a chunk."""
    return b',"usage":null' if usage is None else b',"usage":' + json_bytes(usage.wire())


def field(name: str, value: Any) -> bytes:
    """Encode `,"name":value`, to be put into a chunk or a choice."""
    return b"," + json_bytes(name) + b":" + encode_json(value)


def encode_text(text: str) -> bytes:
    """Encode a JSON string without line breaks of any kind. Half a surrogate pair raises."""
    encoded = json_bytes(text)
    if text.isascii():
        return encoded
    return encoded.decode().translate(_LINE_BREAKS).encode()


def encode_json(value: Any) -> bytes:
    """Encode a JSON value without line breaks of any kind."""
    encoded = json_bytes(value)
    if encoded.isascii():
        return encoded
    return encoded.decode().translate(_LINE_BREAKS).encode()
