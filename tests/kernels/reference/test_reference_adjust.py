"""Each change of the logits, and each filter, against transformers' own processor of that name."""

import pytest
import torch
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from yaie_kernels import (
    add_biases_,
    adjust_logits,
    ban_words_,
    logit_flags,
    remember_,
    sample,
)

VOCAB, ROWS = 77, 5
SLOT = torch.tensor([3, 0, 4, 1, 2])


def wanting(bit: int) -> torch.Tensor:
    return torch.full((ROWS,), bit, dtype=torch.int32)


def edgy_logits() -> torch.Tensor:
    """Ties, zeros of both signs, a row of -inf but for one, a flat row."""
    logits = torch.randn(ROWS, VOCAB) * 3
    logits[0] = logits[0].round()
    logits[1, 5:9] = torch.tensor([0.0, -0.0, 0.0, -0.0])
    logits[2] = -torch.inf
    logits[2, 40] = 1.5
    logits[3] = 0.25
    return logits


@pytest.mark.parametrize("penalty", [0.3, 1.0, 1.3, 50.0])
def test_the_repetition_penalty_is_transformers(penalty: float) -> None:
    logits, past = edgy_logits(), torch.randint(0, VOCAB, (ROWS, 30))
    seen = torch.zeros(ROWS, VOCAB, dtype=torch.int32)
    seen[SLOT.unsqueeze(1), past[:, :20]] = 1
    penalties = torch.tensor([penalty, 0.0, 0.0]).unsqueeze(1).expand(3, ROWS).contiguous()
    for column in range(20, 30):
        remember_(past[:, column], SLOT, past[:, 0], wanting(logit_flags.PENALTIES), seen, None)
    got = adjust_logits(logits, SLOT, wanting(logit_flags.PENALTIES), None, seen, penalties)
    assert torch.equal(got, RepetitionPenaltyLogitsProcessor(penalty)(past, logits.clone()))


def test_frequency_counts_and_presence_does_not() -> None:
    """The formula of OpenAI's reference: mu - count * frequency - (count > 0) * presence."""
    logits = edgy_logits()
    counts = torch.randint(0, 4, (ROWS, VOCAB))
    seen = torch.empty(ROWS, VOCAB, dtype=torch.int32)
    seen[SLOT] = (2 * counts + torch.randint(0, 2, (ROWS, VOCAB))).int()  # the prompt is no matter
    penalties = torch.tensor([1.0, 0.7, -0.4]).unsqueeze(1).expand(3, ROWS).contiguous()
    got = adjust_logits(logits, SLOT, wanting(logit_flags.PENALTIES), None, seen, penalties)
    present = (counts > 0).float()
    torch.testing.assert_close(got, logits - counts * 0.7 + present * 0.4, rtol=1e-6, atol=1e-6)


WORDS = [[7], [8, 9], [10, 11, 12], [13, 13], [8, 14], [9, 10, 11, 15], list(range(20, 52))]


