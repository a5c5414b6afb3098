"""The router's settings: flags first, then environment, then defaults. Frozen after parsing."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn

from yaie_api import __version__
from yaie_api.http.access.cors import CorsPolicy, policy_of
from yaie_api.http.access.keys import parse_keys
from yaie_api.names import (
    ENV_ALLOW_CREDENTIALS,
    ENV_ALLOWED_HEADERS,
    ENV_ALLOWED_METHODS,
    ENV_ALLOWED_ORIGINS,
    ENV_API_KEY,
    ENV_API_SOCKET,
    ENV_LISTEN_FD,
    ENV_NAMESPACE,
    ENV_PREFIX_KEY,
    HTTP_PORT,
    ROUTER_METRICS_PORT,
)
from yaie_api.tracing.settings import Tracing, tracing_of

_EXAMPLES = f"""\
environment:
  {ENV_NAMESPACE}, {ENV_API_SOCKET}   defaults of --namespace and --api-socket
  {ENV_PREFIX_KEY}   hex key of the prefix hash; routers of one namespace share it
  {ENV_API_KEY}   accept only requests with one of these keys, one a line; engines do not see them
  {ENV_ALLOWED_ORIGINS}   origins whose pages may use this router: a JSON list, or with commas
  {ENV_ALLOWED_METHODS}, {ENV_ALLOWED_HEADERS}, {ENV_ALLOW_CREDENTIALS}   how they may
  OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, ...   OpenTelemetry's own, for traces

examples:
  python -m yaie_router --namespace default              in a cluster, with the pod's account
  python -m yaie_router --api-socket ~/.local/state/yaie/api.sock --port 8000
