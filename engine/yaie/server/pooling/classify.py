"""POST /classify and /v1/classify: the probabilities of a sequence classifier's labels."""

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answers.stream import until_disconnect
from yaie.server.pooling import pooled
from yaie.server.pooling.pooled import Pooled
from yaie.server.request.http import json_response, left_response
from yaie.server.request.open_request import ServeContext, answer_id, open_request
from yaie.text import vectors
from yaie_api.http.pooling import ClassifyRequest


async def classify(request: Request) -> Response:
    context = await open_request(request, ClassifyRequest, task="classify")
    found = await until_disconnect(request.receive, _classes(context))
    return left_response() if found is None else json_response(_answer(context, found))


async def _classes(
    context: ServeContext[ClassifyRequest],
) -> list[tuple[Pooled, vectors.Vector]]:
    body = context.body
    prompts = [
        await pooled.encode(context, one, special=body.add_special_tokens, param="input")
        for one in body.inputs()
    ]

    def finish(one: Pooled) -> tuple[Pooled, vectors.Vector]:
        return one, vectors.softmax(one.vector) if body.use_activation else one.vector

    return await pooled.pool_all(context, prompts, "classify", finish)


def _answer(
    context: ServeContext[ClassifyRequest], found: list[tuple[Pooled, vectors.Vector]]
) -> dict[str, Any]:
    labels = label_names(context.service.info.path)
    data = [
        {
            "index": index,
            "label": labels.get(int(numbers.argmax()), f"LABEL_{int(numbers.argmax())}"),
            "probs": numbers.tolist(),
            "num_classes": numbers.size,
        }
        for index, (_, numbers) in enumerate(found)
    ]
    return {
        "id": answer_id("classify", context),
        "object": "list",
        "created": int(time.time()),
        "model": context.model,
        "data": data,
        "usage": pooled.usage_of([one for one, _ in found]),
    }


@cache
def label_names(folder: str) -> dict[int, str]:
    """Return the names of a model's labels, from its folder; empty if it names none."""
    path = Path(folder) / "config.json"
    try:
        names = json.loads(path.read_text(encoding="utf-8")).get("id2label") or {}
        return {int(index): str(name) for index, name in names.items()}
    except (OSError, ValueError, AttributeError):
        return {}
