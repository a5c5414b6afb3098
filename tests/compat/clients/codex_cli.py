"""The Codex CLI, a coding agent, in its default configuration with our server as model provider.

Codex runs as its users start it: `codex exec`, in a folder and a home of its own. The demo model is
too small to follow its instructions. So a relay between the two demands a call where a check needs
one, with arguments that the tool's schema or grammar leaves no choice of, and an answer elsewhere,
which has the form of `--output-schema`, so that it ends. The server answers all of it, and the
relay keeps what was asked.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from checks import MODEL, URL, check, main

CODEX = sys.argv[1]
TIMEOUT_S = 300
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 12}},
    "required": ["answer"],
    "additionalProperties": False,
}
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+made by a patch\n*** End Patch"
Body = dict[str, Any]
Change = Callable[[Body], None]


@dataclass
class Run:
    """What Codex did. `events`: its own, from `--json`. `asked`: the bodies that it sent."""

    events: list[Body]
    asked: list[Body] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def items(self, kind: str) -> list[Body]:
        found = [event["item"] for event in self.events if event["type"] == "item.completed"]
        return [item for item in found if item["type"] == kind]

    @property
    def answer(self) -> Body:
        last = self.items("agent_message")[-1]
        parsed: Body = json.loads(last["text"])
        assert set(parsed) == {"answer"}, parsed
        return parsed


def run(*arguments: str, change: Change | None = None, resume: bool = False) -> Run:
    """Run `codex exec` in a new folder with one file. `change`: what the relay does to requests
    that come before any call. `resume`: run a second turn of the same conversation.
    """
    with tempfile.TemporaryDirectory(prefix="yaie-codex-") as place, relay(change) as (url, asked):
        home, work = Path(place, "home"), Path(place, "work")
        home.mkdir()
        work.mkdir()
        (work / "note.txt").write_text("the dog sleeps\n")
        schema = home / "schema.json"
        schema.write_text(json.dumps(SCHEMA))
        (home / "config.toml").write_text(
            f'model = "{MODEL}"\nmodel_provider = "yaie"\n\n[model_providers.yaie]\n'
            f'name = "yaie"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
        )
        common = ["--skip-git-repo-check", "--json", "--output-schema", str(schema)]
        events = _codex([*common, *arguments, "What is in the note?"], home, work)
        if resume:
            events += _codex(["resume", "--last", *common, "And now?"], home, work)
        files = {path.name: path.read_text() for path in work.iterdir() if path.is_file()}
        return Run(events, asked, files)


def _codex(arguments: list[str], home: Path, work: Path) -> list[Body]:
    done = subprocess.run(
        [CODEX, "exec", *arguments], capture_output=True, text=True, check=False, cwd=work,
        timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, env=os.environ | {"CODEX_HOME": str(home)},
    )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    told = done.stdout[-800:] + done.stderr[-800:]
    assert done.returncode == 0, told
    assert any(event["type"] == "turn.completed" for event in events), told
    return events


@contextlib.contextmanager
def relay(change: Change | None) -> Iterator[tuple[str, list[Body]]]:
    """Pass requests on to the server, keep them, and stream what it answers."""
    asked: list[Body] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append(json.loads(json.dumps(body)))
            body["model"] = MODEL
            called = any(item.get("type", "").endswith("_output") for item in body["input"])
            if change is not None and not called:
                change(body)
            else:
                body["tool_choice"] = "none"  # whatever the demo model called would be run
            request = urllib.request.Request(
                URL + self.path, json.dumps(body).encode(), {"content-type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                    self._pass_on(answer)
            except urllib.error.HTTPError as error:
                self._pass_on(error)

        def _pass_on(self, answer: Any) -> None:
            self.send_response(answer.status)
            self.send_header("content-type", answer.headers["content-type"])
            self.end_headers()
            while piece := answer.read1():
                self.wfile.write(piece)

        def log_message(self, *_: Any) -> None:
            """Say nothing: standard output is for reports."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def tool(body: Body, name: str) -> Body:
    found: Body = next(one for one in body["tools"] if one.get("name") == name)
    return found


def only(value: str) -> Body:
    """A schema that leaves no choice."""
    return {"const": value}


def reads_the_note(body: Body) -> None:
    tool(body, "exec_command")["parameters"] = {
        "type": "object",
        "properties": {"cmd": only("cat note.txt")},
        "required": ["cmd"],
        "additionalProperties": False,
    }
    body["tool_choice"] = {"type": "function", "name": "exec_command"}


def closes_an_agent(body: Body) -> None:
    space = tool(body, "multi_agent_v1")
    close = next(one for one in space["tools"] if one["name"] == "close_agent")
    close["parameters"]["properties"]["target"] = only("nobody")
    body["tool_choice"] = {"type": "function", "name": "close_agent", "namespace": space["name"]}


def patches(body: Body) -> None:
    lines = " LF ".join(json.dumps(line) for line in PATCH.split("\n"))
    definition = f"start: {lines}\n%import common.LF"
    asked = tool(body, "apply_patch")["format"]
    asked |= {"definition": definition}
    body["tool_choice"] = {"type": "custom", "name": "apply_patch"}


def ends_soon(body: Body) -> None:
    """Free text, in which any of Codex's own tools may be called, up to the first full stop."""
    del body["text"]["format"]
    body["stop"] = ["\n", ".", " "]


@check
def a_question_is_answered_in_the_form_of_a_schema() -> None:
    done = run()
    assert done.answer
    assert done.asked[0]["tools"]
    kinds = {one["type"] for one in done.asked[0]["tools"]}
    assert {"function", "namespace", "web_search"} <= kinds, kinds
    (end,) = [event for event in done.events if event["type"] == "turn.completed"]
    assert end["usage"]["input_tokens"] > 1000
    assert end["usage"]["output_tokens"] > 0


@check
def a_command_is_called_run_and_answered() -> None:
    done = run(change=reads_the_note)
    (command,) = done.items("command_execution")
    assert command["exit_code"] == 0, command
    assert "the dog sleeps\n" in command["aggregated_output"], command
    (output,) = [i for i in done.asked[1]["input"] if i["type"] == "function_call_output"]
    assert "the dog sleeps" in json.dumps(output)
    assert done.answer


@check
def a_function_of_a_namespace_is_found_again() -> None:
    done = run(change=closes_an_agent)
    called = [i for i in done.asked[1]["input"] if i["type"] == "function_call"]
    assert [(one["namespace"], one["name"]) for one in called] == [
        ("multi_agent_v1", "close_agent")
    ]
    (output,) = [i for i in done.asked[1]["input"] if i["type"] == "function_call_output"]
    assert "unsupported" not in json.dumps(output), output
    assert done.answer


@check
def a_patch_is_called_as_a_custom_tool_and_applied() -> None:
    done = run("--model", "gpt-5.5", "--sandbox", "workspace-write", change=patches)
    called = [i for i in done.asked[1]["input"] if i["type"] == "custom_tool_call"]
    assert [one["input"].strip() for one in called] == [PATCH], called
    assert done.files["made.txt"] == "made by a patch\n", done.asked[1]["input"][-1]
    assert done.answer


@check
def its_own_tools_and_its_grammar_of_patches_are_taken() -> None:
    run(change=ends_soon)
    done = run("--model", "gpt-5.5", change=ends_soon)
    assert tool(done.asked[0], "apply_patch")["format"]["type"] == "grammar"


@check
def a_conversation_is_resumed() -> None:
    done = run(resume=True)
    assert len(done.asked) == 2
    roles = [item.get("role") for item in done.asked[1]["input"]]
    assert "assistant" in roles, roles
    assert done.answer


main()
