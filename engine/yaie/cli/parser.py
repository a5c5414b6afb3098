"""The argument parser of all commands: a wrong command line gets one line and a hint, not forty
lines of usage before the message.
"""

import argparse
from collections.abc import Sequence
from typing import Any, Final, NoReturn

WRONG_USAGE: Final = 2
_COLUMN: Final = 28
"""Where the texts of a help begin, at most."""


def help_format(prog: str) -> argparse.HelpFormatter:
    """Examples keep their lines; short names and their texts share one."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=_COLUMN)


class Parser(argparse.ArgumentParser):
    """Flags are never abbreviated: a later version may add one that begins alike."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=help_format, allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message}\nSee {self.prog} --help\n")

    def parse_known_args(  # type: ignore[override]  # its overloads say no more than this
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Unknown arguments are an error of the command that got them."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown argument {unknown[0]}{self._hint(unknown[0])}")
        return found, unknown

    def _hint(self, flag: str) -> str:
        import difflib

        known = list(self._option_string_actions)
        near = difflib.get_close_matches(flag.partition("=")[0], known, n=1)
        return f"; did you mean {near[0]}?" if near else ""
