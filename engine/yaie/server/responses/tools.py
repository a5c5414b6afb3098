"""The tools of a request of the responses API, as functions of a chat request. Pure.

    function                 ─▶ a function
    custom (free text)       ─▶ a function with one string, `input`, under the tool's own grammar
    namespace                ─▶ its functions and custom tools, under longer names
    what this server would have to run (web search, images, …) ─▶ left out

Agents offer tools of the last kind unasked. A model that is not offered them does without; a
`tool_choice` that demands one is refused. Calls are written with the client's own names.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from yaie.server.request.output_form import CallLimits
from yaie.text.grammar import tool_input
from yaie.text.grammar.forms import MAX_GRAMMAR_CHARACTERS
from yaie.text.grammar.json_string import GrammarTextError
from yaie.text.grammar.schema import MAX_PATTERN_CHARACTERS, ends_escaping
from yaie.text.tools.custom_input import PARAMETERS
from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai.tools import MAX_NAME

Tool = Mapping[str, Any]
MAX_GRAMMARS_CHARACTERS: Final = 128 << 10
OURS: Final = ("function", "custom")
_SYNTAXES: Final = {
    "lark": (tool_input.of_lark, MAX_GRAMMAR_CHARACTERS, "Lark grammar"),
    "regex": (tool_input.of_regex, MAX_PATTERN_CHARACTERS, "regular expression"),
}


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as the client knows it.

    Attributes:
        name: its name, without the namespace.
        namespace: the namespace that it is in; None: none.
        is_custom: whether its input is free text.
        path: where it stands in the request.
        function: the function that the model sees.
        grammar: Lark of its free-text input, as written inside a JSON string; None: any text.

    """

    name: str
    namespace: str | None
    is_custom: bool
    path: str
    function: Mapping[str, Any]
    grammar: str | None = None


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one request.

    `offered`: by the name that the model sees. `functions`: the same as tools of a chat request, in
    order. `left_out`: types of the tools that the model is not offered.
    """

    offered: Mapping[str, OfferedTool]
    functions: tuple[Mapping[str, Any], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def paths(self) -> dict[str, str]:
        """Path of each function in the chat request → its path in the request that was sent."""
        places = [tool.path for tool in self.offered.values()]
        return {f"tools.{n}.function": place for n, place in enumerate(places)}

    def limits(self, allowed: frozenset[str] | None) -> CallLimits:
        """Return the limits of calls. `allowed`: the tools that may be called; None: all."""
        grammars = {n: tool.grammar for n, tool in self.offered.items() if tool.grammar is not None}
        return CallLimits(grammars, allowed)


NO_TOOLS: Final = Toolbox({})


def read_tools(tools: Sequence[Tool] | None) -> Toolbox:
    """Read the tools of a request.

    Raises:
        InvalidRequestError: a tool is wrong; `param` is tools.

    """
    if grammar_size(tools) > MAX_GRAMMARS_CHARACTERS:
        raise InvalidRequestError(
            f"tools: their grammars have more than {MAX_GRAMMARS_CHARACTERS} characters together.",
            param="tools",
        )
    offered: dict[str, OfferedTool] = {}
    functions: list[Mapping[str, Any]] = []
    left_out: dict[str, None] = {}
    for tool in _flat(tools or ()):
        if isinstance(tool, str):
            left_out[tool] = None
            continue
        seen = seen_name(tool.name, tool.namespace)
        if seen in offered:
            raise _wrong(tool.path, f"two tools have the name {seen!r}.")
        offered[seen] = tool
        functions.append({"type": "function", "function": {**tool.function, "name": seen}})
    return Toolbox(offered, tuple(functions), tuple(left_out))


def grammar_size(tools: Sequence[Tool] | None) -> int:
    """Return the size in characters of all grammars, which decides where they are read."""
    inner = [one for tool in tools or () for one in _listed(tool.get("tools"))]
    forms = [tool.get("format") for tool in (*(tools or ()), *inner) if isinstance(tool, Mapping)]
    texts = [form.get("definition") for form in forms if isinstance(form, Mapping)]
    return sum(len(text) for text in texts if isinstance(text, str))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def seen_name(name: str, namespace: str | None) -> str:
    """Return the name that the model sees. It depends on nothing else, so that a conversation's
    earlier calls keep theirs. A name that the namespace would make too long stays as it is.
    """
    if not namespace:
        return name
    joined = f"{namespace.rstrip('_')}__{name}"
    return joined if len(joined) <= MAX_NAME else name


def _flat(tools: Iterable[Tool]) -> Iterator[OfferedTool | str]:
    """The tools one by one; a text is the type of one that is left out."""
    for number, tool in enumerate(tools):
        kind, path = tool.get("type"), f"tools.{number}"
        if not isinstance(kind, str):
            raise _wrong(path, "a tool needs its type.")
        if kind in OURS:
            yield _offered(tool, path)
        elif kind == "namespace":
            yield from _inside(tool, path)
        else:
            yield kind


def _inside(tool: Tool, path: str) -> Iterator[OfferedTool | str]:
    """The tools of a namespace. The first one's description begins with the namespace's own."""
    namespace, inner = tool.get("name"), tool.get("tools")
    if not isinstance(namespace, str) or not isinstance(inner, list):
        raise _wrong(path, "a namespace needs a name and tools.")
    about = tool.get("description")
    for number, one in enumerate(inner):
        kind = one.get("type") if isinstance(one, Mapping) else None
        if not isinstance(kind, str):
            raise _wrong(f"{path}.tools.{number}", "a tool needs its type.")
        if kind not in OURS:
            yield kind
            continue
        yield _offered(one, f"{path}.tools.{number}", namespace, about)
        about = None


def _offered(tool: Tool, path: str, namespace: str | None = None, about: Any = None) -> OfferedTool:
    name = tool.get("name")
    if not isinstance(name, str):
        raise _wrong(f"{path}.name", "a tool needs its name, a text.")
    described = [text for text in (about, tool.get("description")) if text is not None]
    if not all(isinstance(text, str) for text in described):
        raise _wrong(f"{path}.description", "a description is a text.")
    is_custom = tool["type"] == "custom"
    function: dict[str, Any] = {key: tool.get(key) for key in ("parameters", "strict")}
    grammar = None
    if is_custom:
        grammar, hint = _format(tool.get("format"), path)
        described += hint
        function = {"parameters": PARAMETERS}
    function["description"] = "\n\n".join(described) or None
    return OfferedTool(name, namespace, is_custom, path, function, grammar)


def _format(form: Any, path: str) -> tuple[str | None, list[str]]:
    """Return the grammar of a custom tool's input, and what the model is told of it."""
    if form is None or (isinstance(form, Mapping) and form.get("type", "text") == "text"):
        return None, []
    if not isinstance(form, Mapping) or form.get("type") != "grammar":
        raise _wrong(f"{path}.format", "type is text or grammar.")
    syntax, definition = form.get("syntax"), form.get("definition")
    if not isinstance(syntax, str) or syntax not in _SYNTAXES:
        raise _wrong(f"{path}.format.syntax", f"is one of {', '.join(_SYNTAXES)}.")
    rewrite, limit, what = _SYNTAXES[syntax]
    if not isinstance(definition, str) or not definition.strip():
        raise _wrong(f"{path}.format.definition", f"must be a {what}, written as a string.")
    if len(definition) > limit:
        raise _wrong(f"{path}.format.definition", f"has more than {limit} characters.")
    if syntax == "regex" and ends_escaping(definition):
        raise _wrong(f"{path}.format.definition", "ends in the middle of an escape.")
    try:
        grammar = rewrite(definition)
    except GrammarTextError as error:
        raise _wrong(f"{path}.format.definition", f"{error}.") from None
    return grammar, [f"The input must match this {what}:\n{definition}"]


def _wrong(path: str, text: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {text}", param="tools")
