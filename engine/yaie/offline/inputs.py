"""What callers of `LLM` may pass, brought into one form: lists of prompts and of parameters."""

import os
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, TypeAlias

import msgspec

from yaie.config import EngineConfig
from yaie.core.request import SamplingParams
from yaie_api.errors import InvalidRequestError

Prompt: TypeAlias = str | Sequence[int]
Message: TypeAlias = Mapping[str, Any]


def config_of(model: str | os.PathLike[str], settings: Mapping[str, Any]) -> EngineConfig:
    """The settings, their types checked as a command line's would be."""
    try:
        config = EngineConfig(model=os.fspath(model), **settings)
        return msgspec.convert(msgspec.structs.asdict(config), EngineConfig)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"A setting has the wrong type: {error}.") from error


def as_list(prompts: Any) -> list[Prompt]:
    """One prompt is a string or a list of ids; anything else is a list of prompts."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Iterable) or isinstance(prompts, Mapping | bytes):
        raise _malformed(prompts)
    found = list(prompts)
    if found and hasattr(found[0], "__index__"):
        return [found]
    return found


def token_ids(prompt: Any) -> tuple[int, ...]:
    """Token ids as integers; anything else is refused by name."""
    if isinstance(prompt, Mapping | bytes):
        raise _malformed(prompt)
    try:
        return tuple(map(index, prompt))
    except TypeError:
        raise _malformed(prompt) from None


def one_each(
    params: SamplingParams | Sequence[SamplingParams] | None, n_prompts: int
) -> list[SamplingParams]:
    """Sampling parameters for each prompt."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * n_prompts
    if not isinstance(params, list | tuple):
        raise _not_params(params)
    _check_length("sampling_params", len(params), n_prompts)
    for one in params:
        if not isinstance(one, SamplingParams):
            raise _not_params(one)
    return list(params)


def priorities(given: int | Sequence[int] | None, n_prompts: int) -> list[int]:
    """A priority for each prompt."""
    if given is None or isinstance(given, int):
        return [given or 0] * n_prompts
    _check_length("priority", len(given), n_prompts)
    return [index(one) for one in given]


def pairs(left: str | Sequence[str], right: str | Sequence[str]) -> list[tuple[str, str]]:
    """One left text goes with every right one; otherwise the two lists pair up."""
    lefts, rights = _texts("text_1", left), _texts("text_2", right)
    if len(lefts) == 1:
        lefts *= len(rights)
    if len(lefts) != len(rights):
        raise InvalidRequestError(
            f"There are {len(lefts)} texts on one side and {len(rights)} on the other.",
            param="text_1",
        )
    return list(zip(lefts, rights, strict=True))


def _texts(name: str, given: Any) -> list[str]:
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, Sequence) or not all(isinstance(text, str) for text in found):
        raise InvalidRequestError(f"{name} must be a text or a list of texts.", param=name)
    return list(found)


def _check_length(name: str, found: int, n_prompts: int) -> None:
    if found != n_prompts:
        raise InvalidRequestError(f"There are {n_prompts} prompts and {found} {name}.", param=name)


def _malformed(prompt: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"A prompt must be a text or a list of token ids, not {type(prompt).__name__}.",
        param="prompt",
    )


def _not_params(given: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"sampling_params must be SamplingParams, not {type(given).__name__}.",
        param="sampling_params",
    )
