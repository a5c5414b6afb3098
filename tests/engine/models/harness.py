"""The real scheduler, loop and runner over a folder, driven step by step; it is its own port."""

from itertools import count
from pathlib import Path

import torch

from yaie.core.batch import Batch, StepResult
from yaie.core.messages import Abort, Command, Event, Generate, Tokens
from yaie.core.request import SamplingParams
from yaie.runtime.loop.engine_loop import EngineLoop, TokenMasks
from yaie.runtime.loop.step_budget import StepBudget, StepLimits
from yaie.runtime.startup import factory
from yaie.runtime.worker.runner import ModelRunner, StepHandle
from yaie_api.engine_config import EngineConfig

GREEDY = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)


class Recorder:
    """A runner that keeps the logits of every sampled row, by sequence and position."""

    def __init__(self, inner: ModelRunner) -> None:
        self.inner = inner
        self.depth = inner.depth
        self.logits: dict[int, dict[int, torch.Tensor]] = {}
        self.steps = 0
        self.mixed_steps = 0

    def warm_up_next(self) -> bool:
        return self.inner.warm_up_next()

    def launch(self, batch: Batch) -> StepHandle:
        handle = self.inner.launch(batch)
        rows = [row for row in batch.rows if row.sample]
        self.steps += 1
        self.mixed_steps += len({bool(row.tokens) for row in batch.rows}) == 2
        if handle.logits is not None:
            for row, logits in zip(rows, handle.logits, strict=True):
                of_sequence = self.logits.setdefault(row.seq_id, {})
                of_sequence[row.start + row.n_tokens] = logits.clone()
        return handle

    def sample(self, handle: StepHandle, masks: TokenMasks | None = None) -> None:
        self.inner.sample(handle, masks)

    def is_done(self, handle: StepHandle) -> bool:
        return self.inner.is_done(handle)

    def collect(self, handle: StepHandle) -> StepResult:
        return self.inner.collect(handle)


class Harness:
    """Requests are numbered from 0 in the order of `add`, as sequences are."""

    def __init__(
        self,
        folder: Path,
        *,
        step_tokens: int = 64,
        kv_cache_tokens: int = 1024,
        prefix_caching: bool = True,
        dtype: str = "float32",
        max_model_len: int | None = None,
        mla_form: str = "auto",
    ) -> None:
        engine = factory.create(
            EngineConfig(
                model=str(folder),
                device="cpu",
                dtype=dtype,
                cpu_threads=1,
                max_model_len=max_model_len,
                model_impl="yaie",
                mla_form=mla_form,
                max_num_batched_tokens=step_tokens,
                kv_cache_tokens=kv_cache_tokens,
                enable_prefix_caching=prefix_caching,
                max_num_seqs=8,
            )
        )
        self.scheduler = engine.scheduler
        self.recorder = Recorder(engine.runner)
        budget = StepBudget(StepLimits(step_tokens, float("inf")))
        self.loop = EngineLoop(engine.scheduler, self.recorder, self, budget=budget)
        self.inbox: list[Command] = []
        self.tokens: dict[int, list[int]] = {}
        self.cached: dict[int, int] = {}
        self._ids = count()

    def drain(self, *, wait_s: float) -> list[Command]:
        commands, self.inbox = self.inbox, []
        return commands

    def publish(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Tokens):
                number = int(event.request_id)
                self.tokens.setdefault(number, []).extend(event.token_ids)
                self.cached[number] = event.cached_tokens

    def add(self, prompt: tuple[int, ...], sampling: SamplingParams = GREEDY) -> int:
        number = next(self._ids)
        self.inbox.append(Generate(str(number), prompt, sampling))
        return number

    def abort(self, number: int) -> None:
        self.inbox.append(Abort(str(number)))

    def finish(self) -> None:
        """Step until nothing is left to do."""
        while self.inbox or not self.loop.is_idle:
            self.loop.step()

    def run(
        self, prompts: list[tuple[int, ...]], sampling: list[SamplingParams]
    ) -> list[list[int]]:
        """Run requests together; the tokens of each."""
        numbers = [self.add(*each) for each in zip(prompts, sampling, strict=True)]
        self.finish()
        return [self.tokens[number] for number in numbers]
