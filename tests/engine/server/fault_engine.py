"""An engine process with the real loop, scheduler and watchdog over a made-up model, and faults.

A prompt that holds one of these words breaks every step that computes its end:

hangstep   the step never ends
oomstep    the device is out of memory
badstep    an exception
nanstep    the numbers of its row are not finite
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).parents[2]))  # it is started as a program

from engine_harness import make_scheduler
from fakes.stub_runner import StubRunner, _StepHandle, hashed
from yaie.config import ModelInfo
from yaie.core.batch import Batch, Row, StepResult
from yaie.ipc.channel import Loading, Located
from yaie.runtime.loop.engine_loop import EngineLoop, Port
from yaie.runtime.loop.step_budget import StepBudget, StepLimits
from yaie.runtime.process import engine_process, watchdog
from yaie_api.engine_config import EngineConfig

PAGE = 16
STEP_S = 0.01


class FaultyRunner(StubRunner):
    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        vocab_size = self.tokenizer.get_vocab_size()
        super().__init__(hashed(vocab_size), page_size=PAGE, step_s=STEP_S)
        self.known: dict[int, list[int]] = {}

    def launch(self, batch: Batch) -> _StepHandle:
        text = " ".join(self.text(row) for row in batch.rows if row.tokens)
        if "hangstep" in text:
            time.sleep(1e6)
        if "oomstep" in text:
            raise MemoryError
        if "badstep" in text:
            raise ValueError(text)
        return super().launch(batch)

    def text(self, row: Row) -> str:
        """What a sequence says up to the end of this row: a chunk may end inside of a word."""
        known = self.known.setdefault(row.seq_id, [])
        known[row.start :] = row.tokens
        return str(self.tokenizer.decode(known))

    def collect(self, handle: _StepHandle) -> StepResult:
        result = super().collect(handle)
        texts = [self.tokenizer.decode(row.tokens) for row in handle.batch.rows]
        return StepResult(result.step_id, result.tokens, tuple("nanstep" not in t for t in texts))


class FaultyEngine:
    def __init__(self, folder: Path) -> None:
        self.runner = FaultyRunner(folder)
        self.vocab_size = self.runner.tokenizer.get_vocab_size()
        self.info = ModelInfo(
            served_model_name="faulty",
            path=str(folder),
            architecture="Stub",
            parameters=1,
            weight_bytes=1,
            max_model_len=512,
            vocab_size=self.vocab_size,
            eos_token_ids=(),
            kv_pages=2047,
            page_size=PAGE,
            device="cpu",
            dtype="float32",
        )

    def loop(self, port: Port) -> "EngineLoop[_StepHandle]":
        scheduler = make_scheduler(
            num_pages=2048,
            page_size=PAGE,
            max_num_seqs=16,
            max_model_len=512,
            vocab_size=self.vocab_size,
        )
        return EngineLoop(
            scheduler, self.runner, port, budget=StepBudget(StepLimits(256, math.inf))
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--limit-s", type=float, default=1.5)
    args = parser.parse_args()
    watchdog.LIMIT_S = watchdog.FIRST_LIMIT_S = args.limit_s  # type: ignore[misc]  # shorter tests

    def load(config: EngineConfig, report: Callable[[Loading | Located], None]) -> FaultyEngine:
        report(Loading("weights"))
        engine = FaultyEngine(args.folder)
        with args.journal.open("a") as file:
            file.write(json.dumps({"event": "start", "pid": os.getpid()}) + "\n")
        return engine

    return engine_process.main(["--address", args.address, "--config", '{"model": "faulty"}'], load)


if __name__ == "__main__":
    sys.exit(main())
