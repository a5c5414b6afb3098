"""The flags of a chat, which `yaie chat` and `yaie run` share."""

import argparse
import sys
from typing import Final

from yaie.cli.local.files import standard_input
from yaie.cli.values import integer, number, positive

SAMPLING: Final = ("max_tokens", "temperature", "top_p", "seed")
PASSED_ON: Final = ("system", "prompt", *SAMPLING)
"""Flags that `yaie run` gives to the `yaie chat` that it starts."""


def add_message_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("--prompt", metavar="TEXT", help="send this, print the answer and end")


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag("--max-tokens", type=positive, metavar="N", help="longest answer")
    flag("--temperature", type=number, metavar="T", help="0: always the likeliest token")
    flag("--top-p", type=number, metavar="P", help="only the likeliest tokens, P in sum")
    flag("--seed", type=integer, metavar="N", help="the same seed gives the same answer")


def piped_prompt(given: str | None) -> str | None:
    """The prompt if a single answer is requested; None for a conversation on the terminal."""
    if given is not None:
        return given
    return None if sys.stdin.isatty() else standard_input()
