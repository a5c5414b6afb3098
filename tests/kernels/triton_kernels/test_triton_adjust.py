"""The kernels change logits exactly as the reference does, on every mixture of wishes."""

import pytest
import torch

from yaie_kernels import logit_flags, reference, triton

ROWS, SLOTS = 7, 9


def tables(vocab: int) -> dict[str, torch.Tensor]:
    """Random state of SLOTS slots; lists are partly unused."""
    words = torch.randint(0, vocab, (SLOTS, 5, logit_flags.WORD_TOKENS), dtype=torch.int32)
    words[:, :, :-3] = logit_flags.ANY
    words[:, 2:4, -3:-1] = logit_flags.ANY  # words of one token
    words[::2, 4] = logit_flags.ANY  # no word at all
    tokens = torch.stack([torch.randperm(vocab)[: min(vocab, 40)] for _ in range(SLOTS)]).int()
    tokens[1::2, 10:] = -1
    return {
        "masks": torch.randint(-(2**31), 2**31 - 1, (3, SLOTS, -(-vocab // 32))).int(),
        "seen": torch.randint(0, 7, (SLOTS, vocab), dtype=torch.int32),
        "penalties": torch.rand(3, SLOTS) * 2 + 0.1,
        "tokens": tokens,
        "values": torch.randn(tokens.shape) * 10,
        "words": words,
        "recent": torch.randint(-2, vocab, (SLOTS, logit_flags.WORD_TOKENS), dtype=torch.int32),
    }


def on(device: str, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.to(device) for tensor in tensors]


def broken_logits(vocab: int) -> torch.Tensor:
    """Ties, both zeros, -inf, and one token each of NaN and +inf."""
    logits = (torch.randn(ROWS, vocab) * 3).round()
    logits[:, ::5] = -torch.inf
    logits[1, vocab // 2], logits[2, vocab // 2] = torch.nan, torch.inf
    logits[3, -1] = -0.0
    return logits


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slot, wishes and position of each row: every bit alone and all together."""
    wanted = torch.tensor([0, 1, 2, 4, 8, 63, 63], dtype=torch.int32)
    return torch.randperm(SLOTS)[:ROWS], wanted, torch.randint(0, 2**33, (ROWS,))


@pytest.mark.parametrize("vocab", [1, 97, 4099])
def test_masks_and_penalties(
    vocab: int, device: str, rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    slot, wanted, _ = rows
    table = tables(vocab)
    arguments = (
        broken_logits(vocab),
        slot,
        wanted,
        table["masks"],
        table["seen"],
        table["penalties"],
    )
    got = triton.adjust_logits(*on(device, *arguments)).cpu()
    torch.testing.assert_close(
        got, reference.adjust_logits(*arguments), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("present", ["masks", "seen"])
def test_a_table_that_no_row_wants_may_be_missing(
    present: str, device: str, rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    slot, wanted, _ = rows
    table = tables(97)
    logits = torch.randn(ROWS, 97)
    penalties = table["penalties"] if present == "seen" else None
    given = {"masks": None, "seen": None, present: table[present]}
    want = reference.adjust_logits(logits, slot, wanted, given["masks"], given["seen"], penalties)
    moved = {name: value if value is None else value.to(device) for name, value in given.items()}
    got = triton.adjust_logits(
        *on(device, logits, slot, wanted),
        moved["masks"],
        moved["seen"],
        penalties if penalties is None else penalties.to(device),
    )
    assert torch.equal(got.cpu(), want)


def test_half_precision_and_strided_logits_are_widened(
    device: str, rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    slot, wanted, _ = rows
    table = tables(200)
    wide = torch.randn(ROWS, 300).half()
    state = (slot, wanted, table["masks"], table["seen"], table["penalties"])
    got = triton.adjust_logits(wide.to(device)[:, :200], *on(device, *state)).cpu()
    assert got.dtype == torch.float32
    assert torch.equal(got, reference.adjust_logits(wide[:, :200], *state))


@pytest.mark.parametrize("vocab", [97, 4099])
def test_biases(
    vocab: int, device: str, rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    slot, wanted, _ = rows
    table = tables(vocab)
    want = broken_logits(vocab)
    got = want.to(device, copy=True)
    triton.add_biases_(got, *on(device, slot, wanted, table["tokens"], table["values"]))
    reference.add_biases_(want, slot, wanted, table["tokens"], table["values"])
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("vocab", [3, 97])
def test_banned_words(
    vocab: int, device: str, rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    slot, wanted, position = rows
    table = tables(vocab)  # three tokens: words come about often
    clean = want = broken_logits(vocab)
    got = want.to(device, copy=True)
    want = clean.clone()
    triton.ban_words_(got, *on(device, slot, position, wanted, table["words"], table["recent"]))
    reference.ban_words_(want, slot, position, wanted, table["words"], table["recent"])
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0, equal_nan=True)
    assert not torch.equal(want.nan_to_num(), clean.nan_to_num())


def test_drawn_tokens_are_remembered(
    device: str, rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    slot, wanted, position = rows
    table = tables(97)
    tokens = torch.randint(0, 97, (ROWS,))
    seen, recent = on(device, table["seen"].clone(), table["recent"].clone())
    triton.remember_(*on(device, tokens, slot, position, wanted), seen, recent)
    reference.remember_(tokens, slot, position, wanted, table["seen"], table["recent"])
    assert torch.equal(seen.cpu(), table["seen"])
    assert torch.equal(recent.cpu(), table["recent"])


def test_no_rows(device: str) -> None:
    table = {name: value.to(device) for name, value in tables(97).items()}
    slot = torch.empty(0, dtype=torch.int64, device=device)
    wanted = torch.empty(0, dtype=torch.int32, device=device)
    logits = torch.empty((0, 97), device=device)
    state = (table["masks"], table["seen"], table["penalties"])
    assert triton.adjust_logits(logits, slot, wanted, *state).shape == (0, 97)
    triton.add_biases_(logits, slot, wanted, table["tokens"], table["values"])
    triton.ban_words_(logits, slot, slot, wanted, table["words"], table["recent"])
    triton.remember_(slot, slot, slot, wanted, table["seen"], table["recent"])
