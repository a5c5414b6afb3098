"""The table of the public port: the handler of each path, its request type, its answer's fields.

The application routes by this table and the OpenAPI document is generated from it, so the two
cannot differ.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel

from yaie.server.anthropic.endpoints import count_tokens, messages
from yaie.server.monitoring import health, info
from yaie.server.monitoring.prefixes import prefixes
from yaie.server.openai.chat import chat_completions
from yaie.server.openai.completions import completions
from yaie.server.openai.tokenize import detokenize, tokenize
from yaie.server.pooling.classify import classify
from yaie.server.pooling.embeddings import embeddings
from yaie.server.pooling.rerank import rerank
from yaie.server.pooling.score import score
from yaie.server.responses.endpoints import (
    cancel_response,
    delete_response,
    get_input_items,
    get_response,
    input_tokens,
    responses,
)
from yaie_api import names
from yaie_api.http.anthropic import CountTokensRequest, MessagesRequest
from yaie_api.http.openai import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from yaie_api.http.pooling import ClassifyRequest, EmbeddingRequest, RerankRequest, ScoreRequest
from yaie_api.http.responses import InputTokensRequest, ResponsesRequest


@dataclass(frozen=True)
class Endpoint:
    """An operation, and the paths under which it is served.

    Attributes:
        body: the type of the request's body.
        answer: fields that every answer has.
        media: the media type of the answer.
        error: the envelope of its errors.
        streams: whether the client can ask for server-sent events instead.
        needs_model: whether it answers 404 or 503 when there is no such model, or none is loaded.
        tag: the heading under which people look for it.

    """

    summary: str
    paths: tuple[str, ...]
    handler: Callable[..., Any]
    method: Literal["GET", "POST", "DELETE"] = "GET"
    body: type[BaseModel] | None = None
    answer: tuple[str, ...] = ()
    media: str = "application/json"
    streams: bool = False
    error: Literal["Error", "AnthropicError"] = "Error"
    needs_model: bool = True
    tag: str = "Server"


_RESPONSE: Final = "/v1/responses/{response_id}"
_LIST: Final = ("object", "data", "model", "usage")

ENDPOINTS: Final = (
    Endpoint(
        "Answer a conversation",
        ("/v1/chat/completions",),
        chat_completions,
        "POST",
        ChatCompletionRequest,
        ("id", "object", "created", "model", "choices", "usage"),
        streams=True,
        tag="Text",
    ),
    Endpoint(
        "Complete a text",
        ("/v1/completions",),
        completions,
        "POST",
        CompletionRequest,
        ("id", "object", "created", "model", "choices", "usage"),
        streams=True,
        tag="Text",
    ),
    Endpoint(
        "Respond to items",
        ("/v1/responses",),
        responses,
        "POST",
        ResponsesRequest,
        ("id", "object", "created_at", "model", "status", "output"),
        streams=True,
        tag="Responses",
    ),
    Endpoint(
        "Count the tokens of a response's prompt",
        ("/v1/responses/input_tokens",),
        input_tokens,
        "POST",
        InputTokensRequest,
        ("object", "input_tokens"),
        tag="Responses",
    ),
    Endpoint(
        "Answer a conversation in Anthropic's shape",
        ("/v1/messages",),
        messages,
        "POST",
        MessagesRequest,
        ("id", "type", "role", "model", "content", "stop_reason", "usage"),
        streams=True,
        error="AnthropicError",
        tag="Anthropic",
    ),
    Endpoint(
        "Count the tokens of a prompt in Anthropic's shape",
        ("/v1/messages/count_tokens",),
        count_tokens,
        "POST",
        CountTokensRequest,
        ("input_tokens",),
        error="AnthropicError",
        tag="Anthropic",
    ),
    Endpoint(
        "A stored response",
        (_RESPONSE,),
        get_response,
        answer=("id", "object", "output"),
        tag="Responses",
    ),
    Endpoint(
        "Forget a response",
        (_RESPONSE,),
        delete_response,
        "DELETE",
        answer=("id", "deleted"),
        tag="Responses",
    ),
    Endpoint(
        "Cancel a response in the background (there are none)",
        (f"{_RESPONSE}/cancel",),
        cancel_response,
        "POST",
        tag="Responses",
    ),
    Endpoint(
        "What a response was asked with",
        (f"{_RESPONSE}/input_items",),
        get_input_items,
        answer=("object", "data"),
        tag="Responses",
    ),
    Endpoint(
        "Embed texts",
        ("/v1/embeddings",),
        embeddings,
        "POST",
        EmbeddingRequest,
        answer=_LIST,
        tag="Vectors and scores",
    ),
    Endpoint(
        "Score pairs of texts",
        ("/v1/score", "/score"),
        score,
        "POST",
        ScoreRequest,
        answer=_LIST,
        tag="Vectors and scores",
    ),
    Endpoint(
        "Rank documents for a query",
        ("/v1/rerank", "/v2/rerank", "/rerank"),
        rerank,
        "POST",
        RerankRequest,
        ("id", "model", "usage", "results"),
        tag="Vectors and scores",
    ),
    Endpoint(
        "Classify texts",
        ("/v1/classify", "/classify"),
        classify,
        "POST",
        ClassifyRequest,
        _LIST,
        tag="Vectors and scores",
    ),
    Endpoint(
        "Text to token ids",
        ("/tokenize",),
        tokenize,
        "POST",
        TokenizeRequest,
        ("count", "max_model_len", "tokens"),
        tag="Tokens",
    ),
    Endpoint(
        "Token ids to text",
        ("/detokenize",),
        detokenize,
        "POST",
        DetokenizeRequest,
        ("prompt",),
        tag="Tokens",
    ),
    Endpoint("The tokenizer's settings", ("/tokenizer_info",), info.tokenizer_info, tag="Tokens"),
    Endpoint("The models", ("/v1/models",), info.models, answer=("object", "data"), tag="Models"),
    Endpoint(
        "One model",
        ("/v1/models/{model:path}",),
        info.model_by_name,
        answer=("id", "object"),
        tag="Models",
    ),
    Endpoint(
        "Whether the server lives", (names.PATH_LIVE,), health.livez, answer=("status", "reason")
    ),
    Endpoint(
        "Whether it takes requests",
        (names.PATH_READY, "/health", "/ping"),
        health.readyz,
        answer=("status", "reason"),
    ),
    Endpoint(
        "Requests that are being served",
        ("/load",),
        info.load,
        answer=("server_load",),
        needs_model=False,
    ),
    Endpoint(
        "Which prefixes are cached, as a stream",
        (names.PATH_PREFIXES,),
        prefixes,
        media="application/x-ndjson",
    ),
    Endpoint("The version", ("/version",), info.version, answer=("version",), needs_model=False),
    Endpoint(
        "Metrics for Prometheus",
        (names.PATH_METRICS,),
        info.metrics,
        media="text/plain",
        needs_model=False,
    ),
)
