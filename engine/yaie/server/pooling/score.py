"""POST /score and /v1/score: how well two texts match.

For an embedding model the score is the cosine of the two embeddings. A sequence classifier with one
label (a cross-encoder) reads both texts at once, and the score is that label's probability.
"""

import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answers.stream import until_disconnect
from yaie.server.pooling import pooled
from yaie.server.pooling.pooled import Pooled
from yaie.server.request.http import json_response, left_response
from yaie.server.request.open_request import ServeContext, answer_id, open_request
from yaie.text import vectors
from yaie_api.errors import InvalidRequestError
from yaie_api.http.pooling import PoolingRequest, ScoreRequest

Scores = tuple[list[float], dict[str, Any]]
"""The score of each pair, and the usage."""


async def score(request: Request) -> Response:
    context = await open_request(request, ScoreRequest, task=None)
    body = context.body
    found = await until_disconnect(
        request.receive, score_pairs(context, body.pairs(), fields=body.fields())
    )
    return left_response() if found is None else json_response(_answer(context, found))


async def score_pairs(
    context: ServeContext[PoolingRequest],
    pairs: Sequence[tuple[str, str]],
    *,
    fields: tuple[str, str],
) -> Scores:
    """Score each pair of texts. `fields`: the request's names of the two sides, for errors.

    Raises:
        InvalidRequestError: the model can neither embed nor classify, or has several labels; or a
            text cannot be taken.

    """
    info = context.service.info
    if "classify" in info.tasks:
        return await _cross_encode(context, pairs, fields[1])
    info.require("embed")
    return await _cosines(context, pairs, fields)


async def _cosines(
    context: ServeContext[PoolingRequest],
    pairs: Sequence[tuple[str, str]],
    fields: tuple[str, str],
) -> Scores:
    sides = {text: side for pair in pairs for text, side in zip(pair, fields, strict=True)}
    prompts = [
        await pooled.encode(context, text, special=True, param=side) for text, side in sides.items()
    ]
    found = await pooled.pool_all(
        context, prompts, pooled.embedding_pooling(context.service), lambda one: one
    )
    embedded = {text: vectors.embedding(one.vector) for text, one in zip(sides, found, strict=True)}
    scores = [vectors.cosine(embedded[left], embedded[right]) for left, right in pairs]
    return scores, pooled.usage_of(found)


async def _cross_encode(
    context: ServeContext[PoolingRequest], pairs: Sequence[tuple[str, str]], param: str
) -> Scores:
    num_labels = context.service.info.num_labels
    if num_labels != 1:
        raise InvalidRequestError(
            f"The model has {num_labels} labels, and a score needs one. Use /classify.",
            param="model",
            code="task_not_supported",
        )
    prompts = [await pooled.encode_pair(context, pair, param=param) for pair in pairs]

    def finish(one: Pooled) -> tuple[Pooled, float]:
        logit = float(one.vector[0])
        return one, vectors.sigmoid(logit) if context.body.use_activation else logit

    found = await pooled.pool_all(context, prompts, "classify", finish)
    return [value for _, value in found], pooled.usage_of([one for one, _ in found])


def _answer(context: ServeContext[ScoreRequest], found: Scores) -> dict[str, Any]:
    scores, usage = found
    data = [
        {"index": index, "object": "score", "score": value} for index, value in enumerate(scores)
    ]
    return {
        "id": answer_id("score", context),
        "object": "list",
        "created": int(time.time()),
        "model": context.model,
        "data": data,
        "usage": usage,
    }
