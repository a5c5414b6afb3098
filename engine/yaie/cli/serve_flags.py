"""The flags of `yaie serve`, in groups that other commands also use. Names are vLLM's.

The engine's flags are derived from `yaie_api.engine_config`.
"""

import argparse
from pathlib import Path
from typing import Any

from yaie.cli.access_flags import add_cors_flags, add_key_flags
from yaie.cli.values import not_negative, port, positive, value_of
from yaie_api.engine_config import settings


def add_http_flags(group: "argparse._ArgumentGroup") -> None:
    flag = group.add_argument
    flag(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to listen (default: %(default)s)",
    )
    flag("--port", type=port, default=8000, help="0 picks a free one (default: %(default)s)")
    flag(
        "--admin-port",
        type=port,
        metavar="PORT",
        help="listen here for control endpoints: reset_prefix_cache, load, server_info "
        "(default: nowhere)",
    )
    flag(
        "--admin-host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address of the admin port (default: %(default)s)",
    )
    flag(
        "--api-server-count",
        "-asc",
        type=positive,
        default=1,
        metavar="N",
        help="HTTP processes that share the port and the engine (default: %(default)s)",
    )
    add_name_flag(group)
    add_key_flags(group, several=True)
    add_cors_flags(group)
    flag(
        "--shutdown-timeout",
        type=not_negative,
        default=30.0,
        metavar="SECONDS",
        help="how long running requests may take after SIGTERM (default: %(default)g)",
    )
    add_keep_alive_flag(group)
    flag(
        "--enable-vllm-metrics",
        action="store_true",
        help="show metrics under vLLM's names, too, for dashboards and tools that know them",
    )
    add_tracing_flag(group)
    tenants = group.add_mutually_exclusive_group()
    tenants.add_argument(
        "--tenant-header",
        metavar="NAME",
        help="request header that names the tenant; only behind a proxy that sets it",
    )
    tenants.add_argument(
        "--tenant-per-api-key", action="store_true", help="each API key is a tenant of its own"
    )


def add_keep_alive_flag(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--sse-keep-alive-interval",
        type=not_negative,
        default=0.0,
        metavar="SECONDS",
        help="send a comment in a stream that is silent for so long; 0: never "
        "(default: %(default)g)",
    )


def add_tracing_flag(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--otlp-traces-endpoint",
        metavar="URL",
        help="send traces there by OTLP over HTTP, such as http://collector:4318; OpenTelemetry's "
        "OTEL_ variables work, too (default: no traces)",
    )


def add_name_flag(group: "argparse._ArgumentGroup") -> None:
    """Add the flag for the model's names, all of which requests may use."""
    group.add_argument(
        "--served-model-name",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names that clients use; the first one is in the answers",
    )


def add_answer_flags(group: "argparse._ArgumentGroup") -> None:
    """Add flags for reading requests and writing answers, which also apply without a server."""
    flag = group.add_argument
    flag(
        "--generation-config",
        choices=("auto", "vllm"),
        default="auto",
        help="auto: sampling defaults from the checkpoint; vllm: neutral ones "
        "(default: %(default)s)",
    )
    flag(
        "--chat-template",
        type=Path,
        metavar="FILE",
        help="a jinja template to use instead of the model's own",
    )
    flag(
        "--enable-auto-tool-choice",
        action="store_true",
        help="accepted for vLLM's sake: models may always call the tools of a request",
    )
    flag(
        "--tool-call-parser",
        metavar="NAME",
        help="how the model writes tool calls: hermes, llama3_json, mistral, deepseek_v3, … "
        "(default: as its chat template says)",
    )
    flag(
        "--reasoning-parser",
        metavar="NAME",
        help="how the model marks its reasoning: deepseek_r1, qwen3, mistral, … "
        "(default: as its chat template says)",
    )


def add_engine_flags(group: "argparse._ArgumentGroup") -> None:
    """Add one flag per setting of the engine."""
    for known in settings().values():
        told = f" (default: {known.told_default})" if known.told_default else ""
        help_ = f"{known.setting.help}{told}".replace("%", "%%")
        names = (*known.setting.flags, known.flag)
        more: dict[str, Any] = {"dest": known.name, "default": known.default, "help": help_}
        if known.kind is bool:
            more["action"] = argparse.BooleanOptionalAction if known.default else "store_true"
        elif known.choices:
            more |= {"choices": known.choices, "type": value_of(known)}
        else:
            more |= {"metavar": known.setting.unit, "type": value_of(known)}
        group.add_argument(*names, **more)


def add_log_flags(group: "argparse._ArgumentGroup", *, level: str = "info") -> None:
    flag = group.add_argument
    flag(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default=level,
        help="least severity that is logged (default: %(default)s)",
    )
    flag(
        "--log-format",
        choices=("auto", "text", "json"),
        default="auto",
        help="auto: text on a terminal, JSON lines otherwise",
    )
    flag("--log-prompts", action="store_true", help="log prompts and outputs; they may be private")
