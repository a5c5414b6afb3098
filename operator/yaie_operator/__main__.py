"""Command line of the operator in a real cluster: `python -m yaie_operator`."""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from yaie_api import garbage, logs, names
from yaie_operator.config import OperatorConfig

EXAMPLES = """\
examples:
  python -m yaie_operator                             in a pod: its service account, all namespaces
  python -m yaie_operator --kubeconfig ~/.kube/config --leader-elect false
  python -m yaie_operator --namespaces chat,research  only these namespaces
  python -m yaie_operator --print-rbac                the rights that it needs, as JSON

environment: YAIE_ENGINE_IMAGE, YAIE_ROUTER_IMAGE, YAIE_IMAGE_PULL_POLICY, YAIE_ROUTER_REPLICAS,
YAIE_ROUTER_MAX_PENDING, YAIE_ROUTER_PENDING_TIMEOUT_SECONDS, YAIE_PROMETHEUS_URL, YAIE_METRICS_KEY,
YAIE_ROUTER_SERVICE_TYPE, YAIE_ROUTER_ALLOWED_ORIGINS, YAIE_NAMESPACES, YAIE_WORKERS,
YAIE_LEADER_ELECT, YAIE_IMAGE_PULL_SECRETS, YAIE_ROUTER_KEYS_SECRET, YAIE_ROUTER_TENANT_LIMITS,
YAIE_TRACING_ENDPOINT, YAIE_TRACING_SAMPLING_RATIO; as JSON: YAIE_ROUTER_POD, YAIE_ROUTER_LIMITS,
YAIE_NETWORK_POLICIES; with a Secret's name: YAIE_ROUTER_TLS_SECRET;
YAIE_POD_NAME and YAIE_POD_NAMESPACE name the Lease's holder and place.
"""


@dataclass(frozen=True)
class Options:
    """Settings from the command line and the environment."""

    config: OperatorConfig
    kubeconfig: str | None
    leader_elect: bool
    lease_namespace: str
    identity: str
    host: str
    port: int


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m yaie_operator",
        description="Makes a cluster match its InferenceModels: engines, Services, routers.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "--kubeconfig", help="file with credentials; default: the pod's, then KUBECONFIG"
    )
    p.add_argument("--namespaces", help="comma-separated list to watch; default: all of them")
    p.add_argument(
        "--leader-elect",
        choices=("true", "false"),
        help="compete for the Lease before doing anything; default: true",
    )
    p.add_argument("--lease-namespace", help="namespace of the Lease; default: the pod's")
    p.add_argument(
        "--resync-seconds",
        type=_seconds,
        metavar="S",
        help="between full lists, which find what no watch has told; default: 60",
    )
    p.add_argument("--engine-image", help="image of engines whose spec names none")
    p.add_argument("--router-image", help="image of the routers")
    p.add_argument("--host", default="0.0.0.0", help="address of probes and metrics")  # noqa: S104 - a pod
    p.add_argument("--port", type=int, default=names.OPERATOR_METRICS_PORT, help="their port")
    p.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    p.add_argument("--log-format", default="auto", choices=("auto", "text", "json"))
    p.add_argument("--print-rbac", action="store_true", help="print the needed rights and exit")
    return p


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1.0 <= seconds <= 86400.0:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 86400")
    return seconds


def options(arguments: argparse.Namespace) -> Options:
    """Options from the command line; those not given come from the environment.

    Raises:
        ValueError: an environment variable has an invalid value; the error names it.

    """
    config = OperatorConfig.from_env(os.environ)
    if arguments.namespaces is not None:
        namespaces = tuple(n.strip() for n in arguments.namespaces.split(",") if n.strip())
        config = replace(config, namespaces=namespaces)
    config = replace(
        config,
        resync_s=arguments.resync_seconds or config.resync_s,
        engine_image=arguments.engine_image or config.engine_image,
        router_image=arguments.router_image or config.router_image,
    )
    elect = arguments.leader_elect or os.environ.get("YAIE_LEADER_ELECT") or "true"
    pod = os.environ.get("YAIE_POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
    return Options(
        config=config,
        kubeconfig=arguments.kubeconfig,
        leader_elect=elect.lower() == "true",
        lease_namespace=(
            arguments.lease_namespace or os.environ.get("YAIE_POD_NAMESPACE") or "default"
        ),
        identity=pod,
        host=arguments.host,
        port=arguments.port,
    )


async def serve(chosen: Options) -> int:
    """Run until SIGTERM or SIGINT, and return the exit code."""
    from yaie_operator.process import OperatorProcess

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await OperatorProcess(
        chosen.config,
        kubeconfig=chosen.kubeconfig,
        lease=(chosen.lease_namespace, chosen.identity) if chosen.leader_elect else None,
        host=chosen.host,
        port=chosen.port,
    ).run(stop)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if arguments.print_rbac:
        from yaie_operator import rbac

        sys.stdout.write(json.dumps(rbac.ALL, indent=2) + "\n")
        return 0
    try:
        chosen = options(arguments)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    logs.configure(level=arguments.log_level.upper(), log_format=arguments.log_format)
    garbage.look_rarely()
    return asyncio.run(serve(chosen))


if __name__ == "__main__":
    raise SystemExit(main())
