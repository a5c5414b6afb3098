"""A router whose keys are the entries of a mounted Secret."""

import asyncio
import hashlib
import logging
from pathlib import Path

import pytest

from router.conftest import Stack, StackMaker
from router.fakes import DONE, FakeEngine
from router.tenants.test_mount import project
from router.upstream.test_router_hostile import BODY, CHUNKED, exchange
from yaie_router.config import parse
from yaie_router.tenants import mount
from yaie_router.tenants.keys import keys_of

TEAM_A = {"authorization": "Bearer sk-of-team-a"}
TEAM_B = {"x-api-key": "sk-of-team-b"}
HASHED = "sha256:" + hashlib.sha256(b"sk-of-team-b").hexdigest()
LENGTH = b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount, "PERIOD_S", 0.02)


async def start(start_router: StackMaker, folder: Path, *engines: FakeEngine) -> Stack:
    project(folder, "1", **{"team-a": "sk-of-team-a\n", "team-b": HASHED})
    stack = await start_router(api_key_dir=folder, host="0.0.0.0")
    stack.client.headers.update(TEAM_A)
    await stack.serve("demo", *engines)
    stack.client.headers.clear()
    return stack


async def status(stack: Stack, headers: dict[str, str]) -> int:
    async with stack.client.get("/v1/models", headers=headers) as response:
        return response.status


