"""On a GPU a failure stays with the request that caused it, beside captured graphs too."""

import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from engine.models.oracle import reference, save
from yaie.core.batch import Batch
from yaie.core.messages import Abort, Command, Event, Generate, Tokens
from yaie.core.request import SamplingParams
from yaie.runtime.startup import factory
from yaie.runtime.startup.factory import Engine
from yaie.runtime.worker.runner import StepHandle
from yaie_api.engine_config import EngineConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
VARIANT = "llama-gqa"
NEIGHBOURS = (1, 16, 37)
LONG = 240
PROMPTS = 24
"""More than a captured step has room for: they run eagerly, and need memory."""
CACHE_TOKENS = 8192
SLACK_BYTES = 8 * 2**20
"""Room for blocks of the allocator's small pool (2 MiB each), none for the large one (20 MiB)."""
LARGE_BYTES = 2**20 + 2**18
"""The least that the allocator takes from its large pool, and a bit."""


class Lists:
    """The loop's port."""

    def __init__(self) -> None:
        self.inbox: list[Command] = []
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.codes: dict[str, str | None] = {}

    def drain(self, *, wait_s: float) -> list[Command]:
        commands, self.inbox = self.inbox, []
        return commands

    def publish(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Tokens):
                self.tokens[event.request_id] += event.token_ids
                if event.finish_reason is not None:
                    self.codes[event.request_id] = event.error_code


class Served:
    """A loaded engine and its loop, stepped by the test."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.port = Lists()
        self.loop = engine.loop(self.port)

    def send(self, name: str, prompt: Sequence[int], **wishes: int) -> None:
        sampling = SamplingParams(temperature=0.0, ignore_eos=True, **({"max_tokens": 64} | wishes))
        self.port.inbox.append(Generate(name, tuple(prompt), sampling))

    def send_neighbours(self) -> None:
        for length in NEIGHBOURS:
            self.send(f"neighbour {length}", reference(VARIANT, length).prompt)

    def abort(self, name: str) -> None:
        self.port.inbox.append(Abort(name))

    def finish(self) -> None:
        while self.loop.step():
            continue
        self.engine.scheduler.check()

    def assert_neighbours_right(self) -> None:
        for length in NEIGHBOURS:
            name = f"neighbour {length}"
            assert self.port.codes[name] is None
            assert self.port.tokens[name] == list(reference(VARIANT, length).greedy)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(VARIANT, tmp_path_factory.mktemp(VARIANT))


@pytest.fixture
def served(folder: Path) -> Iterator[Served]:
    config = EngineConfig(
        model=str(folder),
        device="cuda",
        dtype="float32",
        kv_cache_tokens=CACHE_TOKENS,
        max_num_batched_tokens=4096,
        max_num_seqs=64,
        step_time_target_s=math.inf,
    )
    served = Served(factory.create(config))
    served.send_neighbours()  # captures the graphs
    served.finish()
    served.port.tokens.clear()
    yield served
    torch.cuda.set_per_process_memory_fraction(1.0)


def without_memory() -> list[torch.Tensor]:
    """Take every large block there is, as another process may: small ones can still be had."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + SLACK_BYTES) / total)
    taken: list[torch.Tensor] = []
    with suppress(torch.OutOfMemoryError):
        while True:
            taken.append(torch.empty(LARGE_BYTES, dtype=torch.uint8, device="cuda"))
    return taken


def long_prompt(number: int) -> list[int]:
    return [5 + (number * token) % 400 for token in range(LONG)]


