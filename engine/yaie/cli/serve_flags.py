"""The flags of `yaie serve`, in groups that other commands use too. Names are vLLM's.

Each engine flag is named after its field of `EngineConfig`.
"""

import argparse
from pathlib import Path
from typing import Final

from yaie.cli.values import integer, not_negative, port, positive, share

ENV_API_KEY: Final = "YAIE_API_KEY"


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
        type=positive,
        default=1,
        metavar="N",
        help="HTTP processes that share the port and the engine (default: %(default)s)",
    )
    add_name_flag(group)
    flag(
        "--api-key",
        nargs="+",
        default=[],
        metavar="KEY",
        help=f"accept only requests with one of these keys (or set {ENV_API_KEY})",
    )
    flag(
        "--shutdown-timeout",
        type=not_negative,
        default=30.0,
        metavar="SECONDS",
        help="how long running requests may take after SIGTERM (default: %(default)g)",
    )
    flag(
        "--sse-keep-alive-interval",
        type=not_negative,
        default=0.0,
        metavar="SECONDS",
        help="send a comment in a stream that is silent for so long; 0: never "
        "(default: %(default)g)",
    )
    tenants = group.add_mutually_exclusive_group()
    tenants.add_argument(
        "--tenant-header",
        metavar="NAME",
        help="request header that names the tenant; only behind a proxy that sets it",
    )
    tenants.add_argument(
        "--tenant-per-api-key", action="store_true", help="each API key is a tenant of its own"
    )


def add_name_flag(group: "argparse._ArgumentGroup") -> None:
    """Names of the model; requests may use any of them."""
    group.add_argument(
        "--served-model-name",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names that clients use; the first one is in the answers",
    )


def add_answer_flags(group: "argparse._ArgumentGroup") -> None:
    """How requests are read and answers are written, with or without a server."""
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
    flag = group.add_argument
    flag("--revision", metavar="NAME", help="branch, tag or commit of an hf:// model")
    flag(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto: a GPU where there is one (default: %(default)s)",
    )
    flag(
        "--dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
        help="auto: the checkpoint's own on a GPU, float32 on a CPU (default: %(default)s)",
    )
    flag(
        "--max-model-len",
        type=positive,
        metavar="TOKENS",
        help="longest prompt and answer together (default: the model's own limit)",
    )
    flag(
        "--max-num-seqs",
        type=positive,
        metavar="N",
        help="most sequences that run at once (default: 1024 on a GPU of 70 GiB or more, else 256)",
    )
    flag(
        "--max-num-batched-tokens",
        type=positive,
        metavar="TOKENS",
        help="most tokens of one step (default: by device)",
    )
    flag(
        "--max-num-queued-reqs",
        type=positive,
        default=2048,
        metavar="N",
        help="requests that may wait; more get 429 (default: %(default)s)",
    )
    flag(
        "--gpu-memory-utilization",
        type=share,
        default=0.9,
        metavar="SHARE",
        help="share of the GPU's memory to use (default: %(default)g)",
    )
    flag(
        "--kv-cache-tokens",
        type=positive,
        metavar="TOKENS",
        help="size of the KV cache (default: what the memory holds)",
    )
    flag(
        "--block-size",
        "--page-size",
        dest="page_size",
        type=positive,
        default=16,
        metavar="TOKENS",
        help="tokens in one KV page (default: %(default)s)",
    )
    flag(
        "--swap-space-gib",
        "--swap-space",
        type=not_negative,
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
        type=not_negative,
        metavar="SECONDS",
        help="end a request with an error after this long (default: no limit)",
    )
    flag(
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep what was computed for later prompts that begin alike (default: on)",
    )
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
        type=integer,
        default=20,
        metavar="N",
        help="most log-probabilities per token that a request may ask for; -1: all "
        "(default: %(default)s)",
    )
    flag(
        "--max-grammars",
        type=positive,
        default=2,
        metavar="N",
        help="structured outputs compiled at the same time (default: %(default)s)",
    )
    flag("--enforce-eager", action="store_true", help="never capture CUDA graphs")
    flag(
        "--seed",
        type=integer,
        metavar="N",
        help="seed of requests that name none (default: a new one for each)",
    )
    flag(
        "--step-time-target-s",
        type=not_negative,
        metavar="SECONDS",
        help="prefill chunks keep steps with decodes near this, as long as that keeps up with what "
        "arrives (default: 0.05 on a CPU, by device and model on a GPU)",
    )
    flag(
        "--cpu-threads",
        type=positive,
        metavar="N",
        help="threads that compute on the CPU (default: cores - 1)",
    )


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
