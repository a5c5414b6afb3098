"""Progress of `yaie up` while models start: one line per model, rewritten in place on a terminal;
otherwise one line per change.
"""

import os
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TextIO


@dataclass(frozen=True)
class ModelState:
    """The state of one model, from its status. `settled`: it is ready or suspended."""

    name: str
    settled: bool
    phase: str
    message: str

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> Self:
        meta, status = model["metadata"], model.get("status") or {}
        conditions = {c["type"]: c for c in status.get("conditions", ())}
        ready = conditions.get("Ready", {})
        fresh = status.get("observedGeneration") == meta["generation"]
        done = ready.get("status") == "True" or ready.get("reason") == "Suspended"
        return cls(
            name=meta["name"],
            settled=fresh and done,
            phase=status.get("phase") or "Pending",
            message=ready.get("message", "waiting for the operator"),
        )


class StartProgress:
    """Writes progress to `stream`; call `show` with all models at each update."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._lines = 0
        self._told: dict[str, ModelState] = {}

    def show(self, models: Iterable[ModelState], elapsed_s: float) -> None:
        """Update the display."""
        states = list(models)
        if self._live:
            self._redraw(states, elapsed_s)
            return
        for state in states:
            if self._told.get(state.name) != state:
                self._told[state.name] = state
                self._stream.write(f"{line(state, elapsed_s)}\n")
        for gone in set(self._told) - {state.name for state in states}:
            del self._told[gone]
            self._stream.write(f"{gone}: deleted\n")
        self._stream.flush()

    def finish(self) -> None:
        """Keep the lines as they are; later changes are printed as new lines."""
        self._live = False
        self._lines = 0

    def remember(self, models: Iterable[ModelState]) -> None:
        """Record states as already shown."""
        self._told = {state.name: state for state in models}

    def _redraw(self, states: list[ModelState], elapsed_s: float) -> None:
        width = shutil.get_terminal_size().columns - 1
        lines = [part for state in states for part in _wrapped(line(state, elapsed_s), width)]
        up = f"\033[{self._lines}F" if self._lines else ""
        text = "".join(f"\033[2K{part}\n" for part in lines)
        self._stream.write(up + text + "\033[J")
        self._stream.flush()
        self._lines = len(lines)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text that may be longer than the terminal is wide."""
    return textwrap.wrap(text, max(width, 20), subsequent_indent="  ")


def line(state: ModelState, elapsed_s: float) -> str:
    """The line of a model, e.g. `demo: Starting (12 s): Pod demo-… starts: it loads the model`."""
    return f"{state.name}: {state.phase} ({elapsed_s:.0f} s): {state.message}"
