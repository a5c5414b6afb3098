"""`yaie.server.process.run.serve` over the scripted engine, as a program: PORT_FILE STUB_JSON …"""

import argparse
import json
import sys
from pathlib import Path

from yaie.server.options import Limits
from yaie.server.process import run
from yaie.server.web.protocol import DeadlineH11
from yaie_api import logs
from yaie_api.http.access.body import BodyLimits
from yaie_api.http.access.cors import CorsPolicy
from yaie_api.response_id import mark_of_pod


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("port_file", type=Path)
    parser.add_argument("stub")
    parser.add_argument("--api-key", action="append", default=[])
    parser.add_argument("--allowed-origins", nargs="+", default=[])
    parser.add_argument("--drain-s", type=float, default=5.0)
    parser.add_argument("--log-prompts", action="store_true")
    parser.add_argument("--body-s", type=float, default=30.0)
    parser.add_argument("--grace-s", type=float, default=5.0)
    parser.add_argument("--linger-s", type=float, default=0.5)
    parser.add_argument("--header-s", type=float, default=10.0)
    parser.add_argument("--backoff-s", type=float, default=0.3)
    parser.add_argument("--admin", action="store_true")
    parser.add_argument("--silent-s", type=float, default=10.0)
    parser.add_argument("--pod", default="")
    parser.add_argument("--api-server-count", type=int, default=1)
    args = parser.parse_args()
    logs.configure(level="debug")
    DeadlineH11.header_deadline_s = args.header_s
    bind = run.bind

    def bind_and_tell(host: str, port: int, *, shared: bool = False) -> object:
        listener = bind(host, port, shared=shared)
        with args.port_file.open("a") as file:
            file.write(f"{listener.getsockname()[1]}\n")
        return listener

    run.bind = bind_and_tell  # type: ignore[assignment]  # the test learns the port this way
    stub = json.loads(args.stub)
    return run.serve(
        run.ServeOptions(
            command=lambda address: [sys.executable, *stub, "--address", address],
            port=0,
            admin_port=0 if args.admin else None,
            settings={"model": "stub"},
            names=("stub", "alias"),
            api_keys=tuple(args.api_key),
            cors=CorsPolicy(tuple(args.allowed_origins)),
            drain_s=args.drain_s,
            log_prompts=args.log_prompts,
            restart_backoff_s=args.backoff_s,
            silent_s=args.silent_s,
            api_server_count=args.api_server_count,
            response_mark=mark_of_pod(args.pod),
            limits=Limits(
                BodyLimits(4 * 1024 * 1024, most_s=args.body_s, grace_s=args.grace_s),
                linger_s=args.linger_s,
            ),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
