"""Incremental parser of a call's arguments after its name, with the interface of `CallScanner`."""

from yaie.text.tools.json_scan import ValueScanner, skip_blanks


class NamedCall:
    """Parses one call; attributes as in `CallScanner`. It is committed when its object begins."""

    __slots__ = ("_fragments", "_value", "_written", "broken", "committed", "done", "name")

    def __init__(self, name: str) -> None:
        self.name: str | None = name
        self._value = ValueScanner()
        self._fragments: list[str] = []
        self._written: list[str] = []
        self.done = False
        self.broken = False
        self.committed = False

    @property
    def written(self) -> str:
        """The whitespace before the arguments."""
        return "".join(self._written)

    def take_arguments(self) -> str:
        fragments = "".join(self._fragments)
        self._fragments.clear()
        return fragments

    def push(self, text: str, start: int) -> int:
        position = start
        if not self.committed:
            position = skip_blanks(text, start)
            self._written.append(text[start:position])
            if position == len(text):
                return position
            self.committed = text[position] == "{"
            self.broken = not self.committed
        if self.broken:
            return position
        end = self._value.push(text, position)
        self._fragments.append(text[position:end])
        self.done, self.broken = self._value.done, self._value.broken
        return end
