"""The admin port: there only when asked for, and nothing of it on the public one."""

import socket
from collections.abc import Iterator

import pytest

from engine.server.running import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("admin")
    with serving(folder, "--admin", "--api-key", "secret-key") as running:
        running.wait_ready()
        yield running


KEY = {"authorization": "Bearer secret-key"}


def test_control_endpoints_are_not_on_the_public_port(server: Server) -> None:
    for path, method in (("/reset_prefix_cache", "POST"), ("/server_info", "GET")):
        assert server.call(path, method=method, headers=KEY).status == 404


def test_the_admin_port_asks_for_the_key_too(server: Server) -> None:
    assert server.admin("/server_info").status == 401
    assert server.admin("/readyz").status == 200
    assert server.admin("/v1/models").status == 401
    assert server.call("/v1/models", headers=KEY, port=server.admin_port).status == 404


def test_what_is_cached_is_told_only_with_a_key_and_only_where_it_was_asked_for(
    server: Server,
) -> None:
    assert server.call("/prefixes").status == 401
    told = server.call("/prefixes", headers=KEY)
    assert told.status == 404
    assert "YAIE_PREFIX_KEY is not set" in told.error["message"]


@pytest.mark.parametrize("second", [b"x", b"Bearer other", b"Bearer secret-key"])
def test_a_key_beside_two_authorizations_is_none(server: Server, second: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.sendall(
            b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: secret-key\r\n"
            b"authorization: Bearer one\r\nauthorization: " + second + b"\r\n\r\n"
        )
        assert raw.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_the_prefix_cache_can_be_reset(server: Server) -> None:
    done = server.call("/reset_prefix_cache", b"", headers=KEY, port=server.admin_port)
    assert done.status == 200
    assert len(server.journal_entries("reset")) == 1


def test_the_configuration_is_told_without_keys(server: Server) -> None:
    answer = server.call("/server_info", headers=KEY, port=server.admin_port)
    assert answer.json["settings"] == {"model": "stub"}
    assert answer.json["model"]["architecture"] == "Stub"
    assert b"secret" not in answer.body


def test_the_load_is_told_in_numbers(server: Server) -> None:
    load = server.call("/load", headers=KEY, port=server.admin_port).json
    assert load["server_load"] == 0
    assert load["state"] == "ready"
    assert load["kv_pages"] == 100
    assert server.call("/load", headers=KEY).json == {"server_load": 0}


def test_metrics_are_on_both_ports(server: Server) -> None:
    for port in (server.port, server.admin_port):
        assert b"yaie_engine_kv_pages" in server.call("/metrics", headers=KEY, port=port).body
