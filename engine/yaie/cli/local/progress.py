"""Progress of `yaie up` while models start: one line per model, rewritten in place on a terminal;
otherwise one line per change.
"""

import os
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TextIO

STAGE_S: Final = 5.0
"""Without a terminal, a model's stage alone is news only after so many seconds."""


@dataclass(frozen=True)
class ModelState:
    """The state of one model, from its status. `settled`: it is ready or suspended. `stage`: what
    its engine says about its start.
    """

    name: str
    settled: bool
    phase: str
    message: str
    stage: str = field(default="", compare=False)

    @property
    def has_failed(self) -> bool:
        """Whether its engines ended; they are started again."""
        return self.phase == "Failed"

    @classmethod
    def of(cls, model: Mapping[str, Any], stages: Mapping[str, str] | None = None) -> Self:
        meta, status = model["metadata"], model.get("status") or {}
        conditions = {c["type"]: c for c in status.get("conditions", ())}
        ready = conditions.get("Ready", {})
        fresh = status.get("observedGeneration") == meta["generation"]
        phase = status.get("phase") or "Pending"
        done = ready.get("status") == "True" or ready.get("reason") == "Suspended"
        return cls(
            name=meta["name"],
            settled=fresh and done,
            phase=phase,
            message=ready.get("message", "waiting for the operator"),
            stage=(stages or {}).get(meta["name"], "") if phase == "Starting" else "",
        )


class StartProgress:
    """Writes progress to `stream`; call `show` with all models at each update."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._lines = 0
        self._told: dict[str, ModelState] = {}
        self._staged_s: dict[str, float] = {}

    def show(self, models: Iterable[ModelState], elapsed_s: float) -> None:
        """Update the display."""
        states = list(models)
        if self._live:
            self._redraw(states, elapsed_s)
            return
        for state in states:
            if self._is_news(state, elapsed_s):
                self._told[state.name] = state
                self._staged_s[state.name] = elapsed_s
                self._stream.write(f"{line(state, elapsed_s)}\n")
        for gone in set(self._told) - {state.name for state in states}:
            del self._told[gone]
            self._stream.write(f"{gone}: deleted\n")
        self._stream.flush()

    def finish(self) -> None:
        """Keep the lines as they are; later changes are printed as new lines."""
        self._live = False
        self._lines = 0

    def clear(self) -> None:
        """Remove the lines from a terminal: what comes now stands in their place."""
        if self._live and self._lines:
            self._stream.write(f"\033[{self._lines}F\033[J")
            self._stream.flush()
            self._lines = 0

    def remember(self, models: Iterable[ModelState]) -> None:
        """Record states as already shown."""
        self._told = {state.name: state for state in models}

    def _is_news(self, state: ModelState, elapsed_s: float) -> bool:
        told = self._told.get(state.name)
        if told != state or told is None:
            return True
        is_late = elapsed_s - self._staged_s.get(state.name, 0.0) >= STAGE_S
        return is_late and told.stage != state.stage

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
    """The line of a model, e.g. `demo: Starting (12 s): Pod demo-… starts: it loads the model`, or
    with what its engine says: `demo: Starting (12 s): download: 1.20 GB of 3.40 GB (35 %), …`.
    """
    return f"{state.name}: {state.phase} ({elapsed_s:.0f} s): {state.stage or state.message}"
