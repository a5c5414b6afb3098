"""POST /tokenize and /detokenize, in vLLM's form."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.params import check_ids
from yaie.server.request.http import json_response, read_json, service_of
from yaie.server.request.prompts import chat_ids
from yaie.server.service import Service
from yaie_api.http.openai import DetokenizeRequest, TokenizeRequest, parse


async def tokenize(request: Request) -> Response:
    service = service_of(request)
    body = parse(TokenizeRequest, await read_json(request))
    service.check_model(body.model)
    ids = await _encode(service, body)
    answer = {"count": len(ids), "max_model_len": service.info.max_model_len, "tokens": ids}
    if body.return_token_strs:
        answer["token_strs"] = [service.tokenizer.token_text(token_id) for token_id in ids]
    return json_response(answer)


async def detokenize(request: Request) -> Response:
    service = service_of(request)
    body = parse(DetokenizeRequest, await read_json(request))
    service.check_model(body.model)
    tokenizer = service.tokenizer
    check_ids("tokens", body.tokens, service.info)
    text = await service.tokenize(
        len(body.tokens), lambda: tokenizer.decode(body.tokens, skip_special_tokens=False)
    )
    return json_response({"prompt": text})


async def _encode(service: Service, body: TokenizeRequest) -> list[int]:
    tokenizer, prompt = service.tokenizer, body.prompt
    if prompt is None:
        return await chat_ids(service, body)
    encode = partial(tokenizer.encode, prompt, add_special_tokens=body.add_special_tokens)
    return await service.tokenize(len(prompt), encode)
