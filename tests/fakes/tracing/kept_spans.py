"""A sink that keeps spans, in place of a collector."""

from collections.abc import Callable
from dataclasses import dataclass, field

from yaie_api.tracing.settings import Tracing
from yaie_api.tracing.spans import Span, SpanSink
from yaie_api.tracing.w3c import TraceContext


class KeptSpans:
    """Implements `SpanSink`. It samples what the client samples, and every trace that begins."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def samples(self, name: str, context: TraceContext, *, is_remote: bool) -> bool:
        return context.is_sampled if is_remote else True

    def take(self, span: Span) -> None:
        self.spans.append(span)

    def close(self) -> None:
        return

    def of_kind(self, kind: str) -> list[Span]:
        return [span for span in self.spans if span.kind == kind]

    def named(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found


@dataclass(frozen=True)
class KeptTracing(Tracing):
    """A router's or an engine's setting, with which its spans come to `kept`."""

    kept: KeptSpans = field(default_factory=KeptSpans)

    def open(self, service: str, dropped: Callable[[int], None]) -> SpanSink:
        return self.kept
