"""`yaie up` with a collector in its environment: one trace over the real router and engine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra otel")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")

from fakes.tracing.collector import collecting

ASK = """
import json, os, urllib.request
body = {"model": "yaie-demo", "stream": True, "max_tokens": 8}
body["messages"] = [{"role": "user", "content": "What is a pod?"}]
url = os.environ["YAIE_ENDPOINT"] + "/v1/chat/completions"
request = urllib.request.Request(url, json.dumps(body).encode(), {"x-request-id": "asked-1"})
print(urllib.request.urlopen(request).read().decode())
"""


@pytest.mark.drill
def test_one_trace_spans_the_router_and_the_engine(tmp_path: Path) -> None:
    up = (sys.executable, "-m", "yaie", "up", "builtin://yaie-demo", "--port", "0")
    with collecting() as collector:
        done = subprocess.run(
            [*up, "--state-dir", str(tmp_path), "--", sys.executable, "-c", ASK],
            env=os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[DONE]" in done.stdout
    assert "yaie-usage" not in done.stdout
    chats = [one for one in collector.spans if one.name == "POST /v1/chat/completions"]
    routed, served = sorted(chats, key=lambda one: bool(one.parent_span_id))
    (sent,) = [one for one in collector.spans if one.name == "POST"]
    assert sent.parent_span_id == routed.span_id
    assert served.parent_span_id == sent.span_id
    stages = {one.name: one for one in collector.spans if one.parent_span_id == served.span_id}
    assert stages.keys() == {"queue", "prefill", "decode"}
    assert {one.trace_id for one in (routed, sent, served, *stages.values())} == {routed.trace_id}
    for span in (routed, served):
        told = {one.key: one.value for one in span.attributes}
        assert told["gen_ai.usage.output_tokens"].int_value == 8
        assert told["gen_ai.request.id"].string_value == "asked-1"
    lines = [entry for entry in logged(tmp_path / "logs") if entry.get("request_id") == "asked-1"]
    assert {entry["trace_id"] for entry in lines} == {routed.trace_id.hex()}
    assert {entry["logger"] for entry in lines} == {"yaie.access", "yaie_router.app"}


def logged(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in folder.glob("*.log") for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]
