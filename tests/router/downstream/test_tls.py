"""HTTPS at the router's own port: streams, clients that read slowly or leave, and new pairs."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from fakes.certificates import self_signed
from router.conftest import Stack, StackMaker
from router.fakes import DONE, FakeEngine, event
from yaie_router.config import parse
from yaie_router.downstream import tls
from yaie_router.downstream.tls import Certificates, TlsError

Pair = tuple[Path, Path]
PairMaker = Callable[[str], Path]


@pytest.fixture(scope="module")
def new_pair(tmp_path_factory: pytest.TempPathFactory) -> PairMaker:
    """A function that makes a folder with a self-signed pair of this organization."""

    def make(organization: str) -> Path:
        return self_signed(tmp_path_factory.mktemp("pair"), organization)

    return make


def mount(folder: Path, pair: Path) -> Pair:
    """Swap a mounted Secret's version as the kubelet does."""
    folder.mkdir(exist_ok=True)
    version = folder / f"..{pair.name}"
    shutil.copytree(pair, version)
    link = folder / "..data_tmp"
    link.symlink_to(version.name)
    link.rename(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data", name))
    return folder / "tls.crt", folder / "tls.key"


def trusting(*pairs: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for pair in pairs:
        context.load_verify_locations(pair / "tls.crt")
    return context


async def shown_by(port: int, context: ssl.SSLContext) -> str:
    """The organization in the certificate that a new connection gets."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    subject = writer.get_extra_info("peercert")["subject"]
    writer.close()
    return str(dict(part[0] for part in subject)["organizationName"])


@pytest_asyncio.fixture
async def secure(start_router: StackMaker, new_pair: PairMaker, tmp_path: Path) -> Stack:
    pair = new_pair("first")
    certfile, keyfile = mount(tmp_path / "mount", pair)
    return await start_router(ssl_certfile=certfile, ssl_keyfile=keyfile, trust=trusting(pair))


async def test_a_stream_is_relayed_over_tls(secure: Stack) -> None:
    await secure.serve("demo", FakeEngine())
    for _ in range(2):  # the connection is used again
        async with secure.chat() as response:
            assert response.status == 200
            assert await response.read() == event("a") + event("b") + DONE


async def test_a_large_answer_waits_for_a_slow_reader_and_comes_whole(secure: Stack) -> None:
    pieces = [event("x" * 4000)] * 4000
    engine = FakeEngine(pieces=[*pieces, DONE])
    await secure.serve("demo", engine)
    async with secure.chat() as response:
        await response.content.readline()
        sent = -1
        while sent != engine.sent_bytes:  # until back-pressure has reached the engine
            sent = engine.sent_bytes
            await asyncio.sleep(0.3)
        assert sent < sum(map(len, pieces))
        rest = await response.read()
    assert rest.count(b"data: ") >= 4000
    assert rest.endswith(DONE)


async def test_a_client_that_leaves_frees_its_engine(secure: Stack) -> None:
    engine = FakeEngine(pieces=[event("a"), event("b"), DONE], hold_at=1)
    await secure.serve("demo", engine)
    response = await secure.chat()
    await response.content.readline()
    response.close()
    await asyncio.wait_for(engine.left.wait(), 60)


async def test_a_client_that_is_cut_off_frees_its_engine(secure: Stack) -> None:
    engine = FakeEngine(pieces=[event("a"), DONE], hold_at=1)
    await secure.serve("demo", engine)
    response = await secure.chat()
    await response.content.readline()
    assert response.connection is not None
    assert response.connection.transport is not None
    response.connection.transport.abort()  # no close_notify
    await asyncio.wait_for(engine.left.wait(), 60)


async def test_plain_http_gets_no_answer(secure: Stack) -> None:
    async with aiohttp.ClientSession() as plain:
        with pytest.raises(aiohttp.ClientError):
            await plain.get(f"http://127.0.0.1:{secure.config.port}/livez")


async def test_a_new_pair_is_used_without_a_restart_and_a_broken_one_never(
    start_router: StackMaker,
    new_pair: PairMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tls, "PERIOD_S", 0.02)
    first, second, broken = (new_pair(name) for name in ("first", "second", "broken"))
    both = trusting(first, second)
    certfile, keyfile = mount(tmp_path / "mount", first)
    stack = await start_router(ssl_certfile=certfile, ssl_keyfile=keyfile, trust=both)
    engine = FakeEngine(hold_at=1)
    await stack.serve("demo", engine)
    async with stack.chat() as before:
        await before.content.readline()
        assert await shown_by(stack.config.port, both) == "first"
        (broken / "tls.key").write_bytes((second / "tls.key").read_bytes())
        mount(tmp_path / "mount", broken)
        await stack.until(lambda: logged(caplog, "no new TLS pair; the one before stays"))
        assert await shown_by(stack.config.port, both) == "first"
        mount(tmp_path / "mount", second)
        await stack.until(lambda: shows(stack, both, "second"))
        engine.resume.set()
        assert (await before.read()).endswith(DONE)  # it keeps its connection


async def logged(caplog: pytest.LogCaptureFixture, message: str) -> bool:
    return any(record.message == message for record in caplog.records)


async def shows(stack: Stack, context: ssl.SSLContext, organization: str) -> bool:
    return await shown_by(stack.config.port, context) == organization


def test_a_router_does_not_start_without_a_pair(new_pair: PairMaker, tmp_path: Path) -> None:
    pair = new_pair("locked")
    for files in ((tmp_path / "a", tmp_path / "b"), (pair / "tls.key", pair / "tls.crt")):
        with pytest.raises(TlsError, match="no TLS pair in"):
            Certificates(*files)
    command = ["openssl", "ec", "-aes256", "-passout", "pass:sesame", "-in", str(pair / "tls.key")]
    subprocess.run([*command, "-out", str(pair / "locked")], check=True, capture_output=True)
    with pytest.raises(TlsError):  # nobody is asked for a password
        Certificates(pair / "tls.crt", pair / "locked")


def test_a_missing_file_is_told_once_and_changes_nothing(
    new_pair: PairMaker, caplog: pytest.LogCaptureFixture
) -> None:
    pair = new_pair("first")
    certificates = Certificates(pair / "tls.crt", pair / "tls.key")
    key = (pair / "tls.key").read_bytes()
    (pair / "tls.key").unlink()
    certificates.look()
    certificates.look()
    assert len(caplog.records) == 1
    (pair / "tls.key").write_bytes(key)
    certificates.look()
    assert len(caplog.records) == 1


def test_one_of_the_two_flags_is_not_enough(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--api-socket", "/x", "--ssl-certfile", "a"], {})
    assert "belong together" in capsys.readouterr().err
