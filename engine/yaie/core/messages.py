"""Messages between the HTTP process (or `LLM`) and the engine loop. Frozen, msgspec-tagged.

Every `Generate` is answered first by exactly one `Accepted` or `Rejected`; an accepted request then
gets `Tokens` until each of its outputs had one that carries a `finish_reason`. No request is ever
dropped silently.
"""

from typing import Literal

import msgspec

from yaie.core.request import SamplingParams

FinishReason = Literal["stop", "length", "abort", "error"]
Pooling = Literal["last", "mean", "classify"]
"""How hidden states become one vector: of the last token, the mean of all, or class logits."""


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """Ask for a generation. Ids are unique among live requests; a duplicate is rejected.

    `priority`: a lower value is more important; when pages run out, the newest request of the
    highest value is preempted. `salt`: prefixes are shared only between requests of one salt.
    `tenant`: whose share of the engine it counts against. `timeout_s`: seconds after which it ends
    with an error, counted from its arrival. `pooling`: no tokens are generated; the answer is one
    vector (`Tokens.pooled`).
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    priority: int = 0
    salt: str = ""
    tenant: str = ""
    timeout_s: float | None = None
    pooling: Pooling | None = None


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """End a request now (client gone, or a stop string was met by the caller's text object).

    `index`: end only this output of it. Each output that had not ended is answered by a final
    `Tokens` with finish_reason "abort".
    """

    request_id: str
    index: int | None = None


class ResetPrefixCache(msgspec.Struct, frozen=True, tag="reset_prefix_cache"):
    """Forget every cached prefix that no running request uses. Answered by `Accepted`."""

    request_id: str


Command = Generate | Abort | ResetPrefixCache


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The request is in the queue."""

    request_id: str


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """The request was not taken. `status` is the HTTP status, `code` as in `yaie_api.errors`."""

    request_id: str
    status: int
    code: str | None
    message: str
    param: str | None = None
    retry_after_s: float | None = None


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Natural log-probabilities at one position, from the model's logits as they were.

    `rank`: 1 for the most likely token. `top_ids`, `top_logprobs`: the most likely tokens, best
    first; the chosen one is among them only if it is that likely.
    """

    token_id: int
    logprob: float
    rank: int
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


class Tokens(msgspec.Struct, frozen=True, tag="tokens", gc=False, omit_defaults=True):
    """New tokens of output `index` of a request. `token_ids` may be empty in a final message.

    With finish_reason "stop" caused by EOS or a stop token id, `stop_token_id` names it and it is
    the last of `token_ids`. `cached_tokens`: prompt tokens found in the prefix cache.
    `error` holds a user-readable reason when finish_reason is "error", `error_code` a word for it.
    `logprobs` is aligned with `token_ids` where they were asked for; `prompt_logprobs` comes once,
    aligned with the prompt from its second token on. `pooled`: float32, little-endian, the vector
    of a request with `pooling`. `queued_s`: time from arrival to the first step, in
    the first message.
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
    """A snapshot of the loop, published at most a few times a second and at idle. Counters are
    since the start of the process; times are in seconds. Pages are those of one KV cache group
    without the scratch page: total = free + cached + in use. `running`, `waiting` and
    `completion_rate` (ended per second, of late) count a request once for each of its outputs.
    `host_pages_*`: pages of preempted requests kept in host memory. `steps_past_target`: steps made
    longer than the time target, so that prompts are computed as fast as they come.
    `late_compilations`: kernels that were compiled while somebody waited.
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


Event = Accepted | Rejected | Tokens | Stats
