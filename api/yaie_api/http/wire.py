"""Common base of all request bodies: strict frozen models, and `parse`, which checks a body.

`parse` takes JSON values and returns a frozen request, or raises an InvalidRequestError that names
the field. Null means omitted, and unknown fields are accepted. With `Wire.refuse` a type of request
refuses fields that would change the output but are not implemented.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from yaie_api.errors import InvalidRequestError

MAX_DEPTH: Final = 64
MAX_FIELDS: Final = 256
MAX_CONTAINERS: Final = 32_768
"""Most lists and objects at one level of a body: checking a million empty ones takes seconds."""

MAX_SHOWN: Final = 64
"""Most characters of a client's own text in an error message."""

Integer = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
TokenId = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
TokenIds = Annotated[list[TokenId], Field(fail_fast=True)]
"""Validation stops at the first invalid entry: a million errors would take 10 s and 1 GB."""
ModelName = Annotated[str, Field(max_length=512)]


def _plain(salt: str) -> str:
    if any(character in salt for character in "@/\\\0"):
        raise InvalidRequestError(
            "cache_salt must not contain '@', '/', '\\' or NUL.", param="cache_salt"
        )
    return salt


def _not_zero(count: int) -> int:
    if count == 0:
        raise InvalidRequestError(
            "truncate_prompt_tokens must be positive, or -1.", param="truncate_prompt_tokens"
        )
    return count


def _plain_id(request_id: str) -> str:
    if not _REQUEST_ID.fullmatch(request_id):
        raise InvalidRequestError(
            "request_id must be 1 to 128 letters, digits, '_', '-', '.' or ':'.",
            param="request_id",
        )
    return request_id


_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")
RequestId = Annotated[str, AfterValidator(_plain_id)]
"""The client's own name of a request, told back in the answer's id."""
CacheSalt = Annotated[str, Field(max_length=128), AfterValidator(_plain)]
"""Requests share cached prefixes only with requests that have the same salt."""
Truncation = Annotated[int, Field(strict=True, ge=-1), AfterValidator(_not_zero)]
"""Number of tokens of a prompt to keep; -1: as many as the model accepts."""
Priority = Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)]


class Wire(BaseModel):
    """Base of all types that a client sends."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", allow_inf_nan=False)

    @classmethod
    def refuse(cls, given: Mapping[str, Any]) -> None:
        """Refuse fields that must not be ignored. `given`: the body's fields without nulls.

        Raises:
            InvalidRequestError: there is such a field.

        """


class ModelRequest(Wire):
    """A request to a model. `model=None`: the model that is served."""

    model: ModelName | None = None

    @property
    def unknown_fields(self) -> list[str]:
        """Fields that the client sent and this server does not know."""
        return list(self.model_extra or ())


class NamedRequest(ModelRequest):
    """A request whose answer has an id, which the client may choose."""

    request_id: RequestId | None = None


Request = TypeVar("Request", bound=Wire)


def parse(kind: type[Request], body: Any) -> Request:
    """Check a decoded JSON body and return the request.

    Raises:
        InvalidRequestError: the body is invalid; `param` names the field.

    """
    if not isinstance(body, dict):
        raise InvalidRequestError("The request body must be a JSON object.")
    _check_size(body)
    given = {name: _number(value) for name, value in body.items() if value is not None}
    kind.refuse(given)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _first_problem(error, given) from None


def _number(value: Any) -> Any:
    """Convert floats such as 3.0 to integers: JSON has one number type, and clients send 3.0."""
    return int(value) if type(value) is float and value.is_integer() else value


def _check_size(body: Any) -> None:
    """Refuse bodies that are nested deeper than MAX_DEPTH or too wide, without recursion."""
    if len(body) > MAX_FIELDS:
        raise InvalidRequestError(f"The request has more than {MAX_FIELDS} fields.")
    level = [body]
    for _ in range(MAX_DEPTH):
        level = [child for value in level for child in _children(value)]
        if not level:
            return
        if len(level) > MAX_CONTAINERS:
            raise InvalidRequestError(
                f"The request holds more than {MAX_CONTAINERS} lists and objects at one level."
            )
    raise InvalidRequestError(f"The request is nested deeper than {MAX_DEPTH} levels.")


def depth(value: Any, limit: int) -> int:
    """Number of levels of lists and objects in a JSON value, at most `limit`."""
    level, found = _children([value]), 0
    while level and found < limit:
        found += 1
        level = [child for one in level for child in _children(one)]
    return found


def shown(text: str) -> str:
    """A client's own text for an error message: quoted as JSON, and not long."""
    return json.dumps(text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…")


_CONTAINERS: Final = frozenset((dict, list))


def _children(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if type(item) in _CONTAINERS]


def _first_problem(error: ValidationError, given: Mapping[str, Any]) -> InvalidRequestError:
    """One sentence about the deepest problem, without the input's text.

    If a value may have several forms, the problem of the form that matches the value's type is
    reported, because it is the most specific.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    problem = max(problems, key=lambda p: (len(p["loc"]), not p["type"].endswith("_type")))
    name = str(problem["loc"][0]) if problem["loc"] else None
    if name is not None and name not in given:
        return InvalidRequestError(f"{name} is required.", param=name)
    path = ".".join(str(part) for part in problem["loc"] if not _is_variant(part))
    reason = _NAMES_A_TYPE.sub("an object", problem["msg"])
    return InvalidRequestError(f"{path or 'body'}: {reason}.", param=name)


_NAMES_A_TYPE: Final = re.compile(r"a valid dictionary( or instance of \w+)?")


def _is_variant(part: int | str) -> bool:
    """Whether a path's part is pydantic's name of a union member (`list[str]`) or of a type."""
    if not isinstance(part, str):
        return False
    typed = part.startswith("constrained-") or part in ("str", "int", "float", "bool")
    return typed or "[" in part or part[:1].isupper()
