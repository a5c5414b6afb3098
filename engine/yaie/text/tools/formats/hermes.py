"""Hermes and Qwen: `<tool_call>` tags around a JSON object with name and arguments."""

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
    """Parses the format. A missing closing tag is accepted, because the object's end suffices."""

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
    """The format, which is also used for models whose chat template does not support tools."""

    markers = (OPENING, CLOSING)

    def parser(
        self,
        specs: Sequence[ToolSpec],  # noqa: ARG002 - any name is a call
        *,
        enforced: bool = False,
    ) -> OutputParser:
        return HermesParser(self.new_call_id, enforced=enforced)

    def call(self, name: str, arguments: str) -> str:
        head = f'\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
        return f"{lark.literal(head)} {arguments} {lark.literal(TAIL)}"

    def start(self, *, parallel: bool, free: bool) -> str:
        if not free:
            return repeated("marker_0 call marker_1", "\n", parallel=parallel)
        call = "until_0 call marker_1"
        return f"({call})* free_text" if parallel else f"free_text | {call}"