@pytest.mark.parametrize("length", [1, 2, 3, 31, 40])
def test_bad_words_are_transformers(length: int) -> None:
    logits = edgy_logits()
    past = torch.randint(7, 16, (ROWS, length))
    past[4] = torch.arange(length) + 51 - length  # the last of the 32 tokens is due
    table = torch.full(
        (ROWS, len(WORDS) + 2, logit_flags.WORD_TOKENS), logit_flags.ANY, dtype=torch.int32
    )
    for number, word in enumerate(WORDS):
        table[:, number + 1, -len(word) :] = torch.tensor(word)
    recent = torch.full((ROWS, logit_flags.WORD_TOKENS), logit_flags.NONE, dtype=torch.int32)
    position = torch.arange(ROWS) * 10
    for column in range(length):
        remember_(past[:, column], SLOT, position, wanting(logit_flags.BAD_WORDS), None, recent)
        position += 1
    got = logits.clone()
    ban_words_(got, SLOT, position, wanting(logit_flags.BAD_WORDS), table, recent)
    assert torch.equal(got, NoBadWordsLogitsProcessor(WORDS)(past, logits.clone()))
    assert (got[4, 51] == -torch.inf) == (length >= 31)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_masks_forbid_what_they_leave_out(kind: int) -> None:
    logits = edgy_logits()
    ends = [2, 63, 76]
    words = torch.full((3, ROWS, 3), 0, dtype=torch.int32)
    for token in set(range(VOCAB)) - set(ends):
        words[kind, :, token // 32] |= torch.tensor(1 << token % 32).int()
    got = adjust_logits(logits, SLOT, wanting(1 << kind), words, None, None)
    processor = MinNewTokensLengthLogitsProcessor(4, 3, ends, device="cpu")
    early, late = torch.zeros(ROWS, 6).long(), torch.zeros(ROWS, 7).long()
    assert torch.equal(got, processor(early, logits.clone()))
    assert torch.equal(logits, processor(late, logits.clone()))


def test_biases_add_up_with_what_is_there() -> None:
    logits = edgy_logits()
    tokens = torch.tensor([[0, 76, -1, 40]]).expand(ROWS, -1).int()
    values = torch.tensor([[1.5, -100.0, 7.0, 2.0]]).expand(ROWS, -1)
    got = logits.clone()
    add_biases_(got, SLOT, wanting(logit_flags.BIASES), tokens, values)
    changed = torch.zeros(VOCAB)
    changed[[0, 76, 40]] = torch.tensor([1.5, -100.0, 2.0])
    assert torch.equal(got, logits + changed)


def test_rows_that_want_nothing_are_only_widened() -> None:
    logits = edgy_logits().half()
    seen = torch.ones(ROWS, VOCAB, dtype=torch.int32)
    masks = torch.zeros(3, ROWS, 3, dtype=torch.int32)
    got = adjust_logits(logits, SLOT, wanting(0), masks, seen, torch.ones(3, ROWS) * 5)
    assert torch.equal(got, logits.float())
    words = torch.zeros(ROWS, 1, logit_flags.WORD_TOKENS, dtype=torch.int32)
    add_biases_(got, SLOT, wanting(0), words[:, 0], torch.ones(ROWS, logit_flags.WORD_TOKENS))
    ban_words_(got, SLOT, SLOT, wanting(0), words, words[:, 0])
    assert torch.equal(got, logits.float())


# -- filters ----------------------------------------------------------------------------------

WARPERS = {
    "top_k 1": ({"top_k": 1}, [TopKLogitsWarper(1)]),
    "top_k 9": ({"top_k": 9}, [TopKLogitsWarper(9)]),
    "top_k beyond the vocabulary": ({"top_k": 10**6}, [TopKLogitsWarper(10**6)]),
    "top_p .3": ({"top_p": 0.3}, [TopPLogitsWarper(0.3)]),
    "top_p .95": ({"top_p": 0.95}, [TopPLogitsWarper(0.95)]),
    "min_p .05": ({"min_p": 0.05}, [MinPLogitsWarper(0.05)]),
    "min_p 1": ({"min_p": 1.0}, [MinPLogitsWarper(1.0)]),
    "temperature and top_p": (
        {"temperature": 0.5, "top_p": 0.8},
        [TemperatureLogitsWarper(0.5), TopPLogitsWarper(0.8)],
    ),
    "all": (
        {"temperature": 1.6, "top_k": 30, "top_p": 0.9, "min_p": 0.03},
        [
            TemperatureLogitsWarper(1.6),
            TopKLogitsWarper(30),
            TopPLogitsWarper(0.9),
            MinPLogitsWarper(0.03),
        ],
    ),
}


def drawable(logits: torch.Tensor, **filters: float) -> set[int]:
    """Every token that 4000 draws from the row bring up."""
    rows = 4000
    ids, _, _ = sample(
        logits.expand(rows, -1),
        torch.full((rows,), filters.get("temperature", 1.0)),
        torch.full((rows,), int(filters.get("top_k", 0)), dtype=torch.int32),
        torch.full((rows,), filters.get("top_p", 1.0)),
        torch.full((rows,), filters.get("min_p", 0.0)),
        torch.zeros(rows, dtype=torch.int64),
        torch.arange(rows),
    )
    return set(ids.tolist())


@pytest.mark.parametrize("case", WARPERS)
def test_the_filters_keep_what_transformers_keep(case: str) -> None:
    filters, warpers = WARPERS[case]
    for seed in range(6):
        logits = torch.randn(1, 24, generator=torch.Generator().manual_seed(seed)) * 1.2
        logits[0, seed::5] = -torch.inf
        warped = logits
        for warper in warpers:
            warped = warper(torch.zeros(1, 1).long(), warped)
        kept = set((warped[0] > -torch.inf).nonzero().squeeze(1).tolist())
        likely = set((warped[0].softmax(0) > 0.004).nonzero().squeeze(1).tolist())
        assert likely <= drawable(logits[0], **filters) <= kept


def test_one_token_left_is_drawn_whatever_the_filters() -> None:
    logits = edgy_logits()[2]
    for filters, _ in WARPERS.values():
        assert drawable(logits, **filters) == {40}


def test_ties_stand_or_fall_together() -> None:
    flat = edgy_logits()[3]
    for filters in ({"top_k": 1}, {"top_p": 0.01}, {"min_p": 1.0}):
        assert len(drawable(flat, **filters)) == VOCAB
