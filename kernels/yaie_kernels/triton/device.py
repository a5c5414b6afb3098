"""What launchers ask about the device they run on, asked once."""

import functools

import torch

_INTERPRETED = 4  # multiprocessors where there is no GPU


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """How many programs of the largest size run at once."""
    if device.type != "cuda":
        return _INTERPRETED
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9
