"""A simulated engine: a queue, steps of a token budget, a cache, and what it publishes."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from routing.cache import PAGE_TOKENS, Cache
from routing.requests import Request, pages_of
from yaie_api import prefix
from yaie_api.prefix import Load, PrefixUpdate

FEED_S: Final = 0.1


@dataclass(frozen=True)
class Costs:
    """What a step takes: `step_s`, `row_s` for each sequence that decodes, and prompt tokens at
    `prefill_rate` a second, at most `budget` a step, in at most `seats` sequences.
    """

    step_s: float
    row_s: float
    prefill_rate: float
    budget: int
    seats: int
    bytes_per_token: float = 4.0


GPU: Final = Costs(step_s=0.009, row_s=0.00006, prefill_rate=24_000.0, budget=2048, seats=256)
"""An 8B model in bfloat16 on one H100-class GPU."""


@dataclass
class _Filling:
    """A prompt that is being computed. `left`: its tokens that are not yet."""

    request: Request
    left: int


Later = Callable[[float, Callable[[], None]], None]


class Engine:
    """`later(seconds, act)`: the world's clock. `now`: its time in seconds."""

    def __init__(
        self, name: str, costs: Costs, cache_tokens: int, now: Callable[[], float], later: Later
    ) -> None:
        self.name = name
        self.cache = Cache(cache_tokens // PAGE_TOKENS)
        self._costs = costs
        self._now = now
        self._later = later
        self._tokens = cache_tokens
        self._waiting: deque[Request] = deque()
        self._filling: deque[_Filling] = deque()
        self._ends: list[tuple[int, int, Request]] = []
        self._step = 0
        self._count = 0
        self._received = 0
        self._busy = False
        self._sequence = 0
        self._told: Load | None = None
        self.on_first: Callable[[Request], None] = lambda _: None
        self.on_end: Callable[[Request], None] = lambda _: None

    def send(self, request: Request) -> None:
        """Take a request."""
        self._waiting.append(request)
        self._received += 1
        if not self._busy:
            self._busy = True
            self._run()

    @property
    def load(self) -> Load:
        """As engines report it."""
        queued = sum(one.tokens for one in self._waiting)
        queued += sum(entry.left for entry in self._filling)
        return Load(
            waiting=len(self._waiting),
            running=len(self._filling) + len(self._ends),
            queued_tokens=queued,
            kv_tokens_total=self._tokens,
            kv_tokens_free=max(0, self._tokens - len(self.cache) * PAGE_TOKENS),
            kv_tokens_cached=len(self.cache) * PAGE_TOKENS,
            requests=self._received,
        )

    def update(self) -> PrefixUpdate | None:
        """What is new since the last call."""
        added, removed = self.cache.changes()
        load = self.load
        first = self._told is None
        if not added and not removed and load == self._told:
            return None
        self._told = load
        if first:
            return PrefixUpdate(1, self._sequence, added, load=load, parts=1)
        self._sequence += bool(added or removed)
        return PrefixUpdate(1, self._sequence, added, removed, load)

    def _run(self) -> None:
        costs = self._costs
        while self._waiting and len(self._filling) + len(self._ends) < costs.seats:
            self._admit(self._waiting.popleft())
        if not self._filling and not self._ends:
            self._busy = False
            return
        left, filled = costs.budget, list[Request]()
        while self._filling and left > 0:
            entry = self._filling[0]
            taken = min(left, entry.left)
            entry.left -= taken
            left -= taken
            if entry.left == 0:
                filled.append(entry.request)
                self._filling.popleft()
        used = costs.budget - left
        seconds = costs.step_s + costs.row_s * len(self._ends) + used / costs.prefill_rate
        self._later(seconds, lambda: self._done(filled))

    def _admit(self, request: Request) -> None:
        pages = request.pages
        matched = min(self.cache.matched(pages), (request.tokens - 1) // PAGE_TOKENS)
        request.cached = matched * PAGE_TOKENS
        self.cache.put(pages)
        self._filling.append(_Filling(request, request.tokens - request.cached))

    def _done(self, filled: list[Request]) -> None:
        self._step += 1
        for request in filled:
            request.first_s = self._now()
            self._count += 1
            heappush(self._ends, (self._step + request.answer_tokens, self._count, request))
            covered = [
                -(-request.tokens * end // request.keys.total_bytes) for end in request.keys.ends
            ]
            self.cache.tie(request.pages, list(zip(request.keys.keys, covered, strict=True)))
            self.on_first(request)
        while self._ends and self._ends[0][0] <= self._step:
            _, _, request = heappop(self._ends)
            self._finish(request)
        self._run()

    def _finish(self, request: Request) -> None:
        request.ended_s = self._now()
        text = request.told["answer"]
        pages, tokens = pages_of(request.prompt + text, self._costs.bytes_per_token)
        tenant = request.session.tenant
        pages = [*request.pages, *(hash((tenant, page)) for page in pages[len(request.pages) :])]
        self.cache.put(pages)
        secret = prefix.tenant_key(request.told["secret"], tenant)
        key = prefix.answer_key(request.keys, {"role": "assistant", "content": text}, secret)
        if key is not None:
            self.cache.tie(pages, [(key, tokens - 1)])
        self.on_end(request)
