"""`yaie fake-engine`: the real server over scripted answers, for load tests without a model."""

import argparse
import os
from typing import TYPE_CHECKING

from yaie.cli import serve_flags
from yaie.cli.access_flags import add_key_flags, api_keys
from yaie.cli.values import integer, not_negative, port, positive
from yaie_api.errors import InvalidRequestError

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Serve what `yaie serve` serves, without a model: answers are always the same words, at the times
that the flags say. So routers, clients and dashboards can be tried under load on any machine.
Requests are checked, templates rendered and metrics counted as by a real engine. MODEL gives the
tokenizer and the chat template; its weights are not read. POST /fail changes the failures while it
runs: its body has the words of --fail, and an empty one ends them.
"""


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "fake-engine",
        help="serve scripted answers, for load tests without a model",
        description=DESCRIPTION,
    )
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", default="builtin://yaie-demo", help="%(default)s"
    )
    _add_script_flags(parser.add_argument_group("script"))
    http = parser.add_argument_group("HTTP")
    http.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to listen (default: %(default)s)",
    )
    http.add_argument(
        "--port", type=port, default=8000, help="0 picks a free one (default: %(default)s)"
    )
    serve_flags.add_name_flag(http)
    add_key_flags(http, several=True)
    http.add_argument(
        "--shutdown-timeout",
        type=not_negative,
        default=5.0,
        metavar="SECONDS",
        help="how long running requests may take after SIGTERM (default: %(default)g)",
    )
    serve_flags.add_keep_alive_flag(http)
    serve_flags.add_tracing_flag(http)
    serve_flags.add_log_flags(parser.add_argument_group("logs"))
    parser.set_defaults(run=run)


def _add_script_flags(group: "argparse._ArgumentGroup") -> None:
    from yaie.server.fake.script import KINDS, Fault, Script

    def fault(text: str) -> Fault:
        try:
            return Fault.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    flag = group.add_argument
    flag(
        "--ttft",
        type=not_negative,
        default=Script.ttft_s,
        metavar="SECONDS",
        help="until the first token (default: %(default)g)",
    )
    flag(
        "--itl",
        type=not_negative,
        default=Script.itl_s,
        metavar="SECONDS",
        help="between two tokens (default: %(default)g)",
    )
    flag(
        "--output-tokens",
        type=positive,
        default=Script.output_tokens,
        metavar="N",
        help="length of an answer, unless the client asks for less (default: %(default)s)",
    )
    flag(
        "--max-num-seqs",
        type=positive,
        default=Script.max_num_seqs,
        metavar="N",
        help="requests that are answered at a time, the others wait (default: %(default)s)",
    )
    flag(
        "--max-model-len",
        type=positive,
        default=131_072,
        metavar="N",
        help="longest context (default: %(default)s)",
    )
    told = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    flag(
        "--fail",
        type=fault,
        nargs="+",
        default=[],
        metavar="KIND:SHARE",
        help=f"let this share of the requests fail. {told}",
    )
    flag("--seed", type=integer, help="of what chooses them (default: a new one each time)")


def run(args: argparse.Namespace) -> int:
    """Serve until a signal.

    Raises:
        InvalidRequestError: there is no such model, or the flags do not fit together.

    """
    from yaie.cli.commands.serve import tracing_from
    from yaie.logging import setup
    from yaie.server.fake.run import serve
    from yaie.server.fake.script import Script
    from yaie.server.options import ServeOptions

    if sum(fault.share for fault in args.fail) > 1 + 1e-9:
        raise InvalidRequestError("--fail: the shares are more than 1 together.", param="fail")
    setup(args.log_level, args.log_format)
    options = ServeOptions(
        command=_no_process,
        names=tuple(args.served_model_name),
        host=args.host,
        port=args.port,
        drain_s=args.shutdown_timeout,
        api_keys=api_keys(args.api_key, args.api_key_file, os.environ),
        sse_keep_alive_s=args.sse_keep_alive_interval,
        log_prompts=args.log_prompts,
        tracing=tracing_from(args),
    )
    script = Script(
        ttft_s=args.ttft,
        itl_s=args.itl,
        output_tokens=args.output_tokens,
        max_num_seqs=args.max_num_seqs,
        faults=tuple(args.fail),
    )
    return serve(options, script, args.model, max_model_len=args.max_model_len, seed=args.seed)


def _no_process(address: str) -> list[str]:
    """Stand in for the command of an engine process, for which `fake.run` never asks."""
    raise NotImplementedError(f"a fake engine starts no process at {address}")
