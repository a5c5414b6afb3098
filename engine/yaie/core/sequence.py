"""One output inside the scheduler: what is known, what is computed, what is in flight.

    tokens      known ids: the prompt and every committed output
    committed   positions whose step has been collected
    scheduled   positions handed to steps so far; committed <= scheduled
    in_flight   sampled tokens that no commit has seen yet

`len(tokens) + in_flight` is the upper bound of the length. While a sequence decodes that is
`scheduled + 1`, so pages and length stops go by `scheduled`: the token at `last_position` would
have no successor and is never run. A draft in flight counts as one position and one token until it
is known which of its guesses are right.

The epoch rises at preemption, abort, failure and end, so that commit can tell rows of the past.
Positions that came from the host or from a copied page are scheduled, not committed, until the step
that brought them has been collected.
"""

from enum import Enum, auto
from typing import NamedTuple

from yaie.core.batch import SlotInit
from yaie.core.kv_cache.host_pages import HostBlockTable
from yaie.core.kv_cache.radix_cache import BlockTable
from yaie.core.kv_cache.radix_tree import TOKEN_BYTES, pack
from yaie.core.matcher import Matcher
from yaie.core.messages import Generate, TokenLogprobs

NO_SLOT = -1


class SequenceStatus(Enum):
    WAITING = auto()
    """In the queue."""
    FOLLOWING = auto()
    """Waits for a running sequence that computes a prefix which both need."""
    RUNNING = auto()
    """Has pages and a slot."""
    SUSPENDED = auto()
    """Was in a step that failed, and waits to be tried apart from the others."""
    ENDED = auto()


class StopLimits(NamedTuple):
    """When outputs of an engine end, whatever the request says."""

    eos_token_ids: frozenset[int]
    max_model_len: int


class FirstOutputInfo(NamedTuple):
    """What the first message of an output carries."""

    queued_s: float
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None


class Sequence:
    """Mutable, compared by identity. `seq_id` is unique in the process, `arrival` orders."""

    __slots__ = (
        "_key",
        "arrival",
        "billed",
        "cached_tokens",
        "committed",
        "decoding",
        "epoch",
        "first_output",
        "followers",
        "host",
        "in_flight",
        "index",
        "last_position",
        "length_limit",
        "matcher",
        "may_draft",
        "min_length",
        "n_prompt",
        "priority",
        "prompt_logprobs",
        "request",
        "request_id",
        "samples",
        "scheduled",
        "seed",
        "seq_id",
        "slot",
        "started",
        "state",
        "stop_ids",
        "table",
        "tokens",
        "unexplained",
    )

    def __init__(
        self,
        request: Generate,
        stop_limits: StopLimits,
        *,
        seq_id: int,
        arrival: int,
        index: int = 0,
        seed: int = 0,
        matcher: Matcher | None = None,
        scores: bool = False,
    ) -> None:
        sampling = request.sampling
        self.request = request
        self.request_id = request.request_id
        self.priority = request.priority
        self.seq_id = seq_id
        self.arrival = arrival
        self.index = index
        self.seed = seed
        self.matcher = matcher
        self.tokens = list(request.prompt_token_ids)
        self._key = pack(self.tokens)
        self.n_prompt = n_prompt = len(self.tokens)
        self.samples = request.pooling is None and sampling.max_tokens != 0
        most = stop_limits.max_model_len
        if not self.samples:
            most = n_prompt
        elif sampling.max_tokens is not None:
            most = min(most, n_prompt + sampling.max_tokens)
        self.length_limit = most
        self.last_position = most - 1
        self.min_length = n_prompt + sampling.min_tokens
        eos = frozenset() if sampling.ignore_eos else stop_limits.eos_token_ids
        self.stop_ids = eos.union(sampling.stop_token_ids)
        # Each draw of the others depends on the tokens drawn before it, or is reported with more.
        self.may_draft = not (
            matcher is not None
            or sampling.penalized
            or sampling.bad_words_ids
            or sampling.logprobs is not None
        )
        self.state = SequenceStatus.WAITING
        self.epoch = 0
        self.started = False
        self.cached_tokens = 0
        self.billed = 0
        self.unexplained = 0
        self.first_output: FirstOutputInfo | None = None
        self.prompt_logprobs: list[TokenLogprobs] | None = [] if scores else None
        self.followers: list[tuple[int, Sequence]] = []
        self.host: HostBlockTable | None = None
        self.reset()

    def reset(self) -> None:
        """Nothing computed, nothing in flight, no pages, no slot."""
        self.table: BlockTable | None = None
        self.slot = NO_SLOT
        self.committed = 0
        self.scheduled = 0
        self.in_flight = 0
        self.decoding = False

    def enter(self, slot: int, table: BlockTable, ready: int) -> None:
        """Run from now on; the first `ready` positions need no step of their own."""
        self.state = SequenceStatus.RUNNING
        self.slot = slot
        self.table = table
        self.committed = table.cached_tokens
        self.scheduled = ready
        if self.prompt_logprobs is not None:
            del self.prompt_logprobs[ready:]

    @property
    def rank(self) -> tuple[int, int, int]:
        """Order of service: a lower priority value first, then the older. The last is preempted."""
        return (self.priority, self.arrival, self.index)

    @property
    def owned_table(self) -> BlockTable:
        """The pages of a running sequence."""
        if self.table is None:
            raise AssertionError(f"sequence {self.seq_id} has no pages")
        return self.table

    @property
    def n_generated(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def prompt_computed(self) -> bool:
        return self.committed >= self.n_prompt

    @property
    def reusable_tokens(self) -> int:
        """How many leading positions may come from the cache: those that owe no result."""
        if self.prompt_logprobs is not None:
            return len(self.prompt_logprobs)
        return 0 if self.request.pooling == "mean" else len(self.tokens)

    @property
    def key(self) -> bytes:
        """All known tokens, packed."""
        n_packed = len(self._key) // TOKEN_BYTES
        if n_packed < len(self.tokens):
            self._key += pack(self.tokens[n_packed:])
        return self._key

    @property
    def computed_key(self) -> bytes:
        """The tokens at committed positions, packed."""
        return self.key[: self.committed * TOKEN_BYTES]

    def slot_init(self) -> SlotInit:
        """All that the device has to know of the sequence as it starts."""
        sampling, n_prompt = self.request.sampling, self.n_prompt
        history = None
        if sampling.penalized or sampling.bad_words_ids:
            history = (tuple(self.tokens[:n_prompt]), tuple(self.tokens[n_prompt:]))
        return SlotInit(
            self.slot,
            self.seq_id,
            sampling,
            self.seed,
            tuple(tuple(group) for group in self.owned_table.pages),
            stop_ids=tuple(sorted(self.stop_ids)),
            prompt_tokens=n_prompt,
            history=history,
            pooling=self.request.pooling,
        )
