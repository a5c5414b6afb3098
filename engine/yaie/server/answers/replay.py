"""Lets another engine continue a stream if this one dies: see `yaie_api.http.replay`.

A `Recorder` follows one answer. Each call that hands tokens to the answer's sink makes one piece of
the stream; `NotedBody` writes it together with its note. An answer that is a continuation goes
through the pieces that the client has in the same way, and its body drops what is written.
"""

from collections.abc import Callable, Sequence
from typing import Final, Self

from yaie.core.messages import TokenLogprobs, Tokens
from yaie.server.answers.response_body import ResponseBody
from yaie_api.http.replay import LOST, Identity, Piece, note, pieces_of

EMPTY_NOTE: Final = note(())
"""Of what holds no token: a comment, or the opening of an answer."""


class Recorder:
    """What the router must know to have a stream continued.

    Args:
        identity: of the request.
        tail: the words of what the client has; empty for a first attempt.

    Attributes:
        with_logprobs: the answer has log-probabilities: tokens that the client has are given some,
            too, which nobody sees.

    """

    def __init__(self, identity: Identity, tail: bytes = b"") -> None:
        self.identity = identity
        self.with_logprobs = False
        self.pieces: Sequence[Piece] = pieces_of(tail)
        self.cached_tokens = next(
            (p.cached_tokens for p in self.pieces if p.cached_tokens is not None), None
        )
        self._is_silent = identity.tail_bytes is not None
        self._tells_cached = self.cached_tokens is None
        self._is_piece = True  # what is written before the first token is one piece
        self._written: list[bytes] = []
        self._ids: list[int] = []
        self._write: Callable[[bytes], None] = _drop

    @property
    def resumed_token_ids(self) -> tuple[int, ...]:
        """The tokens that the client has."""
        return tuple(i for piece in self.pieces for i in piece.token_ids)

    def body(self, body: ResponseBody) -> "NotedBody":
        """Return a body that writes into this one, with notes."""
        self._write = body.write
        return NotedBody(self, body)

    def write(self, data: bytes) -> None:
        """Take what belongs to the present piece or, between pieces, is written as it is."""
        if self._is_silent:
            return
        if self._is_piece:
            self._written.append(data)
        else:
            self._write(data)

    def opened(self) -> None:
        """The answer's opening is written, and its tokens follow."""
        self.end()

    def begin(self, tokens: Tokens) -> None:
        """Tokens are about to be written."""
        self._ids += tokens.token_ids
        if self.cached_tokens is None and tokens.token_ids:
            self.cached_tokens = tokens.cached_tokens
        self._is_piece = True

    def end(self, *, is_last: bool = False) -> None:
        """The tokens are written, or held back for now. `is_last`: the output ends with them, and
        the stream soon after: that goes to the client as one, so it has no note.
        """
        self._is_piece = False
        if not self._written:
            return
        written, self._written = self._written, []
        if not is_last:
            cached = None
            if self._tells_cached and self._ids:
                self._tells_cached, cached = False, self.cached_tokens
            written.append(note(self._ids, cached))
            self._ids.clear()
        self._write(b"".join(written))

    def catch_up(self, take: Callable[[Tokens], None]) -> None:
        """Give `take` the pieces that the client has; what it writes is dropped."""
        try:
            for piece in self.pieces:
                ids = piece.token_ids
                fakes = tuple(TokenLogprobs(i, 0.0, 1, (), ()) for i in ids)
                take(Tokens("", ids, logprobs=fakes if self.with_logprobs else ()))
        finally:
            self._is_silent = False

    def lost(self) -> None:
        """The engine process has died, or gave the answer up: another engine may go on."""
        self.close()
        self._write(LOST)

    def close(self) -> None:
        """Write what waits: the answer has ended early."""
        self._is_silent = False
        self.end(is_last=True)


class NotedBody:
    """A `ResponseBody` whose pieces have notes."""

    def __init__(self, recorder: Recorder, body: ResponseBody) -> None:
        self._body = body
        self._recorder = recorder

    def write(self, data: bytes) -> None:
        self._recorder.write(data)

    @property
    def is_full(self) -> bool:
        return self._body.is_full

    @is_full.setter
    def is_full(self, value: bool) -> None:
        self._body.is_full = value

    @property
    def on_room(self) -> Callable[[], None]:
        return self._body.on_room

    @on_room.setter
    def on_room(self, call: Callable[[], None]) -> None:
        self._body.on_room = call

    @property
    def written_s(self) -> float:
        return self._body.written_s

    @written_s.setter
    def written_s(self, value: float) -> None:
        self._body.written_s = value

    async def __aenter__(self) -> Self:
        await self._body.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._body.__aexit__(*error)


def _drop(data: bytes) -> None:
    """Take the place of a body until there is one."""
