"""Names, help texts and labels of every metric that yaie exports.

The process that measures owns the value; this module owns the name, so that dashboards, alerts and
the autoscaler can be checked against it. Base units, `_total` on counters, no colon in names.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Metric:
    """One metric family. `buckets` are upper bounds in the metric's base unit (histograms only)."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


LATENCY_BUCKETS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
SHORT_BUCKETS_S: Final = (
    0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1,
)  # fmt: skip

# The router. `model` is an InferenceModel's name, or "" where the request named none that exists.
ROUTER_REQUESTS: Final = Metric(
    "yaie_router_requests_total",
    "counter",
    "Requests answered, by status sent to the client (499: the client left first).",
    ("model", "route", "status"),
)
ROUTER_IN_FLIGHT: Final = Metric(
    "yaie_router_requests_in_flight", "gauge", "Requests being served now.", ("model",)
)
ROUTER_ENDPOINTS: Final = Metric(
    "yaie_router_endpoints", "gauge", "Engines that take requests, as last seen.", ("model",)
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
    "Endpoint choices: home, spilled from home by load, or balanced by another policy.",
    ("model", "outcome"),
)
ROUTER_RETRIES: Final = Metric(
    "yaie_router_retries_total", "counter", "Requests sent again, by cause.", ("model", "cause")
)
ROUTER_BROKEN_STREAMS: Final = Metric(
    "yaie_router_broken_streams_total",
    "counter",
    "Answers that an engine did not finish after their first byte.",
    ("model",),
)
ROUTER_EJECTIONS: Final = Metric(
    "yaie_router_ejections_total", "counter", "Endpoints taken out after failures.", ("model",)
)
ROUTER_API_AGE: Final = Metric(
    "yaie_router_api_silence_seconds", "gauge", "Time since the API server was last heard from."
)
