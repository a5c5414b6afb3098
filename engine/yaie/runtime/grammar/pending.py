"""Requests whose grammar is being compiled. They are answered when the compilation ends; until then
the scheduler does not know them, and the client can abort them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from yaie.core.matcher import Matcher
from yaie.core.messages import Abort, Generate
from yaie_api.errors import InvalidRequestError, YaieError


class TokenMasks(NamedTuple):
    """Tokens that grammars allow. `rows` [R]: row numbers in the batch; `words`
    [R, ceil(vocab / 32)] int32: bit t % 32 of word t // 32 is set where token t is allowed.
    """

    rows: tuple[int, ...]
    words: NDArray[np.int32]


class GrammarBackend(Protocol):
    """Compiles grammars beside the loop, and fills the token masks of their matchers."""

    def submit(self, request: Generate) -> None:
        """Start to compile the request's grammar. Never blocks."""

    def take(self) -> list[tuple[Generate, Matcher | YaieError]]:
        """Results since the last call: each submitted request (the same object) with its matcher or
        error.
        """

    def masks(self, rows: Sequence[tuple[int, Matcher]]) -> TokenMasks | None:
        """The token masks of these (row number, matcher) pairs of a batch; None: all tokens are
        allowed.
        """

    def close(self) -> None:
        """End the threads and processes; what is being compiled is not answered."""


class PendingRequest(NamedTuple):
    """`arrived_s`, `deadline_s`: seconds of the loop's clock. `aborts`: of single outputs; they are
    applied when the request is queued.
    """

    request: Generate
    arrived_s: float
    deadline_s: float | None
    aborts: list[Abort]


class Compiling:
    """Owns the requests whose grammar is being compiled, by id."""

    def __init__(self, grammars: GrammarBackend | None) -> None:
        self._grammars = grammars
        self._pending: dict[str, PendingRequest] = {}
        self._submitted = 0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def has_work(self) -> bool:
        """Whether a submitted request has not been taken yet."""
        return self._submitted > 0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._pending

    def submit(self, request: Generate, arrived_s: float, deadline_s: float | None) -> None:
        """Start the compilation of `request`'s grammar.

        Raises:
            InvalidRequestError: this engine compiles no grammars.

        """
        if self._grammars is None:
            raise InvalidRequestError(
                "This model is served without structured output.", param="structured_outputs"
            )
        self._grammars.submit(request)
        self._submitted += 1
        self._pending[request.request_id] = PendingRequest(request, arrived_s, deadline_s, [])

    def abort(self, abort: Abort) -> Generate | None:
        """Remove and return an aborted request. None: it is not pending, or only one output is
        aborted.
        """
        pending = self._pending.get(abort.request_id)
        if pending is None:
            return None
        if abort.index is not None:
            pending.aborts.append(abort)
            return None
        return self._pending.pop(abort.request_id).request

    def take(self) -> Iterator[tuple[PendingRequest, Matcher | YaieError]]:
        """Results since the last call, without requests that were aborted or have expired."""
        if self._grammars is None:
            return
        for request, outcome in self._grammars.take():
            self._submitted -= 1
            pending = self._pending.get(request.request_id)
            if pending is not None and pending.request is request:  # an id may be in use again
                yield self._pending.pop(request.request_id), outcome

    def expire(self, now: float) -> list[Generate]:
        """Remove and return the requests whose deadline is not after `now`."""
        late = [
            pending.request
            for pending in self._pending.values()
            if pending.deadline_s is not None and pending.deadline_s <= now
        ]
        for request in late:
            del self._pending[request.request_id]
        return late

    def clear(self) -> list[Generate]:
        """Remove and return all requests."""
        pending, self._pending = self._pending, {}
        return [one.request for one in pending.values()]