def test_steps_that_find_no_memory_are_made_smaller(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody ends, and everybody says what they say with enough memory."""
    for number in range(PROMPTS):
        served.send(f"before {number}", long_prompt(number), max_tokens=4)
    served.finish()
    assert not caplog.messages
    served.engine.scheduler.reset_prefix_cache()
    served.send_neighbours()
    for _ in range(10):
        served.loop.step()
    taken = without_memory()
    for number in range(PROMPTS):
        served.send(f"after {number}", long_prompt(number), max_tokens=4)
    served.finish()
    assert "step failed" in caplog.messages
    served.assert_neighbours_right()
    for number in range(PROMPTS):
        assert served.port.codes[f"after {number}"] is None
        assert served.port.tokens[f"after {number}"] == served.port.tokens[f"before {number}"]
    del taken


def test_a_full_cache_serves_what_is_left_after_half_went_away(served: Served) -> None:
    """Three times what the cache holds is asked for at once; when a request was preempted for lack
    of a page, every second one is aborted. The others end with all their tokens.
    """
    served.engine.scheduler.reset_prefix_cache()
    empty = served.engine.scheduler.stats()
    numbers = range(3 * CACHE_TOKENS // LONG)
    served.send_neighbours()
    for number in numbers:
        served.send(f"asks {number}", long_prompt(number)[: LONG - 64])
    for _ in range(400):
        served.loop.step()
        if served.engine.scheduler.stats().preemptions > empty.preemptions:
            break
    assert served.engine.scheduler.stats().preemptions > empty.preemptions
    for number in numbers[::2]:
        served.abort(f"asks {number}")
    served.finish()
    served.assert_neighbours_right()
    ended = [number for number in numbers if served.port.codes[f"asks {number}"] is None]
    assert ended == list(numbers)
    lengths = {len(served.port.tokens[f"asks {number}"]) for number in numbers[1::2]}
    assert lengths == {64}
    after = served.engine.scheduler.stats()
    assert after.running + after.waiting == 0
    assert after.pages_free + after.pages_cached == empty.pages_free + empty.pages_cached


def test_a_request_that_breaks_every_step_ends_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = served.engine.runner
    launch, cursed = runner.launch, 3

    def breaking(batch: Batch) -> StepHandle:
        if any(cursed in row.tokens for row in batch.rows):
            raise RuntimeError("this prompt cannot be computed")
        return launch(batch)

    monkeypatch.setattr(runner, "launch", breaking)
    said = {token for n in NEIGHBOURS for token in reference(VARIANT, n).prompt}
    assert cursed not in said
    served.send_neighbours()
    for _ in range(10):
        served.loop.step()
    served.send("cursed", [cursed] * 40)
    served.finish()
    assert served.port.codes["cursed"] == "engine_error"
    served.assert_neighbours_right()


def test_values_that_are_not_finite_fail_their_own_request_only(served: Served) -> None:
    """One token's embedding is NaN: it poisons the pages of whoever says it, and nobody else."""
    known = [reference(VARIANT, length) for length in NEIGHBOURS]
    said = {token for one in known for token in (*one.prompt, *one.greedy)}
    poison = next(token for token in range(served.engine.info.vocab_size) if token not in said)
    weights = dict(served.engine.runner.model.parameters())
    with torch.inference_mode():
        weights["model.embed_tokens.weight"][poison] = torch.nan
    for turn in range(3):  # freed pages are taken again
        served.send_neighbours()
        served.send(f"poisoned {turn}", [poison] * (20 + turn))
        served.finish()
        assert served.port.codes[f"poisoned {turn}"] == "not_finite"
        served.assert_neighbours_right()
        served.port.tokens.clear()


LOST = """
import sys
from threading import Event

import torch

from yaie_api.engine_config import EngineConfig
from yaie.core.messages import Generate
from yaie.core.request import SamplingParams
from yaie.layers.attention import StepInput
from yaie.runtime.startup import factory
from yaie.runtime.loop.engine_loop import FatalRunnerError

class Port:
    inbox = [Generate("ends", (1, 2, 3), SamplingParams(max_tokens=4, ignore_eos=True))]

    def drain(self, *, wait_s):
        commands, self.inbox = self.inbox, []
        return commands

    def publish(self, events):
        for event in events:
            if getattr(event, "finish_reason", None):
                print(event.request_id, event.error_code, flush=True)

engine = factory.create(
    EngineConfig(model=sys.argv[1], device="cuda", enforce_eager=True, kv_cache_tokens=512)
)
forward = engine.runner.model.forward

def outside(ids, step):
    torch.zeros(4, device="cuda")[torch.full((1,), 9, device="cuda")]
    return forward(ids, step)

engine.runner.model.forward = outside
try:
    engine.loop(Port()).run(Event())
except FatalRunnerError:
    print("fatal")
"""


def test_a_lost_device_ends_the_process_and_says_so(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(folder)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["ends", "engine_error", "fatal"], done.stderr[-2000:]
