"""The argument parser of all commands. For a wrong command line it prints one line and a hint
instead of the whole usage.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

WRONG_USAGE: Final = 2
_COLUMN: Final = 28
"""Largest column at which help texts begin."""


def help_format(prog: str) -> argparse.HelpFormatter:
    """A formatter that keeps the line breaks of examples, with help texts beside short flags."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=_COLUMN)


class WrongUsageExit(SystemExit):
    """The end of a command that was called wrongly. `sentence`: what is wrong, in one line."""

    def __init__(self, sentence: str) -> None:
        super().__init__(WRONG_USAGE)
        self.sentence = sentence


class Parser(argparse.ArgumentParser):
    """A parser that refuses abbreviated flags: a later version may make them ambiguous."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=help_format, allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where help is.

        Raises:
            WrongUsageExit: always.

        """
        sentence = f"{self.prog}: {message}"
        self._print_message(f"{sentence}\nSee {self.prog} --help\n", sys.stderr)
        raise WrongUsageExit(sentence)

    def parse_known_args(  # type: ignore[override]  # its overloads say no more than this
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As in argparse, but the subcommand's parser reports unknown arguments itself."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown argument {unknown[0]}{self._hint(unknown[0])}")
        return found, unknown

    def _hint(self, flag: str) -> str:
        import difflib

        known = list(self._option_string_actions)
        near = difflib.get_close_matches(flag.partition("=")[0], known, n=1)
        return f"; did you mean {near[0]}?" if near else ""
