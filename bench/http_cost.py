"""What the HTTP process costs for each streamed token, in CPU time.

Starts the real HTTP process over an engine double that has no model: it waits until all streams
of a round are there, then publishes one token of each stream a step at a fixed rate, one message a
step, as the engine does. Clients in processes of their own read the streams over loopback. The
figure is the CPU time of the HTTP process, all of its threads, over a window in the middle of the
streams, divided by the tokens that were published meanwhile.

CPU time on a shared machine still moves with caches and clock: compare the source trees of one
run, which take turns, rather than figures of two runs. Where `events` is below 1, the process
lagged behind and put tokens together, which makes them cheaper.
"""

import argparse
import contextlib
import json
import mmap
import os
import selectors
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

EXAMPLES = """examples:
  python bench/http_cost.py
  python bench/http_cost.py --apis chat,responses --streams 64 --rounds 5
  git worktree add ../before HEAD~1 && python bench/http_cost.py --tree ../before
  python bench/http_cost.py --servers 2 --streams 256 --rate 80
"""
REPOSITORY: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ("api", "operator", "router", "engine", "kernels")
WARM_STEPS: Final = 20
SETTLE_S: Final = 0.3
CONTEXT_TOKENS: Final = 100_000
CHARACTERS: Final = "aeinorst" * 4 + "bcdfghlmpuwy" + "äß日🎉"
"""What the words of the vocabulary are made of: one token in a few is not ASCII."""

_HELLO: Final = [{"role": "user", "content": "hello"}]
PATHS: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    "chat": ("/v1/chat/completions", {"messages": _HELLO}, "max_tokens"),
    "completions": ("/v1/completions", {"prompt": "hello"}, "max_tokens"),
    "responses": ("/v1/responses", {"input": "hello", "store": False}, "max_output_tokens"),
    "messages": ("/v1/messages", {"messages": _HELLO}, "max_tokens"),
}
"""Where each API is asked, with what, and its name for the most tokens."""


class Board:
    """Numbers that all processes of a run see: a file of 64-bit integers in memory, each of them
    written by one process only.
    """

    STREAMS, RATE, STEPS, ENGINE_END, CLIENTS = range(5)
    """How many streams the engine waits for; steps a second; steps it has published; steps after
    which the round ends; from there on, three places for each client."""
    PLACES = 64

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(8 * self.PLACES))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def __getitem__(self, place: int) -> int:
        return int(struct.unpack_from("<q", self._memory, 8 * place)[0])

    def __setitem__(self, place: int, value: int) -> None:
        struct.pack_into("<q", self._memory, 8 * place, value)


# The engine double (its own process, started by the HTTP process)


def engine(args: argparse.Namespace) -> None:
    """Serve until standard input closes."""
    import threading

    from yaie.core.messages import Abort, Accepted, Generate, Stats, Tokens
    from yaie.ipc.channel import EnginePort, Ready
    from yaie.runtime.process.parent import end_with_parent

    stop = threading.Event()
    end_with_parent(stop)
    board, port = Board(args.board), EnginePort(args.address)
    info, texts = _model(args.folder)
    port.send(Ready(info))
    waiting: list[str] = []
    stats = Stats(0, 0, 1000, 1000, 0, 0, 0, 0, 0, 0, 0.0, 64)
    while not stop.is_set():
        commands = port.drain(wait_s=0.1)
        new = [one.request_id for one in commands if isinstance(one, Generate)]
        port.publish([*map(Accepted, new), stats])
        gone = {one.request_id for one in commands if isinstance(one, Abort)}
        waiting = [one for one in [*waiting, *new] if one not in gone]
        if not waiting or len(waiting) < board[Board.STREAMS]:
            continue
        time.sleep(SETTLE_S)
        start_s, end = time.monotonic(), board[Board.ENGINE_END]
        for step in range(end):
            time.sleep(max(0.0, start_s + step / board[Board.RATE] - time.monotonic()))
            finish = "length" if step == end - 1 else None
            port.publish(
                [
                    Tokens(one, (texts[(step * 7 + place) % len(texts)],), finish)
                    for place, one in enumerate(waiting)
                ]
            )
            board[Board.STEPS] = step + 1
        waiting = []
    port.close()


def _model(folder: Path) -> tuple[Any, list[int]]:
    """What the engine serves (ModelInfo of either tree), and ids of the tokens that it says."""
    from tokenizers import Tokenizer

    from yaie.config import ModelInfo

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    info = ModelInfo(
        served_model_name="bench",
        path=str(folder),
        architecture="Stub",
        parameters=1,
        weight_bytes=1,
        max_model_len=CONTEXT_TOKENS,
        vocab_size=tokenizer.get_vocab_size(),
        eos_token_ids=(0,),
        kv_pages=1000,
        page_size=16,
        device="cpu",
        dtype="float32",
    )
    return info, tokenizer.encode(_prose(), add_special_tokens=False).ids


