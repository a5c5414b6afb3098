"""Phases of work that may take long without being a hang: kernel compilation, graph capture.

Code that does such work in the engine's thread declares its phase; the watchdog reads it.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

COMPILATION: Final = "kernel compilation"
CAPTURE: Final = "graph capture"

_declared: list[str] = []
"""The innermost phase is the last. The engine's thread writes it, the watchdog's reads it."""
_n_compiled = 0


def current() -> str:
    """The innermost declared phase; empty when there is none."""
    return (_declared[-1:] or [""])[0]


@contextlib.contextmanager
def declared(name: str) -> Iterator[None]:
    """Declare a phase while the `with` block runs."""
    depth = len(_declared)
    _declared.append(name)
    try:
        yield
    finally:
        del _declared[depth:]


def n_compiled() -> int:
    """Number of kernels that this process has compiled."""
    return _n_compiled


def begin_compilation(**_: Any) -> None:
    """Triton is about to compile a kernel. After a compilation that failed, the phase is still
    declared and is not declared again.
    """
    global _n_compiled  # noqa: PLW0603 - the compiler's hook is one for the process
    _n_compiled += 1
    if current() != COMPILATION:
        _declared.append(COMPILATION)


def end_compilation(**_: Any) -> None:
    """Triton has compiled a kernel."""
    if current() == COMPILATION:
        _declared.pop()


def declare_compilations() -> None:
    """Let Triton call `begin_compilation` and `end_compilation` around each compilation."""
    from triton import knobs

    knobs.runtime.jit_cache_hook = begin_compilation
    knobs.runtime.jit_post_compile_hook = end_compilation
