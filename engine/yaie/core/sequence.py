"""The scheduler's state of one output: which tokens are known, computed, and in flight.

    tokens      known ids: the prompt and every committed output token
    committed   positions whose step has been committed
    scheduled   positions given to steps so far; committed <= scheduled
    in_flight   sampled tokens that are not committed yet

`len(tokens) + in_flight` is the upper bound of the length. While a sequence decodes, this bound is
`scheduled + 1`; therefore pages and the length limit are checked against `scheduled`. The token at
`last_position` would have no successor and is never run. A draft in flight counts as one position
and one token until the step's result shows which draft tokens are accepted.

The epoch increases when a sequence is preempted, suspended or ends; commit ignores rows of an older
epoch. Positions that are copied from host memory or from another page count as scheduled, but not
as committed until the step that copies them is committed.
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
    """Waits for a running sequence that computes a prefix of both."""
    RUNNING = auto()
    """Has pages and a slot."""
    SUSPENDED = auto()
    """Was in a failed step, and waits for a bisect step."""
    ENDED = auto()


class StopLimits(NamedTuple):
    """The engine's limits of every output. A request may ignore `eos_token_ids`. `max_model_len`:
    in tokens.
    """

    eos_token_ids: frozenset[int]
    max_model_len: int


class FirstOutputInfo(NamedTuple):
    """Fields that only the first message of an output carries. `queued_s`: as in `Tokens`."""

    queued_s: float
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None


class Sequence:
    """One output. Mutable, compared by identity. `seq_id`: unique in the process. `arrival`: number
    of the request in order of arrival; below 0 if it is resumed.
    """

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
        self.n_prompt = n_prompt = len(request.prompt_token_ids)
        self.tokens = [*request.prompt_token_ids, *request.resumed_token_ids]
        self._key = pack(self.tokens)
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
        # No drafts if a draw depends on earlier draws of its step, or reports logprobs.
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
        """Set the state of a sequence without pages and slot: nothing is computed or in flight."""
        self.table: BlockTable | None = None
        self.slot = NO_SLOT
        self.committed = 0
        self.scheduled = 0
        self.in_flight = 0
        self.decoding = False

    def enter(self, slot: int, table: BlockTable, ready: int) -> None:
        """Start to run. The first `ready` positions need no computation: they are cached, or copies
        bring them.
        """
        self.state = SequenceStatus.RUNNING
        self.slot = slot
        self.table = table
        self.committed = table.cached_tokens
        self.scheduled = ready
        if self.prompt_logprobs is not None:
            del self.prompt_logprobs[ready:]

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key: lower priority value first, then older first. The running sequence with the
        largest key is preempted first.
        """
        return (self.priority, self.arrival, self.index)

    @property
    def owned_table(self) -> BlockTable:
        """The block table of a running sequence."""
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
        """Maximum number of leading positions to take from the cache: positions whose logprobs or
        hidden states are not needed.
        """
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
        """The message that starts this sequence in its slot on the device."""
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