"""


@dataclass(frozen=True)
class Config:
    """Durations in seconds, sizes in bytes."""

    namespace: str = "default"
    host: str = "127.0.0.1"
    port: int = HTTP_PORT
    metrics_port: int = ROUTER_METRICS_PORT
    listen_fd: int | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    api_socket: Path | None = None
    api_address: tuple[str, str] | None = None
    prefix_key: bytes = field(default=b"", repr=False)
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    api_key_dir: Path | None = None
    limits_dir: Path | None = None
    replicas: int = 1
    max_queued: int = 1024
    queue_timeout_s: float = 30.0
    cors: CorsPolicy = field(default_factory=CorsPolicy)
    max_body_bytes: int = 8 << 20
    max_buffered_bytes: int = 256 << 20
    max_unfinished_bodies: int = 1024
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    max_in_flight: int = 4096
    max_pending: int = 1024
    pending_timeout_s: float = 600.0
    connect_timeout_s: float = 2.0
    client_stall_s: float = 60.0
    silence_timeout_s: float = 600.0
    first_token_timeout_s: float = 30.0
    inter_token_timeout_s: float = 30.0
    prompt_bytes_per_s: float = 8192.0
    suspect_after_s: float = 5.0
    max_replays: int = 8
    max_replay_bytes: int = 128 << 20
    tracing: Tracing | None = None
    drain_delay_s: float = 0.0
    drain_timeout_s: float = 300.0
    log_level: str = "info"
    log_format: Literal["auto", "text", "json"] = "auto"


def parse(argv: Sequence[str], env: Mapping[str, str]) -> Config:
    """Read the settings from a command line and an environment; exit with a message if wrong."""
    parser = parser_of(env)
    given = parser.parse_args(argv)
    if given.api_key_dir is not None and env.get(ENV_API_KEY):
        _refuse(parser, f"--api-key-dir and {ENV_API_KEY} both name keys: give one of them")
    if (given.ssl_certfile is None) != (given.ssl_keyfile is None):
        _refuse(parser, "--ssl-certfile and --ssl-keyfile belong together: give both or none")
    socket = Path(given.api_socket).expanduser() if given.api_socket else None
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT", "443")
    if socket is None and host is None:
        _refuse(parser, f"no API server: give --api-socket or {ENV_API_SOCKET}, or run in a pod")
    return Config(
        namespace=given.namespace,
        host=given.host,
        port=given.port,
        metrics_port=given.metrics_port,
        listen_fd=_fd(parser, env.get(ENV_LISTEN_FD)),
        ssl_certfile=given.ssl_certfile,
        ssl_keyfile=given.ssl_keyfile,
        api_socket=socket,
        api_address=(host, port) if host else None,
        prefix_key=_key(parser, env.get(ENV_PREFIX_KEY, "")),
        api_keys=parse_keys(env.get(ENV_API_KEY, "")),
        api_key_dir=given.api_key_dir,
        limits_dir=given.limits_dir,
        replicas=given.replicas,
        max_queued=given.max_queued,
        queue_timeout_s=given.queue_timeout_s,
        cors=_cors(parser, env),
        max_body_bytes=given.max_body_bytes,
        max_buffered_bytes=given.max_buffered_bytes,
        max_unfinished_bodies=given.max_unfinished_bodies,
        header_timeout_s=given.header_timeout_s,
        body_timeout_s=given.body_timeout_s,
        max_in_flight=given.max_in_flight,
        max_pending=given.max_pending,
        pending_timeout_s=given.pending_timeout_s,
        connect_timeout_s=given.connect_timeout_s,
        client_stall_s=given.client_stall_s,
        silence_timeout_s=given.silence_timeout_s,
        first_token_timeout_s=given.first_token_timeout_s,
        inter_token_timeout_s=given.inter_token_timeout_s,
        prompt_bytes_per_s=given.prompt_bytes_per_s,
        suspect_after_s=given.suspect_after_s,
        max_replays=given.max_replays,
        max_replay_bytes=given.max_replay_bytes,
        tracing=_tracing(parser, given.otlp_traces_endpoint, env),
        drain_delay_s=given.drain_delay_s,
        drain_timeout_s=given.drain_timeout_s,
        log_level=given.log_level,
        log_format=given.log_format,
    )


def parser_of(env: Mapping[str, str]) -> argparse.ArgumentParser:
    """Make the parser of the command line; defaults come from the environment."""
    parser = argparse.ArgumentParser(
        prog="yaie-router",
        description="Sends each OpenAI request to the engine that already holds its prefix.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    where = parser.add_argument_group("where")
    where.add_argument("--namespace", default=env.get(ENV_NAMESPACE, "default"))
    where.add_argument("--host", default=Config.host, help="address to listen on")
    where.add_argument("--port", type=int, default=Config.port)
    where.add_argument(
        "--metrics-port",
        type=int,
        default=Config.metrics_port,
        help="where /metrics is; nobody is asked for a key there (default: %(default)s)",
    )
    where.add_argument(
        "--api-socket",
        default=env.get(ENV_API_SOCKET),
        metavar="PATH",
        help="unix socket of the API that `yaie up` serves; without it, the cluster's API server",
    )
    for name, what in (("certfile", "certificate, with its chain,"), ("keyfile", "private key")):
        where.add_argument(
            f"--ssl-{name}",
            type=Path,
            metavar="FILE",
            help=f"PEM {what} for HTTPS on --port; it is read again when it changes",
        )
    access = parser.add_argument_group("who may use it")
    access.add_argument(
        "--api-key-dir",
        type=Path,
        metavar="FOLDER",
        help="accept only requests with a key from here, which is how a Secret is mounted: a file "
        "for each tenant, a key or sha256:HEX a line; it is read again when it changes, and while "
        f"it has no key, nobody is let in (without it, {ENV_API_KEY} has the keys)",
    )
    access.add_argument(
        "--limits-dir",
        type=Path,
        metavar="FOLDER",
        help="what each tenant may take, which is how a ConfigMap is mounted: a file for each, as "
        '{"requestsPerMinute": 600, "tokensPerMinute": 100000, "maxConcurrency": 8, "weight": 2}; '
        "default is for the others",
    )
    _number(
        access,
        "--replicas",
        Config.replicas,
        "routers that share engines and limits, until the API server says it",
    )
    _number(
        access,
        "--max-queued",
        Config.max_queued,
        "requests of tenants that may wait for an engine's seat, more get 429",
    )
    _number(access, "--queue-timeout-s", Config.queue_timeout_s, "and then get 503")
    limits = parser.add_argument_group("limits")
    _number(limits, "--max-body-bytes", Config.max_body_bytes, "largest request body")
    _number(
        limits,
        "--max-buffered-bytes",
        Config.max_buffered_bytes,
        "of all bodies beyond 64 KiB each, a quarter of it for unfinished ones; more get 429",
    )
    _number(
        limits,
        "--max-unfinished-bodies",
        Config.max_unfinished_bodies,
        "that may be coming at a time, more get 429",
    )
    _number(limits, "--header-timeout-s", Config.header_timeout_s, "of a new connection")
    _number(limits, "--body-timeout-s", Config.body_timeout_s, "a body must arrive within this")
    _number(
        limits,
        "--max-in-flight",
        Config.max_in_flight,
        "requests for one model at a time, more get 429",
    )
    _number(
        limits,
        "--max-pending",
        Config.max_pending,
        "requests that may wait for a model scaled to zero, more get 429",
    )
    _number(
        limits,
        "--pending-timeout-s",
        Config.pending_timeout_s,
        "such a request waits this long, then gets 503",
    )
    _number(
        limits, "--client-stall-s", Config.client_stall_s, "a client may read nothing this long"
    )
    _deadlines(parser)
    stop = parser.add_argument_group("stopping (SIGTERM)")
    _number(stop, "--drain-delay-s", Config.drain_delay_s, "keep accepting this long, not ready")
    _number(stop, "--drain-timeout-s", Config.drain_timeout_s, "then streams may finish this long")
    logs = parser.add_argument_group("logs and traces")
    logs.add_argument(
        "--otlp-traces-endpoint",
        metavar="URL",
        help="send traces there by OTLP over HTTP, such as http://collector:4318 (default: none)",
    )
    logs.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    logs.add_argument("--log-format", default="auto", choices=["auto", "text", "json"])
    return parser


def _deadlines(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("deadlines of engines")
    _number(group, "--connect-timeout-s", Config.connect_timeout_s, "to connect")
    _number(
        group,
        "--first-token-timeout-s",
        Config.first_token_timeout_s,
        "a stream's first token, of a short prompt",
    )
    _number(
        group,
        "--prompt-bytes-per-s",
        Config.prompt_bytes_per_s,
        "a request gets a second more for its first token for each so many bytes",
    )
    _number(
        group,
        "--inter-token-timeout-s",
        Config.inter_token_timeout_s,
        "between two tokens of a stream",
    )
    _number(
        group,
        "--silence-timeout-s",
        Config.silence_timeout_s,
        "an answer that is no stream, for a model without timeoutSeconds",
    )
    _number(
        group,
        "--suspect-after-s",
        Config.suspect_after_s,
        "an engine that is waited for and silent this long is asked whether it is ready",
    )
    _number(
        group,
        "--max-replays",
        Config.max_replays,
        "streams of a dead engine that another one computes again at a time; 0: none go on",
    )
    _number(
        group,
        "--max-replay-bytes",
        Config.max_replay_bytes,
        "memory for the requests of streams that could go on at another engine",
    )


def _number(group: "argparse._ArgumentGroup", flag: str, default: float, what: str) -> None:
    group.add_argument(
        flag, type=type(default), default=default, help=f"{what} (default: {default:g})"
    )


def _fd(parser: argparse.ArgumentParser, text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        _refuse(parser, f"{ENV_LISTEN_FD} must be the number of an open socket")
    return None if text is None else int(text)


def _key(parser: argparse.ArgumentParser, text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        _refuse(parser, f"{ENV_PREFIX_KEY} must be hexadecimal digits")
    if len(key) > 64:
        _refuse(parser, f"{ENV_PREFIX_KEY} must have at most 64 bytes")
    return key


def _tracing(
    parser: argparse.ArgumentParser, flag: str | None, env: Mapping[str, str]
) -> Tracing | None:
    try:
        return tracing_of(flag, env)
    except ValueError as error:
        _refuse(parser, str(error))


def _cors(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> CorsPolicy:
    try:
        return policy_of(env)
    except ValueError as error:
        _refuse(parser, str(error))


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    parser.error(message)
