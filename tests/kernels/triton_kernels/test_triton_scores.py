"""Scores of the kernels: the reference's ids and ranks, its numbers to float32 rounding."""

import pytest
import torch

from yaie_kernels import reference, triton


def logits_of(kind: str, vocab: int) -> torch.Tensor:
    logits = torch.randn(5, vocab) * 4
    if kind == "ties":
        logits = logits.round()
        logits[1] = -0.0
        logits[1, ::2] = 0.0
    if kind == "masked":
        logits[:, 1::3] = -torch.inf
        logits[3, : vocab - 1] = -torch.inf
        logits[3, vocab - 1] = 2.0
    return logits.half() if kind == "half" else logits


@pytest.mark.parametrize("kind", ["plain", "ties", "masked", "half"])
@pytest.mark.parametrize(("vocab", "count"), [(97, 20), (97, 97), (4099, 5), (4099, 0), (1, 1)])
def test_the_references_scores(kind: str, vocab: int, count: int, device: str) -> None:
    logits, tokens = logits_of(kind, vocab), torch.randint(0, vocab, (5,))
    want = reference.score_tokens(logits, tokens, count)
    got = [part.cpu() for part in triton.score_tokens(logits.to(device), tokens.to(device), count)]
    assert torch.equal(got[1], want[1])
    assert torch.equal(got[2], want[2])
    for mine, exact in ((got[0], want[0]), (got[3], want[3])):
        torch.testing.assert_close(mine, exact, rtol=1e-6, atol=3e-6)


def test_strided_rows(device: str) -> None:
    wide, tokens = torch.randn(4, 300), torch.arange(4)
    got = triton.score_tokens(wide.to(device)[:, :200], tokens.to(device), 3)
    want = reference.score_tokens(wide[:, :200], tokens, 3)
    assert torch.equal(got[2].cpu(), want[2])
    torch.testing.assert_close(got[0].cpu(), want[0], rtol=1e-6, atol=3e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
def test_a_row_with_nan_has_no_probability(device: str) -> None:
    logits = torch.randn(2, 50)
    logits[0, 7] = torch.nan
    chosen = triton.score_tokens(logits.to(device), torch.tensor([3, 3], device=device), 2)[0]
    assert chosen.isnan().tolist() == [True, False]


def test_no_rows(device: str) -> None:
    none = torch.empty(0, dtype=torch.int64, device=device)
    got = triton.score_tokens(torch.empty((0, 97), device=device), none, 3)
    assert [tuple(part.shape) for part in got] == [(0,), (0,), (0, 3), (0, 3)]
