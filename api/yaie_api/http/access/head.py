"""The head of a request, as both servers show it to these checks."""

from collections.abc import Sequence

import msgspec


class Head(msgspec.Struct, frozen=True):
    """`path`: unquoted, as the server's routes are compared with it. `headers`: names in lower
    case, as bytes.
    """

    method: str
    path: str
    headers: Sequence[tuple[bytes, bytes]]

    def header(self, name: bytes) -> str:
        """The value of a header; "": it is missing, or there twice, so that a proxy before this
        server might have looked at the other one.
        """
        values = [value for key, value in self.headers if key == name]
        return values[0].decode("latin-1") if len(values) == 1 else ""

    @property
    def origin(self) -> str:
        return self.header(b"origin")
