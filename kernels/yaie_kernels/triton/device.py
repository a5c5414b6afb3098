"""Cached properties of the device, for launchers."""

import functools

import torch

_INTERPRETED = 4  # multiprocessors assumed without a GPU
_REGISTERS = 65_536  # per multiprocessor, 32 bits each
_MOST_REGISTERS = 255  # per thread


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Number of the device's multiprocessors: programs of the largest size that run at once."""
    if device.type != "cuda":
        return _INTERPRETED
    return torch.cuda.get_device_properties(device).multi_processor_count


def registers_of(programs: int, warps: int) -> int | None:
    """Registers per thread so that `programs` fit on a multiprocessor; None: no limit needed."""
    registers = _REGISTERS // (programs * warps * 32) // 8 * 8
    return registers if registers < _MOST_REGISTERS else None


@functools.cache
def is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9
