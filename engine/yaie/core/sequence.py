"""One request inside the scheduler: what is known, what is computed, what is in flight.

    tokens      known ids: the prompt and every committed output
    committed   positions whose step has been collected
    scheduled   positions handed to steps so far; committed <= scheduled
    in_flight   sampled tokens that no commit has seen yet

`len(tokens) + in_flight` is the upper bound of the length; pages and length stops go by it. The
epoch rises at preemption, abort, failure and end, so that commit can tell rows of the past.
Only the `Scheduler` changes a sequence.
"""

from enum import Enum, auto

from yaie.core.kv_manager import Table
from yaie.core.messages import Generate
from yaie.core.radix import TOKEN_BYTES, pack

NO_SLOT = -1


class State(Enum):
    WAITING = auto()
    """In the queue."""
    FOLLOWING = auto()
    """Waits for a running sequence that computes a prefix which both need."""
    RUNNING = auto()
    """Has pages and a slot."""
    ENDED = auto()


class Sequence:
    """Mutable, compared by identity. `seq_id` is unique in the process, `arrival` orders."""

    __slots__ = (
        "_key",
        "arrival",
        "cached_tokens",
        "committed",
        "decoding",
        "epoch",
        "followers",
        "in_flight",
        "length_limit",
        "min_length",
        "n_prompt",
        "request",
        "scheduled",
        "seed",
        "seq_id",
        "slot",
        "state",
        "stop_ids",
        "table",
        "tokens",
    )

    def __init__(
        self,
        request: Generate,
        *,
        seq_id: int,
        key: bytes,
        seed: int,
        eos_token_ids: frozenset[int],
        max_model_len: int,
    ) -> None:
        sampling = request.sampling
        self.request = request
        self.seq_id = self.arrival = seq_id
        self.seed = seed
        self.tokens = list(request.prompt_token_ids)
        self._key = key
        self.n_prompt = n_prompt = len(self.tokens)
        most = max_model_len if sampling.max_tokens is None else n_prompt + sampling.max_tokens
        self.length_limit = min(max_model_len, most)
        self.min_length = n_prompt + sampling.min_tokens
        eos = frozenset() if sampling.ignore_eos else eos_token_ids
        self.stop_ids = eos.union(sampling.stop_token_ids)
        self.state = State.WAITING
        self.epoch = 0
        self.cached_tokens: int | None = None
        self.followers: list[tuple[int, Sequence]] = []
        self.reset()

    def reset(self) -> None:
        """Nothing computed, nothing in flight, no pages, no slot."""
        self.table: Table | None = None
        self.slot = NO_SLOT
        self.committed = 0
        self.scheduled = 0
        self.in_flight = 0
        self.decoding = False

    @property
    def rank(self) -> tuple[int, int]:
        """Order of service: a lower priority value first, then the older. The last is preempted."""
        return (self.request.priority, self.arrival)

    @property
    def owned_table(self) -> Table:
        """The pages of a running sequence."""
        if self.table is None:
            raise AssertionError(f"sequence {self.seq_id} has no pages")
        return self.table

    @property
    def n_generated(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def may_grow(self) -> bool:
        """Whether one more token is allowed, counting those in flight."""
        return len(self.tokens) + self.in_flight < self.length_limit

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