async def test_each_tenant_s_key_opens_in_either_header(
    start_router: StackMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The key reaches neither the engine nor the log, and the log says whose request it was."""
    caplog.set_level(logging.DEBUG)
    engine = FakeEngine("pod-a")
    stack = await start(start_router, tmp_path / "keys", engine)
    for shown in (TEAM_A, TEAM_B, {"authorization": "bearer sk-of-team-b"}):
        stack.client.headers.update(shown)
        async with stack.chat() as response:
            assert (await response.read()).endswith(DONE)
        stack.client.headers.clear()
    for wrong in (
        {},
        {"x-api-key": HASHED},
        {"x-api-key": "team-a"},
        TEAM_A | TEAM_B | {"authorization": "x"},
    ):
        assert await status(stack, wrong) == 401
    assert len(engine.received) == 3
    for secret in ("sk-of-team", HASHED[7:]):
        assert secret not in str(engine.received)
        assert secret not in caplog.text
        assert all(secret not in str(vars(record)) for record in caplog.records)
    told = [getattr(record, "fields", {}) for record in caplog.records]
    assert [one["tenant"] for one in told if one.get("route") == "/v1/chat/completions"] == [
        "team-a",
        "team-b",
        "team-b",
    ]


async def test_a_changed_secret_counts_without_a_restart(
    start_router: StackMaker, tmp_path: Path
) -> None:
    folder = tmp_path / "keys"
    stack = await start(start_router, folder)
    new = {"x-api-key": "sk-new"}
    project(folder, "2", **{"team-a": "sk-of-team-a\nsk-new\n"})
    await stack.until(lambda: is_status(stack, new, 200))
    assert await status(stack, TEAM_A) == 200
    assert await status(stack, TEAM_B) == 401
    project(folder, "3", **{"team-a": "sk-new"})
    await stack.until(lambda: is_status(stack, TEAM_A, 401))
    assert await status(stack, new) == 200
    project(folder, "4")
    await stack.until(lambda: is_status(stack, new, 401))
    assert await status(stack, {}) == 401


async def is_status(stack: Stack, headers: dict[str, str], wanted: int) -> bool:
    return await status(stack, headers) == wanted


async def test_equal_conversations_of_two_tenants_have_homes_of_their_own(
    start_router: StackMaker, tmp_path: Path
) -> None:
    """They share no cached prefix, so nothing is gained by bringing them together."""
    engines = [FakeEngine(f"pod-{name}") for name in "abcdefgh"]
    stack = await start(start_router, tmp_path / "keys", *engines)
    homes = []
    for key in (TEAM_A, TEAM_B):
        stack.client.headers.update(key)
        found = set()
        for _ in range(2):
            async with stack.chat("once upon a time") as response:
                found.add(response.headers["x-yaie-endpoint"])
                await response.read()
        homes.append(found)
        stack.client.headers.clear()
    assert [len(home) for home in homes] == [1, 1]
    assert homes[0] != homes[1]


@pytest.mark.parametrize("exists", [True, False])
async def test_no_secret_and_an_empty_one_let_nobody_in(
    start_router: StackMaker, tmp_path: Path, exists: bool
) -> None:
    folder = tmp_path / "keys"
    if exists:
        project(folder, "1", **{"team-a": "\n"})
    stack = await start_router(api_key_dir=folder, host="0.0.0.0")
    for shown in ({}, {"authorization": "Bearer "}, {"x-api-key": ""}, TEAM_A):
        assert await status(stack, shown) == 401
    project(folder, "2", **{"team-a": "sk-of-team-a"})
    await stack.until(lambda: is_status(stack, TEAM_A, 200))


HOST = b"host: localhost\r\n"
TRICKS = [
    b"POST //v1/chat/completions HTTP/1.1\r\n" + HOST + LENGTH,
    b"POST /v1//chat///completions HTTP/1.1\r\n" + HOST + LENGTH,
    b"POST /%76%31/chat/completions HTTP/1.1\r\n" + HOST + LENGTH,
    b"POST /livez/../v1/chat/completions HTTP/1.1\r\n" + HOST + LENGTH,
    b"POST /livez/%2e%2e/v1/chat/completions HTTP/1.1\r\n" + HOST + LENGTH,
    b"POST /livez;/v1/chat/completions HTTP/1.1\r\n" + HOST + LENGTH,
    b"POST /v1/chat/completions?/livez HTTP/1.1\r\n" + HOST + LENGTH,
    b"POST /v1/chat/completions#/livez HTTP/1.1\r\n" + HOST + LENGTH,
    b"POST http://localhost/v1/chat/completions HTTP/1.1\r\n" + HOST + LENGTH,
    b"POST http://x/livez@localhost/v1/chat/completions HTTP/1.1\r\n" + HOST + LENGTH,
    b"OPTIONS /v1/models HTTP/1.1\r\n" + HOST + b"\r\n",
    b"HEAD /v1/models HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /docs/../v1/models HTTP/1.1\r\n" + HOST + b"accept: text/html\r\n\r\n",
    b"POST / HTTP/1.1\r\n" + HOST + b"accept: text/html\r\n" + LENGTH,
    b"POST /docs HTTP/1.1\r\n" + HOST + LENGTH,
    b"GET /v1/models HTTP/1.0\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"authorization: Bearer\r\n" + LENGTH,
    b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"authorization: Bearer sk-of-team-a\r\n"
    b"authorization: Bearer x\r\n" + LENGTH,
    b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST
    + b"x-api-key: x\r\nx-api-key: sk-of-team-a\r\n" + LENGTH,
    b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"x-forwarded-for: 127.0.0.1\r\n"
    b"x-original-url: /livez\r\nx-yaie-tenant: team-a\r\n" + LENGTH,
    CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick.split(b"\r\n")[0].decode())
async def test_no_trick_makes_up_for_a_key(
    start_router: StackMaker, tmp_path: Path, trick: bytes
) -> None:
    engine = FakeEngine("pod-a")
    stack = await start(start_router, tmp_path / "keys", engine)
    request = trick.replace(HOST, HOST + b"connection: close\r\n")
    assert (await exchange(stack, request)).split()[1] == b"401"
    assert not engine.received


SMUGGLED = b"GET /v1/models HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        b"content-length: 0\r\ncontent-length: 40\r\n\r\n" + SMUGGLED,
        b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
        b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        b"content-length: 0\r\n\r\n" + SMUGGLED,
    ],
    ids=["both lengths", "two lengths", "two codings", "a space", "a pipeline"],
)
async def test_what_is_smuggled_behind_a_request_is_not_answered(
    start_router: StackMaker, tmp_path: Path, framing: bytes
) -> None:
    """Nor does the key of one request count for the next of its connection."""
    stack = await start(start_router, tmp_path / "keys")
    keyed = b"authorization: Bearer sk-of-team-a\r\n"
    head = b"POST /v1/nope HTTP/1.1\r\n" + HOST + keyed
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    writer.write(head + framing)
    await asyncio.sleep(0.1)
    writer.write_eof()
    answers = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    assert b" 200 " not in answers
    assert b'"data"' not in answers


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/docs", "/openapi.json", "/"])
async def test_health_pages_and_preflights_need_no_key(
    start_router: StackMaker, tmp_path: Path, path: str
) -> None:
    stack = await start(start_router, tmp_path / "keys")
    async with stack.client.get(path, headers={"accept": "text/html"}) as response:
        assert response.status == 200


def test_a_wrong_entry_locks_nobody_else_out_and_lets_nobody_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = keys_of({"bad": b"sk-bad\nsha256:oops", "good": b"sk-good", "late": b"sk-good"})
    found = [keys.tenant_of(key) for key in (b"sk-good", b"sk-bad", b"sha256:oops", b"oops")]
    assert found == ["good", None, None, None]
    told = {record.msg: getattr(record, "fields", {}) for record in caplog.records}
    assert told["an entry with API keys is left out"]["tenant"] == "bad"
    assert told["two tenants have the same API key"] == {"tenant": "late", "counts_for": "good"}
    assert not any("sk-" in str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize("name", ["a b", "a\r\nx-yaie-route: b", "é", "a" * 129])
def test_a_name_that_no_header_can_carry_is_no_tenants(name: str) -> None:
    assert keys_of({name: b"sk-a"}).tenant_of(b"sk-a") is None


def test_keys_come_from_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--api-socket", "/x", "--api-key-dir", "/keys"], {"YAIE_API_KEY": "sesame"})
    told = capsys.readouterr().err
    assert "give one of them" in told
    assert "sesame" not in told
