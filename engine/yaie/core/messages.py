"""Messages between the HTTP process (or `LLM`) and the engine loop. Frozen, msgspec-tagged.

Every `Generate` is answered first by exactly one `Accepted` or `Rejected`; an accepted request then
gets `Tokens` until one of them carries a `finish_reason`. No request is ever dropped silently.
"""

from typing import Literal

import msgspec

from yaie.core.request import SamplingParams

FinishReason = Literal["stop", "length", "abort", "error"]


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """Ask for a generation. Ids are unique among live requests; a duplicate is rejected.

    `priority`: a lower value is more important; when pages run out, the newest request of the
    highest value is preempted. `salt`: prefixes are shared only between requests of one salt.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    priority: int = 0
    salt: str = ""


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """End a request now (client gone, or a stop string was met by the caller's text object).

    Answered by a final `Tokens` with finish_reason "abort" unless the request had ended already.
    """

    request_id: str


Command = Generate | Abort


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The request is in the queue."""

    request_id: str


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """The request was not taken. `status` is the HTTP status, `code` as in `yaie_api.errors`."""

    request_id: str
    status: int
    code: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None


class Tokens(msgspec.Struct, frozen=True, tag="tokens", gc=False):
    """New tokens of a request. `token_ids` may be empty in a final message.

    With finish_reason "stop" caused by EOS or a stop token id, `stop_token_id` names it and it is
    the last of `token_ids`. `cached_tokens`: prompt tokens found in the prefix cache.
    `error` holds a user-readable reason when finish_reason is "error".
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    cached_tokens: int = 0
    error: str | None = None


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """A snapshot of the loop, published at most a few times a second and at idle. Counters are
    since the start of the process; times are in seconds. Pages are those of one layer group without
    the scratch page: total = free + cached + in use.
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


Event = Accepted | Rejected | Tokens | Stats
