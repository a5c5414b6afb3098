"""Names, help texts and labels of every metric that yaie exports.

The measuring process owns the value; this module owns the name. Each process builds its metrics
from here, docs/metrics.md is generated from here, and tests check dashboards, rules and the
autoscaler against it. Names have base units, `_total` on counters, and no colon.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]
Exporter = Literal["engine", "router", "operator"]
_EXPORTERS: Final[tuple[Exporter, ...]] = ("engine", "router", "operator")
_UNITS: Final = ("seconds", "tokens", "pages", "ratio", "requests", "bytes")


@dataclass(frozen=True)
class Metric:
    """One metric family. `buckets` are upper bounds in the metric's base unit (histograms only)."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exporter(self) -> Exporter:
        """The process that exports it: the second word of the name."""
        return next(one for one in _EXPORTERS if self.name.startswith(f"yaie_{one}_"))

    @property
    def unit(self) -> str:
        """The base unit: the last word of the name that is one; "" for plain numbers."""
        words = reversed(self.name.split("_"))
        return next((word for word in words if word in _UNITS), "")


@cache
def every() -> tuple[Metric, ...]:
    """Every metric of this module, in its order."""
    return tuple(one for one in globals().values() if isinstance(one, Metric))


LATENCY_BUCKETS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
LONG_BUCKETS_S: Final = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
)  # fmt: skip
"""For whole requests, which may take as long as their output is."""
TOKEN_BUCKETS: Final = (
    1.0, 4.0, 16.0, 64.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0,
    131072.0, 262144.0, 1048576.0,
)  # fmt: skip
SHORT_BUCKETS_S: Final = (
    0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1,
)  # fmt: skip
SHARE_BUCKETS: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)

