"""`helm test` and `yaie chat` at a router with TLS: they trust whom they are told to."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fakes.certificates import self_signed
from yaie.cli.chat.client import ChatClient, ChatOptions
from yaie_api.errors import UnavailableError
from yaie_operator.smoke.__main__ import main

ANSWER = b'data: {"choices": [{"delta": {"content": "Water."}}]}\n\ndata: [DONE]\n\n'
MODELS = b'{"data": [{"id": "demo"}]}'


class Router(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.answer(ANSWER)

    def do_GET(self) -> None:
        self.answer(MODELS)

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def url(pair: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair / "tls.crt", pair / "tls.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Router)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_smoke_test_trusts_the_routers_own_certificate(url: str, pair: Path) -> None:
    asked = [f"{url}/v1", "--model", "demo", "--timeout-s", "1"]
    assert main([*asked, "--ca-dir", str(pair)]) == 0
    assert main(asked) == 1


def test_the_chat_trusts_the_file_that_it_is_given(url: str, pair: Path) -> None:
    async def models(ca_file: str | None) -> list[str]:
        async with ChatClient(ChatOptions(endpoint=url, ca_file=ca_file)) as client:
            return await client.models()

    assert asyncio.run(models(str(pair / "tls.crt"))) == ["demo"]
    with pytest.raises(UnavailableError):
        asyncio.run(models(None))


def test_the_chat_trusts_ssl_cert_file(
    url: str, pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pair / "tls.crt"))

    async def models() -> list[str]:
        async with ChatClient(ChatOptions(endpoint=url)) as client:
            return await client.models()

    assert asyncio.run(models()) == ["demo"]
