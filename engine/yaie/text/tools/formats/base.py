"""What a tool format is: a parser of the model's calls, and a grammar that makes it write them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

from yaie.core.request import Grammar
from yaie.text.grammar import lark
from yaie.text.grammar.schema import check_schema, is_plain
from yaie.text.parts import OutputParser
from yaie.text.tools.parts import call_id
from yaie.text.tools.spec import ToolChoice, ToolSpec
from yaie_api.errors import InvalidRequestError

MAX_PARALLEL_CALLS: Final = 64
"""Calls that a grammar allows in one answer: a weak model would never stop."""

ANY_OBJECT: Final = {"type": "object"}


class ToolFormat(ABC):
    """How one family of models writes calls. `in_template`: the model's chat template knows tools
    in this form. `markers`: strings that may be special tokens of the vocabulary.
    """

    markers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, *, in_template: bool = True) -> None:
        self.name = name
        self.in_template = in_template

    @staticmethod
    def new_call_id() -> str:
        """An id for a call, as the family's templates take it back."""
        return call_id()

    @abstractmethod
    def parser(self, specs: Sequence[ToolSpec]) -> OutputParser:
        """A reader of one output."""

    @abstractmethod
    def call(self, name: str, arguments: str) -> str:
        """One call, as Lark. `arguments`: the rule of the arguments."""

    @abstractmethod
    def start(self, *, parallel: bool, free: bool) -> str:
        """The whole output, as Lark, from the rules `call`, `marker_i`, `until_i` and `free_text`.
        `free`: any text may come before, between and after calls, and there may be none.
        """

    def grammar(
        self, specs: Sequence[ToolSpec], choice: ToolChoice, *, parallel: bool
    ) -> Grammar | None:
        """The form that the output must have; None: there are no tools.

        Where the model decides, text is free until it opens a call, and the call is a valid one of
        a tool. Arguments of tools that are not strict follow their schema if it is a plain one.

        Raises:
            InvalidRequestError: a named tool does not exist, or a schema cannot be enforced.

        """
        free = choice.mode == "auto"
        if not specs:
            return None
        chosen = _chosen(specs, choice)
        lines = [f"start: {self.start(parallel=parallel and choice.mode != 'named', free=free)}"]
        lines.append("call: " + " | ".join(f"call_{index}" for index in range(len(chosen))))
        for index, spec in enumerate(chosen):
            lines.append(f"call_{index}: {self.call(spec.name, f'arguments_{index}')}")
            lines.append(f"arguments_{index}: {_arguments(spec, must=spec.strict or not free)}")
        return Grammar("lark", "\n".join(lines), param="tools", markers=self.markers)


def repeated(item: str, separator: str, *, parallel: bool) -> str:
    """One call, or several with `separator` between them."""
    if not parallel:
        return item
    return f"{item} ({lark.literal(separator)} {item}){{0,{MAX_PARALLEL_CALLS - 1}}}"


def _chosen(specs: Sequence[ToolSpec], choice: ToolChoice) -> Sequence[ToolSpec]:
    if choice.mode != "named":
        return specs
    chosen = [spec for spec in specs if spec.name == choice.name]
    if not chosen:
        raise InvalidRequestError(
            f"tool_choice names {choice.name!r}, which is not among tools.", param="tool_choice"
        )
    return chosen


def _arguments(spec: ToolSpec, *, must: bool) -> str:
    if not must and not is_plain(spec.arguments_schema):
        return lark.json_value(ANY_OBJECT)
    schema = check_schema(spec.arguments_schema, param="tools", where=f"of tool {spec.name!r}")
    return lark.json_value(schema)
