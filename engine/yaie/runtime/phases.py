"""Phases of work that may take long without being a hang: kernel compilation, graph capture.

Whoever does such work in the engine's thread declares it, the watchdog reads it. One phase at a
time: they do not nest in ways that matter.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

_current = ""


def current() -> str:
    """The declared phase; empty when there is none."""
    return _current


def enter(name: str) -> None:
    """Declare a phase until `leave`, where no `with` statement can stand around the work."""
    global _current  # noqa: PLW0603 - one engine thread writes it, the watchdog reads it
    _current = name


def leave() -> None:
    """End the declared phase."""
    enter("")


@contextlib.contextmanager
def declared(name: str) -> Iterator[None]:
    """Declare a phase around its work."""
    enter(name)
    try:
        yield
    finally:
        leave()


def declare_compilations() -> None:
    """Let Triton say when it compiles a kernel for the first time."""
    from triton import knobs

    def before(**_: Any) -> None:
        enter("kernel compilation")

    def after(**_: Any) -> None:
        leave()

    knobs.runtime.jit_cache_hook = before
    knobs.runtime.jit_post_compile_hook = after
