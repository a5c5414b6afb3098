"""Flags of vLLM and Ollama on our command lines: hidden from the help, answered by the table of
`yaie_api.foreign_settings`. What changes nothing is accepted and told to the log.
"""

import argparse
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from yaie.cli.parser import Parser
from yaie.cli.values import value_of
from yaie_api.engine_config import settings
from yaie_api.foreign_settings.ollama import OLLAMA, unread_variables
from yaie_api.foreign_settings.verdict import Foreign, Mapped, Refused
from yaie_api.foreign_settings.vllm import VLLM
from yaie_api.logs import fields

log = logging.getLogger(__name__)

NOTES: Final = "foreign_flags"
"""Where the parsed arguments hold the accepted flags, as (flag with value, why) pairs."""


def add(parser: Parser) -> None:
    """Add every flag that the parser does not have. Call it after all of its own were added."""
    for foreign in (*VLLM.values(), *OLLAMA.values()):
        names = [name for name in _names(foreign) if not parser.has(name)]
        if names:
            parser.add_argument(*names, action=_ForeignFlag, foreign=foreign)
    for name in parser.switches():
        if not name.startswith("no-") and not parser.has(f"--no-{name}"):
            parser.add_argument(
                f"--no-{name}",
                dest=name.replace("-", "_"),
                action="store_false",
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )
    parser.set_defaults(**{NOTES: ()})


def log_notes(args: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Tell the log which flags were accepted and change nothing, and which variables of Ollama are
    set and not read.
    """
    for flag, why in getattr(args, NOTES):
        log.info("a flag changes nothing", extra=fields(flag=flag, reason=why))
    for name, instead in unread_variables(environment).items():
        log.info("a variable is not read", extra=fields(variable=name, instead=instead))


def _names(foreign: Foreign) -> list[str]:
    names = [*foreign.short, foreign.flag]
    return [*names, f"--no-{foreign.flag[2:]}"] if foreign.is_switch else names


class _ForeignFlag(argparse.Action):
    """Answers a flag at once: with the rest of the line unread, its own message comes first."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, foreign: Foreign) -> None:
        nargs: int | str | None = "+" if foreign.several else None
        super().__init__(
            option_strings,
            dest,
            nargs=0 if foreign.is_switch else nargs,
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )
        self._foreign = foreign

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        flag = option_string or self._foreign.flag
        given = not flag.startswith("--no-") if self._foreign.is_switch else values
        shown = flag if self._foreign.is_switch else f"{flag} {_shown(values)}"
        verdict = self._foreign.verdict(given)
        if isinstance(verdict, Refused):
            parser.error(f"{shown}: {verdict.why}")
        if isinstance(verdict, Mapped):
            setattr(namespace, verdict.ours, _parsed(parser, shown, verdict))
        else:
            notes = getattr(namespace, NOTES, ())
            setattr(namespace, NOTES, (*notes, (shown, verdict.why)))


def _parsed(parser: argparse.ArgumentParser, shown: str, verdict: Mapped) -> Any:
    """A value for our setting, checked as our own flag's would be."""
    if not isinstance(verdict.value, str):
        return verdict.value
    try:
        return value_of(settings()[verdict.ours])(verdict.value)
    except argparse.ArgumentTypeError as error:
        parser.error(f"{shown}: {error}")


def _shown(values: Any) -> str:
    return " ".join(values) if isinstance(values, list) else str(values)