# The router. `model` is an InferenceModel's name, or "" if the request named none that exists.
ROUTER_REQUESTS: Final = Metric(
    "yaie_router_requests_total",
    "counter",
    "Requests answered, by status sent to the client (499: the client left first).",
    ("model", "route", "status"),
)
ROUTER_IN_FLIGHT: Final = Metric(
    "yaie_router_requests_in_flight", "gauge", "Requests being served now.", ("model",)
)
ROUTER_PENDING: Final = Metric(
    "yaie_router_pending_requests",
    "gauge",
    "Requests that wait because their model has no ready engine.",
    ("model",),
)
ROUTER_QUEUED: Final = Metric(
    "yaie_router_queued_requests",
    "gauge",
    "Requests of tenants that wait because all seats at engines are taken.",
    ("model",),
)
ROUTER_RATE_LIMITED: Final = Metric(
    "yaie_router_rate_limited_total",
    "counter",
    "Requests refused with 429 because their tenant had reached a limit.",
    ("tenant",),
)
ROUTER_TOKENS: Final = Metric(
    "yaie_router_tokens_total",
    "counter",
    "Tokens of requests as engines counted them, by tenant and kind (prompt or completion); of "
    "streams that broke off or whose client left, about what the router had relayed.",
    ("tenant", "model", "kind"),
)
ROUTER_ENDPOINTS: Final = Metric(
    "yaie_router_endpoints", "gauge", "Engines that take requests, as last seen.", ("model",)
)
ROUTER_REACHED: Final = Metric(
    "yaie_router_engine_reached",
    "gauge",
    "1 for each engine that takes requests, or that answers while it waits to be routed to. The "
    "operator opens the readiness gates of new engines by it.",
    ("model", "engine"),
)
ROUTER_FIRST_BYTE: Final = Metric(
    "yaie_router_first_byte_seconds",
    "histogram",
    "From the request's arrival to the first byte of an engine's answer.",
    ("model",),
    LATENCY_BUCKETS_S,
)
ROUTER_DECISION: Final = Metric(
    "yaie_router_decision_seconds",
    "histogram",
    "Time to parse, hash and choose an endpoint.",
    (),
    SHORT_BUCKETS_S,
)
ROUTER_PICKS: Final = Metric(
    "yaie_router_picks_total",
    "counter",
    "Endpoint choices: cached (it has most of the prompt), home (by hash), spilled (that one is "
    "loaded or failing), spread (a shared prefix is computed again to keep engines balanced), "
    "balanced, or stored (it has the response that is asked for or gone on from).",
    ("model", "outcome"),
)
ROUTER_PREFIX_MATCH: Final = Metric(
    "yaie_router_prefix_match_ratio",
    "histogram",
    "Share of a prompt that the chosen engine had, as the router estimated it, of requests that "
    "were placed by what engines publish.",
    ("model",),
    SHARE_BUCKETS,
)
ROUTER_PREFIX_KEYS: Final = Metric(
    "yaie_router_prefix_keys",
    "gauge",
    "Prefixes that the router knows its model's engines to have, each counted once.",
    ("model",),
)
ROUTER_HELD: Final = Metric(
    "yaie_router_held_seconds",
    "histogram",
    "Waits of 0.1 s and more of requests at the router: for a seat, or for a model that was scaled "
    "to zero.",
    ("model",),
    LONG_BUCKETS_S,
)
ROUTER_RETRIES: Final = Metric(
    "yaie_router_retries_total", "counter", "Requests sent again, by cause.", ("model", "cause")
)
ROUTER_BROKEN_STREAMS: Final = Metric(
    "yaie_router_broken_streams_total",
    "counter",
    "Answers that ended early after their first byte: their engine died, and no other went on.",
    ("model",),
)
ROUTER_FAILOVERS: Final = Metric(
    "yaie_router_failovers_total",
    "counter",
    "Streams whose engine died, by what became of them: continued at another engine, or ended, "
    "with no_peer that is healthy, no_room for a replay, refused or lost by other engines, or "
    "because the client_left.",
    ("model", "outcome"),
)
ROUTER_EJECTIONS: Final = Metric(
    "yaie_router_ejections_total",
    "counter",
    "Endpoints taken out after failures: connect, 5xx, disconnect (answers that broke), timeout "
    "(no token in time) or probe (no answer to /readyz).",
    ("model", "reason"),
)
ROUTER_EJECTED: Final = Metric(
    "yaie_router_ejected_endpoints",
    "gauge",
    "Endpoints that are ejected or on trial now.",
    ("model",),
)
ROUTER_PROBES: Final = Metric(
    "yaie_router_probes_total",
    "counter",
    "Suspects that were asked for /readyz, by outcome (ready or failed).",
    ("model", "outcome"),
)
ROUTER_DROPPED_SPANS: Final = Metric(
    "yaie_router_dropped_spans_total",
    "counter",
    "Spans of traces that the collector did not take.",
)
ROUTER_API_AGE: Final = Metric(
    "yaie_router_api_silence_seconds", "gauge", "Time since the API server was last heard from."
)
ROUTER_BUILD_INFO: Final = Metric(
    "yaie_router_build_info", "gauge", "1, with the version as a label.", ("version",)
)

