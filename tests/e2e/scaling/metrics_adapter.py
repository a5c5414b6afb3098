"""A metrics adapter as far as the HPA's controller needs one: an aggregated API server that answers
`external.metrics.k8s.io/v1beta1` with a number.

    HPA controller ──▶ API server ──APIService──▶ Service without a selector ──▶ this process
"""

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from cluster.certificates import Authority
from cluster.node import NODE_IP

GROUP = "external.metrics.k8s.io"
VERSION = "v1beta1"
ROOT = f"/apis/{GROUP}/{VERSION}"
NAME = "metrics-adapter"
Metric = tuple[str, str]
"""Name and label selector, as the HPA writes them."""


class _Handler(BaseHTTPRequestHandler):
    metrics: ClassVar[Mapping[Metric, Callable[[], float]]]
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == ROOT:
            self._answer(200, _resources())
            return
        name = url.path.rpartition("/")[2]
        selector = parse_qs(url.query).get("labelSelector", [""])[0]
        value = self.metrics.get((name, selector))
        if value is None:
            self._answer(404, {"kind": "Status", "apiVersion": "v1", "code": 404})
        else:
            self._answer(200, _values(name, value()))

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """The HPA says itself what it got."""


def _resources() -> dict[str, Any]:
    metric = {"name": "*", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
    versions = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
    return versions | {"resources": [metric | {"singularName": ""}]}


def _values(name: str, value: float) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    item = {"metricName": name, "metricLabels": {}, "timestamp": now, "value": f"{value:g}"}
    kind = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}"}
    return kind | {"metadata": {}, "items": [item]}


@contextlib.contextmanager
def adapter(
    namespace: str, folder: Path, metrics: Mapping[Metric, Callable[[], float]]
) -> Iterator[list[dict[str, Any]]]:
    """Serve the metrics from the node's address while the block runs.

    Yields the objects that make it an API of the cluster.
    """
    authority = Authority(folder / "pki")
    pair = authority.issue(NAME, f"/CN={NAME}", hosts=[f"DNS:{NAME}.{namespace}.svc"])
    server = ThreadingHTTPServer((NODE_IP, 0), type("Bound", (_Handler,), {"metrics": metrics}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield _objects(namespace, server.server_address[1], authority.ca.certificate.read_bytes())
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _objects(namespace: str, port: int, ca: bytes) -> list[dict[str, Any]]:
    place = {"name": NAME, "namespace": namespace}
    ports = [{"name": "https", "port": 443, "protocol": "TCP"}]
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": place,
            "spec": {"ports": [ports[0] | {"targetPort": port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": place | {"labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv4",
            "ports": [ports[0] | {"port": port}],
            "endpoints": [{"addresses": [NODE_IP], "conditions": {"ready": True}}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "service": place | {"port": 443},
                "caBundle": base64.b64encode(ca).decode(),
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]
