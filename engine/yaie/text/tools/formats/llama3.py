"""Llama 3: a JSON object with name and parameters, bare or after `<|python_tag|>`. Several calls
are separated by semicolons.
"""

import json
from collections.abc import Sequence

from yaie.text.grammar import lark
from yaie.text.parts import OutputParser
from yaie.text.tools.call_scan import CallScanner
from yaie.text.tools.formats.base import ToolFormat, repeated
from yaie.text.tools.machine import ToolParser
from yaie.text.tools.parts import NewCallId
from yaie.text.tools.spec import ToolSpec

OPENING = "<|python_tag|>"
SEPARATORS = ";,"


class Llama3Parser(ToolParser):
    """Parses the format. A bare object is a call only at the beginning of the output and only if it
    names a known function, because the user may have asked for JSON.
    """

    opening = OPENING
    special_tokens = frozenset({OPENING})

    def __init__(
        self, new_call_id: NewCallId, names: frozenset[str], *, enforced: bool = False
    ) -> None:
        super().__init__(new_call_id, enforced=enforced)
        self._names = names
        self._state = self._start

    @property
    def _in_text(self) -> bool:
        return self._state == self._start or super()._in_text

    def _start(self, text: str, position: int) -> int:
        found = self._past_blanks(text, position)
        if found == len(text) and not self._over:
            return position
        if text.startswith("{", found):
            self._remember(text[position:found])
            self._begin(CallScanner(self._names))
            return found
        self._state = self._text
        return position

    def _opened(self, text: str, position: int) -> int:  # noqa: ARG002 - a state's signature
        self._begin(CallScanner(self._names))
        return position

    def _closed(self, text: str, position: int) -> int:
        found = self._past_blanks(text, position)
        if found == len(text) and not self._over:
            return position
        if found < len(text) and text[found] in SEPARATORS:
            self._remember(text[position : found + 1])
            self._begin(CallScanner(self._names))
            return found + 1
        return self._give_up(position)


class Llama3(ToolFormat):
    """The format. Grammars enforce the bare object, which Llama's prompt format asks for."""

    markers = (OPENING,)

    def parser(self, specs: Sequence[ToolSpec], *, enforced: bool = False) -> OutputParser:
        names = frozenset(spec.name for spec in specs)
        return Llama3Parser(self.new_call_id, names, enforced=enforced)

    def call(self, name: str, arguments: str) -> str:
        head = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "parameters": '
        return f"{lark.literal(head)} {arguments} {lark.literal('}')}"

    def start(self, *, parallel: bool, free: bool) -> str:
        calls = repeated("call", "; ", parallel=parallel)
        if free:
            return f"calls | text_until_0 calls | /([^{{\\s](?s:.*))?/\ncalls: {calls}"
        return calls

    def beside_answer(self, *, parallel: bool) -> str:
        """After the tag: a bare object could not be told from an answer that is one, too."""
        return f"marker_0 {self.start(parallel=parallel, free=False)}"
