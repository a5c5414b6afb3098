"""Which tools a request of the responses API allows or demands. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from yaie.server.responses.tools import OURS, Toolbox, seen_name
from yaie_api.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Choice:
    """`chat`: the `tool_choice` of a chat request. `allowed`: the tools that may be called, by the
    names that the model sees; None: all.
    """

    chat: Any
    allowed: frozenset[str] | None = None


def read_choice(choice: str | Mapping[str, Any], tools: Toolbox) -> Choice:
    """Read a request's `tool_choice`.

    Raises:
        InvalidRequestError: it names a tool that is not offered, or one that this server would have
            to run itself.

    """
    if isinstance(choice, str):
        return Choice(choice)
    kind = choice.get("type")
    if kind in OURS:
        name = _found(choice, tools)
        return Choice({"type": "function", "function": {"name": name}})
    if kind == "allowed_tools":
        return _among(choice, tools)
    raise InvalidRequestError(
        f"tool_choice demands {str(kind)[:64]!r}: this server runs no tools of its own; choose a "
        "function or a custom tool.",
        param="tool_choice",
        code="unsupported_parameter",
    )


def _among(choice: Mapping[str, Any], tools: Toolbox) -> Choice:
    mode, listed = choice.get("mode"), choice.get("tools")
    if mode not in ("auto", "required"):
        raise _wrong("tool_choice.mode is auto or required.")
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise _wrong("tool_choice.tools is a list of tools.")
    allowed = frozenset(_names(listed, tools))
    if allowed:
        return Choice(mode, allowed)
    if mode == "required":
        raise _wrong("tool_choice.tools has no tool that this server can offer.")
    return Choice("none")


def _names(listed: Iterable[Mapping[str, Any]], tools: Toolbox) -> Iterable[str]:
    """Names of the listed tools that are offered. Of a namespace, all of its tools are meant."""
    for one in listed:
        if one.get("type") in OURS:
            yield _found(one, tools)
        elif one.get("type") == "namespace":
            offered = tools.offered.items()
            yield from (seen for seen, tool in offered if tool.namespace == one.get("name"))


def _found(wanted: Mapping[str, Any], tools: Toolbox) -> str:
    """Return the name that the model sees of a tool. Without its namespace a name must be the only
    one of its kind.
    """
    name, namespace = wanted.get("name"), wanted.get("namespace")
    if not isinstance(name, str):
        raise _wrong("tool_choice.name: a tool's name is a text.")
    if namespace is None or isinstance(namespace, str):
        seen = seen_name(name, namespace)
        if seen in tools.offered:
            return seen
    named = [seen for seen, tool in tools.offered.items() if tool.name == name]
    if namespace is None and len(named) == 1:
        return named[0]
    raise _wrong("tool_choice names a function that is not among the tools.")


def _wrong(text: str) -> InvalidRequestError:
    return InvalidRequestError(text, param="tool_choice")
