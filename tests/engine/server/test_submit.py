"""The command that a request becomes."""

from typing import Any

import pytest

from yaie.core.request import SamplingParams
from yaie.server.options import ServiceOptions
from yaie.server.request.open_request import ServeContext
from yaie.server.request.submit import check_priority, generate_command, salt_of
from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai import CompletionRequest, parse


def context(*, priorities: bool = True, **body: Any) -> ServeContext[CompletionRequest]:
    """A request of the tenant ann, who waits for two seconds."""

    class Service:
        options = ServiceOptions(priorities=priorities)

    service: Any = Service()
    request = parse(CompletionRequest, {"prompt": "hi", **body})
    return ServeContext(service, request, "m", 0.0, "ann", 2.0)


def test_tenants_never_share_a_salt() -> None:
    salts = [salt_of(tenant, wanted) for tenant in ("ann", "bob", "") for wanted in (None, "s")]
    assert salts == ["ann/", "ann/s", "bob/", "bob/s", "", "s"]


def test_a_command_carries_who_asks_and_how_urgent_it_is() -> None:
    command = generate_command(context(priority=3, cache_salt="s"), [1, 2], SamplingParams())
    assert command.prompt_token_ids == (1, 2)
    assert (command.tenant, command.timeout_s, command.salt) == ("ann", 2.0, "ann/s")
    assert (command.priority, command.pooling) == (3, None)


def test_every_command_has_an_id_of_its_own() -> None:
    asked = context()
    ids = {generate_command(asked, [1], SamplingParams()).request_id for _ in range(3)}
    assert len(ids) == 3


def test_a_priority_is_refused_where_it_has_no_effect() -> None:
    check_priority(context(priority=1))
    check_priority(context(priority=0, priorities=False))
    with pytest.raises(InvalidRequestError) as refused:
        check_priority(context(priority=1, priorities=False))
    assert refused.value.param == "priority"


def test_a_request_of_another_api_keeps_who_asks() -> None:
    asked = context()
    chat = asked.with_body(parse(CompletionRequest, {"prompt": "other"}))
    assert chat.body.prompt == "other"
    assert (chat.tenant, chat.timeout_s, chat.model) == (asked.tenant, asked.timeout_s, asked.model)
