"""Chooses who computes an operation: Triton on CUDA tensors, the torch reference elsewhere.

YAIE_KERNELS=reference forces the reference everywhere; YAIE_KERNELS=triton forces the kernels,
which on the CPU need Triton's interpreter (TRITON_INTERPRET=1). Read once, at import.
"""

import importlib
import os
from types import ModuleType

from torch import Tensor

from yaie_kernels import reference

_CHOICES = ("auto", "reference", "triton")
_choice = os.environ.get("YAIE_KERNELS", "auto")
if _choice not in _CHOICES:
    raise ValueError(f"YAIE_KERNELS={_choice!r}: want one of {', '.join(_CHOICES)}")
_loaded: dict[str, ModuleType] = {"reference": reference}


def backend(tensor: Tensor) -> ModuleType:
    """The module whose functions compute on this tensor."""
    if _choice == "auto":
        return _load("triton") if tensor.is_cuda else reference
    return _load(_choice)


def _load(name: str) -> ModuleType:
    if name not in _loaded:  # triton is imported by the first CUDA tensor, not on CPU machines
        _loaded[name] = importlib.import_module(f"yaie_kernels.{name}")
    return _loaded[name]
