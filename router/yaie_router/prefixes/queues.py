"""How many prompt tokens wait at each engine: what it reports, and what was sent there since."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from yaie_api.prefix import Load

REPORT_AGE_S: Final = 0.02
"""What was sent so shortly before a report came may not be in it: it is written between steps."""
MOST_FRESH: Final = 1024
STALE_S: Final = 3.0
"""A report that old says nothing: a heartbeat comes every second."""


@dataclass(eq=False, slots=True)
class Sent:
    """A request on its way to its first token. `tokens`: of its prompt; `missing`: to compute."""

    engine: str
    tokens: int
    missing: int
    sent_s: float


@dataclass(slots=True)
class _Engine:
    waiting: set[Sent] = field(default_factory=set)
    in_flight: int = 0
    reported_s: float = 0.0
    fresh: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_FRESH))


class Queues:
    """The queues of one model's engines. `clock`: in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._engines: dict[str, _Engine] = {}

    def sent(self, engine: str, tokens: int, missing: int) -> Sent:
        """Note that a request goes to an engine."""
        sent = Sent(engine, tokens, missing, self._clock())
        state = self._engines.setdefault(engine, _Engine())
        state.waiting.add(sent)
        state.in_flight += 1
        state.fresh.append(sent.sent_s)
        return sent

    def computed(self, sent: Sent) -> None:
        """Note that its prompt is computed: the first token has come."""
        if (state := self._engines.get(sent.engine)) is not None:
            state.waiting.discard(sent)

    def ended(self, sent: Sent) -> None:
        """Note that its answer has ended, or will not come."""
        self.computed(sent)
        if (state := self._engines.get(sent.engine)) is not None:
            state.in_flight -= 1

    def reported(self, engine: str) -> None:
        """Note that the engine said how busy it is."""
        self._engines.setdefault(engine, _Engine()).reported_s = self._clock()

    def unreported(self, engine: str) -> int:
        """Requests of this router that the engine's last report cannot have counted."""
        state = self._engines.get(engine)
        if state is None:
            return 0
        while state.fresh and state.fresh[0] < state.reported_s:
            state.fresh.popleft()
        return len(state.fresh)

    def in_flight(self, engine: str) -> int:
        """Requests of this router there."""
        return state.in_flight if (state := self._engines.get(engine)) else 0

    def tokens(self, engine: str, load: Load | None) -> int:
        """Prompt tokens that wait to be computed there: what it reports, and what was sent since.

        An engine counts whole prompts of those that wait for a seat, of which its cache has a part.
        Of its own requests this router knows that part. Without a report, its own are all it knows.
        """
        state = self._engines.get(engine)
        if state is None:
            return 0
        if load is None or self._clock() - state.reported_s > STALE_S:
            return sum(sent.missing for sent in state.waiting)
        since_s = state.reported_s - REPORT_AGE_S
        recent = sum(sent.missing for sent in state.waiting if sent.sent_s > since_s)
        if not load.waiting:
            return load.queued_tokens + recent
        cached = sum(sent.tokens - sent.missing for sent in state.waiting)
        return max(0, load.queued_tokens - cached) + recent

    def retain(self, engines: set[str]) -> None:
        """Forget all other engines."""
        for engine in self._engines.keys() - engines:
            del self._engines[engine]
