"""`yaie serve MODEL`: serve one model with an OpenAI-compatible API. Flags have vLLM's names."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.cli import foreign_flags, serve_flags
from yaie.cli.access_flags import SECRETS, access_of
from yaie.cli.local.named_models import names_of, with_scheme
from yaie_api.errors import InvalidRequestError
from yaie_api.foreign_settings.ollama import model_problem
from yaie_api.names import ENV_POD_NAME, ENV_PREFIX_KEY
from yaie_api.response_id import mark_of_pod
from yaie_api.tracing.settings import tracing_of

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers
    from yaie.server.options import ServeOptions
    from yaie_api.engine_config import EngineConfig
    from yaie_api.tracing.settings import Tracing

DESCRIPTION = """\
Serve one model. MODEL is a name of the hub (ORG/NAME[@REVISION]), builtin://NAME or a local folder
with safetensors weights. The server listens at once; GET /readyz says when the model is loaded.
"""


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "serve", help="serve one model with an OpenAI-compatible API", description=DESCRIPTION
    )
    parser.add_argument("model", metavar="MODEL")
    serve_flags.add_http_flags(parser.add_argument_group("HTTP"))
    serve_flags.add_answer_flags(parser.add_argument_group("answers"))
    serve_flags.add_engine_flags(parser.add_argument_group("engine"))
    serve_flags.add_log_flags(parser.add_argument_group("logs"))
    foreign_flags.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from yaie.logging import setup
    from yaie.server.process.run import serve

    setup(args.log_level, args.log_format)
    foreign_flags.log_notes(args, os.environ)
    return serve(serve_options(args))


def serve_options(args: argparse.Namespace) -> "ServeOptions":
    """The options of the HTTP process, from the flags.

    Raises:
        InvalidRequestError: a parser or the chat template does not exist, or it is none; the key
            of the prefix keys is wrong; or traces cannot be exported in the way that is asked for.

    """
    access = access_of(args, os.environ)
    return replace(
        batch_options(args),
        host=args.host,
        port=args.port,
        api_keys=access.keys,
        cors=access.cors,
        admin_host=args.admin_host,
        admin_port=args.admin_port,
        api_server_count=args.api_server_count,
        drain_s=args.shutdown_timeout,
        sse_keep_alive_s=args.sse_keep_alive_interval,
        tenant_header=args.tenant_header and args.tenant_header.lower(),
        tenants_by_key=args.tenant_per_api_key,
        vllm_metrics=args.enable_vllm_metrics,
        tracing=tracing_from(args),
        response_mark=mark_of_pod(os.environ.get(ENV_POD_NAME, "")),
        settings=settings(args),
        prefix_key=prefix_key(os.environ.get(ENV_PREFIX_KEY, "")),
    )


def tracing_from(args: argparse.Namespace) -> "Tracing | None":
    """How traces are exported, from the flag and the environment; None: there are none.

    Raises:
        InvalidRequestError: they cannot be exported in that way.

    """
    try:
        return tracing_of(args.otlp_traces_endpoint, os.environ)
    except ValueError as error:
        raise InvalidRequestError(f"{error}.") from None


def batch_options(args: argparse.Namespace) -> "ServeOptions":
    """The options that do not concern HTTP, from the flags: the engine and the form of answers.

    Raises:
        InvalidRequestError: a parser or the chat template does not exist, or it is none.

    """
    from yaie.server.options import ServeOptions
    from yaie.text import reasoning, tools

    tools.format_for(None, args.tool_call_parser)
    reasoning.format_for(None, args.reasoning_parser)
    if args.chat_template is not None:
        from yaie.text.prompt.template import check_template_file

        check_template_file(args.chat_template)
    config = engine_config(args)
    return ServeOptions(
        command=engine_command(config, args.log_level, args.log_format),
        names=tuple(args.served_model_name) or names_of(args.model),
        use_generation_config=args.generation_config == "auto",
        log_prompts=args.log_prompts,
        chat_template=args.chat_template,
        tool_call_parser=args.tool_call_parser,
        reasoning_parser=args.reasoning_parser,
        priorities=config.scheduling_policy == "priority",
    )


def prefix_key(text: str) -> bytes:
    """Read the secret of the prefix keys.

    Raises:
        InvalidRequestError: it is not hexadecimal, or too long. The message does not show it.

    """
    from yaie_api.prefix import key_of

    try:
        return key_of(text)
    except ValueError:
        told = f"{ENV_PREFIX_KEY} must be hexadecimal digits of at most 64 bytes."
        raise InvalidRequestError(told) from None


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """The flags for the admin port's /server_info: all except the API keys."""
    hidden = ("run", *SECRETS, foreign_flags.NOTES)
    shown = {name: value for name, value in vars(args).items() if name not in hidden}
    return {name: str(v) if isinstance(v, Path) else v for name, v in shown.items()}


def engine_config(args: argparse.Namespace) -> "EngineConfig":
    """The engine's configuration, from the flags that have the names of its fields.

    Raises:
        InvalidRequestError: the model is a name of Ollama's or a GGUF file.

    """
    from msgspec.structs import fields

    from yaie_api.engine_config import EngineConfig

    if told := model_problem(args.model):
        raise InvalidRequestError(told, param="model")
    given = vars(args) | {"model": with_scheme(args.model)}
    given["served_model_name"] = next(iter(args.served_model_name), None)
    return EngineConfig(**{f.name: given[f.name] for f in fields(EngineConfig) if f.name in given})


def engine_command(
    config: "EngineConfig", log_level: str, log_format: str
) -> Callable[[str], Sequence[str]]:
    """A function that returns the argument list of an engine process for an address."""
    import msgspec

    encoded = msgspec.json.encode(config).decode()
    program = [sys.executable, "-m", "yaie.runtime.process.engine_process", "--config", encoded]
    logs = ["--log-level", log_level, "--log-format", log_format]
    return lambda address: [*program, *logs, "--address", address]
