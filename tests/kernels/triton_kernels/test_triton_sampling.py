"""The Triton sampler draws the very tokens of the reference, on every kind of row."""

import itertools

import pytest
import torch

from yaie_kernels import reference, triton

TEMPERATURES = [0.0, 0.3, 1.0, 1.7]
FILTERS = [
    (0, 1.0, 0.0),
    (5, 1.0, 0.0),
    (1, 1.0, 0.0),
    (0, 0.9, 0.0),
    (0, 0.05, 0.0),
    (0, 1.0, 0.2),
    (40, 0.8, 0.1),
]


def parameters(device: str, repeats: int = 1) -> tuple[int, list[torch.Tensor]]:
    """Every kind of row on the GPU, every third in the slow interpreter."""
    rows = list(itertools.product(TEMPERATURES, FILTERS))[:: 1 if device == "cuda" else 3] * repeats
    count = len(rows)
    return count, [
        torch.tensor([row[0] for row in rows]),
        torch.tensor([row[1][0] for row in rows], dtype=torch.int32),
        torch.tensor([row[1][1] for row in rows]),
        torch.tensor([row[1][2] for row in rows]),
        torch.randint(-(2**62), 2**62, (count,)),
        torch.randint(0, 2**40, (count,)),
    ]


def both(
    logits: torch.Tensor, arguments: list[torch.Tensor], device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    got = triton.sample(logits.to(device), *(a.to(device) for a in arguments)).cpu()
    return got, reference.sample(logits, *arguments)


@pytest.mark.parametrize("vocab", [1, 97, 4099])
def test_the_same_draws_as_the_reference(vocab: int, device: str) -> None:
    count, arguments = parameters(device)
    got, want = both(torch.randn(count, vocab) * 3, arguments, device)
    assert torch.equal(got, want)


def test_the_same_draws_with_masked_and_tied_logits(device: str) -> None:
    count, arguments = parameters(device)
    logits = torch.randn(count, 333).round()  # many ties, zeros of both signs
    logits[:, ::3] = float("-inf")
    logits[:, 1] = -0.0
    got, want = both(logits, arguments, device)
    assert torch.equal(got, want)
    assert (logits.gather(1, got[:, None]) > float("-inf")).all()


def test_half_precision_logits_are_widened_first(device: str) -> None:
    count, arguments = parameters(device)
    got, want = both((torch.randn(count, 501) * 3).half(), arguments, device)
    assert torch.equal(got, want)


def test_strided_rows(device: str) -> None:
    count, arguments = parameters(device)
    wide = torch.randn(count, 300) * 3
    got = triton.sample(wide.to(device)[:, :200], *(a.to(device) for a in arguments)).cpu()
    assert torch.equal(got, reference.sample(wide[:, :200].contiguous(), *arguments))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
def test_a_row_with_nan_still_gives_a_valid_id(device: str) -> None:
    count, arguments = parameters(device)
    logits = torch.full((count, 50), float("nan"))
    got = triton.sample(logits.to(device), *(a.to(device) for a in arguments)).cpu()
    assert ((got >= 0) & (got < 50)).all()


def test_an_empty_batch(device: str) -> None:
    _, arguments = parameters(device)
    none = [a[:0].to(device) for a in arguments]
    assert triton.sample(torch.empty(0, 10, device=device), *none).shape == (0,)


@pytest.mark.gpu
def test_a_large_vocabulary_draws_as_the_reference(device: str) -> None:
    if device != "cuda":
        pytest.skip("the interpreter would take minutes")
    count, arguments = parameters(device, repeats=8)
    got, want = both(torch.randn(count, 151936) * 2.5, arguments, device)
    assert torch.equal(got, want)


def test_cut_offs_among_few_tokens_and_among_all(device: str) -> None:
    """Peaked rows settle among the tokens that pass a bound; flat ones need the whole row."""
    vocab, kinds = 9001 if device == "cuda" else 2500, 6
    logits = torch.randn(kinds, vocab) * torch.tensor([[0.0], [0.1], [1.0], [4.0], [8.0], [8.0]])
    logits[5] = logits[5].round()  # and many ties
    rows = [(kind, *row) for kind in range(kinds) for row in ((7, 1.0), (30, 0.7), (0, 0.8))]
    rows = rows[:: 1 if device == "cuda" else 4]
    count = len(rows)
    arguments = [
        torch.ones(count),
        torch.tensor([row[1] for row in rows], dtype=torch.int32),
        torch.tensor([row[2] for row in rows]),
        torch.zeros(count),
        torch.arange(count),
        torch.arange(count),
    ]
    got, want = both(logits[[row[0] for row in rows]], arguments, device)
    assert torch.equal(got, want)


def test_a_host_that_knows_of_no_cut_off_spares_the_search(device: str) -> None:
    logits = torch.randn(8, 700) * 3
    temperature = torch.tensor([0.0, 0.7, 1.0, 1.5]).repeat(2)
    none = torch.zeros(8)
    min_p = torch.tensor([0.0, 0.0, 0.1, 0.1]).repeat(2)
    seed, position = torch.arange(8), torch.arange(8) * 7
    arguments = [temperature, none.int(), none + 1, min_p, seed, position]
    got = triton.sample(logits.to(device), *(a.to(device) for a in arguments), filtered=False)
    assert torch.equal(got.cpu(), reference.sample(logits, *arguments))
    assert torch.equal(got.cpu(), reference.sample(logits, *arguments, filtered=False))
