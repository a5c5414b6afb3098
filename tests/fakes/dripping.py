"""A client that goes on sending, a little at a time, whatever it is answered."""

import socket
import time
from dataclasses import dataclass
from typing import Final

POST: Final = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED: Final = b"transfer-encoding: chunked\r\n\r\n"
EARLY: Final = {
    "no such path": b"POST /nope HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n\r\n",
    "no such method": b"DELETE /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    b"content-length: 999\r\n\r\n",
    "a body that nobody reads": b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n"
    b"content-length: 999\r\n\r\n",
    "a body said to be too large": POST + b"content-length: 999999999\r\n\r\n",
    "foreign host": b"POST /v1/completions HTTP/1.1\r\nhost: a.example\r\n"
    b"content-length: 999\r\n\r\n",
}
"""Requests that are answered before their body: it never ends."""
_STEP_S: Final = 0.05


@dataclass
class Dripped:
    """What the client has seen. Times in seconds from its first byte; None: it never came."""

    answer: bytes = b""
    answered_s: float | None = None
    closed_s: float | None = None

    @property
    def status(self) -> int:
        return int(self.answer.split()[1])


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def drip(
    port: int, head: bytes, *, first: bytes = b"", piece: bytes = b"x", give_up_s: float = 15.0
) -> Dripped:
    """Send the head and `first`, then a piece every 50 ms until the server closes its side."""
    seen = Dripped()
    with socket.create_connection(("127.0.0.1", port), timeout=_STEP_S) as client:
        began_s = time.monotonic()
        client.settimeout(5.0)
        client.sendall(head + first)
        client.settimeout(_STEP_S)
        while (now_s := time.monotonic() - began_s) < give_up_s:
            try:
                data = client.recv(65536)
                if not data:
                    seen.closed_s = now_s
                    break
                seen.answer += data
                seen.answered_s = seen.answered_s or now_s
            except TimeoutError:
                pass
            except ConnectionError:
                seen.closed_s = now_s
                break
            try:
                client.sendall(piece)
            except OSError:
                continue  # the answer may still be there to be read
    return seen
