"""Whether and where traces are exported: a flag, and OpenTelemetry's own environment variables."""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from yaie_api.tracing.spans import SpanSink

ENV_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
ENV_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
ENV_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
ENV_DISABLED: Final = "OTEL_SDK_DISABLED"
ENV_SIZES: Final = {"OTEL_BSP_MAX_QUEUE_SIZE": 2048, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": 512}
PROTOCOL: Final = "http/protobuf"
_TRACES_PATH: Final = "/v1/traces"
_PACKAGES: Final = {
    "opentelemetry-sdk": "opentelemetry.sdk.trace",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
}


@dataclass(frozen=True)
class Tracing:
    """Traces go to the collector at `endpoint`; "": as OpenTelemetry's variables say."""

    endpoint: str = ""

    def open(self, service: str, dropped: Callable[[int], None]) -> SpanSink:
        """Begin to export spans. `dropped` is called, from any thread, with a number of spans."""
        from yaie_api.tracing.otlp import OtlpSink

        return OtlpSink(self, service, dropped)


def tracing_of(flag: str | None, env: Mapping[str, str]) -> Tracing | None:
    """Decide from the flag `--otlp-traces-endpoint` and the environment; None: no traces.

    Raises:
        ValueError: with a sentence for the user: a setting is not offered, or a package is missing.

    """
    exporter = env.get(ENV_EXPORTER, "").strip()
    if env.get(ENV_DISABLED, "").strip().lower() == "true" or exporter == "none":
        return None
    endpoint = flag or next((env[name] for name in ENV_ENDPOINTS if env.get(name)), "")
    if not endpoint and not exporter:
        return None
    if exporter not in ("", "otlp"):
        raise ValueError(f"{ENV_EXPORTER} is {exporter!r}: traces go out by otlp or none")
    protocol = next((env[name] for name in ENV_PROTOCOLS if env.get(name)), PROTOCOL)
    if protocol != PROTOCOL:
        raise ValueError(f"traces go out by {PROTOCOL}, not by {protocol}: {_ADVICE}")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise ValueError(f"{endpoint!r} is no address for traces: {_ADVICE}")
    _check_queue(env)
    if lacks := _missing():
        raise ValueError(
            f"traces need the Python package {lacks}, which is not installed. In the folder of the "
            'project run: pip install -e ".[otel]"'
        )
    return Tracing(_with_path(flag) if flag else "")


def _check_queue(env: Mapping[str, str]) -> None:
    """Refuse sizes with which OpenTelemetry's batches cannot be made."""
    sizes = {}
    for name, default in ENV_SIZES.items():
        text = env.get(name) or str(default)
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"{name} is {text!r}: write a number of at least 1")
        sizes[name] = int(text)
    queue, batch = ENV_SIZES
    if sizes[batch] > sizes[queue]:
        raise ValueError(f"{batch} is {sizes[batch]}: {queue} must be at least as much")


def variables(endpoint: str, sampling_ratio: float) -> dict[str, str]:
    """Return the variables by which a pod exports traces; none without an endpoint.

    `sampling_ratio`: of the traces that begin here; those of clients are theirs to sample.
    """
    if not endpoint:
        return {}
    return {
        ENV_ENDPOINTS[-1]: endpoint,
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": f"{sampling_ratio:g}",
    }


_ADVICE: Final = "write the collector's HTTP address, such as http://collector:4318"


def _with_path(endpoint: str) -> str:
    """A collector's bare address gets the path of traces, as with the variable for all signals."""
    bare = urlsplit(endpoint).path in ("", "/")
    return endpoint.rstrip("/") + _TRACES_PATH if bare else endpoint


def _missing() -> str | None:
    """Return the first package that is not installed."""
    for package, module in _PACKAGES.items():
        try:
            if importlib.util.find_spec(module) is None:
                return package
        except ModuleNotFoundError:
            return package
    return None
