import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from yaie.cli.local.progress import ModelState, StartProgress, line
from yaie.cli.local.stages import last_words, stages


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def state(name: str = "demo", message: str = "loads", **more: Any) -> ModelState:
    return ModelState(name, **{"settled": False, "phase": "Starting", "message": message, **more})


def test_without_a_terminal_each_news_is_one_line() -> None:
    stream = io.StringIO()
    progress = StartProgress(stream)
    for elapsed_s in (0.0, 1.0, 2.0):
        progress.show([state()], elapsed_s)
    progress.show([state(message="warms up")], 3.0)
    assert stream.getvalue() == ("demo: Starting (0 s): loads\ndemo: Starting (3 s): warms up\n")


def test_a_model_that_is_gone_is_told_once() -> None:
    stream = io.StringIO()
    progress = StartProgress(stream)
    progress.show([state("a"), state("b")], 0.0)
    progress.show([state("a")], 1.0)
    progress.show([state("a")], 2.0)
    assert stream.getvalue().count("b: deleted") == 1


def test_on_a_terminal_the_lines_are_rewritten_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    progress = StartProgress(stream)
    progress.show([state("a"), state("b")], 0.0)
    progress.show([state("a"), state("b")], 1.0)
    first, second = stream.getvalue().split("\033[J")[:2]
    assert first.count("\n") == 2
    assert second.startswith("\033[2F")


def test_on_a_terminal_a_long_reason_is_wrapped_and_not_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    progress = StartProgress(stream)
    reason = "ended: there is no model folder at /srv/models/" + "m" * 60
    progress.show([state(phase="Failed", message=reason)], 0.0)
    shown = stream.getvalue().removesuffix("\033[J").replace("\033[2K", "").splitlines()
    assert all(len(line) < 40 for line in shown)
    assert "".join(line.strip() for line in shown).endswith("m" * 60)
    progress.show([state()], 1.0)
    assert f"\033[{len(shown)}F" in stream.getvalue()


def test_after_the_start_a_terminal_gets_plain_news_too() -> None:
    stream = Terminal()
    progress = StartProgress(stream)
    progress.show([state()], 0.0)
    progress.remember([state()])
    progress.finish()
    before = stream.getvalue()
    progress.show([state()], 5.0)
    assert stream.getvalue() == before
    progress.show([state(phase="Failed", message="ended")], 9.0)
    assert stream.getvalue().removeprefix(before) == "demo: Failed (9 s): ended\n"


@pytest.mark.parametrize(
    ("ready", "generation", "settled"),
    [
        ({"status": "True", "reason": "AllReady"}, 2, True),
        ({"status": "False", "reason": "Suspended"}, 2, True),
        ({"status": "False", "reason": "Starting"}, 2, False),
        ({"status": "True", "reason": "AllReady"}, 1, False),
    ],
)
def test_a_model_is_settled_when_its_present_spec_is_ready(
    ready: dict[str, str], generation: int, settled: bool
) -> None:
    """A status about an older generation says nothing about the present one."""
    conditions = [{"type": "Ready", "message": "m", **ready}]
    model = {
        "metadata": {"name": "demo", "generation": 2},
        "status": {"observedGeneration": generation, "conditions": conditions},
    }
    assert ModelState.of(model).settled is settled


def test_a_model_without_status_waits_for_the_operator() -> None:
    found = ModelState.of({"metadata": {"name": "demo", "generation": 1}})
    assert (found.settled, found.phase, found.message) == (
        False, "Pending", "waiting for the operator",
    )  # fmt: skip


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    StartProgress(stream).show([state()], 0.0)
    assert stream.getvalue() == "demo: Starting (0 s): loads\n"


def test_what_an_engine_says_of_its_start_replaces_the_general_sentence() -> None:
    model = {
        "metadata": {"name": "demo", "generation": 1},
        "status": {"phase": "Starting", "observedGeneration": 1},
    }
    told = ModelState.of(model, {"demo": "download: 1.00 GB of 2.00 GB (50 %)", "other": "x"})
    assert line(told, 7) == "demo: Starting (7 s): download: 1.00 GB of 2.00 GB (50 %)"
    failed = {**model, "status": {"phase": "Failed"}}
    assert ModelState.of(failed, {"demo": "imports"}).stage == ""


def test_without_a_terminal_a_stage_alone_is_news_every_few_seconds() -> None:
    stream = io.StringIO()
    progress = StartProgress(stream)
    for elapsed_s in range(12):
        progress.show([state(stage=f"download: {elapsed_s} MB")], elapsed_s)
    told = [text.rpartition(": ")[2] for text in stream.getvalue().splitlines()]
    assert told == ["0 MB", "5 MB", "10 MB"]


def test_lines_are_removed_from_a_terminal_only() -> None:
    for stream, shown in ((Terminal(), "\033[1F\033[J"), (io.StringIO(), "")):
        progress = StartProgress(stream)
        progress.show([state()], 0.0)
        before = stream.getvalue()
        progress.clear()
        assert stream.getvalue().removeprefix(before) == shown


class Engine(BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        assert self.path == "/readyz"
        self.send_response(503)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        return


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"stage": "download", "detail": "1 of 2"}', {"demo": "download: 1 of 2"}),
        (b'{"stage": "imports"}', {"demo": "imports"}),
        (b'{"status": "ok"}', {}),
        (b"loading", {}),
        (b"[]", {}),
    ],
)
def test_engines_are_asked_for_their_stage(body: bytes, told: dict[str, str]) -> None:
    labels = {"yaie.dev/model": "demo"}
    pods = [
        {"metadata": {"labels": labels}, "status": {"podIP": "127.7.7.7"}},
        {"metadata": {"labels": {"yaie.dev/model": "silent"}}, "status": {"podIP": "127.7.7.8"}},
        {"metadata": {"labels": labels}, "status": {}},
        {"metadata": {}, "status": {"podIP": "127.7.7.7"}},
    ]
    handler = type("Bound", (Engine,), {"body": body})
    with ThreadingHTTPServer(("127.7.7.7", 8000), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        assert stages(pods) == told
        server.shutdown()
        thread.join(5)


def test_why_an_engine_ended_is_told_in_its_own_words() -> None:
    def pod(where: str, message: str) -> dict[str, Any]:
        status = {where: {"terminated": {"message": message}}}
        return {"status": {"containerStatuses": [status]}}

    assert (
        last_words([pod("state", "There is no model."), pod("state", "x")]) == "There is no model."
    )
    assert last_words([pod("lastState", "killed")]) == "killed"
    assert last_words([{"status": {}}, pod("state", "")]) == ""
