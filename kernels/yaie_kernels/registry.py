"""Who computes an operation: a table of backends in order of preference, per operation and device.

reference: plain torch (`reference`), everywhere. triton: `triton`. cuda: C++ and CUDA, where a
library was built ahead of time (`cuda.build`). library: torch's own fused operation (`library`).
The first of the order that is there, and whose limits the arguments keep, computes.

YAIE_KERNELS, read once at import, changes the order: a backend's name for all operations that have
it, `operation=name` for one, separated by commas (`auto,paged_attention=cuda`). A name that was
asked for and is not there is an error, never a silent fallback; operations it does not have, and
calls beyond its limits, go by the order of `auto`.
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

# What each backend has. `reference` and `triton` share the engine's operations.
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

# The order of `auto`, by kind of device; "" is every other operation.
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
    """What YAIE_KERNELS says: a backend (or auto) for all operations, others for some."""

    default: str
    named: Mapping[str, str]

    def of(self, operation: str) -> str:
        """The backend asked for, or auto."""
        if operation in self.named:
            return self.named[operation]
        return self.default if operation in BACKENDS.get(self.default, ()) else "auto"


def parse(text: str) -> Choice:
    """The choice that a value of YAIE_KERNELS makes.

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
    """Backends to try for an operation on a kind of device, best first."""
    auto = AUTO[device].get(operation, AUTO[device][""])
    wanted = choice.of(operation)
    return auto if wanted == "auto" else (wanted, *(name for name in auto if name != wanted))


def table(device: str, choice: Choice) -> ModuleType:
    """The operations of one kind of device.

    A module, because the interpreter finds attributes of modules fastest: an operation costs one
    lookup and no decision, but for backends with limits, which look at their arguments.

    Raises:
        RuntimeError: A backend that `choice` names is not there.

    """
    found = ModuleType(f"yaie_kernels on {device}")
    for operation in OPERATIONS:
        names = order(operation, device, choice)
        must_have = choice.of(operation) == names[0]
        setattr(found, operation, _chain(operation, names, must_have=must_have))
    return found


def _chain(operation: str, names: Sequence[str], *, must_have: bool = False) -> Operation:
    """The first that is there, for arguments within its limits; the others for the rest."""
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
# made by a device's first tensor: triton is not imported on CPU machines
_cpu: ModuleType | None = None
_cuda: ModuleType | None = None


def backend(tensor: Tensor) -> ModuleType:
    """The operations of this tensor's kind of device."""
    return (_cuda if tensor.is_cuda else _cpu) or _make(tensor)


def _make(tensor: Tensor) -> ModuleType:
    global _cpu, _cuda  # noqa: PLW0603 - two tables, each made once
    if tensor.is_cuda:
        _cuda = table("cuda", _choice)
        return _cuda
    _cpu = table("cpu", _choice)
    return _cpu
