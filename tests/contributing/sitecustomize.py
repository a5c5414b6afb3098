"""Records which functions of ours run, in every Python process that finds this on its PYTHONPATH.

The folder `CALL_TRACE` has a folder for each phase. When `start` is in it, a process writes
`PID.begun` and notes when each function is called; when `stop` is there, too, it writes what it
noted to `PID.json`, as [nanoseconds of the monotonic clock, file, qualified name] for each call.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

POLL_S = 0.02
MOST_CALLS = 100  # of a function in a phase
ROOTS = tuple(
    f"{Path(__file__).parents[2] / root}/"
    for root in ("api", "operator", "local", "router", "engine", "kernels")
)


class Recorder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[CodeType, list[int]] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            times = self._seen.setdefault(frame.f_code, [])
            if len(times) < MOST_CALLS:
                times.append(time.monotonic_ns())

    def follow(self) -> None:
        """Record phase after phase, as a thread that ends with the process."""
        while True:
            for start in self._folder.glob("*/start"):
                if not self._written(start.parent).exists():
                    self._record(start.parent)
            time.sleep(POLL_S)

    def _record(self, phase: Path) -> None:
        self._seen.clear()
        (phase / f"{os.getpid()}.begun").touch()
        while not (phase / "stop").exists():
            time.sleep(POLL_S)
        found = [
            (at, code.co_filename, code.co_qualname)
            for code, times in list(self._seen.items())
            if code.co_filename.startswith(ROOTS)
            for at in times
        ]
        part = phase / f"{os.getpid()}.part"
        part.write_text(json.dumps(found))
        part.rename(self._written(phase))

    @staticmethod
    def _written(phase: Path) -> Path:
        return phase / f"{os.getpid()}.json"


if "CALL_TRACE" in os.environ:
    recorder = Recorder(Path(os.environ["CALL_TRACE"]))
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    threading.Thread(target=recorder.follow, daemon=True).start()
