"""Which guesses count, on the device and on the host."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from yaie.core.batch import Row
from yaie.runtime.sampling.verification import NO_GUESS, count_right, drafts_of, last_tokens

DRAFTS = st.lists(st.lists(st.integers(0, 2), max_size=4), min_size=1, max_size=5)


def drafted(slot: int, draft: list[int]) -> Row:
    ids = (9, *draft)
    return Row(slot, slot, 0, 5, len(ids), ids, True, n_draft=len(draft))


def test_drafts_of_different_lengths_are_padded_with_guesses_that_are_never_right() -> None:
    rows = [Row(8, 8, 0, 4, 1, (), True), drafted(3, [1]), drafted(5, [2, 0, 1])]
    drafts = drafts_of(rows, np.array([0, 1, 1, 2, 2, 2, 2], dtype=np.int32))
    assert drafts.slots.tolist() == [3, 5]
    assert drafts.draws.tolist() == [[1, 2, 2, 2], [3, 4, 5, 6]]
    assert drafts.guesses.tolist() == [[1, NO_GUESS, NO_GUESS], [2, 0, 1]]


@given(DRAFTS, st.data())
def test_device_and_host_agree_on_the_last_token_that_counts(
    drafts: list[list[int]], data: st.DataObject
) -> None:
    rows = [drafted(slot, draft) for slot, draft in enumerate(drafts)]
    draws = [
        data.draw(st.lists(st.integers(0, 2), min_size=len(draft) + 1, max_size=len(draft) + 1))
        for draft in drafts
    ]
    expected = {}
    for slot, (row, ids) in enumerate(zip(rows, draws, strict=True)):
        if row.n_draft:
            n_right = count_right(row, ids)
            assert list(row.tokens[1 : 1 + n_right]) == ids[:n_right]
            assert n_right == row.n_draft or row.tokens[1 + n_right] != ids[n_right]
            expected[slot] = ids[n_right]
    if not expected:
        return
    sampled = np.repeat(np.arange(len(rows)), [len(ids) for ids in draws]).astype(np.int32)
    tokens = torch.tensor([token for ids in draws for token in ids])
    slots, last = last_tokens(drafts_of(rows, sampled), tokens)
    assert dict(zip(slots.tolist(), last.tolist(), strict=True)) == expected
