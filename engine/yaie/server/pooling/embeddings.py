"""POST /v1/embeddings."""

import base64
import time
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answers.stream import until_disconnect
from yaie.server.pooling import pooled
from yaie.server.pooling.pooled import Pooled
from yaie.server.request.http import json_response, left_response
from yaie.server.request.open_request import ServeContext, answer_id, open_request
from yaie.server.service import Service
from yaie.text import vectors
from yaie_api.errors import InvalidRequestError
from yaie_api.http.pooling import EmbeddingRequest

_json: Final = msgspec.json.Encoder().encode


async def embeddings(request: Request) -> Response:
    context = await open_request(request, EmbeddingRequest, task="embed")
    answer = await until_disconnect(request.receive, _embed(context))
    return left_response() if answer is None else json_response(answer)


async def _embed(context: ServeContext[EmbeddingRequest]) -> dict[str, Any]:
    service, body = context.service, context.body
    _check_dimensions(service, body)
    prompts = [
        await pooled.encode(context, one, special=body.add_special_tokens, param="input")
        for one in body.inputs()
    ]

    def finish(one: Pooled) -> tuple[Pooled, msgspec.Raw]:
        # Encode each vector when it comes: all at once would block the event loop for too long.
        return one, msgspec.Raw(_json(_number_list(one.vector, body)))

    found = await pooled.pool_all(context, prompts, pooled.embedding_pooling(service), finish)
    data = [
        {"object": "embedding", "index": index, "embedding": encoded}
        for index, (_, encoded) in enumerate(found)
    ]
    usage = pooled.usage_of([one for one, _ in found])
    return {
        "id": answer_id("embd", context),
        "object": "list",
        "created": int(time.time()),
        "model": context.model,
        "data": data,
        "usage": usage,
    }


def _check_dimensions(service: Service, body: EmbeddingRequest) -> None:
    size = service.info.hidden_size
    if body.dimensions is not None and size and body.dimensions > size:
        raise InvalidRequestError(
            f"dimensions is {body.dimensions}; the model's embeddings have {size}.",
            param="dimensions",
        )


def _number_list(pooled_vector: vectors.Vector, body: EmbeddingRequest) -> str | list[float]:
    vector = vectors.embedding(pooled_vector, body.dimensions, normalize=body.normalized)
    if body.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
