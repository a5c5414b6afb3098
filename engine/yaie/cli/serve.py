"""`yaie serve MODEL`: one model behind an OpenAI-compatible API. Flags have vLLM's names."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers
    from yaie.config import EngineConfig

ENV_API_KEY = "YAIE_API_KEY"
DESCRIPTION = """\
Serve one model. MODEL is builtin://NAME, hf://org/name[@revision] or a local folder with
safetensors weights. The server listens at once; GET /readyz says when the model is loaded.
"""


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "serve", help="serve one model with an OpenAI-compatible API", description=DESCRIPTION
    )
    parser.add_argument("model", metavar="MODEL")
    _add_http_flags(parser.add_argument_group("HTTP"))
    _add_engine_flags(parser.add_argument_group("engine"))
    _add_log_flags(parser.add_argument_group("logs"))
    parser.set_defaults(run=run)


def _add_http_flags(group: "argparse._ArgumentGroup") -> None:
    flag = group.add_argument
    flag("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    flag("--port", type=_port, default=8000, help="0 picks a free one (default: %(default)s)")
    flag(
        "--served-model-name",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names that clients use; the first one is in the answers",
    )
    flag(
        "--api-key",
        nargs="+",
        default=[],
        metavar="KEY",
        help=f"accept only requests with one of these keys (or set {ENV_API_KEY})",
    )
    flag(
        "--generation-config",
        choices=("auto", "vllm"),
        default="auto",
        help="auto: sampling defaults from the checkpoint; vllm: neutral ones",
    )
    flag(
        "--shutdown-timeout",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long running requests may take after SIGTERM (default: %(default)g)",
    )


def _add_engine_flags(group: "argparse._ArgumentGroup") -> None:
    flag = group.add_argument
    flag("--revision", help="revision of an hf:// model")
    flag("--device", choices=("auto", "cpu", "cuda"), default="auto")
    flag("--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto")
    flag("--max-model-len", type=_positive, metavar="TOKENS", help="longest sequence")
    flag(
        "--max-num-seqs",
        type=_positive,
        default=256,
        metavar="N",
        help="most sequences that run at once (default: %(default)s)",
    )
    flag(
        "--max-num-batched-tokens", type=_positive, metavar="TOKENS", help="upper bound of one step"
    )
    flag(
        "--max-num-queued-reqs",
        type=_positive,
        default=2048,
        metavar="N",
        help="requests that may wait; more get 429 (default: %(default)s)",
    )
    flag(
        "--gpu-memory-utilization",
        type=_share,
        default=0.9,
        metavar="SHARE",
        help="share of the GPU's memory to use (default: %(default)g)",
    )
    flag("--kv-cache-tokens", type=_positive, metavar="TOKENS", help="size of the KV cache")
    flag(
        "--block-size",
        "--page-size",
        dest="page_size",
        type=_positive,
        default=16,
        metavar="TOKENS",
        help="tokens in one KV page (default: %(default)s)",
    )
    flag(
        "--swap-space-gib",
        "--swap-space",
        type=_not_negative,
        default=0.0,
        metavar="GIB",
        help="host memory for preempted requests' pages (default: they are computed again)",
    )
    flag(
        "--scheduling-policy",
        choices=("fcfs", "priority", "longest-prefix", "fair"),
        default="fcfs",
        help="order of waiting requests; fair: by tokens per tenant (default: %(default)s)",
    )
    flag(
        "--request-timeout-s",
        type=_seconds,
        metavar="SECONDS",
        help="end a request with an error after this long (default: no limit)",
    )
    flag("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    flag(
        "--load-format",
        choices=("auto", "dummy"),
        default="auto",
        help="dummy: random weights, for benchmarks",
    )
    flag(
        "--model-impl",
        choices=("auto", "yaie", "transformers"),
        default="auto",
        help="auto: native where there is one, otherwise transformers",
    )
    flag(
        "--mla-form",
        choices=("auto", "absorbed", "latent", "naive"),
        default="auto",
        help="how latent attention (DeepSeek) is computed",
    )
    flag("--tokenizer", metavar="FOLDER", help="where the tokenizer is, if not with the model")
    flag(
        "--pooling",
        choices=("auto", "last", "mean"),
        default="auto",
        help="how embeddings are made (auto: as the checkpoint says, else last token)",
    )
    flag(
        "--max-logprobs",
        type=int,
        default=20,
        metavar="N",
        help="most log-probabilities per token that a request may ask for; -1: all",
    )
    flag(
        "--max-grammars",
        type=_positive,
        default=2,
        metavar="N",
        help="structured outputs compiled at the same time (default: %(default)s)",
    )
    flag("--enforce-eager", action="store_true", help="never capture CUDA graphs")
    flag("--seed", type=int)
    flag(
        "--step-time-target-s",
        type=_seconds,
        default=0.05,
        metavar="SECONDS",
        help="prefill chunks keep steps with decodes near this (default: %(default)g)",
    )
    flag("--cpu-threads", type=_positive, metavar="N", help="torch threads on the CPU")


def _add_log_flags(group: "argparse._ArgumentGroup") -> None:
    flag = group.add_argument
    flag("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    flag(
        "--log-format",
        choices=("auto", "text", "json"),
        default="auto",
        help="auto: text on a terminal, JSON lines otherwise",
    )
    flag("--log-prompts", action="store_true", help="log prompts and outputs; they may be private")


def run(args: argparse.Namespace) -> int:
    from yaie.logging import setup
    from yaie.server.run import ServeOptions, serve

    setup(args.log_level, args.log_format)
    return serve(
        ServeOptions(
            command=engine_command(engine_config(args), args.log_level, args.log_format),
            host=args.host,
            port=args.port,
            names=tuple(args.served_model_name),
            api_keys=api_keys(args.api_key, os.environ.get(ENV_API_KEY)),
            drain_s=args.shutdown_timeout,
            use_generation_config=args.generation_config == "auto",
            log_prompts=args.log_prompts,
        )
    )


def engine_config(args: argparse.Namespace) -> "EngineConfig":
    """The engine's configuration: each flag is named after its field."""
    from msgspec.structs import fields

    from yaie.config import EngineConfig

    given = vars(args) | {"served_model_name": next(iter(args.served_model_name), None)}
    return EngineConfig(**{f.name: given[f.name] for f in fields(EngineConfig) if f.name in given})


def engine_command(
    config: "EngineConfig", log_level: str, log_format: str
) -> Callable[[str], Sequence[str]]:
    """The argument list of an engine process that connects to an address."""
    import msgspec

    encoded = msgspec.json.encode(config).decode()
    program = [sys.executable, "-m", "yaie.runtime.process", "--config", encoded]
    logs = ["--log-level", log_level, "--log-format", log_format]
    return lambda address: [*program, *logs, "--address", address]


def api_keys(flags: Sequence[str], environment: str | None) -> tuple[str, ...]:
    """Keys from the flags, else from the environment; an empty one protects nothing."""
    return tuple(key for key in (flags or [environment or ""]) if key)


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is not a port")
    return port


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is negative or not a number")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not in (0, 1]")
    return value
