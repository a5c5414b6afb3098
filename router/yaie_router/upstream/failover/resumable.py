"""What the router knows of a stream that another engine could continue."""

from multidict import CIMultiDict

from yaie_api.http.replay import CAN_REPLAY, Identity, tail_of
from yaie_api.names import HEADER_REPLAY
from yaie_router.upstream.attempt import Answer
from yaie_router.upstream.delivery.relayed import Relayed
from yaie_router.upstream.failover.gate import NotedGate
from yaie_router.upstream.failover.held_bodies import HeldBodies, HeldBody
from yaie_router.upstream.failover.replays import Turn


class StreamBrokenError(Exception):
    """An engine died after a part of its answer had gone to the client."""


class NotContinuedError(Exception):
    """An engine answered a replay, but not with the rest of the stream."""


class Resumable:
    """One stream. `out`: what goes to the client, once it has begun. `turn`: of the replay."""

    def __init__(self) -> None:
        self.gate = NotedGate()
        self.out: Relayed | None = None
        self.turn: Turn | None = None
        self._identity = Identity.new()
        self._body: HeldBody | None = None

    @property
    def can_go_on(self) -> bool:
        """Whether another engine may be asked."""
        return self._body is not None and not self.gate.is_lost

    def body(self) -> bytes:
        """Return what a replay sends: the request's body and the words of what has passed."""
        held = b"" if self._body is None else self._body.data
        return held + tail_of(self.gate.words) if self.gate.has_passed else held

    def put_in(self, headers: CIMultiDict[str]) -> None:
        """Write the identity into the headers of an attempt."""
        identity = self._identity
        if self.gate.has_passed:
            words = self.gate.words
            size = len(words) * words.itemsize
            identity = Identity(identity.nonce, identity.seed, identity.created_s, size)
        headers[HEADER_REPLAY] = identity.header()

    def hold(self, body: bytes, answer: Answer, bodies: HeldBodies) -> bool:
        """Keep the body while the answer goes to the client. False: it cannot be continued.

        Raises:
            NotContinuedError: it should be the rest of a stream, and is not.

        """
        head = answer.head
        is_noted = head.headers.get(HEADER_REPLAY) == CAN_REPLAY
        if self.turn is not None:
            self.turn.end()
        if self.out is not None:
            if not (is_noted and head.is_events and head.status == 200):
                raise NotContinuedError
            return True
        if is_noted and head.is_events:
            self._body = bodies.hold(body)
        return is_noted

    def release(self) -> None:
        """Forget the body: the stream has ended."""
        if self._body is not None:
            self._body.release()
            self._body = None
