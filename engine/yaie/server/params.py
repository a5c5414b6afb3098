"""From a wire request to sampling parameters: defaults of the model, limits of the context."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from yaie.core.request import SamplingParams
from yaie_api.errors import ContextLengthError, InvalidRequestError
from yaie_api.logs import fields
from yaie_api.openai import GenerationRequest

log = logging.getLogger(__name__)

_DEFAULTED: Final = ("temperature", "top_p", "top_k", "min_p")


def generation_defaults(folder: Path) -> dict[str, Any]:
    """Sampling defaults that the checkpoint's `generation_config.json` recommends.

    Values out of range are left out with a warning: a checkpoint must not break every request.
    """
    path = folder / "generation_config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        wanted = {name: config[name] for name in _DEFAULTED if config.get(name) is not None}
        if config.get("do_sample") is False:
            wanted = {}
        SamplingParams(**wanted)
    except (ValueError, AttributeError, InvalidRequestError) as error:
        log.warning("generation_config.json is ignored", extra=fields(reason=str(error)))
        return {}
    return wanted


def sampling_params(
    request: GenerationRequest,
    *,
    prompt_tokens: int,
    output_limit: int | None,
    default_limit: int | None,
    context_tokens: int,
    defaults: Mapping[str, Any],
) -> SamplingParams:
    """Check a request against the model's context and fill in what it leaves open.

    Args:
        request: the wire request.
        prompt_tokens: tokens of its prompt.
        output_limit: most tokens that the client asked for; None: not said.
        default_limit: most tokens when the client does not say; None: the rest of the context.
        context_tokens: the model's limit.
        defaults: values for sampling fields that the client left out.

    Raises:
        ContextLengthError: prompt and output do not fit.
        InvalidRequestError: a value is out of range.

    """
    room = context_tokens - prompt_tokens
    if room < 1 or (output_limit is not None and output_limit > room):
        raise ContextLengthError(context_tokens, prompt_tokens, output_limit)
    if output_limit is None:
        output_limit = room if default_limit is None else min(default_limit, room)
    given = {name: getattr(request, name) for name in (*_DEFAULTED, "seed", "min_tokens", "stop")}
    chosen = dict(defaults) | {name: v for name, v in given.items() if v is not None}
    return SamplingParams(
        max_tokens=output_limit,
        stop_token_ids=tuple(request.stop_token_ids or ()),
        include_stop_str_in_output=request.include_stop_str_in_output,
        ignore_eos=request.ignore_eos,
        skip_special_tokens=request.skip_special_tokens,
        **chosen,
    )
