"""Vectors of prompts: bytes as promised, whatever the chunks and the company."""

import numpy as np
import pytest
import torch

from engine.runtime.table_model import Drive, TableModel, table_runner
from yaie.core.messages import Pooling
from yaie.core.request import SamplingParams
from yaie.runtime.worker.runner import ModelRunner

PROMPT = (5, 9, 5, 30, 61, 8, 11)
GREEDY = SamplingParams(temperature=0.0, max_tokens=50)


@pytest.fixture
def runner() -> ModelRunner:
    return table_runner()


def pooled(runner: ModelRunner, pooling: Pooling, chunk: int, slot: int = 2) -> np.ndarray:
    """The vector of PROMPT beside a sequence that decodes; only the last chunk brings it."""
    drive = Drive(runner)
    drive.start(slot, PROMPT, GREEDY, pooling=pooling)
    drive.start(4, (3,), GREEDY)
    vectors = []
    for _ in range(0, len(PROMPT), chunk):
        rows = [*drive.rows(4), *drive.rows(slot, chunk=chunk, sample=False, pool=True)]
        handle = drive.launch(rows)
        runner.sample(handle)
        result = runner.collect(handle)
        drive.tokens[4].append(max(result.tokens))
        vectors.extend(vector for vector in result.pooled if vector is not None)
    assert len(vectors) == 1
    return np.frombuffer(vectors[0], dtype="<f4")


def hidden() -> torch.Tensor:
    return TableModel().table[list(PROMPT)]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
@pytest.mark.parametrize("pooling", ["last", "mean", "classify"])
def test_the_vector_of_a_prompt(runner: ModelRunner, pooling: Pooling, chunk: int) -> None:
    want = {
        "last": hidden()[-1],
        "mean": hidden().double().mean(0).float(),
        "classify": hidden()[-1, :3] * 2,
    }[pooling]
    np.testing.assert_allclose(pooled(runner, pooling, chunk), want.numpy(), rtol=1e-5, atol=1e-6)


def test_a_slot_forgets_the_sum_of_its_last_owner(runner: ModelRunner) -> None:
    first = pooled(runner, "mean", 2)
    drive = Drive(runner)
    drive.start(2, PROMPT, GREEDY, pooling="mean")
    drive.launch(drive.rows(2, chunk=3, sample=False, pool=True))  # and aborted
    assert np.array_equal(pooled(runner, "mean", 2), first)


def test_a_vector_that_is_not_finite_is_flagged(runner: ModelRunner) -> None:
    runner.model.table[9, 3] = torch.nan  # type: ignore[attr-defined]  # the table model's own
    drive = Drive(runner)
    drive.start(0, PROMPT, GREEDY, pooling="mean")
    drive.start(1, PROMPT, GREEDY, pooling="last")
    result = runner.collect(drive.launch(drive.rows(0, 1, sample=False, pool=True)))
    assert result.finite == (False, True)


def test_a_vector_that_nobody_asked_for_is_refused(runner: ModelRunner) -> None:
    drive = Drive(runner)
    drive.start(0, PROMPT, GREEDY)
    with pytest.raises(ValueError, match="vector"):
        drive.launch(drive.rows(0, sample=False, pool=True))
