"""What reads foreign bytes, under a fuzzer that follows coverage: `targets.py NAME [options]`.

A target may refuse its input with an error of ours. Anything else that it raises is a finding; so
is a run of more than the fuzzer's -timeout, or memory beyond its -rss_limit_mb.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["yaie", "yaie_api"]):
    import msgspec

    from yaie.checkpoint import safetensors
    from yaie.text.grammar import forms
    from yaie.text.prompt.tokenizer import Tokenizer
    from yaie_api.errors import YaieError
    from yaie_api.http.anthropic import MessagesRequest
    from yaie_api.http.openai import ChatCompletionRequest, CompletionRequest, parse
    from yaie_api.http.pooling import EmbeddingRequest
    from yaie_api.http.responses import ResponsesRequest

REQUESTS = (
    ChatCompletionRequest, CompletionRequest, EmbeddingRequest, ResponsesRequest, MessagesRequest,
)  # fmt: skip
FIELDS = (
    "model", "messages", "prompt", "input", "temperature", "top_p", "n", "stop", "logit_bias",
    "tools", "tool_choice", "response_format", "structured_outputs", "max_tokens", "stream",
    "stream_options", "logprobs", "top_logprobs", "echo", "system", "instructions",
    "encoding_format", "chat_template_kwargs", "role", "content", "type", "function", "name",
    "parameters", "text",
)  # fmt: skip
CONSTANTS = (None, True, False, "", 0, -1, 2**63, "F32", "user", "json_schema")
MODEL_FOLDER = Path(__file__).parents[2] / "engine/yaie/checkpoint/builtin/yaie-demo"


def body(data: bytes) -> None:
    """Any bytes as the body of any request: JSON as it comes, or objects made of our fields."""
    provider = atheris.FuzzedDataProvider(data)
    kind = _pick(provider, REQUESTS)
    if provider.ConsumeBool():
        try:
            value = msgspec.json.decode(provider.ConsumeBytes(len(data)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
    else:
        value = {name: _value(provider, 4) for name in _names(provider)}
    try:
        request = parse(kind, value)
        if isinstance(request, ChatCompletionRequest):
            forms.grammar_of(request.model_dump(exclude_none=True))
    except YaieError:
        return


def chat(data: bytes) -> None:
    """Any text in a message: no control token of ours comes out of it, and nothing is lost."""
    provider = atheris.FuzzedDataProvider(data)
    pieces = (*TOKENIZER_SPECIALS, provider.ConsumeUnicodeNoSurrogates(32))
    text = "".join(_pick(provider, pieces) for _ in range(provider.ConsumeIntInRange(0, 8)))
    try:
        ids = TOKENIZER.encode_chat([{"role": "user", "content": text}])
    except YaieError:
        return
    controls = [i for i in ids if TOKENIZER.is_special(i)]
    if len(controls) != len(EMPTY_CONTROLS):
        raise AssertionError(f"{text!r} made control tokens")
    if text not in TOKENIZER.decode(ids, skip_special_tokens=False):
        raise AssertionError(f"{text!r} was changed")


def header(data: bytes) -> None:
    """Any bytes as a safetensors file; half of them with a header of the right length."""
    provider = atheris.FuzzedDataProvider(data)
    content = data
    if provider.ConsumeBool():
        head = json.dumps({name: _value(provider, 3) for name in _names(provider)}).encode()
        content = len(head).to_bytes(8, "little") + head + b"\0" * provider.ConsumeIntInRange(0, 64)
    FILE.write_bytes(content)
    try:
        safetensors.read_header(FILE)
    except YaieError:
        return


def _names(provider: atheris.FuzzedDataProvider) -> list[str]:
    names = (*FIELDS, "dtype", "shape", "data_offsets", "F32", "__metadata__")
    return [_pick(provider, names) for _ in range(provider.ConsumeIntInRange(1, 6))]


def _pick(provider: atheris.FuzzedDataProvider, values: Sequence[Any]) -> Any:
    return values[provider.ConsumeIntInRange(0, len(values) - 1)]


def _value(provider: atheris.FuzzedDataProvider, depth: int) -> object:
    """A JSON value; deep ones are made of our own field names."""
    makers = (
        lambda: _pick(provider, FIELDS),
        lambda: _pick(provider, CONSTANTS),
        lambda: provider.ConsumeInt(8),
        provider.ConsumeRegularFloat,
        lambda: provider.ConsumeUnicodeNoSurrogates(16),
        lambda: [_value(provider, depth - 1) for _ in range(provider.ConsumeIntInRange(0, 4))],
        lambda: {name: _value(provider, depth - 1) for name in _names(provider)},
    )
    return makers[provider.ConsumeIntInRange(0, 6 if depth else 4)]()


TARGETS = {"body": body, "chat": chat, "header": header}
TOKENIZER = Tokenizer.load(MODEL_FOLDER)
TOKENIZER_SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "end|>", "user\n")
EMPTY_CONTROLS = [
    i for i in TOKENIZER.encode_chat([{"role": "user", "content": ""}]) if TOKENIZER.is_special(i)
]
FILE = Path(tempfile.mkdtemp(prefix="yaie-fuzz-")) / "model.safetensors"

if __name__ == "__main__":
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()
