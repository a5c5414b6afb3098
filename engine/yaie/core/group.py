"""A request and its outputs.

Outputs start one at a time, in order, so that outputs which cannot run yet take no memory:

    next ──▶ primary ──▶ (its prompt is computed: a shared prompt) ──▶ next ──▶ next ──▶ ...

`next` waits in the queue. An output that starts without a shared prompt becomes the `primary`: it
computes the prompt, and the other outputs wait until they can share its pages. Only the
`RequestLifecycle` changes a group.
"""

from collections import deque

from yaie.core.matcher import Matcher
from yaie.core.messages import Generate
from yaie.core.outputs import n_outputs
from yaie.core.sequence import Sequence, StopLimits


class SequenceGroup:
    """The state of one request. Mutable, compared by identity. Times are in seconds of the loop's
    clock.
    """

    __slots__ = (
        "_matcher",
        "_seed",
        "_stop_limits",
        "arrival",
        "arrived_s",
        "cached_tokens",
        "deadline_s",
        "live",
        "next",
        "primary",
        "request",
        "scores",
        "started",
        "unstarted",
    )

    def __init__(
        self,
        request: Generate,
        stop_limits: StopLimits,
        *,
        arrival: int,
        seed: int,
        matcher: Matcher | None,
        arrived_s: float,
        deadline_s: float | None,
    ) -> None:
        self.request = request
        self._stop_limits = stop_limits
        self.arrival = arrival
        self._seed = seed
        self._matcher = matcher
        self.arrived_s = arrived_s
        self.deadline_s = deadline_s
        self.started = False
        self.cached_tokens = 0
        self.scores = request.pooling is None and request.sampling.prompt_logprobs is not None
        self.unstarted = deque(range(n_outputs(request)))
        self.live: dict[int, Sequence] = {}
        self.next: Sequence | None = None
        self.primary: Sequence | None = None

    @property
    def ended(self) -> bool:
        return not self.live and not self.unstarted

    @property
    def has_grammar(self) -> bool:
        return self._matcher is not None

    def spawn(self, seq_id: int) -> Sequence:
        """Create the next output. Only one output computes the prompt's log-probabilities."""
        index = self.unstarted.popleft()
        matcher = self._matcher
        if matcher is not None and self.request.sampling.n > 1:
            matcher = matcher.fork()
        sequence = Sequence(
            self.request,
            self._stop_limits,
            seq_id=seq_id,
            arrival=self.arrival,
            index=index,
            seed=folded(self._seed + index),
            matcher=matcher,
            scores=self.scores,
        )
        self.live[index] = sequence
        return sequence


def folded(seed: int) -> int:
    """`seed` modulo 2**64, as a signed 64-bit integer. An integer that fits is unchanged."""
    return (seed + 2**63) % 2**64 - 2**63
