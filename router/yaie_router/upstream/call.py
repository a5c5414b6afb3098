"""One client request on its way to an engine and back."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from multidict import CIMultiDictProxy

from yaie_api.http.usage_note import TokenUsage
from yaie_api.prefix import PrefixKeys
from yaie_router.balancing.affinity import Outcome
from yaie_router.discovery.objects import Endpoint, Model
from yaie_router.prefixes.placer import Ticket
from yaie_router.upstream.delivery.relayed import Relayed
from yaie_router.upstream.failover.resumable import Resumable
from yaie_router.upstream.trail import UNTRACED, Trail


@dataclass
class Call:
    """One client request, parsed. `endpoint`, `outcome`, `sent_s`, `attempts` and `tried` change
    with each attempt. `held_s`: how long it waited for a model that was scaled to zero.
    `first_token_s`: from its arrival to the first token, or the answer, of an engine. `usage`: what
    that engine says at the end that the answer took.

    `tenant`: whose API key it showed.

    `streams`: it asks for a stream of tokens. `body` is dropped when the answer
    begins, and `let_go` is called.

    `holder`: the only engine that can answer, because it has the stored response. `answer_headers`:
    what the answer gets beside the engine's. `trail`: what its spans tell.

    `relayed_tokens`: of a stream, about how many its client was sent. `resumable`: of a stream that
    another engine could continue.
    `time_limit_s`: from its arrival, as its client wishes. `begun`: the answer, if it began while
    the request waited. `ticket`: of the engine that it was placed at by what engines publish, if it
    was.
    """

    method: str
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes
    model: Model
    keys: PrefixKeys | None
    holder: Endpoint | None
    request_id: str
    arrived_s: float
    tenant: str = ""
    streams: bool = False
    held_s: float = 0.0
    time_limit_s: float = math.inf
    begun: Relayed | None = None
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    let_go: Callable[[], None] = lambda: None
    trail: Trail = UNTRACED
    endpoint: str = ""
    outcome: Outcome = "balanced"
    first_token_s: float | None = None
    usage: TokenUsage | None = None
    relayed_tokens: int = 0
    resumable: Resumable | None = None
    sent_s: float = 0.0
    attempts: int = 0
    tried: set[str] = field(default_factory=set)
    ticket: Ticket | None = None

    @property
    def is_new(self) -> bool:
        """Whether its client has nothing of an engine's answer yet."""
        return self.resumable is None or self.resumable.out is None

    @property
    def left_s(self) -> float:
        """What is left of its client's time limit."""
        return self.arrived_s + self.time_limit_s - time.perf_counter()
