"""What launchers ask about the device they run on, asked once."""

import functools

import torch

_INTERPRETED = 4  # multiprocessors where there is no GPU
_REGISTERS = 65_536  # of a multiprocessor, 32 bits each
_MOST_REGISTERS = 255  # of a thread


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """How many programs of the largest size run at once."""
    if device.type != "cuda":
        return _INTERPRETED
    return torch.cuda.get_device_properties(device).multi_processor_count


def registers_of(programs: int, warps: int) -> int | None:
    """Registers of a thread with which so many programs fit a multiprocessor; None: no limit."""
    registers = _REGISTERS // (programs * warps * 32) // 8 * 8
    return registers if registers < _MOST_REGISTERS else None


@functools.cache
def is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9
