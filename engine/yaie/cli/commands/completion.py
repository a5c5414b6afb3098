"""`yaie completion SHELL`: a script that completes commands, flags and their values in a shell.

Each press of the key asks `yaie completion --words`, so that what is offered is what the parser of
this version knows; names of models come from the `yaie up` that runs.
"""

import argparse
from typing import TYPE_CHECKING, Final

from yaie.cli.local.client import LocalClient, add_state_flags
from yaie_api.errors import YaieError

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Print a script that completes yaie's commands, flags and values. For this shell only:
  source <(yaie completion bash)
For every bash write that line in ~/.bashrc; for every zsh `source <(yaie completion zsh)` in
~/.zshrc, below `autoload -U compinit; compinit`.
"""
BASH: Final = """\
_yaie() {
    local IFS=$'\\n' current="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=($(compgen -W "$(yaie completion --words -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" \\
        2>/dev/null)" -- "$current"))
}
complete -o bashdefault -o default -F _yaie yaie
"""
ZSH: Final = """\
#compdef yaie
_yaie() {
    local -a offered
    offered=(${(f)"$(yaie completion --words -- "${(@)words[2,CURRENT-1]}" 2>/dev/null)"})
    compadd -- $offered
    [[ $PREFIX == -* ]] || _files
}
compdef _yaie yaie
"""
_OF_MODELS: Final = frozenset({"delete", "explain", "scale", "ps", "logs", "run"})
"""Commands whose words are names of models that run."""


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands in bash or zsh",
        description=DESCRIPTION,
        usage="yaie completion {bash,zsh}",
    )
    parser.takes_command = True
    parser.add_argument("shell", nargs="?", choices=("bash", "zsh"))
    parser.add_argument(
        "--words", action="store_true", help="print what may follow the words after --"
    )
    add_state_flags(parser)
    parser.set_defaults(run=run, command=[])


def run(args: argparse.Namespace) -> int:
    if args.words:
        print("\n".join(offered(args.command, args)))
        return 0
    if args.shell is None:
        from yaie.cli.main import build_parser

        build_parser("completion").parse_args(["completion", "--help"])
    print(BASH if args.shell == "bash" else ZSH, end="")
    return 0


def offered(words: list[str], args: argparse.Namespace) -> list[str]:
    """What may follow these words of a command line, `yaie` not among them."""
    from yaie.cli.main import COMMANDS, build_parser, command_of

    command = command_of(words)
    if command is None:
        return [] if words else [*COMMANDS, "--help", "--version"]
    subparsers = build_parser(command)._subparsers  # noqa: SLF001 - argparse's only way
    actions = subparsers._group_actions if subparsers else []  # noqa: SLF001 - same
    choices = actions[0].choices if actions else None
    parser = choices[command] if isinstance(choices, dict) else None
    flags = parser._option_string_actions if parser else {}  # noqa: SLF001 - same
    last = flags.get(words[-1])
    if last is not None and last.nargs != 0:
        return [str(choice) for choice in last.choices or ()]
    positional = [
        str(choice)
        for action in (parser._actions if parser else ())  # noqa: SLF001 - same
        if not action.option_strings
        for choice in action.choices or ()
    ]
    shown = [name for name, action in flags.items() if action.help != argparse.SUPPRESS]
    models = _models(args) if command in _OF_MODELS else []
    return [*positional, *models, *shown]


def _models(args: argparse.Namespace) -> list[str]:
    try:
        return [model["metadata"]["name"] for model in LocalClient.of(args).models(args.namespace)]
    except YaieError:
        return []  # nothing runs: there are no names to offer
