"""Tools that clients declare, and the `tool_choice` among them."""

import json
import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from yaie_api.errors import InvalidRequestError
from yaie_api.http.wire import Wire, depth

MAX_TOOLS: Final = 128
MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_SCHEMA_DEPTH: Final = 32
MAX_NAME: Final = 64
_NAME: Final = re.compile(rf"[a-zA-Z0-9_.\-]{{1,{MAX_NAME}}}")


class ToolFunction(Wire):
    """One function that the model may call. `parameters` is a JSON schema of its arguments."""

    name: str
    description: Annotated[str, Field(max_length=MAX_SCHEMA_BYTES)] | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not _NAME.fullmatch(self.name):
            raise InvalidRequestError(
                "a tool's name is 1 to 64 letters, digits, '_', '-' or '.'.", param="tools"
            )
        check_schema(self.parameters, "tools")
        return self


class Tool(Wire):
    """An entry of `tools`."""

    type: Literal["function"] = "function"
    function: ToolFunction

    @property
    def num_characters(self) -> int:
        """Approximate size in characters."""
        function = self.function
        return len(json.dumps(function.parameters)) + len(function.description or "")

    def for_template(self) -> dict[str, Any]:
        """The tool in the form that chat templates read."""
        function = self.function
        found: dict[str, Any] = {"name": function.name}
        if function.description is not None:
            found["description"] = function.description
        return {
            "type": "function",
            "function": found | {"parameters": function.parameters or _NO_PARAMETERS},
        }


_NO_PARAMETERS: Final = {"type": "object", "properties": {}}


class NamedFunction(Wire):
    """The function that must be called."""

    name: str


class NamedTool(Wire):
    """A `tool_choice` that requires a call of one function."""

    type: Literal["function"] = "function"
    function: NamedFunction


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)]
ToolChoice = Literal["none", "auto", "required"] | NamedTool


def check_tools(tools: list[Tool] | None, choice: "ToolChoice | None") -> None:
    """Check that the tools and the choice are consistent.

    Raises:
        InvalidRequestError: the list is empty, two tools have the same name, or the choice needs a
            tool that is not in the list.

    """
    if tools == []:
        raise InvalidRequestError("tools must not be empty; leave it out.", param="tools")
    names = [tool.function.name for tool in tools or ()]
    if len(set(names)) < len(names):
        raise InvalidRequestError("two tools have the same name.", param="tools")
    if tools is None and choice not in (None, "none"):
        raise InvalidRequestError("tool_choice needs tools.", param="tool_choice")
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        raise InvalidRequestError(
            "tool_choice names a function that is not among the tools.", param="tool_choice"
        )


def check_schema(schema: Any, param: str) -> None:
    """Check the size and depth of a JSON schema.

    Raises:
        InvalidRequestError: it is deeper than MAX_SCHEMA_DEPTH or larger than MAX_SCHEMA_BYTES.

    """
    if schema is None:
        return
    if depth(schema, MAX_SCHEMA_DEPTH + 1) > MAX_SCHEMA_DEPTH:
        raise InvalidRequestError(
            f"a schema is nested deeper than {MAX_SCHEMA_DEPTH} levels.", param=param
        )
    if len(json.dumps(schema)) > MAX_SCHEMA_BYTES:
        raise InvalidRequestError(f"a schema is larger than {MAX_SCHEMA_BYTES} bytes.", param=param)
