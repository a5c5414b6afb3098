"""What is known of every watch: when the API server last answered it, and what it answered.

The watching thread writes, the operator's reads. A watch is asked for again every `WATCH_S`, so one
that was not answered for longer is deaf, whatever the connection says.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

WATCH_S: Final = 20
"""Seconds after which the API server ends a watch, which then goes on with a new request."""
DEAF_S: Final = 2.0 * WATCH_S
"""Seconds without an answer after which a watch is deaf."""
ABANDONED_S: Final = 8.0
"""Seconds after a refusal without another request. A refusal that is repeated is asked for again
sooner; after others, such as 404, kopf asks no more.
"""


@dataclass(frozen=True)
class WatchAnswer:
    """The last answer to one watch.

    Attributes:
        trouble: "" or why the watch failed.
        since: monotonic seconds.
        patience_s: seconds within which another request must follow.

    """

    trouble: str
    since: float
    patience_s: float = DEAF_S


class WatchHealth:
    """The watches by URL path. `expected`: the paths that are to be watched."""

    def __init__(
        self, expected: Iterable[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._answers = dict.fromkeys(expected, WatchAnswer("not watched yet", 0.0))
        self.restarted()

    def restarted(self) -> None:
        """Note that all watches begin again."""
        now = self._clock()
        self._answers = {
            path: WatchAnswer(answer.trouble or "not watched yet", now, ABANDONED_S)
            for path, answer in self._answers.items()
        }

    def answered(self, path: str, status: int, *, is_watch: bool) -> None:
        """Note an answer. A list that succeeds says nothing about the watch that follows it."""
        if path not in self._answers:
            return
        if status >= 400:
            self._answers[path] = WatchAnswer(f"HTTP {status}", self._clock(), ABANDONED_S)
        elif is_watch:
            self._answers[path] = WatchAnswer("", self._clock())

    def failed(self, path: str, trouble: str) -> None:
        """Note that a request of a watch failed without an answer."""
        if path in self._answers:
            self._answers[path] = WatchAnswer(trouble, self._clock())

    @property
    def age_s(self) -> float:
        """Seconds since the watch that has waited longest was answered."""
        now = self._clock()
        return max((now - answer.since for answer in self._answers.values()), default=0.0)

    def trouble(self, but: Iterable[str] = ()) -> str:
        """Why the watches cannot be relied on; "" if they can. `but`: paths that do not count."""
        ignored = set(but)
        return ", ".join(
            f"{path}: {answer.trouble or 'no answer'}"
            for path, answer in sorted(self._answers.items())
            if path not in ignored and (answer.trouble or self._is_deaf(answer))
        )

    @property
    def is_deaf(self) -> bool:
        """Whether nothing has been heard of a watch for too long: nobody asks for it any more."""
        return any(map(self._is_deaf, self._answers.values()))

    def _is_deaf(self, answer: WatchAnswer) -> bool:
        return self._clock() - answer.since > answer.patience_s
