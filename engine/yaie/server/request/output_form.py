"""Decides the form of a request's outputs: the parser that reads them, the grammar they must obey.

A request has at most one grammar. If a tool must be called, it is the grammar of the calls; if one
may be called, the output is calls or has the form of `response_format`. Without a format, text is
free up to a call.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from yaie.core.request import Grammar
from yaie.server.service import Service
from yaie.text import reasoning
from yaie.text.grammar import forms
from yaie.text.parts import OutputParser
from yaie.text.reasoning import ReasoningFormat
from yaie.text.tools import ToolChoice, ToolFormat, ToolSpec
from yaie.text.tools.only_calls import OnlyCalls
from yaie_api.http.openai import ChatCompletionRequest, NamedTool

TAIL_TOKENS: Final = 16
"""How much of the prompt's end is searched for the start of reasoning, opened by the template."""


@dataclass(frozen=True, slots=True)
class OutputForm:
    """`grammar`: what the text must match; None: any text. `parser`: makes a parser for one output;
    None: the output is plain text.
    """

    grammar: Grammar | None = None
    parser: Callable[[], OutputParser] | None = None


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What the tools in the request's body do not say about calls.

    Attributes:
        input_grammars: by tool, Lark of the string `input` that it takes.
        allowed: the tools that may be called; None: all. The prompt shows all of them either way,
            so that prefixes stay the same when a client allows others.

    """

    input_grammars: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    allowed: frozenset[str] | None = None

    @property
    def size(self) -> int:
        """Size in characters."""
        return sum(map(len, self.input_grammars.values()))


ANY_CALL: Final = CallLimits()


def form_of(
    service: Service,
    body: ChatCompletionRequest,
    prompt_ids: Sequence[int],
    limits: CallLimits = ANY_CALL,
) -> OutputForm:
    """Decide the form of a request's outputs.

    Raises:
        InvalidRequestError: the form cannot be enforced; `param` names the field.

    """
    asked = forms.grammar_of(body.formats)
    calls = _calls(service.tool_format, body, limits, asked)
    thoughts = _reasoning(service, prompt_ids)
    grammar = asked if calls.grammar is None else calls.grammar
    if grammar is not None and thoughts is not None:
        form, opened = thoughts
        grammar = forms.after_reasoning(grammar, form.block(opened=opened))
    return OutputForm(grammar, _chained(thoughts, calls.parser))


def _calls(
    tools: ToolFormat, body: ChatCompletionRequest, limits: CallLimits, asked: Grammar | None
) -> OutputForm:
    """Return the form of an output with tool calls. `asked`: the form of one without."""
    mode = body.tool_mode
    if mode == "none":
        return OutputForm()
    specs = specs_of(body, limits)
    name = body.tool_choice.function.name if isinstance(body.tool_choice, NamedTool) else None
    choice = ToolChoice(mode, name)
    parallel = body.parallel_tool_calls
    grammar = tools.grammar(specs, choice, parallel=parallel, answer=asked)
    may_answer = mode == "auto"

    def parser() -> OutputParser:
        # An answer in JSON may begin as a call does: cut off there, it is still an answer.
        found = tools.parser(specs, enforced=asked is None or not may_answer)
        return found if may_answer else OnlyCalls(found)

    return OutputForm(grammar, parser)


def specs_of(body: ChatCompletionRequest, limits: CallLimits = ANY_CALL) -> list[ToolSpec]:
    """Convert the tools of a request that may be called for `ToolFormat`."""
    return [
        ToolSpec(
            name=tool.function.name,
            description=tool.function.description,
            parameters=tool.function.parameters,
            strict=bool(tool.function.strict),
            input_grammar=limits.input_grammars.get(tool.function.name),
        )
        for tool in body.tools or ()
        if limits.allowed is None or tool.function.name in limits.allowed
    ]


def _reasoning(service: Service, prompt_ids: Sequence[int]) -> tuple[ReasoningFormat, bool] | None:
    """Return the model's reasoning format, and whether the prompt ends inside reasoning."""
    form = service.reasoning_format
    if form is None:
        return None
    tail = service.tokenizer.decode(prompt_ids[-TAIL_TOKENS:], skip_special_tokens=False)
    return form, form.opened(tail)


def _chained(
    thoughts: tuple[ReasoningFormat, bool] | None, calls: Callable[[], OutputParser] | None
) -> Callable[[], OutputParser] | None:
    if thoughts is None:
        return calls
    form, opened = thoughts
    if calls is None:
        return lambda: form.parser(opened=opened)
    return lambda: reasoning.Chain(form.parser(opened=opened), calls())
