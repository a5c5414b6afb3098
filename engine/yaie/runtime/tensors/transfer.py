"""Copies between host and device that nobody waits for: integers up in one buffer, results down.

Pinned blocks return to torch's host cache only after the copies that use them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from yaie.runtime.tensors.inputs import pack


def upload(arrays: Sequence[NDArray[Any]], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Bring all arrays to the device in one copy; flat int32 views of it come back."""
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
        """Begin a copy; what comes back may be read after `wait`."""
        if not self._cuda:
            return tensor
        pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        pinned.copy_(tensor, non_blocking=True)
        self.mark()
        return pinned

    def mark(self) -> None:
        """What was enqueued so far counts as begun, too."""
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
        """Block until every copy begun so far is there."""
        if self._ready is not None:
            self._ready.synchronize()
