"""POST /tokenize and /detokenize, in vLLM's form."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.http import json_response, read_json, service_of
from yaie.server.service import Service
from yaie_api.openai import DetokenizeRequest, TokenizeRequest, parse


async def tokenize(request: Request) -> Response:
    service = service_of(request)
    body = parse(TokenizeRequest, await read_json(request))
    service.check_model(body.model)
    return json_response(await service.tokenize(_characters(body), lambda: _answer(service, body)))


async def detokenize(request: Request) -> Response:
    service = service_of(request)
    body = parse(DetokenizeRequest, await read_json(request))
    service.check_model(body.model)
    tokenizer = service.tokenizer
    text = await service.tokenize(
        len(body.tokens), lambda: tokenizer.decode(body.tokens, skip_special_tokens=False)
    )
    return json_response({"prompt": text})


def _characters(body: TokenizeRequest) -> int:
    return len(body.prompt or "") + sum(len(message.text) for message in body.messages or ())


def _answer(service: Service, body: TokenizeRequest) -> dict[str, Any]:
    ids = _encode(service, body)
    answer = {"count": len(ids), "max_model_len": service.info.max_model_len, "tokens": ids}
    if body.return_token_strs:
        answer["token_strs"] = [service.tokenizer.token_text(token_id) for token_id in ids]
    return answer


def _encode(service: Service, body: TokenizeRequest) -> list[int]:
    if body.prompt is not None:
        return service.tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens)
    return service.tokenizer.encode_chat(
        body.conversation(),
        add_generation_prompt=body.add_generation_prompt,
        variables=body.chat_template_kwargs,
    )
