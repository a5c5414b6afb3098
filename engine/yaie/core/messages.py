"""Messages between the HTTP process (or `LLM`) and the engine loop. Frozen, msgspec-tagged.

Each `Generate` is answered by exactly one `Accepted` or `Rejected`. After `Accepted`, `Tokens`
follow until each output of the request has one with a `finish_reason`. No request is dropped
silently. `Stats` and `PrefixUpdate` belong to no request.
"""

from typing import Literal

import msgspec

from yaie.core.request import SamplingParams
from yaie_api.prefix.updates import PrefixUpdate

FinishReason = Literal["stop", "length", "abort", "error"]
Pooling = Literal["last", "mean", "classify"]
"""How hidden states become one vector: the last token's, the mean of all, or the class logits."""


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """Ask for a generation. Ids are unique among live requests; a duplicate is rejected.

    `priority`: a lower value is more important; when pages run out, the newest request with the
    highest value is preempted. `salt`: only requests with the same salt share prefixes. `tenant`:
    the tenant to which the `fair` policy charges the tokens. `timeout_s`: the request ends with an
    error this many seconds after its arrival; None: the engine's default. `pooling`: no tokens are
    generated; the answer is one vector (`Tokens.pooled`). `resumed_token_ids`: the output begins
    with these, which another engine has generated: they are not told again, and everything that
    depends on the output so far goes on from there.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    priority: int = 0
    salt: str = ""
    tenant: str = ""
    timeout_s: float | None = None
    pooling: Pooling | None = None
    resumed_token_ids: tuple[int, ...] = ()


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """End a request now: the client disconnected, or the caller found a stop string in the text.

    `index`: end only this output. Each output that had not ended is answered by a final `Tokens`
    with finish_reason "abort".
    """

    request_id: str
    index: int | None = None


class ResetPrefixCache(msgspec.Struct, frozen=True, tag="reset_prefix_cache"):
    """Evict every cached prefix that no running request uses. Answered by `Accepted`."""

    request_id: str


class WatchPrefixes(msgspec.Struct, frozen=True, tag="watch_prefixes"):
    """Publish `PrefixUpdate`s from now on, beginning with a snapshot."""


class TiePrefixKeys(msgspec.Struct, frozen=True, tag="tie_prefix_keys"):
    """Publish these prefix keys as long as their tokens are cached. Not answered.

    `salt`: as in `Generate`. `tokens`: of a prompt, or a prompt and its answer, that were computed:
    4 bytes each, in the machine's order, as the radix tree has them. `keys`: (key, number of the
    tokens that it covers).
    """

    salt: str
    tokens: bytes
    keys: tuple[tuple[int, int], ...]


Command = Generate | Abort | ResetPrefixCache | WatchPrefixes | TiePrefixKeys


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The request is in the queue."""

    request_id: str


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """The request was refused. `status`: the HTTP status. `code`: as in `yaie_api.errors`."""

    request_id: str
    status: int
    code: str | None
    message: str
    param: str | None = None
    retry_after_s: float | None = None


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Natural log-probabilities at one position, from the model's unchanged logits.

    `rank`: 1 for the most likely token. `top_ids`, `top_logprobs`: the most likely tokens, best
    first; the token itself is among them only if it is one of the most likely.
    """

    token_id: int
    logprob: float
    rank: int
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


class Tokens(msgspec.Struct, frozen=True, tag="tokens", gc=False, omit_defaults=True):
    """New tokens of output `index` of a request. `token_ids` may be empty in a final message.

    `stop_token_id`: the EOS or stop token id that ended the output with finish_reason "stop"; it is
    also the last of `token_ids`. `cached_tokens`: prompt tokens found in the prefix cache. With
    finish_reason "error", `error` is the reason as text for users and `error_code` as a code for
    programs.

    `logprobs`: aligned with `token_ids`, empty if not requested. `prompt_logprobs`: sent once,
    aligned with the prompt from its second token on. `pooled`: the vector of a request with
    `pooling`, float32, little-endian. `queued_s`: seconds from arrival to the first step, in the
    first message.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    cached_tokens: int = 0
    error: str | None = None
    index: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    pooled: bytes | None = None
    error_code: str | None = None
    queued_s: float | None = None


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """A snapshot of the loop, published a few times a second and when the loop becomes idle.

    Counters count since the start of the process; times are in seconds. Page counts are those of
    one KV cache group without the scratch page: total = free + cached + in use. `running`,
    `waiting` and `completion_rate` (outputs completed per second, a recent average) count each
    output of a request. `host_pages_*`: pages of preempted requests in host memory.
    `steps_past_target`: steps planned to take longer than the time target, so that prompts are
    computed as fast as they arrive. `late_compilations`: kernels that were compiled while a request
    waited. `prefix_keys`: those that are tied to cached pages.
    """

    running: int
    waiting: int
    pages_total: int
    pages_free: int
    pages_cached: int
    prompt_tokens: int
    cached_prompt_tokens: int
    generated_tokens: int
    preemptions: int
    steps: int
    step_seconds: float
    step_budget_tokens: int
    completion_rate: float = 0.0
    host_pages_total: int = 0
    host_pages_used: int = 0
    swaps_out: int = 0
    swaps_in: int = 0
    steps_past_target: int = 0
    late_compilations: int = 0
    prefix_keys: int = 0


Event = Accepted | Rejected | Tokens | Stats | PrefixUpdate
