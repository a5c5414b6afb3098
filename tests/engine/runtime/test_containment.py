"""On a CPU a failure of the real runner stays with the request that it belongs to."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.models.harness import Harness
from engine.models.oracle import prompt, save
from yaie.core.messages import Event, Tokens
from yaie.core.request import SamplingParams
from yaie.layers.attention import StepInput

VARIANT = "llama-gqa"
NEIGHBOURS = [prompt(VARIANT, length, seed=length) for length in (1, 16, 37)]
ANSWER = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
SHORT = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
NO_MACHINE_HAS = 2**55
LONG = 48


class Watched(Harness):
    """Keeps how requests ended, and what the neighbours say when nothing is wrong."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ends: dict[int, Tokens] = {}
        self.known = self.run(NEIGHBOURS, [ANSWER] * len(NEIGHBOURS))

    def publish(self, events: list[Event]) -> None:
        super().publish(events)
        for event in events:
            if isinstance(event, Tokens) and event.finish_reason is not None:
                self.ends[int(event.request_id)] = event

    def add_neighbours(self) -> list[int]:
        return [self.add(ids, ANSWER) for ids in NEIGHBOURS]

    def assert_right(self, neighbours: list[int]) -> None:
        self.scheduler.check()
        assert [self.ends[number].error for number in neighbours] == [None] * len(neighbours)
        assert [self.tokens[number] for number in neighbours] == self.known


@pytest.fixture
def harness(tmp_path: Path) -> Watched:
    return Watched(save(VARIANT, tmp_path))


def greedy_for_memory(
    forward: Callable[[torch.Tensor, StepInput], torch.Tensor],
) -> Callable[[torch.Tensor, StepInput], torch.Tensor]:
    """A model that wants more memory for long steps than there is."""

    def wanting(ids: torch.Tensor, step: StepInput) -> torch.Tensor:
        if len(ids) >= LONG:
            torch.empty(NO_MACHINE_HAS)
        return forward(ids, step)

    return wanting


def test_a_step_that_finds_no_memory_says_so_and_the_next_ones_are_right(
    harness: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = harness.recorder.inner.model
    monkeypatch.setattr(model, "forward", greedy_for_memory(model.forward))
    too_long = harness.add((5,) * LONG, SHORT)
    harness.finish()
    error = harness.ends[too_long].error
    assert error == "The engine failed on this request (out of memory)."
    neighbours = []
    for ids in NEIGHBOURS:  # one after the other: together they would make a long step
        neighbours.append(harness.add(ids, ANSWER))
        harness.finish()
    harness.assert_right(neighbours)


def test_values_that_are_not_finite_fail_their_own_request_only(harness: Watched) -> None:
    """One token's embedding is NaN: it poisons the pages of whoever says it, and nobody else."""
    said = {token for ids in (*NEIGHBOURS, *harness.known) for token in ids}
    model = harness.recorder.inner.model
    poison = next(token for token in range(model.vocab_size) if token not in said)
    with torch.inference_mode():
        dict(model.parameters())["model.embed_tokens.weight"][poison] = torch.nan
    for turn in range(3):  # freed pages are taken again
        neighbours = harness.add_neighbours()
        poisoned = harness.add((poison,) * (20 + turn), SHORT)
        harness.finish()
        assert harness.ends[poisoned].error_code == "not_finite"
        harness.assert_right(neighbours)
