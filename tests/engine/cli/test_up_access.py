"""Who may use what `yaie up` serves: keys, the address, pages of other origins."""

import contextlib
import http.client
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.running_up import Up, model_file, up, yaie

KEY = "sesame-3f1c"


def ask(
    running: Up, path: str = "/v1/models", method: str = "GET", **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=20)
    with contextlib.closing(connection):
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        answer.read()
        return answer


def arguments_and_environment(pid: int) -> tuple[str, str]:
    process = Path(f"/proc/{pid}")
    return process.joinpath("cmdline").read_text(), process.joinpath("environ").read_text()


def test_a_key_closes_the_api_and_reaches_nobody_but_the_router(tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text(f"{KEY}\n")
    state = tmp_path / "state"
    with up(state, "-f", str(model_file(tmp_path)), "--api-key-file", str(keys)) as running:
        running.wait_for("Ctrl-C")
        assert "YAIE_API_KEY" in running.output
        for path in ("/v1/models", "/metrics", "/version"):
            assert ask(running, path).status == 401
        for path in ("/readyz", "/docs", "/openapi.json"):
            assert ask(running, path).status == 200
        assert ask(running, "/", accept="text/html").status == 200
        assert ask(running, authorization=f"Bearer {KEY}").status == 200
        assert ask(running, authorization=f"Bearer {KEY}", host="llm.example").status == 200
        processes = [arguments_and_environment(pid) for pid in running.pids()]
        assert len(processes) == 2
        assert not any(KEY in arguments for arguments, _ in processes)
        holders = [arguments for arguments, environment in processes if KEY in environment]
        assert len(holders) == 1
        assert "yaie_router" in holders[0]
        running.interrupt()
        assert KEY not in running.output
    kept = [path for path in state.rglob("*") if path.is_file() and KEY in path.read_text()]
    assert kept == []


def test_a_command_under_up_has_the_key(tmp_path: Path) -> None:
    code = (
        "import os, urllib.request as r;"
        "q = r.Request(os.environ['YAIE_ENDPOINT'] + '/v1/models',"
        " headers={'authorization': 'Bearer ' + os.environ['YAIE_API_KEY']});"
        "print(r.urlopen(q).read().decode())"
    )
    file = str(model_file(tmp_path))
    arguments = ("-f", file, "--api-key", KEY, "--", sys.executable, "-c", code)
    with up(tmp_path / "state", *arguments) as running:
        assert running.finish(40) == 0, running.output
    models = json.loads(running.lines[-1])
    assert [model["id"] for model in models["data"]] == ["demo"]


def test_chat_says_how_to_give_a_key_and_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(model_file(tmp_path))
    with up(tmp_path / "state", "-f", file, "--api-key", KEY) as running:
        running.wait_for("Ctrl-C")
        asked = ("chat", "--endpoint", f"127.0.0.1:{running.port}", "--prompt", "hi")
        refused = yaie(*asked)
        assert refused.returncode == 1
        assert "Give it with --api-key, or set YAIE_API_KEY." in refused.stderr
        monkeypatch.setenv("YAIE_API_KEY", KEY)
        assert yaie(*asked).stdout.strip() == "demo says hello"


def test_pages_of_an_allowed_origin_may_use_it(tmp_path: Path) -> None:
    app, file = "https://app.example", str(model_file(tmp_path))
    with up(tmp_path / "state", "-f", file, "--allowed-origins", f'["{app}"]') as running:
        running.wait_for("Ctrl-C")
        asked: Any = {"origin": app, "access_control_request_method": "POST"}
        answer = ask(running, "/v1/chat/completions", "OPTIONS", **asked)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, app)
        assert ask(running, origin=app).headers["access-control-allow-origin"] == app
        assert ask(running, origin="https://evil.example").status == 400


def test_every_address_can_be_served_and_an_open_one_is_warned_of(tmp_path: Path) -> None:
    file = str(model_file(tmp_path))
    with up(tmp_path / "state", "-f", file, "--host", "0.0.0.0") as running:
        running.wait_for("Ctrl-C")
        assert f"http://127.0.0.1:{running.port}/v1" in running.output
        assert "anyone who reaches this address" in running.output
        assert ask(running, host="llm.example").status == 200


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--api-key", ""], "--api-key is empty"),
        (["--api-key-file", "/no/such/file"], "cannot be read"),
        (["--allowed-origins", "app.example"], "write its scheme"),
        (["--host", "203.0.113.7"], "cannot listen on 203.0.113.7"),
    ],
)
def test_what_cannot_be_used_is_told(tmp_path: Path, arguments: list[str], told: str) -> None:
    file = str(model_file(tmp_path))
    done = yaie("up", "-f", file, "--port", "0", *arguments, state=tmp_path / "state")
    assert done.returncode in (1, 2)
    assert told in done.stderr
