"""Exports spans with OpenTelemetry's SDK: the only module that imports it, and only when asked.

A thread of the SDK sends batches. A request only puts spans into its queue: when that is full, or
the collector does not take a batch, spans are dropped and counted.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace.status import Status, StatusCode

from yaie_api import __version__
from yaie_api.logs import fields
from yaie_api.names import ENV_NAMESPACE, ENV_POD_NAME
from yaie_api.tracing.settings import ENV_SIZES, Tracing
from yaie_api.tracing.spans import Span
from yaie_api.tracing.w3c import TraceContext

log = logging.getLogger(__name__)

_KINDS: Final = {
    "server": api.SpanKind.SERVER,
    "client": api.SpanKind.CLIENT,
    "internal": api.SpanKind.INTERNAL,
}
_CLOSE_S: Final = 2.0
"""So long a process that ends may wait for its last spans to go out."""


class OtlpSink:
    """A `SpanSink`. `service`: the name that traces show, unless the environment says another.

    `dropped` is called with a number of spans, from any thread.
    """

    def __init__(
        self,
        tracing: Tracing,
        service: str,
        dropped: Callable[[int], None],
        *,
        exporter: SpanExporter | None = None,
    ) -> None:
        # The SDK would log each batch that fails; `_Counted` says it once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        resource = Resource.create(resource_of(service, os.environ))
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._resource, self._sampler = provider.resource, provider.sampler
        self._scope = InstrumentationScope("yaie", __version__)
        sender = exporter or OTLPSpanExporter(endpoint=tracing.endpoint or None)
        self._exporter = _Counted(sender, dropped)
        self._processor = BatchSpanProcessor(self._exporter)
        name, default = next(iter(ENV_SIZES.items()))
        self._most = int(os.environ.get(name) or default)
        self._dropped = dropped

    def samples(self, name: str, context: TraceContext, *, is_remote: bool) -> bool:
        above = Context()
        if is_remote:
            above = api.set_span_in_context(api.NonRecordingSpan(_known(context)), above)
        verdict = self._sampler.should_sample(
            above, int(context.trace_id, 16), name, api.SpanKind.SERVER
        )
        return bool(verdict.decision.is_sampled())

    def take(self, span: Span) -> None:
        if self._exporter.is_full(self._most):
            self._dropped(1)
            return
        self._processor.on_end(self._readable(span))

    def close(self) -> None:
        """Send what waits, for a bounded time."""
        ending = threading.Thread(target=self._processor.shutdown, daemon=True)
        ending.start()
        ending.join(_CLOSE_S)

    def _readable(self, span: Span) -> ReadableSpan:
        context = span.context
        parent = None
        if span.parent_id:
            parent = _known(TraceContext(context.trace_id, span.parent_id, context.flags))
        return ReadableSpan(
            span.name,
            _known(context),
            parent,
            self._resource,
            dict(span.attributes),
            [Event(one.name, timestamp=one.at_ns) for one in span.events],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.began_ns,
            end_time=span.ended_ns,
            instrumentation_scope=self._scope,
        )


class _Counted(SpanExporter):  # type: ignore[misc]  # the extra may be missing where types are checked
    """Passes batches on, and knows how many spans wait and how many were dropped."""

    def __init__(self, exporter: SpanExporter, dropped: Callable[[int], None]) -> None:
        self._exporter = exporter
        self._dropped = dropped
        self._lock = threading.Lock()
        self._waiting = 0
        self._fails = False

    def is_full(self, most: int) -> bool:
        """Whether `most` spans wait; if not, one more does."""
        with self._lock:
            full = self._waiting >= most
            self._waiting += not full
        return full

    def export(self, spans: Sequence[Any]) -> Any:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - whatever it is, its spans are dropped
            log.debug("export failed", extra=fields(reason=str(error)))
        failed = result is not SpanExportResult.SUCCESS
        with self._lock:
            self._waiting -= len(spans)
        if failed:
            self._dropped(len(spans))
        if failed and not self._fails:
            log.warning(
                "the collector takes no spans: they are dropped", extra=fields(n=len(spans))
            )
        elif self._fails and not failed:
            log.info("the collector takes spans again")
        self._fails = failed
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))


def resource_of(service: str, env: Mapping[str, str]) -> dict[str, str]:
    """Say who makes the spans. What the environment says wins."""
    told = {"service.version": __version__}
    given = env.get("OTEL_RESOURCE_ATTRIBUTES", "")
    names = {pair.partition("=")[0].strip() for pair in given.split(",")}
    if not env.get("OTEL_SERVICE_NAME"):
        told["service.name"] = service
    if pod := env.get(ENV_POD_NAME):
        told |= {"service.instance.id": pod, "k8s.pod.name": pod}
    if namespace := env.get(ENV_NAMESPACE):
        told["k8s.namespace.name"] = namespace
    return {name: value for name, value in told.items() if name not in names}


def _known(context: TraceContext) -> api.SpanContext:
    return api.SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=False,
        trace_flags=api.TraceFlags(context.flags),
    )
