"""Information about the server: its models, version, load, tokenizer and metrics."""

import json
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.metrics import CONTENT_TYPE, Snapshot
from yaie.server.monitoring.health import own_readiness
from yaie.server.monitoring.vllm_names import VllmNames
from yaie.server.peers import AskLoad, AskMetrics
from yaie.server.request.http import json_response, service_of
from yaie.server.service import Service
from yaie_api import __version__
from yaie_api.http import anthropic_models
from yaie_api.http.envelopes import ANTHROPIC_VERSION

_TOKENIZER_FIELDS: Final = (
    "tokenizer_class", "bos_token", "eos_token", "unk_token", "pad_token", "add_bos_token",
    "add_eos_token", "additional_special_tokens", "added_tokens_decoder", "model_max_length",
    "clean_up_tokenization_spaces", "chat_template",
)  # fmt: skip


async def models(request: Request) -> Response:
    """List the models, in Anthropic's form for its clients."""
    service = service_of(request)
    cards = [_card(service, name) for name in service.names]
    if ANTHROPIC_VERSION in request.headers:
        return json_response(anthropic_models.page(cards, request.query_params))
    return json_response({"object": "list", "data": cards})


async def model_by_name(request: Request) -> Response:
    service = service_of(request)
    card = _card(service, service.check_model(request.path_params["model"]))
    if ANTHROPIC_VERSION in request.headers:
        return json_response(anthropic_models.model(card))
    return json_response(card)


def _card(service: Service, name: str) -> dict[str, Any]:
    """OpenAI's model object, and what it can do and whether it takes requests now."""
    verdict = own_readiness(service)
    state = {"state": "ready"} if verdict.ok else {"state": "waiting", "reason": verdict.reason}
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "yaie",
        "root": service.names[0],
        "parent": None,
        "max_model_len": service.info.max_model_len,
        "tasks": service.info.tasks,
        **state,
    }


async def metrics(request: Request) -> Response:
    """Return the metrics of all HTTP processes, and the engine's, which each of them has."""
    service = service_of(request)
    others = await service.peers.ask(AskMetrics(), Snapshot)
    return Response(exposition(service, others), media_type=CONTENT_TYPE)


def exposition(service: Service, others: Sequence[Snapshot]) -> bytes:
    """Write the metrics down, under vLLM's names too if the options say so and the model is known.

    `others`: snapshots of the server's other HTTP processes.
    """
    info, renamed = service.engine.info, None
    if service.options.vllm_metrics and info is not None:
        name = next(iter(service.names), info.served_model_name)
        renamed = partial(VllmNames, info=info, model_name=name)
    return service.metrics.render(others, renamed)


async def version(request: Request) -> Response:
    del request
    return json_response({"version": __version__})


async def load(request: Request) -> Response:
    """Return the number of unfinished requests in vLLM's form. It is on the public port, too."""
    return json_response({"server_load": await requests_in_work(service_of(request))})


async def requests_in_work(service: Service) -> int:
    """Return the number of unfinished requests of all HTTP processes."""
    others: list[int] = await service.peers.ask(AskLoad(), int)
    return service.engine.num_live + sum(others)


async def tokenizer_info(request: Request) -> Response:
    """Return the tokenizer's settings and chat template, which evaluation harnesses ask for."""
    info = service_of(request).info
    return json_response(_tokenizer_settings(info.tokenizer_path or info.path))


@cache
def _tokenizer_settings(folder: str) -> dict[str, Any]:
    """Return what `tokenizer_config.json` says about text and tokens, but not where it is from."""
    config, template = Path(folder, "tokenizer_config.json"), Path(folder, "chat_template.jinja")
    found = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    settings = {name: found[name] for name in _TOKENIZER_FIELDS if name in found}
    if template.is_file():
        settings["chat_template"] = template.read_text(encoding="utf-8")
    return settings