def _prose() -> str:
    """A text of a few hundred words, the same in every run."""
    import random

    draw = random.Random(1)
    words = ["".join(draw.choices(CHARACTERS, k=draw.randint(2, 8))) for _ in range(400)]
    return " ".join(words)


def write_model_folder(folder: Path) -> None:
    """A byte-level vocabulary that knows most words of the prose, and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        initial_alphabet=alphabet,
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([_prose()], trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    config = {"eos_token": "<|end|>", "bos_token": None, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


# The HTTP process


def server(args: argparse.Namespace) -> int:
    """The server of the tree that PYTHONPATH names, over the engine double."""
    from yaie.server.process import run

    me = [sys.executable, __file__, "engine", "--folder", str(args.folder)]

    options = run.ServeOptions(
        command=lambda address: [*me, "--board", str(args.board), "--address", address],
        port=args.port,
        settings={"model": "bench"},
        names=("bench",),
        # A tree from before there were several has no such option.
        **({} if args.servers == 1 else {"api_server_count": args.servers}),
    )
    return run.serve(options)


# Clients (processes of their own)


def client(args: argparse.Namespace) -> None:
    """Open the streams and read them to their end. Counts events and socket reads on the board."""
    board, place = Board(args.board), Board.CLIENTS + 3 * args.place
    body = args.request.encode()
    head = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n" % (
        args.path.encode()
    )
    request = head + b"content-length: %d\r\n\r\n" % len(body) + body
    selector = selectors.DefaultSelector()
    tails: dict[socket.socket, bytes] = {}
    for _ in range(args.streams):
        connection = socket.create_connection(("127.0.0.1", args.port))
        connection.sendall(request)
        selector.register(connection, selectors.EVENT_READ)
        tails[connection] = b""
    events = reads = 0
    while tails:
        for key, _ in selector.select():
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            data = connection.recv(65536)
            events += data.count(b"\ndata: ")
            reads += 1
            tail = tails[connection] = (tails[connection] + data)[-7:]
            if not data or tail == b"\r\n0\r\n\r\n":
                if not data:
                    raise SystemExit("a stream was cut off")
                selector.unregister(connection)
                connection.close()
                del tails[connection]
        board[place], board[place + 1] = events, reads
    board[place + 2] = 1


# The measurement


class Cost(NamedTuple):
    """Of one round: CPU microseconds of the HTTP process, events and client reads for a token."""

    cpu_us: float
    events: float
    reads: float


@dataclass(frozen=True)
class Served:
    """A running server of one source tree, under its name."""

    name: str
    pid: int
    port: int
    board: Board
    board_path: Path


def cpu_ns(pid: int) -> int:
    """CPU time of a server's HTTP processes with all their threads. The number of a process's clock
    is the one that clock_getcpuclockid(3) tells.
    """
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    others = [int(one) for one in children if not _is_engine(int(one))]
    return sum(time.clock_gettime_ns((~one << 3) | 2) for one in (pid, *others))


def _is_engine(pid: int) -> bool:
    return b"engine" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def measure(served: Served, api: str, streams: int, args: argparse.Namespace) -> Cost:
    """One round of streams."""
    board = served.board
    window = int(args.seconds * args.rate)
    board[Board.STREAMS], board[Board.RATE], board[Board.STEPS] = streams, args.rate, 0
    board[Board.ENGINE_END] = 2 * WARM_STEPS + window
    for place in range(Board.CLIENTS, Board.CLIENTS + 3 * args.clients):
        board[place] = 0
    with _clients(served, api, streams, args) as clients:
        first = _sample(served, WARM_STEPS, clients)
        last = _sample(served, WARM_STEPS + window, clients)
        for one in clients:
            if one.wait(60) != 0:
                raise SystemExit(f"a client of {api} failed")
    cpu, steps, events, reads = (b - a for a, b in zip(first, last, strict=True))
    tokens = steps * streams
    return Cost(cpu / 1e3 / tokens, events / tokens, reads / tokens)


def _sample(
    served: Served, steps: int, clients: list[subprocess.Popen[bytes]]
) -> tuple[int, int, int, int]:
    """CPU time, steps, events and reads as soon as the engine has published so many steps."""
    board = served.board
    deadline = time.monotonic() + 120
    while board[Board.STEPS] < steps:
        if time.monotonic() > deadline or any(one.poll() for one in clients):
            raise SystemExit("the streams did not come")
        time.sleep(0.002)
    counts = [board[place] for place in range(Board.CLIENTS, Board.CLIENTS + 3 * len(clients))]
    return cpu_ns(served.pid), board[Board.STEPS], sum(counts[::3]), sum(counts[1::3])


@contextlib.contextmanager
def _clients(
    served: Served, api: str, streams: int, args: argparse.Namespace
) -> Iterator[list[subprocess.Popen[bytes]]]:
    path, body, limit = PATHS[api]
    body = body | {"model": "bench", "stream": True, limit: CONTEXT_TOKENS // 2}
    shares = [streams // args.clients + (i < streams % args.clients) for i in range(args.clients)]
    processes = []
    for place, share in enumerate(shares):
        command = [sys.executable, __file__, "client", "--port", str(served.port), "--path", path]
        command += ["--request", json.dumps(body), "--streams", str(share)]
        command += ["--board", str(served.board_path), "--place", str(place)]
        processes.append(subprocess.Popen(command))
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def serving(tree: Path, name: str, folder: Path, servers: int) -> Iterator[Served]:
    """The HTTP process of a source tree, ready."""
    port, path = _free_port(), folder / f"board-{name}"
    board = Board(path)
    command = [sys.executable, __file__, "server", "--folder", str(folder / "model")]
    command += ["--port", str(port), "--board", str(path), "--servers", str(servers)]
    environment = os.environ | {"PYTHONPATH": ":".join(str(tree / one) for one in SOURCES)}
    process = subprocess.Popen(command, env=environment)
    try:
        _wait_ready(port, process)
        yield Served(name, process.pid, port, board, path)
    finally:
        process.terminate()
        process.wait(30)


def _wait_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), 1) as probe,
        ):
            probe.sendall(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            if b" 200 " in probe.recv(64):
                return
        time.sleep(0.05)
    raise SystemExit("the server did not become ready")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def compare(args: argparse.Namespace) -> None:
    """Measure every tree in turns and print one line for each kind of stream."""
    trees = {"this": REPOSITORY} | {one.name: one.resolve() for one in args.tree}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_model_folder(folder / "model")
        servers = [
            stack.enter_context(serving(tree, name, folder, args.servers))
            for name, tree in trees.items()
        ]
        print(f"{'api':12} {'streams':>7} {'tree':16} {'µs/token':>9} {'range':>13} ", end="")
        print(f"{'events':>7} {'reads':>6} {'ratio':>6}", flush=True)
        for api in args.apis:
            for streams in args.streams:
                costs: dict[str, list[Cost]] = {one.name: [] for one in servers}
                for _ in range(args.rounds):
                    for one in servers:
                        costs[one.name].append(measure(one, api, streams, args))
                _report(api, streams, costs)


def _report(api: str, streams: int, costs: dict[str, list[Cost]]) -> None:
    """`ratio`: to the first tree, which is this one."""
    medians = {name: Cost(*map(statistics.median, zip(*found, strict=True)))
               for name, found in costs.items()}  # fmt: skip
    first = next(iter(medians.values())).cpu_us
    for name, cost in medians.items():
        all_us = [one.cpu_us for one in costs[name]]
        spread = f"{min(all_us):.1f}-{max(all_us):.1f}"
        print(f"{api:12} {streams:7} {name:16} {cost.cpu_us:9.1f} {spread:>13} ", end="")
        print(f"{cost.events:7.2f} {cost.reads:6.2f} {cost.cpu_us / first:6.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    roles = {"server": server, "engine": engine, "client": client}
    if len(sys.argv) > 1 and sys.argv[1] in roles:
        return roles[sys.argv[1]](_role_arguments()) or 0
    parser.add_argument(
        "--apis", type=_words(PATHS), default=list(PATHS), help="default: all; " + ", ".join(PATHS)
    )
    parser.add_argument(
        "--streams",
        type=lambda text: [int(one) for one in text.split(",")],
        default=[64, 256],
        help="numbers of streams, with commas between them (default: 64,256)",
    )
    parser.add_argument("--rate", type=int, default=40, help="steps a second (default: 40)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the window (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="for each tree (default: 3)")
    parser.add_argument("--clients", type=int, default=2, help="client processes (default: 2)")
    parser.add_argument(
        "--servers", type=int, default=1, help="HTTP processes of each server (default: 1)"
    )
    parser.add_argument(
        "--tree", type=Path, action="append", default=[], help="another checkout to compare with"
    )
    compare(parser.parse_args())
    return 0


def _words(known: Collection[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        words = text.split(",")
        if unknown := set(words) - set(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
        return words

    return parse


def _role_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("role")
    for name in ("--board", "--folder"):
        parser.add_argument(name, type=Path)
    for name in ("--port", "--servers", "--streams", "--place"):
        parser.add_argument(name, type=int)
    for name in ("--path", "--request", "--address"):
        parser.add_argument(name)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
