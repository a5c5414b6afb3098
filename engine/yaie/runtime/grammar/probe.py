"""Builds a grammar first in a separate process, which can be killed.

llguidance's builder cannot be interrupted, and a stack overflow or exhausted memory would end the
whole process. So every new grammar is first built here, with a limit of time (the parent kills this
process) and of memory (RLIMIT_AS). A grammar that passes is cheap enough to build in the engine
process. The answer also gives the matcher's size in bytes.

`python -m yaie.runtime.grammar.probe --folder F --vocab-size V --eos 1,2`: msgpack messages over
standard input and output, each after its length in four bytes (little-endian), until standard input
closes.
"""

import argparse
import ctypes
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from yaie.core.request import Grammar
from yaie.runtime.grammar import build
from yaie_api.errors import EngineError, InvalidRequestError

MEMORY_BYTES: Final = 1 << 30
"""Memory that a grammar may use in addition to the vocabulary."""
START_LIMIT_S: Final = 60.0
"""Time limit for the child's interpreter, imports and vocabulary."""


class ProbeResult(msgspec.Struct, frozen=True):
    """Whether a grammar can be built. `problem`: why not, or None. `size_bytes`: memory of its
    matcher.
    """

    problem: str | None = None
    size_bytes: int = 0


class GrammarProbe:
    """The parent's side: one child process, started at the first use and again after each kill.

    Not thread-safe: use one probe per thread.
    """

    def __init__(
        self, folder: Path, vocab_size: int, eos_token_ids: Sequence[int], time_limit_s: float
    ) -> None:
        self._command = [
            *(sys.executable, "-m", "yaie.runtime.grammar.probe"),
            *("--folder", str(folder), "--vocab-size", str(vocab_size)),
            *("--eos", ",".join(map(str, eos_token_ids))),
        ]
        self._time_limit_s = time_limit_s
        self._child: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None
        self._is_ready = False

    def ask(self, grammar: Grammar) -> ProbeResult:
        """Let the child build a grammar.

        Raises:
            InvalidRequestError: the grammar takes too long, or too much memory.
            EngineError: the child does not start.

        """
        child = self.start()
        try:
            self._wait_until_ready(child)
            _send(_pipe(child.stdin), msgspec.msgpack.encode(grammar))
            answer = _receive(_pipe(child.stdout), self._time_limit_s)
        except EngineError:
            self.close()
            raise
        except TimeoutError:
            self.close()
            raise build.refusal(grammar, "it takes too long to prepare") from None
        except OSError:
            self.close()
            raise build.refusal(grammar, "it is too large") from None
        return msgspec.msgpack.decode(answer, type=ProbeResult)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the child if there is none. It reads its vocabulary while the caller continues."""
        if self._child is None:
            child = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._child = child
            self._end = weakref.finalize(self, _end, child)
            self._is_ready = False
        return self._child

    def close(self) -> None:
        """Kill the child. This also happens when the probe is garbage-collected."""
        self._child = None
        self._end()

    def _wait_until_ready(self, child: subprocess.Popen[bytes]) -> None:
        if self._is_ready:
            return
        try:
            _receive(_pipe(child.stdout), START_LIMIT_S)
        except OSError as error:
            raise EngineError("Structured output is not available now.") from error
        self._is_ready = True


def main(argv: Sequence[str] | None = None) -> int:
    """Build each grammar that arrives and answer, until standard input closes. Returns the exit
    status.
    """
    parser = argparse.ArgumentParser(prog="python -m yaie.runtime.grammar.probe")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--vocab-size", type=int, required=True)
    parser.add_argument("--eos", required=True)
    args = parser.parse_args(argv)
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent ends this process
        signal.signal(number, signal.SIG_IGN)
    eos = [int(token_id) for token_id in args.eos.split(",") if token_id]
    try:
        vocabulary = build.load_vocabulary(args.folder, args.vocab_size, eos)
    except InvalidRequestError:  # the parent gets the same error and reports it
        return 1
    _limit_memory()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the replies
    _send(replies, b"")
    while (question := _read_message(sys.stdin.buffer)) is not None:
        grammar = msgspec.msgpack.decode(question, type=Grammar)
        before = _allocated_bytes()
        try:
            matcher = build.build(vocabulary, grammar)
            verdict = ProbeResult(size_bytes=max(0, _allocated_bytes() - before))
            del matcher
        except InvalidRequestError as error:
            verdict = ProbeResult(problem=error.message)
        _send(replies, msgspec.msgpack.encode(verdict))
    return 0


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2` of glibc ≥ 2.33: ten sizes in bytes."""

    _fields_ = (
        ("arena", ctypes.c_size_t),
        ("counts", ctypes.c_size_t * 3),
        ("hblkhd", ctypes.c_size_t),
        ("unused", ctypes.c_size_t * 2),
        ("uordblks", ctypes.c_size_t),
        ("free", ctypes.c_size_t * 2),
    )


def _allocated_bytes() -> int:
    """Bytes allocated and not freed; 0 where the C library does not count them."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    _pipe(child.stdout).close()
    try:
        _pipe(child.stdin).close()
    except BrokenPipeError:  # unsent data is lost with the child
        return


# -- messages over pipes ------------------------------------------------------------------------


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise TypeError("the child was started without pipes")
    return pipe


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(struct.pack("<I", len(message)) + message)
    pipe.flush()


def _read_message(pipe: IO[bytes]) -> bytes | None:
    """The next message; None at the end."""
    header = pipe.read(4)
    if len(header) < 4:
        return None
    (size,) = struct.unpack("<I", header)
    return pipe.read(size)


def _receive(pipe: IO[bytes], limit_s: float) -> bytes:
    """The next message, within `limit_s` seconds.

    Raises:
        TimeoutError: it did not come in time.
        OSError: the other end is closed.

    """
    deadline = time.monotonic() + limit_s
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + struct.unpack_from("<I", data)[0]:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        chunk = os.read(pipe.fileno(), 65536)
        if not chunk:
            raise OSError("the child ended")
        data += chunk
    return bytes(data[4:])


if __name__ == "__main__":
    sys.exit(main())
