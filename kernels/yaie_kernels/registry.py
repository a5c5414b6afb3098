"""Selects the backend of each operation by device, from lists in order of preference.

    reference  plain PyTorch, on every device
    triton     Triton kernels
    cuda       C++ and CUDA, if a library was built ahead of time (`cuda.build`)
    library    PyTorch's own fused operations

The first backend in the list that is available and accepts the arguments (`limits`) computes.

The environment variable YAIE_KERNELS, read once at import, changes the order. It holds words
separated by commas: a backend's name, for all operations that the backend has, or `operation=name`
for one operation (`auto,paged_attention=cuda`). If a named backend is not available, that is an
error, never a silent fallback. Operations that it does not have, and calls outside its limits,
follow the order of `auto`.
"""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import Tensor

from yaie_kernels.limits import LIMITS

Operation = Callable[..., Any]

# Operations that both `reference` and `triton` have.
_ENGINE = frozenset(
    {
        "add_biases_",
        "add_rms_norm",
        "adjust_logits",
        "ban_words_",
        "copy_pages",
        "gelu_tanh_mul",
        "greedy",
        "latent_norm_rope_write",
        "linear",
        "moe_mlp",
        "norm_linear",
        "paged_attention",
        "qk_norm_rope_write",
        "remember_",
        "rms_norm",
        "rope_",
        "route_experts",
        "sample",
        "score_tokens",
        "silu_mul",
        "write_kv",
    }
)
BACKENDS: dict[str, frozenset[str]] = {
    "reference": _ENGINE | {"flash_attention", "swap_pages"},
    "triton": _ENGINE,
    "cuda": frozenset(
        {
            "add_rms_norm",
            "copy_pages",
            "flash_attention",
            "paged_attention",
            "rms_norm",
            "rope_",
            "silu_mul",
            "swap_pages",
        }
    ),
    "library": frozenset({"flash_attention", "rms_norm", "silu_mul"}),
}
OPERATIONS = BACKENDS["reference"]

# The order of `auto`, by device type and operation; "" stands for all other operations.
AUTO: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu": {"": ("reference",), "flash_attention": ("library", "reference")},
    "cuda": {
        "": ("triton",),
        "flash_attention": ("library", "reference"),
        "swap_pages": ("cuda", "reference"),
    },
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A parsed YAIE_KERNELS: the default backend (or auto), and backends of single operations."""

    default: str
    named: Mapping[str, str]

    def of(self, operation: str) -> str:
        """The backend requested for an operation, or auto."""
        if operation in self.named:
            return self.named[operation]
        return self.default if operation in BACKENDS.get(self.default, ()) else "auto"


def parse(text: str) -> Choice:
    """Parse a value of YAIE_KERNELS.

    Raises:
        ValueError: An unknown backend or operation, or an operation that the backend lacks.

    """
    default, named = "auto", {}
    for word in text.split(","):
        operation, equals, name = word.strip().rpartition("=")
        if name not in {"auto", *BACKENDS}:
            wanted = ", ".join(("auto", *BACKENDS))
            raise ValueError(f"YAIE_KERNELS={text!r}: {name!r} is none of {wanted}")
        if not equals:
            default = name
            continue
        if operation not in OPERATIONS:
            raise ValueError(f"YAIE_KERNELS={text!r}: no operation {operation!r}")
        if name != "auto" and operation not in BACKENDS[name]:
            raise ValueError(f"YAIE_KERNELS={text!r}: {name} has no {operation}")
        named[operation] = name
    return Choice(default, named)


def order(operation: str, device: str, choice: Choice) -> tuple[str, ...]:
    """Backends to try for an operation on a device type, best first."""
    auto = AUTO[device].get(operation, AUTO[device][""])
    wanted = choice.of(operation)
    return auto if wanted == "auto" else (wanted, *(name for name in auto if name != wanted))


def table(device: str, choice: Choice) -> ModuleType:
    """Make the operations of one device type.

    The result is a module because Python looks up attributes of modules fastest. A call costs one
    lookup; only backends with limits also check the arguments.

    Raises:
        RuntimeError: A backend that `choice` names is not available.

    """
    found = ModuleType(f"yaie_kernels on {device}")
    for operation in OPERATIONS:
        names = order(operation, device, choice)
        must_have = choice.of(operation) == names[0]
        setattr(found, operation, _chain(operation, names, must_have=must_have))
    return found


def _chain(operation: str, names: Sequence[str], *, must_have: bool = False) -> Operation:
    """The first available backend; arguments outside its limits go to the next one."""
    first, *rest = names
    module = _module(first, must_have=must_have)
    if module is None:
        return _chain(operation, rest)
    compute: Operation = getattr(module, operation)
    accepts = LIMITS.get((first, operation))
    if accepts is None:
        return compute
    otherwise = _chain(operation, rest)

    def choose(*args: Any, **kwargs: Any) -> Any:
        return (compute if accepts(*args, **kwargs) else otherwise)(*args, **kwargs)

    return choose


def _module(name: str, *, must_have: bool) -> ModuleType | None:
    if name == "cuda":
        build = importlib.import_module("yaie_kernels.cuda.build")
        if build.load() is None:
            if must_have:
                raise RuntimeError(build.missing())
            return None
    return importlib.import_module(f"yaie_kernels.{name}")


_choice = parse(os.environ.get("YAIE_KERNELS", "auto"))
# Each table is made for the first tensor on its device, so CPU machines never import triton.
_cpu: ModuleType | None = None
_cuda: ModuleType | None = None


def backend(tensor: Tensor) -> ModuleType:
    """The operations of this tensor's device type."""
    return (_cuda if tensor.is_cuda else _cpu) or _make(tensor)


def _make(tensor: Tensor) -> ModuleType:
    global _cpu, _cuda  # noqa: PLW0603 - two tables, each made once
    if tensor.is_cuda:
        _cuda = table("cuda", _choice)
        return _cuda
    _cpu = table("cpu", _choice)
    return _cpu
