"""The base of tool formats: a parser of a model's calls, and a grammar that enforces calls."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

from yaie.core.request import Grammar
from yaie.text.grammar import lark
from yaie.text.grammar.schema import check_schema, is_plain
from yaie.text.parts import OutputParser
from yaie.text.tools.custom_input import FIELD
from yaie.text.tools.parts import call_id
from yaie.text.tools.spec import ToolChoice, ToolSpec
from yaie_api.errors import InvalidRequestError

MAX_PARALLEL_CALLS: Final = 64
"""Most calls that a grammar allows in one answer; without a limit a weak model may never stop."""

ANY_OBJECT: Final = {"type": "object"}


class ToolFormat(ABC):
    """How one model family writes calls.

    `in_template`: whether the model's chat template supports tools in this format. `markers`:
    strings that may be special tokens of the vocabulary.
    """

    markers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, *, in_template: bool = True) -> None:
        self.name = name
        self.in_template = in_template

    @staticmethod
    def new_call_id() -> str:
        """A new call id in the form that the family's templates accept."""
        return call_id()

    @abstractmethod
    def parser(self, specs: Sequence[ToolSpec], *, enforced: bool = False) -> OutputParser:
        """A parser of one output. `enforced`: the output obeys `grammar`, so what begins a call is
        one, also where the end cuts it off.
        """

    @abstractmethod
    def call(self, name: str, arguments: str) -> str:
        """Lark for one call. `arguments`: the name of the arguments' rule."""

    @abstractmethod
    def start(self, *, parallel: bool, free: bool) -> str:
        """Lark for the whole output, from the rules `call`, `marker_i`, `until_i` and `free_text`.

        `free`: there may be text before, between and after calls, and there may be no calls.
        """

    def beside_answer(self, *, parallel: bool) -> str:
        """Lark for calls and nothing else, where an answer in another form is allowed too."""
        return self.start(parallel=parallel, free=False)

    def grammar(
        self,
        specs: Sequence[ToolSpec],
        choice: ToolChoice,
        *,
        parallel: bool,
        answer: Grammar | None = None,
    ) -> Grammar | None:
        """The grammar of the output; None if there are no tools. `answer`: the form of an output
        that is no call, where the model may choose; None: text.

        With the choice "auto", text is free until the model opens a call, and every call is a valid
        call of a tool. Arguments of tools that are not strict are then constrained only if their
        schema is plain (`is_plain`).

        Raises:
            InvalidRequestError: a named tool does not exist, or a schema cannot be enforced.

        """
        free = choice.mode == "auto"
        if not specs:
            return None
        chosen = _chosen(specs, choice)
        several = parallel and choice.mode != "named"
        if free and answer is not None:
            lines = ["start: only_calls | answer"]
            lines.append(f"only_calls: {self.beside_answer(parallel=several)}")
            lines.append(f"answer: {lark.nested(answer.kind, answer.text)}")
        else:
            lines = [f"start: {self.start(parallel=several, free=free)}"]
        lines.append("call: " + " | ".join(f"call_{index}" for index in range(len(chosen))))
        for index, spec in enumerate(chosen):
            lines.append(f"call_{index}: {self.call(spec.name, f'arguments_{index}')}")
            lines.append(f"arguments_{index}: {_arguments(spec, must=spec.strict or not free)}")
        param = "tools" if answer is None else answer.param
        return Grammar("lark", "\n".join(lines), param=param, markers=self.markers)


def repeated(item: str, separator: str, *, parallel: bool) -> str:
    """Lark for one item, or if `parallel` for several with `separator` between them."""
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
    if spec.input_grammar is not None:
        return lark.string_field(FIELD, spec.input_grammar)
    if not must and not is_plain(spec.arguments_schema):
        return lark.json_value(ANY_OBJECT)
    schema = check_schema(spec.arguments_schema, param="tools", where=f"of tool {spec.name!r}")
    return lark.json_value(schema)
