"""`yaie chat`: a conversation with a model behind any OpenAI-compatible endpoint.

On a terminal it is an interactive loop with history and commands; with `--prompt` or piped input it
prints one answer and ends.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from yaie.cli.local.files import standard_input
from yaie.cli.values import integer, number, positive
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
    flag("--system", metavar="TEXT", help="system message")
    flag("--prompt", metavar="TEXT", help="send this, print the answer and end")
    flag("--max-tokens", type=positive, metavar="N", help="longest answer")
    flag("--temperature", type=number, metavar="T", help="0: always the likeliest token")
    flag("--top-p", type=number, metavar="P", help="only the likeliest tokens, P in sum")
    flag("--seed", type=integer, metavar="N", help="the same seed gives the same answer")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import asyncio

    options = options_of(args)
    prompt = _single_prompt(args.prompt)
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

    names = ("max_tokens", "temperature", "top_p", "seed")
    return ChatOptions(
        endpoint=args.endpoint,
        model=args.model,
        api_key=args.api_key or os.environ.get(ENV_API_KEY),
        system=args.system,
        sampling={n: v for n in names if (v := getattr(args, n)) is not None},
    )


def _single_prompt(given: str | None) -> str | None:
    """The prompt if a single answer is requested; None for a conversation on the terminal."""
    if given is not None:
        return given
    return None if sys.stdin.isatty() else standard_input()
