"""Mistral: `[TOOL_CALLS]` before a JSON list of calls, or in newer models before each call
`name[ARGS]{…}`.
"""

import json
import re
from collections.abc import Sequence
from typing import ClassVar, Final

from yaie.text.grammar import lark
from yaie.text.parts import OutputParser
from yaie.text.tools.call_scan import MAX_NAME_CHARACTERS, CallScanner
from yaie.text.tools.formats.base import ToolFormat, repeated
from yaie.text.tools.machine import MAX_HELD_BLANKS, ToolParser
from yaie.text.tools.named_call import NamedCall
from yaie.text.tools.parts import short_call_id
from yaie.text.tools.spec import ToolSpec

OPENING: Final = "[TOOL_CALLS]"
ARGUMENTS: Final = "[ARGS]"
CALL_ID: Final = "[CALL_ID]"
_HEAD: Final = re.compile(r"[ \n]*([\w.:/-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\]|(?=\{))")
_HEAD_SO_FAR: Final = re.compile(r"[ \n]*[\w.:/-]*(?:\[[\w\[\]]*)?")
MAX_HEAD: Final = MAX_NAME_CHARACTERS + MAX_HELD_BLANKS


class MistralParser(ToolParser):
    """Parses both forms, which differ in the text after the tag."""

    opening = OPENING
    special_tokens = frozenset({OPENING, ARGUMENTS, CALL_ID})

    def _opened(self, text: str, position: int) -> int:
        start = self._past_blanks(text, position)
        if start == len(text) and not self._over:
            return position
        self._in_list = text.startswith("[", start)
        if self._in_list:
            self._remember(text[position : start + 1])
            self._state = self._item
            return start + 1
        self._state = self._head
        return position

    def _head(self, text: str, position: int) -> int:
        head = _HEAD.match(text, position)
        if head is not None and head.end() < len(text) and head.end() - position <= MAX_HEAD:
            self._remember(head.group())
            self._begin(NamedCall(head.group(1)))
            return head.end()
        return self._wait_or_give_up(text, position)

    def _wait_or_give_up(self, text: str, position: int) -> int:
        so_far = _HEAD_SO_FAR.match(text, position)
        whole = so_far is not None and so_far.end() == len(text)
        if whole and len(text) - position <= MAX_HEAD and not self._over:
            return position
        return self._give_up(position)

    def _item(self, text: str, position: int) -> int:  # noqa: ARG002 - a state's signature
        self._begin(CallScanner())
        return position

    def _closed(self, text: str, position: int) -> int:
        if not self._in_list:
            return self._give_up(position)
        found = self._past_blanks(text, position)
        if found == len(text) and not self._over:
            return position
        if text.startswith(",", found):
            self._remember(text[position : found + 1])
            self._state = self._item
            return found + 1
        return self._give_up(found + 1 if text.startswith("]", found) else position)

    _in_list = False


class MistralList(ToolFormat):
    """The older form: `[TOOL_CALLS] [{"name": …, "arguments": {…}}]`."""

    markers: ClassVar[tuple[str, ...]] = (OPENING,)

    @staticmethod
    def new_call_id() -> str:
        return short_call_id()

    def parser(
        self,
        specs: Sequence[ToolSpec],  # noqa: ARG002 - any name is a call
        *,
        enforced: bool = False,
    ) -> OutputParser:
        return MistralParser(self.new_call_id, enforced=enforced)

    def call(self, name: str, arguments: str) -> str:
        head = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
        return f"{lark.literal(head)} {arguments} {lark.literal('}')}"

    def start(self, *, parallel: bool, free: bool) -> str:
        calls = f'/ ?\\[/ {repeated("call", ", ", parallel=parallel)} "]"'
        if free:
            return f"free_text | until_0 {calls}"
        return f"marker_0 {calls}"


class MistralNamed(MistralList):
    """The newer form: `[TOOL_CALLS]name[ARGS]{…}` for each call."""

    markers: ClassVar[tuple[str, ...]] = (OPENING, ARGUMENTS)

    def call(self, name: str, arguments: str) -> str:
        return f"{lark.literal(name)} marker_1 {arguments}"

    def start(self, *, parallel: bool, free: bool) -> str:
        if not free:
            return repeated("marker_0 call", "", parallel=parallel)
        return "(until_0 call)* free_text" if parallel else "free_text | until_0 call"
