"""An application for every API over a scripted engine, and one request to it."""

import contextlib
import dataclasses
import json
import struct
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import tokenizers
from tokenizers.processors import TemplateProcessing

from engine.server.fields.verdicts import Seen
from engine.server.scripted import App, running, says
from yaie.core.messages import Event, Generate, Tokens
from yaie.server.routes import ENDPOINTS
from yaie.text.prompt.tokenizer import Tokenizer

TEXT: Final = "<think>why</think>one two<|im_end|> three"
"""What the engine says in every output: reasoning, text, a special token, text."""
SIZE: Final = 8
TEMPLATE: Final = (
    "{{ tools | tojson if tools }}{{ documents | tojson if documents }}{{ reasoning_effort }}"
    "{{ verbosity }}{{ enable_thinking }}{{ mark }}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@contextlib.asynccontextmanager
async def asked(folder: Path, *, task: str = "generate") -> AsyncIterator[App]:
    """The application over a model that can do `task`: generate, embed or classify."""
    endpoints = [dataclasses.replace(one, body=None) for one in ENDPOINTS]
    info = {"tasks": (task,), "hidden_size": SIZE, "num_labels": 1 if task == "classify" else 0}
    settings = {"reasoning_parser": "qwen3", "priorities": True}
    async with running(
        folder, _script, template=TEMPLATE, endpoints=endpoints, info=info, **settings
    ) as app:
        app.service.tokenizer_or_none = _with_bos(folder)
        yield app


def _with_bos(folder: Path) -> Tokenizer:
    """The folder's tokenizer, with a special token before every text."""
    file = folder / "tokenizer.json"
    plain = tokenizers.Tokenizer.from_file(str(file))
    plain.post_processor = TemplateProcessing(
        single="<|endoftext|> $A",
        pair="<|endoftext|> $A $B",
        special_tokens=[("<|endoftext|>", plain.token_to_id("<|endoftext|>"))],
    )
    plain.save(str(file))
    return Tokenizer.load(folder, None)


def _script(request: Generate) -> Iterable[Event]:
    if request.pooling is None:
        return says(*[TEXT] * request.sampling.n)(request)
    size = 1 if request.pooling == "classify" else SIZE
    counts = [float(i) for i in range(size)]
    for token in request.prompt_token_ids:
        counts[token % size] += 0.25
    pooled = struct.pack(f"<{size}f", *counts)
    return [Tokens(request.request_id, (), "stop", pooled=pooled)]


async def ask(app: App, path: str, body: Mapping[str, Any]) -> Seen:
    """Send one request and note what it shows."""
    app.engine.requests.clear()
    response = await app.post(path, dict(body))
    commands = tuple(app.engine.requests)
    prompt = app.prompt if commands else ""
    streamed = response.headers["content-type"].startswith("text/event-stream")
    answer = _events(response.text) if streamed else response.json()
    return Seen(response.status_code, response.headers, answer, commands, prompt)


def _events(text: str) -> list[Any]:
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
