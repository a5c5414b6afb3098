"""Log-probabilities: exact, ranked, in bounded pieces, only where they were asked for."""

import math

import pytest
import torch

from engine.runtime.table_model import VOCAB, Drive, TableModel, table_runner
from yaie.core.batch import Row, StepResult
from yaie.core.messages import TokenLogprobs
from yaie.core.request import SamplingParams
from yaie.runtime.sampling import logprobs
from yaie.runtime.worker.runner import ModelRunner

PROMPT = (5, 9, 5, 30, 61, 8)


def exact(token: int) -> torch.Tensor:
    """Log-softmax, in float64, of the logits that follow a token."""
    return TableModel().table[token].double().log_softmax(0)


def assert_right(entry: TokenLogprobs, after: int, count: int) -> None:
    """An entry about the token that follows `after`."""
    want = exact(after)
    assert math.isclose(entry.logprob, want[entry.token_id], abs_tol=1e-5)
    assert entry.rank == int((want > want[entry.token_id]).sum()) + 1
    best = want.sort(descending=True)
    assert entry.top_ids == tuple(best.indices[:count].tolist())
    torch.testing.assert_close(
        torch.tensor(entry.top_logprobs, dtype=torch.float64),
        best.values[:count],
        atol=1e-5,
        rtol=0,
    )


@pytest.fixture
def runner() -> ModelRunner:
    return table_runner()


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_drawn_tokens_carry_the_models_own_logprobs(
    runner: ModelRunner, temperature: float
) -> None:
    """Whatever changes the draw, they come from the raw logits; each row has its own count."""
    drive = Drive(runner)
    counts = {0: 3, 1: None, 2: 0, 3: -1, 4: 20}
    for slot, count in counts.items():
        sampling = SamplingParams(
            temperature=temperature, logprobs=count, max_tokens=50, top_k=4,
            presence_penalty=1.0 if slot % 2 else 0.0, logit_bias={7: 3.0} if slot > 2 else {},
        )  # fmt: skip
        drive.start(slot, PROMPT[: slot + 1], sampling, seed=slot)
    for _ in range(4):
        result = drive.step(*counts)
        for slot, entry in enumerate(result.logprobs):
            count = counts[slot]
            if count is None:
                assert entry is None
                continue
            assert entry is not None
            assert entry.token_id == drive.tokens[slot][-1]
            assert_right(entry, drive.tokens[slot][-2], VOCAB if count < 0 else count)


def test_nobody_asking_leaves_the_fields_empty(runner: ModelRunner) -> None:
    drive = Drive(runner)
    drive.start(0, PROMPT, SamplingParams(temperature=0.0))
    result = drive.step(0)
    assert (result.logprobs, result.prompt_logprobs, result.pooled) == ((), (), ())


def prompt_step(runner: ModelRunner, count: int, chunk: int) -> list[StepResult]:
    """A prompt in chunks, with targets, beside a sequence that has none."""
    drive = Drive(runner)
    drive.start(1, PROMPT, SamplingParams(prompt_logprobs=count, temperature=0.0))
    drive.start(2, (3,), SamplingParams(temperature=0.0, max_tokens=50))
    results = []
    for start in range(0, len(PROMPT), chunk):
        ids = PROMPT[start : start + chunk]
        targets = PROMPT[start + 1 : start + chunk + 1]
        row = Row(1, 1, 0, start, len(ids), ids, start + chunk >= len(PROMPT), targets)
        handle = drive.launch([*drive.rows(2), row])
        runner.sample(handle)
        results.append(runner.collect(handle))
        drive.tokens[2].append(results[-1].tokens[0])
    return results


@pytest.mark.parametrize("count", [0, 4, -1])
@pytest.mark.parametrize("chunk", [1, 2, 3, 6])
def test_prompts_are_scored_in_chunks(runner: ModelRunner, count: int, chunk: int) -> None:
    scored = [r.prompt_logprobs for r in prompt_step(runner, count, chunk) if r.prompt_logprobs]
    entries = [entry for _, own in scored for entry in own or ()]
    assert [entry.token_id for entry in entries] == list(PROMPT[1:])
    for after, entry in zip(PROMPT, entries, strict=False):
        assert_right(entry, after, VOCAB if count < 0 else count)
    assert all(other is None for other, _ in scored)


def test_a_long_prompt_is_scored_in_pieces(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = prompt_step(runner, 5, len(PROMPT))[0]
    monkeypatch.setattr(logprobs, "PIECE_BYTES", 2 * 4 * VOCAB)
    sizes: list[int] = []
    logits = runner.model.logits
    monkeypatch.setattr(runner.model, "logits", lambda h: sizes.append(len(h)) or logits(h))
    assert prompt_step(runner, 5, len(PROMPT))[0] == whole
    assert sizes == [2, 2, 1, 2]  # the last are the rows that draw


def test_a_prompt_with_broken_logits_is_flagged(runner: ModelRunner) -> None:
    runner.model.table[9, 3] = torch.nan  # type: ignore[attr-defined]  # the table model's own
    result = prompt_step(runner, 2, len(PROMPT))[0]
    assert result.finite == (True, False)


def test_equal_logits_are_ranked_by_id() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0, 2.0, -0.0, -torch.inf]])
    scores = logprobs.score(logits.expand(2, -1), torch.tensor([2, 3]), 7)
    assert scores.top_ids.tolist() == [[1, 2, 4, 0, 3, 5, 6]] * 2
    assert scores.rank.tolist() == [1, 5]
    assert scores.top[0, -1] == -torch.inf


def test_negative_logits_are_ordered_too() -> None:
    logits = -torch.rand(3, 50, generator=torch.Generator().manual_seed(0)) * 100
    scores = logprobs.score(logits, torch.tensor([0, 1, 2]), 50)
    assert torch.equal(scores.top_ids, logits.argsort(dim=-1, descending=True, stable=True))
