"""An OpenTelemetry collector on loopback that keeps what it gets. It needs the extra otel."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(http.server.ThreadingHTTPServer):
    """Takes OTLP over HTTP, or refuses it with `status`."""

    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.got: list[ExportTraceServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.got
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        assert self.path == "/v1/traces"
        data = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append(ExportTraceServiceRequest.FromString(data))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        return


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    collector = Collector(status)
    thread = threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()
