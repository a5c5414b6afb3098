"""`yaie chat`: a conversation with a model behind any OpenAI-compatible endpoint.

On a terminal it is an interactive loop with history and commands; with `--prompt` or piped input it
prints one answer and ends.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from yaie.cli.chat import flags
from yaie_api.names import ENV_API_KEY

if TYPE_CHECKING:
    from yaie.cli.chat.client import ChatOptions
    from yaie.cli.main import Subparsers

ENV_ENDPOINT = "YAIE_ENDPOINT"
DEFAULT_ENDPOINT = "http://127.0.0.1:8000"
DESCRIPTION = """\
Chat with a model. Ctrl-C stops an answer, /bye or Ctrl-D ends the program. What you write is kept
in ~/.local/state/yaie/chat_history, unless YAIE_NOHISTORY is set.
"""


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "chat",
        help="chat with a model behind an OpenAI-compatible endpoint",
        description=DESCRIPTION,
    )
    flag = parser.add_argument
    flag(
        "--endpoint",
        default=os.environ.get(ENV_ENDPOINT, DEFAULT_ENDPOINT),
        metavar="URL",
        help=f"where to connect (default: {DEFAULT_ENDPOINT}, or {ENV_ENDPOINT})",
    )
    flag("--model", metavar="NAME", help="default: the first model that the endpoint lists")
    flag("--api-key", metavar="KEY", help=f"or set {ENV_API_KEY}")
    flag("--ca-file", metavar="FILE", help="PEM of whom to trust, for https (or SSL_CERT_FILE)")
    flags.add_message_flags(parser)
    flags.add_sampling_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return talk(args, flags.piped_prompt(args.prompt))


def talk(args: argparse.Namespace, prompt: str | None) -> int:
    """Print the answer to a prompt, or hold a conversation (None), and return the exit status."""
    import asyncio

    options = options_of(args)
    if prompt is None:
        from yaie.cli.chat.repl import converse

        return asyncio.run(converse(options))
    if not prompt.strip():
        print("yaie chat: no prompt: give --prompt or write to standard input.", file=sys.stderr)
        return 2
    from yaie.cli.chat.once import answer_once

    return asyncio.run(answer_once(options, prompt))


def options_of(args: argparse.Namespace) -> "ChatOptions":
    from yaie.cli.chat.client import ChatOptions

    return ChatOptions(
        endpoint=args.endpoint,
        model=args.model,
        api_key=args.api_key or os.environ.get(ENV_API_KEY),
        system=args.system,
        ca_file=getattr(args, "ca_file", None),
        sampling={n: v for n in flags.SAMPLING if (v := getattr(args, n)) is not None},
    )
