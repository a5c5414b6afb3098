"""What callers of `LLM` may pass, brought into one form: lists of prompts and of parameters."""

import os
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, Final, TypeAlias

import msgspec

from yaie.core.checks import check_integer
from yaie.core.request import SamplingParams
from yaie_api import engine_config
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import InvalidRequestError
from yaie_api.foreign_settings.ollama import model_problem
from yaie_api.http.openai import TokenizeRequest, parse

BarePrompt: TypeAlias = str | Sequence[int]
Prompt: TypeAlias = BarePrompt | Mapping[str, Any]
"""A text, token ids, or either under the name that vLLM gives it."""
Message: TypeAlias = Mapping[str, Any]

_NAMED: Final = ("prompt_token_ids", "prompt")


def config_of(model: str | os.PathLike[str], settings: Mapping[str, Any]) -> EngineConfig:
    """The settings, their types checked as a command line's would be.

    Raises:
        InvalidRequestError: a setting has the wrong type, or is none of its choices, or the model
            is a name of Ollama's or a GGUF file.

    """
    if told := model_problem(os.fspath(model)):
        raise InvalidRequestError(told, param="model")
    config = EngineConfig(model=os.fspath(model), **settings)
    for name, known in engine_config.settings().items():
        if known.choices and (told := engine_config.problem(name, getattr(config, name))):
            raise InvalidRequestError(f"{name} {told}.", param=name)
    try:
        return msgspec.convert(msgspec.structs.asdict(config), EngineConfig)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"A setting has the wrong type: {error}.") from error


def as_list(prompts: Any) -> list[BarePrompt]:
    """One prompt is a string, a list of ids or a mapping; anything else is a list of prompts."""
    if isinstance(prompts, str | Mapping):
        return [_bare(prompts)]
    if not isinstance(prompts, Iterable) or isinstance(prompts, bytes):
        raise _malformed(prompts)
    found = list(prompts)
    if found and _is_integer(found[0]):
        return [found]
    return [_bare(prompt) for prompt in found]


def _bare(prompt: Any) -> BarePrompt:
    if not isinstance(prompt, Mapping):
        bare: BarePrompt = prompt
        return bare
    given = {name: value for name, value in prompt.items() if value is not None}
    if not given or not given.keys() <= set(_NAMED):
        raise InvalidRequestError(
            f"A prompt as a mapping has {' or '.join(_NAMED)} and nothing else.", param="prompt"
        )
    named: BarePrompt = next(given[name] for name in _NAMED if name in given)
    return named


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
    """A priority for each prompt.

    Raises:
        InvalidRequestError: the priorities are no integers, or not as many as the prompts.

    """
    each = [given or 0] * n_prompts if given is None or isinstance(given, int) else given
    if not isinstance(each, list | tuple) or not all(map(_is_integer, each)):
        raise InvalidRequestError(
            "priority must be an integer or a list of integers.", param="priority"
        )
    _check_length("priority", len(each), n_prompts)
    return [index(one) for one in each]


def conversations(messages: Any, **fields: Any) -> list[TokenizeRequest]:
    """One conversation or several, checked as the server checks them. `fields`: what goes with
    each of them; None: nothing.
    """
    several = messages if _is_list(messages) and messages and _is_list(messages[0]) else [messages]
    shared = {name: _plain(value) for name, value in fields.items()}
    return [
        parse(TokenizeRequest, {"messages": list(one) if _is_list(one) else one} | shared)
        for one in several
    ]


def check_dimensions(dimensions: object, size: int) -> None:
    """Check that an embedding of `size` numbers can be cut to `dimensions`.

    Raises:
        InvalidRequestError: `dimensions` is given, and is no integer from 1 to `size`.

    """
    if dimensions is not None:
        check_integer("dimensions", dimensions, low=1, high=size or None)


def pairs(left: str | Sequence[str], right: str | Sequence[str]) -> list[tuple[str, str]]:
    """One left text goes with every right one; otherwise the two lists pair up.

    Raises:
        InvalidRequestError: the numbers of texts differ, and there is not just one left text.

    """
    lefts, rights = _texts("text_1", left), _texts("text_2", right)
    if len(lefts) == 1:
        lefts *= len(rights)
    if len(lefts) != len(rights):
        raise InvalidRequestError(
            f"There are {len(lefts)} texts on one side and {len(rights)} on the other.",
            param="text_1",
        )
    return list(zip(lefts, rights, strict=True))


def _is_integer(given: Any) -> bool:
    """Whether it can be an index. (Rows of an array have the method too, and refuse.)"""
    try:
        index(given)
    except TypeError:
        return False
    return True


def _is_list(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str | bytes)


def _plain(given: Any) -> Any:
    """Lists and mappings of any kind as JSON has them; an empty list is nothing."""
    if _is_list(given):
        return list(given) or None
    return dict(given) if isinstance(given, Mapping) else given


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