# The engine. Request metrics are measured by the HTTP process, the rest by the engine process.
ENGINE_HTTP_REQUESTS: Final = Metric(
    "yaie_engine_http_requests_total",
    "counter",
    "HTTP requests answered, by route and status (499: the client left first).",
    ("route", "status"),
)
ENGINE_GENERATIONS: Final = Metric(
    "yaie_engine_generations_total",
    "counter",
    "Outputs ended, by reason: stop, length, tool_calls, abort or error.",
    ("finish_reason",),
)
ENGINE_TTFT: Final = Metric(
    "yaie_engine_time_to_first_token_seconds",
    "histogram",
    "From the request's arrival to its first token.",
    (),
    LATENCY_BUCKETS_S,
)
ENGINE_ITL: Final = Metric(
    "yaie_engine_inter_token_latency_seconds",
    "histogram",
    "Time between tokens of one generation.",
    (),
    LATENCY_BUCKETS_S,
)
ENGINE_E2E: Final = Metric(
    "yaie_engine_request_seconds",
    "histogram",
    "From the request's arrival to the end of its generation.",
    (),
    LONG_BUCKETS_S,
)
ENGINE_QUEUE: Final = Metric(
    "yaie_engine_queue_seconds",
    "histogram",
    "From a generation's arrival in the queue to its first step.",
    (),
    LONG_BUCKETS_S,
)
ENGINE_PREFILL: Final = Metric(
    "yaie_engine_prefill_seconds",
    "histogram",
    "From a generation's first step to its first token: the time of its prompt.",
    (),
    LATENCY_BUCKETS_S,
)
ENGINE_DECODE: Final = Metric(
    "yaie_engine_decode_seconds",
    "histogram",
    "From a generation's first token to its last one.",
    (),
    LONG_BUCKETS_S,
)
ENGINE_PROMPT_LENGTH: Final = Metric(
    "yaie_engine_prompt_length_tokens",
    "histogram",
    "Prompt tokens of a generation, those that the prefix cache held included.",
    (),
    TOKEN_BUCKETS,
)
ENGINE_OUTPUT_LENGTH: Final = Metric(
    "yaie_engine_output_length_tokens", "histogram", "Tokens of one output.", (), TOKEN_BUCKETS
)
ENGINE_BUILD_INFO: Final = Metric(
    "yaie_engine_build_info", "gauge", "1, with the version as a label.", ("version",)
)
ENGINE_UNKNOWN_FIELDS: Final = Metric(
    "yaie_engine_unknown_fields_total", "counter", "Request fields that this server ignored."
)
ENGINE_DROPPED_SPANS: Final = Metric(
    "yaie_engine_dropped_spans_total",
    "counter",
    "Spans of traces that the collector did not take.",
)
ENGINE_RESTARTS: Final = Metric(
    "yaie_engine_restarts_total", "counter", "Engine processes started after the first one."
)
ENGINE_RUNNING: Final = Metric(
    "yaie_engine_running_requests", "gauge", "Generations that have pages and take part in steps."
)
ENGINE_WAITING: Final = Metric(
    "yaie_engine_waiting_requests", "gauge", "Generations in the waiting queue."
)
ENGINE_KV_UTILIZATION: Final = Metric(
    "yaie_engine_kv_utilization_ratio", "gauge", "Share of KV pages held by live generations."
)
ENGINE_PARAMETERS: Final = Metric(
    "yaie_engine_model_parameters", "gauge", "Parameters of the model."
)
ENGINE_WEIGHT_BYTES: Final = Metric(
    "yaie_engine_weight_bytes", "gauge", "Memory of the model's weights."
)
ENGINE_CONTEXT: Final = Metric(
    "yaie_engine_context_tokens", "gauge", "Longest prompt and answer together."
)
ENGINE_KV_TOKENS: Final = Metric(
    "yaie_engine_kv_tokens", "gauge", "Tokens that all KV pages together hold."
)
ENGINE_KV_PAGES: Final = Metric("yaie_engine_kv_pages", "gauge", "KV pages in all.")
ENGINE_KV_PAGES_FREE: Final = Metric("yaie_engine_kv_pages_free", "gauge", "KV pages free.")
ENGINE_KV_PAGES_CACHED: Final = Metric(
    "yaie_engine_kv_pages_cached", "gauge", "KV pages that only the prefix cache holds."
)
ENGINE_PREFIX_KEYS: Final = Metric(
    "yaie_engine_prefix_keys", "gauge", "Prefix keys of cached requests, published at /prefixes."
)
ENGINE_PROMPT_TOKENS: Final = Metric(
    "yaie_engine_prompt_tokens_total", "counter", "Prompt tokens of admitted generations."
)
ENGINE_CACHED_PROMPT_TOKENS: Final = Metric(
    "yaie_engine_cached_prompt_tokens_total",
    "counter",
    "Prompt tokens that the prefix cache held already.",
)
ENGINE_GENERATED_TOKENS: Final = Metric(
    "yaie_engine_generated_tokens_total", "counter", "Tokens generated."
)
ENGINE_PREEMPTIONS: Final = Metric(
    "yaie_engine_preemptions_total", "counter", "Generations put back for want of KV pages."
)
ENGINE_HOST_PAGES: Final = Metric(
    "yaie_engine_host_pages", "gauge", "KV pages of host memory, for preempted generations."
)
ENGINE_HOST_PAGES_USED: Final = Metric(
    "yaie_engine_host_pages_used", "gauge", "KV pages of host memory in use."
)
ENGINE_SWAPS_OUT: Final = Metric(
    "yaie_engine_swaps_out_total", "counter", "Generations whose KV pages went to host memory."
)
ENGINE_SWAPS_IN: Final = Metric(
    "yaie_engine_swaps_in_total", "counter", "Generations whose KV pages came back from there."
)
ENGINE_STEPS: Final = Metric("yaie_engine_steps_total", "counter", "Steps of the engine loop.")
ENGINE_STEP_SECONDS: Final = Metric(
    "yaie_engine_step_seconds_total", "counter", "Time spent in steps."
)
ENGINE_STEP_BUDGET: Final = Metric(
    "yaie_engine_step_budget_tokens", "gauge", "Tokens that the next step may hold."
)
ENGINE_STEPS_PAST_TARGET: Final = Metric(
    "yaie_engine_steps_past_target_total",
    "counter",
    "Steps made longer than the time target, so that prompts are computed as fast as they come.",
)
ENGINE_LATE_COMPILATIONS: Final = Metric(
    "yaie_engine_late_compilations_total",
    "counter",
    "Kernels compiled while requests waited: what was compiled before the engine was ready, and in "
    "idle time, is left out.",
)

