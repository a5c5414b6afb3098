"""The router's own answers: models, probes, errors, limits."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
from yarl import URL

from router.conftest import GENEROUS_S, Stack, StackMaker
from router.fakes import DONE, FakeEngine, inference_model
from yaie_api import __version__, names


async def error_of(response: Any) -> dict[str, Any]:
    body = await response.json()
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]
    return dict(body["error"])


async def test_models_of_the_namespace_are_listed_with_their_aliases(stack: Stack) -> None:
    names = {"source": "builtin://yaie-demo", "servedName": "org/big", "aliases": ["gpt-4"]}
    await stack.api.put(inference_model("big", model=names))
    await stack.api.put(inference_model("small"))
    await stack.until(lambda: stack.knows("small", "small", 0))
    async with stack.client.get("/v1/models") as response:
        listed = await response.json()
    assert listed["object"] == "list"
    created = 1767323045
    common = {"object": "model", "created": created, "owned_by": "yaie", "parent": None}
    common |= {"state": "waiting", "reason": "the operator has not acted on it yet"}
    assert listed["data"] == [
        {"id": "gpt-4", "root": "org/big"} | common,
        {"id": "org/big", "root": "org/big"} | common,
        {"id": "small", "root": "small"} | common,
    ]
    async with stack.client.get("/v1/models/org/big") as response:
        assert (await response.json())["id"] == "org/big"
    async with stack.client.get("/v1/models/none") as response:
        assert response.status == 404


async def test_the_context_length_is_listed_once_an_engine_has_told_it(stack: Stack) -> None:
    status = {"model": {"contextLength": 4096}}
    await stack.api.put(inference_model("demo") | {"status": status})
    await stack.until(lambda: stack.knows("demo", "demo", 0))
    async with stack.client.get("/v1/models/demo") as response:
        assert (await response.json())["max_model_len"] == 4096
    theirs = {"anthropic-version": "2023-06-01"}
    async with stack.client.get("/v1/models/demo", headers=theirs) as response:
        assert (await response.json())["max_input_tokens"] == 4096


async def test_anthropic_s_clients_get_the_list_in_its_form(stack: Stack) -> None:
    await stack.serve("demo", FakeEngine())
    theirs = {"anthropic-version": "2023-06-01"}
    async with stack.client.get("/v1/models?limit=5", headers=theirs) as response:
        listed = await response.json()
        assert response.headers["request-id"] == response.headers["x-request-id"]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("demo", "demo", False)
    assert listed["data"][0]["type"] == "model"
    async with stack.client.get("/v1/models/demo", headers=theirs) as response:
        assert (await response.json())["display_name"] == "demo"
    async with stack.client.post("/v1/messages", json={"model": "nobody"}) as response:
        assert response.headers["request-id"] == (await response.json())["request_id"]


async def test_an_unknown_model_is_404_and_the_message_lists_the_known(stack: Stack) -> None:
    await stack.serve("demo", FakeEngine())
    async with stack.chat(model="demoo") as response:
        assert response.status == 404
        error = await error_of(response)
    assert error["code"] == "model_not_found"
    assert error["param"] == "model"
    assert error["message"] == "The model 'demoo' does not exist. Available models: demo."


async def test_no_ready_engine_is_503_and_the_message_says_what_is_awaited(stack: Stack) -> None:
    ready = {"type": "Ready", "status": "False", "reason": "Waiting", "message": "not yet"}
    engines = {
        "type": "EnginesReady",
        "status": "False",
        "reason": "Pulling",
        "message": "0 of 1 engines are ready; pulling the image.",
    }
    accepted = {"type": "Accepted", "status": "True", "reason": "Valid", "message": ""}
    status = {"conditions": [ready | {"status": "True"}, accepted, engines]}
    await stack.api.put(inference_model("demo") | {"status": status})
    await stack.until(lambda: stack.knows("demo", "demo", 0))
    async with stack.chat() as response:
        assert response.status == 503
        assert response.headers["retry-after"] == "5"
        assert "x-should-retry" not in response.headers
        error = await error_of(response)
    assert error["message"] == (
        "Model 'demo' has no ready engine: "
        "EnginesReady is False: 0 of 1 engines are ready; pulling the image."
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"model": "demo", ', "not valid JSON"),
        (b"", "not valid JSON"),
        (b'{"model": NaN}', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'["demo"]', "must be a JSON object"),
        (b'{"messages": []}', "Set `model`"),
        (b'{"model": 7}', "Set `model`"),
        (b'{"model": ""}', "Set `model`"),
    ],
)
async def test_a_bad_body_is_400_and_the_next_request_is_served(
    stack: Stack, body: bytes, message: str
) -> None:
    await stack.serve("demo", FakeEngine())
    async with stack.client.post("/v1/chat/completions", data=body) as response:
        assert response.status == 400
        error = await error_of(response)
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"
    async with stack.chat() as response:
        assert response.status == 200


async def test_a_cut_emoji_in_a_body_is_left_to_the_engine(stack: Stack) -> None:
    engine = FakeEngine()
    await stack.serve("demo", engine)
    body = b'{"model": "demo", "messages": [{"role": "user", "content": "\\ud83d x"}]}'
    async with stack.client.post("/v1/chat/completions", data=body) as response:
        assert response.status == 200
    assert engine.received[0].body == body


async def test_odd_but_parsable_requests_reach_the_engine(stack: Stack) -> None:
    engine = FakeEngine()
    await stack.serve("demo", engine)
    for messages in (None, 5, "text", [1, None, [2]], [{"role": ["user"]}], {}):
        async with stack.client.post(
            "/v1/chat/completions", json={"model": "demo", "messages": messages}
        ) as response:
            assert response.status == 200
    assert len(engine.received) == 6


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_413(start_router: StackMaker, chunked: bool) -> None:
    stack = await start_router(max_body_bytes=1000)
    body = b'{"model": "' + b"x" * 2000 + b'"}'

    async def in_pieces() -> Any:
        for start in range(0, len(body), 500):
            yield body[start : start + 500]

    data = in_pieces() if chunked else body
    async with stack.client.post("/v1/chat/completions", data=data) as response:
        assert response.status == 413
        assert (await error_of(response))["code"] == "payload_too_large"


async def test_a_body_that_never_ends_is_given_up(start_router: StackMaker) -> None:
    stack = await start_router(body_timeout_s=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{"
    )
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), GENEROUS_S)
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    writer.close()


async def test_a_head_that_never_ends_is_given_up(start_router: StackMaker) -> None:
    stack = await start_router(header_timeout_s=0.3)
    for start in (b"", b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-slow: "):
        reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
        writer.write(start)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), GENEROUS_S) == b""
        writer.close()


async def test_a_stream_may_last_longer_than_the_head_may(start_router: StackMaker) -> None:
    stack = await start_router(header_timeout_s=0.3)
    await stack.serve("demo", FakeEngine(ttft_s=0.8))
    async with stack.chat() as response:
        assert (await response.read()).endswith(DONE)


async def test_a_compressed_body_is_refused_not_unpacked(stack: Stack) -> None:
    async with stack.client.post(
        "/v1/chat/completions", data=b"\x1f\x8b", headers={"content-encoding": "gzip"}
    ) as response:
        assert response.status == 415
        assert response.headers["accept-encoding"] == "identity"
        assert "uncompressed" in (await error_of(response))["message"]


@pytest.mark.parametrize("path", ["//v1/chat/completions", "/v1//chat/completions"])
async def test_slashes_in_a_row_are_one(stack: Stack, path: str) -> None:
    engine = FakeEngine()
    await stack.serve("demo", engine)
    async with stack.client.post(URL(stack.url + path, encoded=True), json={"model": "demo"}) as it:
        assert it.status == 200
    assert engine.received[0].path == "/v1/chat/completions"


async def test_what_engines_tell_of_their_caches_is_not_to_be_had_here(stack: Stack) -> None:
    engine = FakeEngine()
    await stack.serve("demo", engine)
    for path in (names.PATH_PREFIXES, f"/{names.PATH_PREFIXES}", f"/v1{names.PATH_PREFIXES}"):
        async with stack.client.get(URL(stack.url + path, encoded=True)) as response:
            assert response.status == 404
        async with stack.client.post(path.replace("//", "/"), json={"model": "demo"}) as response:
            assert response.status == 404
    assert not engine.received


async def test_slashes_in_a_row_open_no_path_that_needs_a_key(start_router: StackMaker) -> None:
    stack = await start_router(api_keys=("secret",))
    for path, status in (("//v1/models", 401), ("//metrics", 401), ("//livez", 200)):
        async with stack.client.get(URL(stack.url + path, encoded=True)) as response:
            assert response.status == status


async def test_the_child_of_stored_responses_that_is_none_is_an_unknown_path(stack: Stack) -> None:
    async with stack.client.post("/v1/responses/compact", json={"model": "demo"}) as response:
        assert response.status == 404
        assert (await error_of(response))["code"] == "path_not_found"
    async with stack.client.post(f"/v1/responses/resp_{'0' * 40}") as response:
        assert response.status == 405


async def test_wrong_paths_and_methods_are_told_in_the_envelope(stack: Stack) -> None:
    async with stack.client.get("/v2/nothing") as response:
        assert response.status == 404
        assert (await error_of(response))["code"] == "path_not_found"
    async with stack.client.get("/v1/chat/completions") as response:
        assert response.status == 405
        assert "Use POST" in (await error_of(response))["message"]


async def test_metrics_are_on_a_port_of_their_own_and_nothing_else_is(
    start_router: StackMaker,
) -> None:
    stack = await start_router(api_keys=("secret",))
    async with stack.client.get("/metrics", headers={"x-api-key": "secret"}) as response:
        assert response.status == 404
    async with stack.client.get(stack.metrics_url) as response:
        assert response.status == 200
        assert response.content_type == "text/plain"
        assert "yaie_router_requests_total" in await response.text()
    there = stack.metrics_url.removesuffix("/metrics")
    for path in ("/", "/v1/models", "/readyz", "/metrics/"):
        async with stack.client.get(there + path) as response:
            assert response.status == 404
    async with stack.client.post(stack.metrics_url, data=b"x" * 100_000) as response:
        assert response.status == 405


@pytest.mark.parametrize(
    "attack",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"big: " + b"x" * 100_000 + b"\r\n\r\n",
        b"".join(b"h%d: x\r\n" % i for i in range(20_000)) + b"\r\n",
        b"bad header line\r\n\r\n",
    ],
    ids=["length and chunked", "two lengths", "large header", "many headers", "no colon"],
)
async def test_malformed_http_is_refused_and_never_forwarded(stack: Stack, attack: bytes) -> None:
    engine = FakeEngine()
    await stack.serve("demo", engine)
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n" + attack)
    line = await asyncio.wait_for(reader.readline(), GENEROUS_S)
    assert line.split()[1] in (b"400", b"431")
    writer.close()
    assert not engine.received


async def test_a_header_that_is_not_utf_8_does_not_break_the_request(stack: Stack) -> None:
    engine = FakeEngine()
    await stack.serve("demo", engine)
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-odd: \xff\r\n"
        b'content-length: 16\r\n\r\n{"model":"demo"}'
    )
    assert (await asyncio.wait_for(reader.readline(), GENEROUS_S)).split()[1] == b"200"
    writer.close()
    assert len(engine.received) == 1


async def test_probes_and_version_answer(stack: Stack) -> None:
    for path in ("/health", "/livez", "/readyz"):
        async with stack.client.get(path) as response:
            assert (response.status, await response.json()) == (200, {"status": "ok"})
    async with stack.client.get("/version") as response:
        assert await response.json() == {"version": __version__}


async def test_metrics_count_requests_by_model_and_status(stack: Stack) -> None:
    await stack.serve("demo", FakeEngine())
    async with stack.chat() as response:
        await response.read()
    async with stack.chat(model="unknown " + "x" * 50) as response:
        await response.read()
    route = "/v1/chat/completions"
    for model, status in (("demo", 200), ("", 404)):
        sample = f'yaie_router_requests_total{{model="{model}",route="{route}",status="{status}"}}'
        assert await stack.metric(sample) == 1.0
    assert await stack.metric('yaie_router_requests_in_flight{model="demo"}') == 0.0
    assert await stack.metric('yaie_router_first_byte_seconds_count{model="demo"}') == 1.0


async def test_prompts_do_not_reach_the_logs(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    await stack.serve("demo", FakeEngine())
    caplog.set_level("DEBUG")
    async with stack.chat("very private words") as response:
        await response.read()
    told = [json.dumps(record.__dict__, default=str) for record in caplog.records]
    assert any('"request"' in line and '"demo"' in line for line in told)
    assert not any("very private" in line for line in told)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02" * 8 + b"\r\n\r\n",
        b"GET /version HTTP/1.1\r\nhost: localhost\r\nx: " + b"secret" * 20_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_is_not_http_gets_the_envelope_and_no_more(
    stack: Stack, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    writer.write(raw)
    answer = await asyncio.wait_for(reader.read(4096), GENEROUS_S)
    writer.close()
    assert b" 400 " in answer.splitlines()[0]
    assert b"invalid_request_error" in answer
    assert b"aiohttp" not in answer
    assert b"secret" not in answer
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "https://evil.example"}],
    ids=["host", "origin"],
)
async def test_web_pages_of_other_machines_cannot_use_a_router_on_a_loopback_address(
    stack: Stack, headers: dict[str, str]
) -> None:
    await stack.serve("demo", FakeEngine())
    for path in ("/v1/models", stack.metrics_url, "/"):
        async with stack.client.get(path, headers=headers) as response:
            assert response.status == 400
            assert (await error_of(response))["code"] == "foreign_host"
    async with stack.client.get("/v1/models", headers={"Host": "localhost:8000"}) as response:
        assert response.status == 200


async def test_a_router_on_all_addresses_answers_any_name(start_router: StackMaker) -> None:
    stack = await start_router(host="0.0.0.0")
    async with stack.client.get("/v1/models", headers={"Host": "yaie.example"}) as response:
        assert response.status == 200
