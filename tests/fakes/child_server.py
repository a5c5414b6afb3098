"""A process that stands in for an engine: the standard library's HTTP server behind the arguments
of `yaie serve`. Run as a script; a test's own flags follow the engine's. `yaie pull` is real.

    --ready-after S   /readyz answers 503 until then      --exit-after S --exit-code N   ends itself
    --deaf            ignores SIGTERM                      --linger S   takes so long to end
    --dead-file PATH  /livez fails while PATH exists       --once PATH  prints a line at first
    --last-words TEXT stands in the termination log
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STARTED = time.monotonic()

if sys.argv[1:2] == ["pull"]:
    os.execv(sys.executable, [sys.executable, "-m", "yaie", *sys.argv[1:]])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", nargs="+", default=["m"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ready-after", type=float, default=0)
    parser.add_argument("--exit-after", type=float)
    parser.add_argument("--exit-code", type=int, default=1)
    parser.add_argument("--linger", type=float, default=0)
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--dead-file", type=Path)
    parser.add_argument("--last-words", default="")
    parser.add_argument("--once", type=Path)
    known, _ = parser.parse_known_args()
    return known


ARGS = parse()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/readyz":
            ready = time.monotonic() - STARTED >= ARGS.ready_after
            self.answer(200 if ready else 503, b"ok" if ready else b"loading")
        elif self.path == "/livez":
            dead = ARGS.dead_file is not None and ARGS.dead_file.exists()
            self.answer(500 if dead else 200, b"")
        elif self.path == "/env":
            self.answer(200, json.dumps(dict(os.environ)).encode())
        else:
            self.answer(404, b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        words = f"{asked['model']} says hello".split()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for left, word in zip(reversed(range(len(words))), words, strict=True):
            choice = {"index": 0, "delta": {"content": word + " "}}
            choice["finish_reason"] = None if left else "stop"
            chunk = {"choices": [choice]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def ends(*_: object) -> None:
    time.sleep(ARGS.linger)
    tell("ending politely")
    os._exit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN if ARGS.deaf else ends)
    if ARGS.exit_after is not None:
        threading.Timer(ARGS.exit_after, lambda: os._exit(ARGS.exit_code)).start()
    if ARGS.last_words:
        Path(os.environ["YAIE_TERMINATION_LOG"]).write_text(ARGS.last_words)
    if ARGS.once is not None and not ARGS.once.exists():
        ARGS.once.touch()
        tell("only once")
    tell(f"started {' '.join(sys.argv[1:])}")
    server = ThreadingHTTPServer((ARGS.host, ARGS.port), Handler)
    server.serve_forever()


if __name__ == "__main__":
    main()
