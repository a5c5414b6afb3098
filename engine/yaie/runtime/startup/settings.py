"""Fills in what a configuration leaves open, by device and model. If a setting does not fit, the
error names it.
"""

import msgspec
import torch

from yaie.checkpoint import source
from yaie.layers.options import TensorOptions
from yaie.runtime.loop.step_budget import MIN_CHUNK, StepLimits
from yaie.runtime.startup import preflight
from yaie.runtime.startup.footprint import STEP_TOKENS
from yaie_api.engine_config import EngineConfig, problem, settings
from yaie_api.errors import InvalidRequestError
from yaie_api.resource import capacity

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
FLOOR_TOKENS = {"cpu": MIN_CHUNK, "cuda": 512}
"""Default of `StepLimits.floor_tokens`."""
STEP_TARGET_S = 0.05
"""Default time target of a step on a CPU, and on a GPU whose decodes were not measured."""
SHORTEST_TARGET_S, LONGEST_TARGET_S = 0.012, 0.2
TARGET_STEPS = 3.0
"""Default time target of a step on a GPU, in times of a step with `TARGET_ROWS` decodes alone."""
TARGET_ROWS = 64
LAUNCH_OPERATIONS = 5e12
"""Operations that an H200 computes, at best, while the host launches a step kernel by kernel (8
ms).
"""


def tensor_options(config: EngineConfig, checkpoint_dtype: str | None) -> TensorOptions:
    """Device and dtype of the model.

    Raises:
        InvalidRequestError: there is no CUDA device, or the dtype is not supported.

    """
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise InvalidRequestError("device is cuda, but there is no CUDA device.", param="device")
    dtype: str = config.dtype
    if dtype == "auto":
        dtype = (checkpoint_dtype or "bfloat16") if device == "cuda" else "float32"
    if dtype not in DTYPES:
        allowed = ", ".join(("auto", *DTYPES))
        raise InvalidRequestError(f"dtype is {dtype!r}; use one of {allowed}.", param="dtype")
    return TensorOptions(torch.device(device), DTYPES[dtype])


def check(config: EngineConfig) -> None:
    """Refuse values that fit no model.

    Raises:
        InvalidRequestError: a setting is out of range; `param` names it.

    """
    for name in settings():
        if told := problem(name, getattr(config, name)):
            raise InvalidRequestError(f"{name} {told}.", param=name)


def complete(
    config: EngineConfig, max_positions: int, device: torch.device, *, position_limit: int
) -> EngineConfig:
    """Fill in what depends on the model and the device. `position_limit`: the longest sequence that
    may be configured, at least `max_positions`, which is the default.

    Raises:
        InvalidRequestError: max_model_len is above `position_limit`.

    """
    preflight.check_length(config.max_model_len, position_limit)
    return msgspec.structs.replace(
        config,
        device=device.type,
        served_model_name=config.served_model_name or source.default_served_name(config.model),
        max_model_len=config.max_model_len or max_positions,
        max_num_seqs=config.max_num_seqs or _max_num_seqs(device),
        max_num_batched_tokens=config.max_num_batched_tokens or STEP_TOKENS[device.type],
    )


def step_limits(
    config: EngineConfig, *, context_weight: float, decode_s: float | None
) -> StepLimits:
    """The limits of steps for a complete configuration.

    Args:
        config: complete.
        context_weight: cost of attending to one earlier position, in tokens.
        decode_s: seconds of a step of `TARGET_ROWS` decodes; None: not measured.

    """
    target_s = config.step_time_target_s
    if target_s is None:
        target_s = STEP_TARGET_S
        if decode_s is not None:
            target_s = min(max(TARGET_STEPS * decode_s, SHORTEST_TARGET_S), LONGEST_TARGET_S)
    return StepLimits(
        max_tokens=config.max_num_batched_tokens or STEP_TOKENS["cpu"],
        target_s=target_s,
        floor_tokens=FLOOR_TOKENS[config.device],
        pay_overhead=config.device == "cuda",
        context_weight=context_weight,
    )


def max_mixed_tokens(parameters: int) -> int:
    """Maximum tokens of a captured step with prefill. With more tokens, the device takes longer
    than the host needs to launch the step kernel by kernel, so a graph saves no time.
    """
    return min(max(int(LAUNCH_OPERATIONS / (2 * parameters)), 1024), 4096)


def _max_num_seqs(device: torch.device) -> int:
    total = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else 0
    return capacity.default_max_num_seqs(total)
