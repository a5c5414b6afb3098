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


def drawn(found: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The ids alone, of rows that must all have been found finite."""
    tokens, finite, peak = (part.cpu() for part in found)
    assert finite.all()
    assert peak.isfinite().all()
    return tokens


def both(
    logits: torch.Tensor, arguments: list[torch.Tensor], device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    got = drawn(triton.sample(logits.to(device), *(a.to(device) for a in arguments)))
    return got, drawn(reference.sample(logits, *arguments))


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
    got = drawn(triton.sample(wide.to(device)[:, :200], *(a.to(device) for a in arguments)))
    assert torch.equal(got, drawn(reference.sample(wide[:, :200].contiguous(), *arguments)))


@pytest.mark.parametrize("filtered", [False, True])
def test_parameters_may_be_those_of_named_rows(filtered: bool, device: str) -> None:
    """As of the rows of a step among all sequences: what no row names is not looked at."""
    count, (*parts, position) = parameters(device)
    logits = torch.randn(count, 333) * 3
    if not filtered:
        parts[1:3] = [torch.zeros(count, dtype=torch.int32), torch.ones(count)]
    want = drawn(reference.sample(logits, *parts, position, filtered=filtered))
    rows = torch.randperm(count + 5)[:count]
    tables = [part.new_full((count + 5,), 77).index_copy(0, rows, part) for part in parts]
    arguments = [part.to(device) for part in (logits, *tables, position)]
    for module, where in ((triton, device), (reference, "cpu")):
        placed = [part.to(where) for part in arguments]
        got = module.sample(*placed, rows=rows.to(where), filtered=filtered)
        assert torch.equal(drawn(got), want)


BROKEN = [float("nan"), float("inf"), float("-inf")]


def broken_rows(vocab: int, dtype: torch.dtype) -> torch.Tensor:
    """A good row, then one of each kind that has no largest logit, then good ones with ties."""
    logits = torch.randn(6, vocab).round().to(dtype)
    for row, value in enumerate(BROKEN, start=1):
        logits[row, vocab // 2] = value
    logits[3] = float("-inf")
    return logits


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("vocab", [2, 97, 5000])
def test_greedy_is_the_reference_to_the_last_tie_and_flag(
    vocab: int, dtype: torch.dtype, device: str
) -> None:
    logits = broken_rows(vocab, dtype)
    for got, want in zip(triton.greedy(logits.to(device)), reference.greedy(logits), strict=True):
        assert torch.equal(got.cpu(), want)
    tokens, finite, peak = reference.greedy(logits)
    assert finite.tolist() == [True, False, False, False, True, True]
    assert peak[1:4].tolist() == [float("inf"), float("inf"), float("-inf")]
    for row in (0, 4, 5):
        assert tokens[row] == (logits[row] == logits[row].max()).nonzero()[0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("filtered", [False, True])
def test_a_broken_row_is_flagged_and_spoils_no_other(filtered: bool, device: str) -> None:
    logits = broken_rows(60, torch.float32)
    none = torch.zeros(6)
    rest = [none.int(), none + 1, none, torch.arange(6), torch.arange(6)]
    for temperature in (none, none + 1):
        arguments = [a.to(device) for a in (logits, temperature, *rest)]
        found = [a.cpu() for a in triton.sample(*arguments, filtered=filtered)]
        want = reference.sample(logits, temperature, *rest, filtered=filtered)
        assert all(map(torch.equal, found, want))
        assert found[1].tolist() == [True, False, False, False, True, True]
        assert found[0][1:4].tolist() == [0, 0, 0]


def test_an_empty_batch(device: str) -> None:
    _, arguments = parameters(device)
    none = [a[:0].to(device) for a in arguments]
    assert triton.sample(torch.empty(0, 10, device=device), *none)[0].shape == (0,)
    assert triton.greedy(torch.empty(0, 10, device=device))[0].shape == (0,)


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
    assert torch.equal(drawn(got), drawn(reference.sample(logits, *arguments)))
    assert torch.equal(drawn(got), drawn(reference.sample(logits, *arguments, filtered=False)))
