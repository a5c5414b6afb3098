"""POST /rerank, /v1/rerank and /v2/rerank: ranks documents by how well they answer a query."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answers.stream import until_disconnect
from yaie.server.pooling.score import Scores, score_pairs
from yaie.server.request.http import json_response, left_response
from yaie.server.request.open_request import ServeContext, answer_id, open_request
from yaie_api.http.pooling import RerankRequest


async def rerank(request: Request) -> Response:
    context = await open_request(request, RerankRequest, task=None)
    pairs = [(context.body.query, text) for text in context.body.texts()]
    found = await until_disconnect(
        request.receive, score_pairs(context, pairs, fields=("query", "documents"))
    )
    return left_response() if found is None else json_response(_answer(context, found))


def _answer(context: ServeContext[RerankRequest], found: Scores) -> dict[str, Any]:
    body, (scores, usage) = context.body, found
    best_first = sorted(range(len(scores)), key=lambda index: -scores[index])
    results = [_result(body, index, scores[index]) for index in best_first[: body.top_n or None]]
    return {
        "id": answer_id("rerank", context),
        "model": context.model,
        "usage": usage,
        "results": results,
    }


def _result(body: RerankRequest, index: int, score: float) -> dict[str, Any]:
    result: dict[str, Any] = {"index": index, "relevance_score": score}
    if body.return_documents:
        result["document"] = {"text": body.texts()[index]}
    return result
