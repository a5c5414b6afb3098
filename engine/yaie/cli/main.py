"""The `yaie` command: imports only the module of the given subcommand and runs it.

Each subcommand is a module of `yaie.cli.commands` (dashes as underscores), or of its folder `local`
or `advice` where the command is about `yaie up` or only advises, with

    def add_parser(subparsers: Subparsers) -> None   # adds one parser, set_defaults(run=run)
    def run(args: argparse.Namespace) -> int         # the exit status

and one line in `COMMANDS`. At module level it imports only light modules; heavy imports are inside
`run`, so that `yaie --help` takes less than 150 ms.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from yaie.cli.examples import FIRST, as_text, epilog
from yaie.cli.foreign_commands import INSTEAD
from yaie.cli.parser import WRONG_USAGE, Parser, WrongUsageExit
from yaie.extras import is_foreign, missing
from yaie_api import __version__, termination
from yaie_api.errors import YaieError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Parser]  # noqa: SLF001 - its only name

INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""Exit statuses that shells use for SIGINT and SIGPIPE."""
COMMANDS: Final = {
    "run": "chat with a model by its name",
    "up": "run InferenceModels on this machine, without a cluster",
    "chat": "chat with a model behind an OpenAI-compatible endpoint",
    "serve": "serve one model with an OpenAI-compatible API",
    "pull": "download a model of the hub",
    "ls": "list the models on this machine's disk",
    "rm": "delete downloaded models from the disk",
    "ps": "list models and their state",
    "logs": "print the logs of a model's pods",
    "apply": "create or change objects of a running `yaie up`",
    "delete": "delete objects of a running `yaie up`",
    "scale": "set the number of replicas of a model",
    "run-batch": "answer an OpenAI batch file",
    "plan": "compute what a model takes and where it fits",
    "explain": "say why a model is not ready, and what to do",
    "doctor": "check this machine and the cluster for what yaie needs",
    "fake-engine": "serve scripted answers, for load tests without a model",
    "warmup": "compile a model's kernels ahead of the first server",
    "completion": "print a script that completes commands in bash or zsh",
    "version": "print the version",
}
_LOCAL: Final = frozenset({"run", "up", "apply", "delete", "scale", "ps", "logs"})
"""Commands about `yaie up`."""
_ADVICE: Final = frozenset({"plan", "explain", "doctor"})
"""Commands that change nothing: they compute, explain and check."""
_WHOLE: Final = frozenset({"run", "up"})
"""Commands that need the operator, the router and the engine."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status (1: failure, 2: wrong usage)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except YaieError as error:
        print(f"yaie: {error.message}", file=sys.stderr)
        _leave(arguments, error.message)
        return 1
    except ModuleNotFoundError as error:
        return _lacks(error, arguments)
    except WrongUsageExit as wrong:
        _leave(arguments, wrong.sentence)
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader is gone: keep the interpreter from flushing buffered output again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def _run(arguments: Sequence[str]) -> int:
    parser = build_parser(command_of(arguments))
    if arguments and (instead := INSTEAD.get(arguments[0])):
        parser.error(f"there is no command {arguments[0]}: {instead}")
    args = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] | None = getattr(args, "run", None)
    if run is None:
        parser.print_help()
        return WRONG_USAGE
    status = run(args)
    sys.stdout.flush()
    return status


def _lacks(error: ModuleNotFoundError, arguments: Sequence[str]) -> int:
    """Say which of the project's extras a command needs.

    Raises:
        ModuleNotFoundError: a module of our own is missing.

    """
    command = command_of(arguments)
    if not is_foreign(error):
        raise error
    sentence = missing(f"yaie {command}", error, "all" if command in _WHOLE else "engine")
    print(f"yaie: {sentence}", file=sys.stderr)
    _leave(arguments, sentence)
    return 1


def _leave(arguments: Sequence[str], sentence: str) -> None:
    """Say why the command fails, if it is the one that a pod runs: others may run beside it."""
    if command_of(arguments) == "serve":
        termination.leave(sentence)


def command_of(arguments: Sequence[str]) -> str | None:
    """The subcommand on the command line; None if there is none or it is unknown."""
    first = next((a for a in arguments if not a.startswith("-")), None)
    return first if first in COMMANDS else None


def _folder(name: str) -> str:
    """The package that has a command's module."""
    folders = {"yaie.cli.commands.local": _LOCAL, "yaie.cli.commands.advice": _ADVICE}
    return next((f for f, commands in folders.items() if name in commands), "yaie.cli.commands")


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser with `command` fully defined and the other commands by name only."""
    parser = Parser(
        prog="yaie",
        description="LLM inference: one command here, one kubectl apply in a cluster.",
        epilog=f"{as_text(FIRST)}\n\n`yaie COMMAND --help` describes a command.",
    )
    parser.add_argument(
        "-V", "--version", action="version", version=f"yaie {__version__}", help="print the version"
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        if name == command:
            module = importlib.import_module(f"{_folder(name)}.{name.replace('-', '_')}")
            module.add_parser(subparsers)
            subparsers.choices[name].epilog = epilog(name)
        else:
            subparsers.add_parser(name, help=summary)
    return parser
