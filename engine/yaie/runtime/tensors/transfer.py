"""Asynchronous copies between host and device: integers up in one buffer, results down.

Pinned blocks return to torch's host cache only after the copies that use them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from yaie.runtime.tensors.inputs import pack


def upload(arrays: Sequence[NDArray[Any]], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Copy all arrays to the device in one transfer. Returns a flat int32 view for each array."""
    packed, sizes = pack(arrays)
    tensor = torch.from_numpy(packed)
    if device.type == "cuda":
        tensor = tensor.pin_memory().to(device, non_blocking=True)
    return torch.split(tensor, sizes)


class Downloads:
    """Copies of one step's results to the host, complete after `wait`."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._ready: torch.cuda.Event | None = None

    def start(self, tensor: torch.Tensor) -> torch.Tensor:
        """Start a copy to the host. The returned tensor may be read after `wait`."""
        if not self._cuda:
            return tensor
        pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        pinned.copy_(tensor, non_blocking=True)
        self.mark()
        return pinned

    def mark(self) -> None:
        """Let `wait` also wait for all work that is enqueued so far."""
        if not self._cuda:
            return
        if self._ready is None:
            self._ready = torch.cuda.Event()  # type: ignore[no-untyped-call]  # untyped in torch
        self._ready.record()

    @property
    def done(self) -> bool:
        """Whether `wait` would not block."""
        return self._ready is None or bool(self._ready.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Block until every copy started so far is complete."""
        if self._ready is not None:
            self._ready.synchronize()
