"""Runs a trace against simulated engines behind simulated routers."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from routing.cache import PAGE_TOKENS, Cache
from routing.engine import FEED_S, Costs, Engine
from routing.requests import SECRET, Request, answer, begin, pages_of, request
from routing.rivals import Make, Placing
from routing.traces import Session


@dataclass
class Outcome:
    """What a run gave. `oracle`: tokens that one cache of all engines' size would have had."""

    requests: list[Request]
    oracle: int = 0
    max_mean: float = 0.0
    agreed: int = 0
    asked: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def cached(self) -> int:
        return sum(one.cached for one in self.requests)

    @property
    def share(self) -> float:
        """Hits, as a share of the oracle's."""
        return self.cached / max(1, self.oracle)

    @property
    def spilled(self) -> float:
        """The share of requests whose engine had less of the prompt than another one."""
        return sum(not one.least_missing for one in self.requests) / max(1, len(self.requests))

    @property
    def prompt(self) -> int:
        return sum(one.tokens for one in self.requests)

    def balance(self, names: Sequence[str], weigh: Callable[[Request], float]) -> float:
        """Largest part of one engine, as a multiple of the mean."""
        loads = Counter[str]()
        for one in self.requests:
            loads[one.engine] += weigh(one)  # type: ignore[assignment]
        return max(loads.values()) / (sum(loads.values()) / len(names))

    def ttft(self, share: float) -> float:
        waits = sorted(one.first_s - one.sent_s for one in self.requests)
        return waits[min(len(waits) - 1, int(share * len(waits)))]


class World:
    """`clients`: sessions at a time, one after another; None: as they arrive."""

    def __init__(
        self,
        sessions: Sequence[Session],
        costs: Costs,
        *,
        engines: int,
        cache_tokens: int,
        make: Make,
        routers: int = 1,
        clients: int | None = None,
    ) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._costs = costs
        self.names = [f"engine-{i}" for i in range(engines)]
        self.engines = {
            name: Engine(name, costs, cache_tokens, lambda: self.now_s, self.later)
            for name in self.names
        }
        for engine in self.engines.values():
            engine.on_first, engine.on_end = self._first, self._end
        self.routers = [make(self.names, lambda: self.now_s) for _ in range(routers)]
        self._turn = itertools.count()
        self._oracle = Cache(engines * cache_tokens // PAGE_TOKENS)
        self.outcome = Outcome([])
        self._live = len(sessions)
        self._queue = list(reversed(sessions))
        self._closed = clients is not None
        self._coming: dict[int, tuple[float, Session, int, list[dict[str, str]]]] = {}
        for _ in range(len(sessions) if clients is None else min(clients, len(sessions))):
            session = self._queue.pop()
            self._start_in(0.0 if self._closed else session.starts_s, session)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something in so many seconds."""
        heappush(self._events, (self.now_s + seconds, next(self._count), act))

    def run(self) -> Outcome:
        """Run to the end of the trace."""
        self.later(0.0, self._feed)
        while self._live:
            self.now_s, _, act = heappop(self._events)
            act()
        for router in self.routers:
            if isinstance(router, Placing):
                self.outcome.reasons += router.reasons
        return self.outcome

    def _feed(self) -> None:
        for name, engine in self.engines.items():
            if (update := engine.update()) is not None:
                for router in self.routers:
                    router.take(name, update)
        self._compare()
        self.later(FEED_S, self._feed)

    def _compare(self) -> None:
        """Ask all routers about the request that comes next, one delta after the last change."""
        if len(self.routers) < 2 or not self._coming:
            return
        _, session, turn, messages = min(self._coming.values(), key=lambda one: one[0])
        messages = [*messages, {"role": "user", "content": session.turns[turn].text}]
        one = request(session, turn, messages, self._costs.bytes_per_token)
        chosen = {each.ask(one).engine for each in self.routers if isinstance(each, Placing)}
        self.outcome.asked += 1
        self.outcome.agreed += len(chosen) == 1

    def _start_in(self, seconds: float, session: Session) -> None:
        self._send_in(seconds, session, 0, begin(session))

    def _send_in(
        self, seconds: float, session: Session, turn: int, messages: list[dict[str, str]]
    ) -> None:
        self._coming[id(session)] = (self.now_s + seconds, session, turn, messages)
        self.later(seconds, lambda: self._send(session, turn, messages))

    def _send(self, session: Session, turn: int, messages: list[dict[str, str]]) -> None:
        del self._coming[id(session)]
        messages = [*messages, {"role": "user", "content": session.turns[turn].text}]
        one = request(session, turn, messages, self._costs.bytes_per_token)
        one.told.update(messages=messages, secret=SECRET)
        one.told["answer"] = answer(session, turn, self._costs.bytes_per_token)
        one.sent_s = self.now_s
        router = self.routers[next(self._turn) % len(self.routers)]
        one.told["router"] = router
        one.engine = router.choose(one)
        matched = {name: each.cache.matched(one.pages) for name, each in self.engines.items()}
        one.least_missing = matched[one.engine] >= max(matched.values()) - 4
        matched_oracle = min(self._oracle.matched(one.pages), (one.tokens - 1) // PAGE_TOKENS)
        self.outcome.oracle += matched_oracle * PAGE_TOKENS
        self._oracle.put(one.pages)
        self.outcome.requests.append(one)
        self.engines[one.engine].send(one)

    def _first(self, one: Request) -> None:
        one.told["router"].first(one)

    def _end(self, one: Request) -> None:
        one.told["router"].ended(one)
        session, text = one.session, one.told["answer"]
        pages, _ = pages_of(one.prompt + text, self._costs.bytes_per_token)
        self._oracle.put([hash((session.tenant, page)) for page in pages])
        messages = [*one.told.pop("messages"), {"role": "assistant", "content": text}]
        following = one.turn + 1
        if following < len(session.turns):
            self._send_in(session.turns[following].after_s, session, following, messages)
            return
        self._live -= 1
        if self._closed and self._queue:
            self._start_in(0.0, self._queue.pop())
