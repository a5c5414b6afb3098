"""Hermes and Qwen: `<tool_call>` around a JSON object with a name and arguments."""

import json
from collections.abc import Sequence

from yaie.text.grammar import lark
from yaie.text.parts import OutputParser
from yaie.text.tools.call_scan import CallScanner
from yaie.text.tools.formats.base import ToolFormat, repeated
from yaie.text.tools.machine import ToolParser
from yaie.text.tools.spec import ToolSpec

OPENING = "<tool_call>"
CLOSING = "</tool_call>"
TAIL = "}\n"


class HermesParser(ToolParser):
    """A missing closing tag is forgiven: the object's end says as much."""

    opening = OPENING
    special_tokens = frozenset({OPENING, CLOSING})

    def _opened(self, text: str, position: int) -> int:  # noqa: ARG002 - a state's signature
        self._begin(CallScanner())
        return position

    def _closed(self, text: str, position: int) -> int:
        end = self._literal(text, position, CLOSING, self._text)
        self._as_text.clear()
        return self._give_up(position) if end is None else end


class Hermes(ToolFormat):
    """Also what a model is held to whose chat template knows no tools."""

    markers = (OPENING, CLOSING)

    def parser(self, specs: Sequence[ToolSpec]) -> OutputParser:  # noqa: ARG002 - any name is a call
        return HermesParser(self.new_call_id)

    def call(self, name: str, arguments: str) -> str:
        head = f'\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
        return f"{lark.literal(head)} {arguments} {lark.literal(TAIL)}"

    def start(self, *, parallel: bool, free: bool) -> str:
        if not free:
            return repeated("marker_0 call marker_1", "\n", parallel=parallel)
        call = "until_0 call marker_1"
        return f"({call})* free_text" if parallel else f"free_text | {call}"