# The operator.
OPERATOR_RECONCILE_SECONDS: Final = Metric(
    "yaie_operator_reconcile_seconds",
    "histogram",
    "Time of one reconcile, by what was reconciled (model or namespace).",
    ("scope",),
    LATENCY_BUCKETS_S,
)
OPERATOR_RECONCILES: Final = Metric(
    "yaie_operator_reconciles_total",
    "counter",
    "Reconciles by result: ok, conflict, unreachable or error.",
    ("scope", "result"),
)
OPERATOR_WRITES: Final = Metric(
    "yaie_operator_writes_total",
    "counter",
    "Writes to the API server (Lease renewals left out), by kind of object.",
    ("kind",),
)
OPERATOR_MODEL_CONDITION: Final = Metric(
    "yaie_operator_model_condition",
    "gauge",
    "Conditions of an InferenceModel: 1 if true, else 0, with the reason as a label.",
    ("namespace", "model", "condition", "reason"),
)
OPERATOR_MODEL_REPLICAS: Final = Metric(
    "yaie_operator_model_replicas",
    "gauge",
    "Engines of an InferenceModel by state: desired, current, updated, ready or draining.",
    ("namespace", "model", "state"),
)
OPERATOR_BUILD_INFO: Final = Metric(
    "yaie_operator_build_info", "gauge", "1, with the version as a label.", ("version",)
)
OPERATOR_QUEUE_DEPTH: Final = Metric(
    "yaie_operator_queue_depth", "gauge", "Keys that wait for a worker."
)
OPERATOR_LEADER: Final = Metric(
    "yaie_operator_leader", "gauge", "1 while this process holds the Lease."
)
OPERATOR_WATCH_AGE_SECONDS: Final = Metric(
    "yaie_operator_watch_age_seconds",
    "gauge",
    "Seconds since the watch that has waited longest was answered; about 20 at most.",
)
OPERATOR_RESYNC_REPAIRS: Final = Metric(
    "yaie_operator_resync_repairs_total",
    "counter",
    "Objects whose change a full list has found and no watch had told.",
)
OPERATOR_MODELS: Final = Metric("yaie_operator_models", "gauge", "InferenceModels known.")
OPERATOR_DESIRED_REPLICAS: Final = Metric(
    "yaie_operator_desired_replicas",
    "gauge",
    "Engines that the autoscaler wants, of models with spec.autoscaling.",
    ("namespace", "model"),
)
