"""Every field of the requests that OpenAI, Anthropic and vLLM publish is honoured, refused by name,
or has no effect by its own definition. None that changes the result is ignored.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import openai
import pytest
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from engine.server.fields import agents, chat, completions, lists, pooling, tokens
from engine.server.fields.asking import ask, asked
from engine.server.fields.verdicts import (
    CHANGED,
    Effect,
    Fields,
    NoEffect,
    Refused,
    Verdict,
    Verdicts,
    with_field,
)
from engine.server.scripted import App
from yaie.server import routes

READ_FROM: Final = "3.54.0"
"""The release of the OpenAI package from which the lists are."""


@dataclass(frozen=True)
class Endpoint:
    """`base`: a request without any field that matters. `task`: what its model can do."""

    path: str
    published: frozenset[str]
    verdicts: Verdicts
    base: Fields
    task: str = "generate"


ENDPOINTS: Final = {
    "chat": Endpoint("/v1/chat/completions", lists.CHAT, chat.VERDICTS, chat.BASE),
    "completions": Endpoint(
        "/v1/completions", lists.COMPLETIONS, completions.VERDICTS, completions.BASE
    ),
    "embeddings": Endpoint(
        "/v1/embeddings", lists.EMBEDDINGS, pooling.EMBEDDINGS, pooling.OF_INPUT, "embed"
    ),
    "classify": Endpoint(
        "/classify", lists.CLASSIFY, pooling.CLASSIFY, pooling.OF_INPUT, "classify"
    ),
    "score": Endpoint("/score", lists.SCORE, pooling.SCORE, pooling.OF_SCORE, "classify"),
    "rerank": Endpoint("/rerank", lists.RERANK, pooling.RERANK, pooling.OF_RERANK, "classify"),
    "tokenize": Endpoint("/tokenize", lists.TOKENIZE, tokens.TOKENIZE, tokens.OF_PROMPT),
    "tokenize messages": Endpoint(
        "/tokenize",
        frozenset(tokens.TOKENIZE_MESSAGES),
        tokens.TOKENIZE_MESSAGES,
        tokens.OF_MESSAGES,
    ),
    "detokenize": Endpoint("/detokenize", lists.DETOKENIZE, tokens.DETOKENIZE, tokens.OF_TOKENS),
    "responses": Endpoint("/v1/responses", lists.RESPONSES, agents.RESPONSES, agents.OF_RESPONSES),
    "messages": Endpoint("/v1/messages", lists.MESSAGES, agents.MESSAGES, agents.OF_MESSAGES),
    "count_tokens": Endpoint(
        "/v1/messages/count_tokens",
        lists.COUNT_TOKENS,
        agents.COUNT_TOKENS,
        agents.OF_COUNT_TOKENS,
    ),
}


def cases(kind: type[Verdict]) -> pytest.MarkDecorator:
    """A test for each field of that kind, in each request."""
    found = [
        pytest.param(endpoint, field, verdict, id=f"{name} {field}")
        for name, endpoint in ENDPOINTS.items()
        for field, verdict in sorted(endpoint.verdicts.items())
        if isinstance(verdict, kind)
    ]
    return pytest.mark.parametrize(("endpoint", "name", "verdict"), found)


@pytest.fixture
async def app(endpoint: Endpoint, tmp_path: Path) -> AsyncIterator[App]:
    async with asked(tmp_path, task=endpoint.task) as found:
        yield found


@pytest.mark.parametrize("request_kind", ENDPOINTS)
def test_there_is_a_verdict_on_every_published_field(request_kind: str) -> None:
    endpoint = ENDPOINTS[request_kind]
    assert set(endpoint.verdicts) == endpoint.published


@pytest.mark.parametrize("request_kind", ENDPOINTS)
def test_a_field_that_this_server_s_schema_has_is_among_them(request_kind: str) -> None:
    path = ENDPOINTS[request_kind].path
    (kind,) = (one.body for one in routes.ENDPOINTS if path in one.paths and one.body is not None)
    known = {name for one in ENDPOINTS.values() if one.path == path for name in one.verdicts}
    assert {field.alias or name for name, field in kind.model_fields.items()} <= known


@cases(Effect)
async def test_a_field_that_is_honoured_shows(
    app: App, endpoint: Endpoint, name: str, verdict: Effect
) -> None:
    body = {**endpoint.base, **verdict.beside}
    with_it = await ask(app, endpoint.path, with_field(body, name, verdict.value))
    without = await ask(app, endpoint.path, {**body, **verdict.instead})
    assert without.status == 200, without.answer
    shown = verdict.where(with_it)
    assert shown != verdict.where(without), with_it.answer
    assert verdict.expected is CHANGED or shown == verdict.expected, with_it.answer


@cases(Refused)
async def test_a_field_that_is_refused_is_named(
    app: App, endpoint: Endpoint, name: str, verdict: Refused
) -> None:
    body = {**endpoint.base, **verdict.beside}
    refused = await ask(app, endpoint.path, with_field(body, name, verdict.value))
    assert refused.status == 400, refused.answer
    assert name.partition(".")[2] in refused.at("error.message")
    assert refused.at("error.message").startswith(name.partition(".")[0])
    assert not refused.commands
    plain = await ask(app, endpoint.path, body)
    for nothing in verdict.nothing:
        taken = await ask(app, endpoint.path, with_field(body, name, nothing))
        assert taken.result == plain.result


@cases(NoEffect)
async def test_a_field_without_effect_changes_nothing(
    app: App, endpoint: Endpoint, name: str, verdict: NoEffect
) -> None:
    body = {**endpoint.base, **verdict.beside}
    with_it = await ask(app, endpoint.path, with_field(body, name, verdict.value))
    assert with_it.status == 200, with_it.answer
    assert verdict.reason
    assert with_it.result == (await ask(app, endpoint.path, body)).result


@pytest.mark.parametrize("request_kind", ENDPOINTS)
async def test_null_is_as_if_the_field_were_not_there(request_kind: str, tmp_path: Path) -> None:
    endpoint = ENDPOINTS[request_kind]
    nulls: dict[str, Any] = dict.fromkeys(one for one in endpoint.published if "." not in one)
    async with asked(tmp_path, task=endpoint.task) as app:
        with_nulls = await ask(app, endpoint.path, nulls | dict(endpoint.base))
        assert with_nulls.result == (await ask(app, endpoint.path, endpoint.base)).result


@pytest.mark.skipif(openai.__version__ != READ_FROM, reason="another release of the package")
def test_the_lists_are_those_of_the_installed_client() -> None:
    """So that an update of the client shows which fields are new."""
    types: dict[frozenset[str], Any] = {
        lists.OPENAI_CHAT: chat_create_params.CompletionCreateParamsBase,
        lists.OPENAI_COMPLETIONS: completion_create_params.CompletionCreateParamsBase,
        lists.OPENAI_EMBEDDINGS: embedding_create_params.EmbeddingCreateParams,
        lists.OPENAI_RESPONSES: response_create_params.ResponseCreateParamsBase,
    }
    for names, kind in types.items():
        assert names - {"stream"} == set(kind.__annotations__)
