"""A scripted engine process: the real messages, no model. The prompt's first word says what to do.

hello …   repeats the prompt's tokens, one a step, until max_tokens
slow …    the same, 20 ms a step
stop …    ends with the end-of-text token after three tokens
fail …    two tokens, then finish_reason error
exclude … the same, because the request's constraints allow no token
refuse …  is rejected with 429
never …   is rejected as one that does not fit
mute …    is accepted and says nothing
die …     two tokens, then the process exits with status 3
crash …   the process exits at once, before it accepts
burst …   all tokens in one message (several outputs of a request say the same)

A request with `pooling` gets the counts of its tokens as its vector.
"""

import argparse
import json
import os
import struct
import sys
import threading
import time
from pathlib import Path

import msgspec
from tokenizers import Tokenizer

from yaie.config import ModelInfo
from yaie.core.messages import (
    Abort,
    Accepted,
    Command,
    Event,
    Generate,
    Rejected,
    ResetPrefixCache,
    Stats,
    TokenLogprobs,
    Tokens,
)
from yaie.core.outputs import NO_TOKEN_ALLOWED
from yaie.ipc.channel import EnginePort, Failed, Loading, Located, Ready
from yaie.runtime.process.parent import end_with_parent

HIDDEN_SIZE = 8
FAILURES = {
    "fail": (None, "The numbers were not finite."),
    "exclude": (NO_TOKEN_ALLOWED.code, NO_TOKEN_ALLOWED.message),
}


class Stub:
    def __init__(self, port: EnginePort, folder: Path, journal: Path, labels: int = 0) -> None:
        self.port = port
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.end = self.tokenizer.token_to_id("<|endoftext|>")
        self.journal = journal
        self.labels = labels
        self.running: dict[str, tuple[Generate, str, int]] = {}
        self.generated = 0

    def note(self, **entry: object) -> None:
        with self.journal.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def step(self) -> None:
        events: list[Event] = []
        for command in self.port.drain(wait_s=0.0 if self.running else 0.05):
            events += self.take(command)
        if any(word == "slow" for _, word, _ in self.running.values()):
            time.sleep(0.02)
        for request_id in list(self.running):
            command = self.running[request_id][0]
            for message in self.advance(request_id):
                events += self.of_each_output(command, message)
        stats = Stats(
            running=len(self.running),
            waiting=0,
            pages_total=100,
            pages_free=90 - len(self.running),
            pages_cached=10,
            prompt_tokens=7,
            cached_prompt_tokens=3,
            generated_tokens=self.generated,
            preemptions=0,
            steps=1,
            step_seconds=0.5,
            step_budget_tokens=64,
        )
        self.port.publish([*events, stats])

    def take(self, command: Command) -> list[Event]:
        if isinstance(command, Abort):
            self.note(event="abort")
            if command.index is None:
                self.running.pop(command.request_id, None)
            return []
        if isinstance(command, ResetPrefixCache):
            self.note(event="reset")
            return [Accepted(command.request_id)]
        text = self.tokenizer.decode(command.prompt_token_ids).removeprefix("user\n")
        word = text.split()[0] if text.split() else ""
        self.note(event="generate", word=word, id=command.request_id)
        return self.admit(command, word)

    def admit(self, command: Generate, word: str) -> list[Event]:
        request_id = command.request_id
        if word == "crash":
            os._exit(3)
        if word == "refuse":
            return [Rejected(request_id, 429, "queue_full", "The queue is full.", None, 3.0)]
        if word == "never":
            return [Rejected(request_id, 400, "never_fits", "It can never fit.", "messages")]
        if command.pooling is not None:
            return [Accepted(request_id), self.pool(command)]
        if word != "mute":
            self.running[request_id] = (command, word, 0)
        return [Accepted(request_id)]

    def pool(self, command: Generate) -> Tokens:
        """How often each token (modulo the size) is in the prompt; label i has logit i + tokens."""
        size = self.labels if command.pooling == "classify" else HIDDEN_SIZE
        counts = [float(i) for i in range(size)]
        for token in command.prompt_token_ids:
            counts[token % size] += 1.0
        pooled = struct.pack(f"<{size}f", *counts)
        return Tokens(command.request_id, (), "stop", pooled=pooled, cached_tokens=1)

    def of_each_output(self, command: Generate, message: Tokens) -> list[Tokens]:
        """The message for each output, with the numbers that were asked for."""
        asked = command.sampling
        count = asked.logprobs
        entries = () if count is None else tuple(_entry(i, count) for i in message.token_ids)
        of_prompt = None
        if asked.prompt_logprobs is not None and message.finish_reason is not None:
            of_prompt = tuple(
                _entry(i, asked.prompt_logprobs) for i in command.prompt_token_ids[1:]
            )
        return [
            msgspec.structs.replace(
                message, index=index, logprobs=entries, prompt_logprobs=of_prompt
            )
            for index in range(asked.n)
        ]

    def advance(self, request_id: str) -> list[Tokens]:
        command, word, done = self.running[request_id]
        limit = command.sampling.max_tokens or 0
        prompt = command.prompt_token_ids
        if limit == 0:
            del self.running[request_id]
            return [Tokens(request_id, (), "length")]
        if word == "die" and done == 2:
            time.sleep(0.1)
            os._exit(3)
        if word in FAILURES and done == 2:
            del self.running[request_id]
            code, message = FAILURES[word]
            return [Tokens(request_id, (), "error", error=message, error_code=code)]
        if word == "burst":
            del self.running[request_id]
            return [Tokens(request_id, prompt[:limit], "length")]
        if word == "stop" and done == 3:
            del self.running[request_id]
            return [Tokens(request_id, (self.end,), "stop", stop_token_id=self.end)]
        done += 1
        self.generated += 1
        finish = "length" if done == limit else None
        if finish:
            del self.running[request_id]
        else:
            self.running[request_id] = (command, word, done)
        return [Tokens(request_id, (prompt[(done - 1) % len(prompt)],), finish, cached_tokens=5)]


def _entry(token_id: int, count: int) -> TokenLogprobs:
    top = tuple(range(count if count >= 0 else 300))
    return TokenLogprobs(token_id, -1.0, 1, top, (-1.0,) * len(top))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--refuse-to-load", action="store_true")
    parser.add_argument("--loading-s", type=float, default=0.0)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["generate", "embed"])
    parser.add_argument("--labels", type=int, default=0)
    args = parser.parse_args()
    stop = threading.Event()
    end_with_parent(stop)
    port = EnginePort(args.address)
    port.send(Loading("weights"))
    port.send(Located(str(args.folder), str(args.tokenizer or args.folder)))
    time.sleep(args.loading_s)
    if args.refuse_to_load:
        port.send(Failed("The model folder has pickled weights."))
        port.close()
        sys.exit(1)
    stub = Stub(port, args.folder, args.journal, args.labels)
    stub.note(event="start", pid=os.getpid())
    port.send(
        Ready(
            ModelInfo(
                served_model_name="stub",
                path=str(args.folder),
                architecture="Stub",
                parameters=1,
                weight_bytes=1,
                max_model_len=256,
                vocab_size=stub.tokenizer.get_vocab_size(),
                eos_token_ids=(stub.end,),
                kv_pages=100,
                page_size=16,
                device="cpu",
                dtype="float32",
                tasks=tuple(args.tasks),
                hidden_size=HIDDEN_SIZE,
                num_labels=args.labels,
            )
        )
    )
    while not stop.is_set():
        stub.step()
    port.close()


if __name__ == "__main__":
    main()
