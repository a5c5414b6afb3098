"""Tools of the responses API as functions: names, descriptions, grammars, and what is left."""

from typing import Any

import pytest

from engine.server.responses.requests import AGENTS, COMMAND, PATCH
from yaie.server.responses.tool_choice import Choice, read_choice
from yaie.server.responses.tools import read_tools, seen_name
from yaie_api.errors import InvalidRequestError

SEARCH = {"type": "web_search", "external_web_access": False}
MCP = {"type": "namespace", "name": "mcp__files__", "tools": [COMMAND | {"name": "read"}]}


def names(*tools: Any) -> list[str]:
    return [tool["function"]["name"] for tool in read_tools(tools).functions]


def test_a_namespace_s_functions_have_longer_names_and_their_own_ones_are_kept() -> None:
    box = read_tools([COMMAND, AGENTS, MCP])
    assert list(box.offered) == [
        "exec_command",
        "multi_agent_v1__close_agent",
        "multi_agent_v1__wait_agent",
        "mcp__files__read",
    ]
    close = box.offered["multi_agent_v1__close_agent"]
    assert (close.name, close.namespace) == ("close_agent", "multi_agent_v1")
    descriptions = [tool["function"]["description"] for tool in box.functions]
    assert descriptions[1] == "Tools for spawning and managing sub-agents.\n\nClose an agent."
    assert descriptions[2] == "Wait for one."


def test_a_name_that_a_namespace_would_make_too_long_stays() -> None:
    assert seen_name("f" * 60, "space") == "f" * 60
    assert seen_name("f", None) == "f"


def test_one_name_in_two_namespaces_is_two_tools_and_the_same_tool_twice_is_refused() -> None:
    one, other = ({"type": "namespace", "name": n, "tools": [COMMAND]} for n in "ab")
    assert names(one, other, COMMAND) == ["a__exec_command", "b__exec_command", "exec_command"]
    with pytest.raises(InvalidRequestError, match=r"tools\.1: two tools"):
        read_tools([COMMAND, COMMAND])


def test_tools_that_a_server_would_run_are_left_out() -> None:
    box = read_tools([SEARCH, COMMAND, {"type": "local_shell"}, SEARCH, {"type": "new_in_2030"}])
    assert list(box.offered) == ["exec_command"]
    assert box.left_out == ("web_search", "local_shell", "new_in_2030")


def test_a_custom_tool_takes_one_string_and_the_model_is_shown_its_grammar() -> None:
    free = {"type": "custom", "name": "say"}
    box = read_tools([PATCH, free])
    shown = box.functions[0]["function"]
    assert shown["parameters"]["required"] == ["input"]
    assert PATCH["format"]["definition"] in shown["description"]
    limits = box.limits(None)
    assert set(limits.input_grammars) == {"apply_patch"}
    assert box.functions[1]["function"]["description"] is None


def test_all_grammars_together_have_a_limit() -> None:
    long = PATCH["format"] | {"definition": PATCH["format"]["definition"] + "//" + "x" * 30_000}
    tools = [PATCH | {"name": f"p{n}", "format": long} for n in range(5)]
    assert len(read_tools(tools[:4]).offered) == 4
    with pytest.raises(InvalidRequestError, match="together"):
        read_tools([*tools[:2], {"type": "namespace", "name": "n", "tools": tools}])


@pytest.mark.parametrize(
    ("tool", "begins"),
    [
        ({"name": "f"}, "tools.1: "),
        ({"type": "function"}, "tools.1.name: "),
        ({"type": "custom", "name": "f", "description": 5}, "tools.1.description: "),
        ({"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}, "tools.1.tools.0.name"),
        ({"type": "custom", "name": "f", "format": "text"}, "tools.1.format: "),
        (
            {"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "peg"}},
            "tools.1.format.syntax: ",
        ),
        (
            {
                "type": "custom",
                "name": "f",
                "format": {"type": "grammar", "syntax": "lark", "definition": 'root: "a"'},
            },
            "tools.1.format.definition: ",
        ),
        (
            {
                "type": "custom",
                "name": "f",
                "format": {"type": "grammar", "syntax": "regex", "definition": "a\\"},
            },
            "tools.1.format.definition: ",
        ),
    ],
)
def test_errors_begin_with_the_place_of_the_tool(tool: Any, begins: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_tools([COMMAND, tool])
    assert caught.value.message.startswith(begins)
    assert caught.value.param == "tools"


# -- tool_choice ------------------------------------------------------------------------------


def choose(choice: Any) -> Choice:
    return read_choice(choice, read_tools([COMMAND, AGENTS, PATCH, SEARCH]))


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "name": "exec_command"}, "exec_command"),
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "function", "name": "close_agent"}, "multi_agent_v1__close_agent"),
        (
            {"type": "function", "name": "wait_agent", "namespace": "multi_agent_v1"},
            "multi_agent_v1__wait_agent",
        ),
    ],
)
def test_one_tool_can_be_demanded_by_the_client_s_name(choice: Any, name: str) -> None:
    assert choose(choice).chat == {"type": "function", "function": {"name": name}}


def test_allowed_tools_are_those_that_are_listed_and_offered() -> None:
    listed = [
        {"type": "function", "name": "exec_command"},
        {"type": "namespace", "name": "multi_agent_v1"},
        {"type": "web_search"},
    ]
    allowed = frozenset(
        {"exec_command", "multi_agent_v1__close_agent", "multi_agent_v1__wait_agent"}
    )
    for mode in ("auto", "required"):
        chosen = choose({"type": "allowed_tools", "mode": mode, "tools": listed})
        assert chosen == Choice(mode, allowed)
    nothing = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    assert choose(nothing) == Choice("none")


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "web_search"},
        {"type": "function"},
        {"type": "function", "name": "nobody"},
        {"type": "function", "name": "close_agent", "namespace": "other"},
        {"type": "allowed_tools", "mode": "often", "tools": []},
        {"type": "allowed_tools", "mode": "auto"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]},
    ],
)
def test_a_choice_that_cannot_be_honoured_is_refused(choice: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        choose(choice)
    assert caught.value.param == "tool_choice"
