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
    """A parser that refuses abbreviated flags: a later version may make them ambiguous.

    Attributes:
        takes_command: what follows `--` is another program's command line: `command`.

    """

    takes_command = False

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
        """As in argparse, but the subcommand's parser reports unknown arguments itself, and `_` in
        a flag's name may stand for `-`, as in vLLM.
        """
        given = list(sys.argv[1:] if args is None else args)
        own = given.index("--") if "--" in given else len(given)  # the rest is another program's
        spelled = [self._spelled(argument) for argument in given[:own]]
        if self.takes_command:
            found, unknown = super().parse_known_args(spelled, namespace)
            found.command = given[own + 1 :]
        else:
            found, unknown = super().parse_known_args(spelled + given[own:], namespace)
        if unknown:
            self.error(f"unknown argument {unknown[0]}{self._hint(unknown[0])}")
        return found, unknown

    def has(self, flag: str) -> bool:
        """Whether the parser knows a flag."""
        return flag in self._option_string_actions

    def switches(self) -> list[str]:
        """Names of the flags that can only be turned on, without their dashes."""
        flags = self._option_string_actions.items()
        return [name[2:] for name, action in flags if _is_switch(action) and name[:2] == "--"]

    def _spelled(self, argument: str) -> str:
        """A flag as this parser has it: `--max_model_len=8` is `--max-model-len=8`, and a field of
        a flag that holds JSON (`--compilation-config.mode`) is that flag.
        """
        flag, *value = argument.split("=", 1)
        if not flag.startswith("--") or self.has(flag):
            return argument
        known = flag.partition(".")[0].replace("_", "-")
        return "=".join((known, *value)) if self.has(known) else argument

    def _hint(self, flag: str) -> str:
        import difflib

        known = list(self._option_string_actions)
        near = difflib.get_close_matches(flag.partition("=")[0], known, n=1)
        return f"; did you mean {near[0]}?" if near else ""


def _is_switch(action: argparse.Action) -> bool:
    return action.nargs == 0 and action.const is True and action.default is False
