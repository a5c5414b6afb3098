"""DeepSeek V3 (`function<sep>name`, arguments in a JSON block) and V3.1 (`name<sep>{…}`)."""

# ruff: noqa: RUF001 - these models' tags contain fullwidth bars

import re
from collections.abc import Sequence
from typing import Final

from yaie.text.grammar import lark
from yaie.text.parts import OutputParser
from yaie.text.tools.call_scan import MAX_NAME_CHARACTERS
from yaie.text.tools.formats.base import ToolFormat, repeated
from yaie.text.tools.machine import ToolParser
from yaie.text.tools.named_call import NamedCall
from yaie.text.tools.spec import ToolSpec

CALLS_BEGIN: Final = "<｜tool▁calls▁begin｜>"
CALL_BEGIN: Final = "<｜tool▁call▁begin｜>"
SEPARATOR: Final = "<｜tool▁sep｜>"
CALL_END: Final = "<｜tool▁call▁end｜>"
CALLS_END: Final = "<｜tool▁calls▁end｜>"
TYPE: Final = "function"
BLOCK: Final = "\n```json\n"
BLOCK_END: Final = "\n```"
MAX_HEAD: Final = MAX_NAME_CHARACTERS + len(SEPARATOR + TYPE + BLOCK)
_V3_HEAD: Final = re.compile(rf"\s*+{TYPE}{SEPARATOR}([^\n<]++)\n```(?:json)?\n")
_V31_HEAD: Final = re.compile(rf"\s*+(?!{TYPE}{SEPARATOR})([^\n<]++){SEPARATOR}")


class DeepSeekParser(ToolParser):
    """Parses both forms, which differ in the text before the separator."""

    opening = CALLS_BEGIN
    special_tokens = frozenset({CALLS_BEGIN, CALL_BEGIN, SEPARATOR, CALL_END, CALLS_END})

    def _opened(self, text: str, position: int) -> int:
        end = self._literal(text, position, CALL_BEGIN, self._head)
        return self._give_up(position) if end is None else end

    def _head(self, text: str, position: int) -> int:
        for pattern in (_V3_HEAD, _V31_HEAD):
            head = pattern.match(text, position)
            if head is not None and head.end() - position <= MAX_HEAD:
                self._remember(head.group())
                self._begin(NamedCall(head.group(1).strip()))
                return head.end()
        if len(text) - position <= MAX_HEAD and not self._over:
            return position
        return self._give_up(position)

    def _closed(self, text: str, position: int) -> int:
        end = self._literal(text, position, BLOCK_END.strip(), self._after_block)
        if end is not None:
            return end
        self._state = self._after_block
        return position

    def _after_block(self, text: str, position: int) -> int:
        end = self._literal(text, position, CALL_END, self._next)
        return self._give_up(position) if end is None else end

    def _next(self, text: str, position: int) -> int:
        self._as_text.clear()  # tags around calls are not text of the answer
        for tag, then in ((CALL_BEGIN, self._head), (CALLS_END, self._text)):
            end = self._literal(text, position, tag, then)
            if end is not None:
                break
        else:
            return self._give_up(position)
        if then == self._text:
            self._as_text.clear()
        return end


class DeepSeekV31(ToolFormat):
    """The form `name<sep>{…}`."""

    markers = (CALLS_BEGIN, CALL_BEGIN, SEPARATOR, CALL_END, CALLS_END)
    separator = ""

    def parser(
        self,
        specs: Sequence[ToolSpec],  # noqa: ARG002 - any name is a call
        *,
        enforced: bool = False,
    ) -> OutputParser:
        return DeepSeekParser(self.new_call_id, enforced=enforced)

    def call(self, name: str, arguments: str) -> str:
        return f"marker_1 {lark.literal(name)} marker_2 {arguments} marker_3"

    def start(self, *, parallel: bool, free: bool) -> str:
        calls = f"{repeated('call', self.separator, parallel=parallel)} marker_4"
        return f"free_text | until_0 {calls}" if free else f"marker_0 {calls}"


class DeepSeekV3(DeepSeekV31):
    """The form `function<sep>name`, then the arguments in a JSON code block; calls on own lines."""

    separator = "\n"

    def call(self, name: str, arguments: str) -> str:
        head, tail = lark.literal(name + BLOCK), lark.literal(BLOCK_END)
        return f"marker_1 {lark.literal(TYPE)} marker_2 {head} {arguments} {tail} marker_3"
