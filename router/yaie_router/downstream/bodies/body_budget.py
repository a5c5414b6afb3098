"""How much memory request bodies may take together: while they come, while they wait for an engine,
and until the first token of their answer, for they may be sent again.

A body's first `FREE_BYTES` do not count, so that large or slow bodies leave room for the small ones
that most requests are.
"""

from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from yaie_api.errors import OverloadedError

FREE_BYTES: Final = 64 << 10
UNFINISHED_SHARE: Final = 0.25
"""Of the bytes, for bodies that have not come whole: their clients may be slow on purpose."""
_RETRY_S: Final = 1.0


@dataclass
class BodyBudget:
    """`most_bytes`: of all bodies; `most_unfinished`: how many may be coming at a time."""

    most_bytes: int = 256 << 20
    most_unfinished: int = 1024
    kept_bytes: int = field(default=0, init=False)
    unfinished_bytes: int = field(default=0, init=False)
    unfinished: int = field(default=0, init=False)

    def begin(self) -> "BodyLease":
        """Begin to read a body.

        Raises:
            OverloadedError: too many are coming.

        """
        if self.unfinished >= self.most_unfinished:
            raise _full(f"{self.unfinished} request bodies are coming, as many as may at a time.")
        self.unfinished += 1
        return BodyLease(self)


class BodyLease:
    """What one body takes of the budget: it grows, it is finished, and it is given back at last."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._size = 0
        self._counted = 0
        self._is_finished = False
        self._is_over = False

    def grow(self, size: int) -> None:
        """Take room for a part that has come.

        Raises:
            OverloadedError: there is none.

        """
        self._size += size
        more = self._size - FREE_BYTES - self._counted
        if more <= 0:
            return
        budget = self._budget
        self._counted += more
        budget.unfinished_bytes += more
        budget.kept_bytes += more
        if (
            budget.kept_bytes > budget.most_bytes
            or budget.unfinished_bytes > budget.most_bytes * UNFINISHED_SHARE
        ):
            raise _full("Request bodies take all the memory that they may.")

    def finish(self) -> None:
        """Note that the body has come whole."""
        if not self._is_finished:
            self._is_finished = True
            self._budget.unfinished -= 1
            self._budget.unfinished_bytes -= self._counted

    def release(self) -> None:
        """Give everything back; again, it does nothing."""
        if not self._is_over:
            self._is_over = True
            self.finish()
            self._budget.kept_bytes -= self._counted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _full(text: str) -> OverloadedError:
    return OverloadedError(f"{text} Send the request again.", retry_after_s=_RETRY_S)
