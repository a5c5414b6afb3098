"""Which requests have prefix keys: those whose prompts begin as their bodies say."""

from typing import Any

import pytest

from yaie.server.options import ServiceOptions
from yaie.server.request.prefix_keys import prefix_keys
from yaie_api.prefix import keys, tenant_key

BODY: dict[str, Any] = {"model": "alias", "messages": [{"role": "user", "content": "Hi"}]}


def found(
    body: dict[str, Any], *, key: bytes = b"k", tenant: str = "", header: str | None = None
) -> Any:
    class Service:
        options = ServiceOptions(prefix_key=key, tenant_header=header)
        names = ("m", "alias")

    service: Any = Service()
    return prefix_keys(service, body, tenant)


def test_an_alias_has_the_keys_of_the_model() -> None:
    assert found(BODY) == keys(BODY, b"k", model="m")
    assert found(BODY | {"previous_response_id": None, "truncation": "disabled"}) == found(BODY)


def test_without_a_secret_and_for_tenants_of_others_than_the_router_there_are_none() -> None:
    assert found(BODY, key=b"") is found(BODY, key=b"", tenant="ann") is None
    assert found(BODY, tenant="ann", header="x-tenant") is None


def test_tenants_of_the_router_have_keys_of_their_own() -> None:
    ann, bob = (found(BODY, tenant=tenant) for tenant in ("ann", "bob"))
    assert ann == keys(BODY, tenant_key(b"k", "ann"), model="m")
    for one, other in ((ann, bob), (ann, found(BODY)), (bob, found(BODY))):
        assert not set(one.keys) & set(other.keys)


@pytest.mark.parametrize(
    "more",
    [
        {"previous_response_id": "resp_1"},
        {"truncate_prompt_tokens": 9},
        {"context_management": {"edits": []}},
        {"truncation": "auto"},
        {"prompt": ["a", "b"]},
        {"prompt": [[1, 2], [3]]},
    ],
)
def test_what_begins_otherwise_than_its_body_has_none(more: dict[str, Any]) -> None:
    assert found(BODY | more) is None


@pytest.mark.parametrize("prompt", ["a", ["a"], [1, 2, 3]])
def test_one_prompt_has_keys(prompt: Any) -> None:
    assert found({"prompt": prompt}) is not None
