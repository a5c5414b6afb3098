"""The flat arrays of a step, by hand."""

import numpy as np
import pytest

from yaie.core.batch import Row
from yaie.runtime.tensors.inputs import pack, prepare_inputs

TABLES = np.array([[3, 4, 0], [7, 0, 0], [9, 8, 0]], dtype=np.int32)


def row(slot: int, start: int, tokens: tuple[int, ...] = (), *, sample: bool = True) -> Row:
    return Row(slot, slot, 0, start, len(tokens) or 1, tokens, sample)


def test_decodes_and_chunks_share_one_token_axis() -> None:
    rows = [row(1, 2), row(0, 3, (11, 12, 13), sample=False), row(2, 0, (21, 22))]
    step = prepare_inputs(rows, TABLES, 4)
    assert step.n_decode == 1
    assert step.ids.tolist() == [11, 12, 13, 21, 22]
    assert step.positions.tolist() == [2, 3, 4, 5, 0, 1]
    assert step.slot_mapping.tolist() == [7 * 4 + 2, 3 * 4 + 3, 4 * 4, 4 * 4 + 1, 9 * 4, 9 * 4 + 1]
    assert step.seq_lens.tolist() == [3, 6, 2]
    assert step.decode_start.tolist() == [0, 1]
    assert step.prefill_start.tolist() == [0, 3, 5]
    assert step.sampled.tolist() == [0, 2]
    assert step.last.tolist() == [0, 5]


def test_a_single_token_that_brings_its_id_is_not_a_decode() -> None:
    step = prepare_inputs([row(0, 5, (42,))], TABLES, 4)
    assert (step.n_decode, step.ids.tolist()) == (0, [42])


def test_a_row_with_a_draft_samples_after_its_last_token_and_after_each_guess() -> None:
    rows = [row(1, 2), Row(0, 0, 0, 3, 3, (11, 12, 13), True, n_draft=2), row(2, 0, (21, 22))]
    step = prepare_inputs(rows, TABLES, 4)
    assert step.has_drafts
    assert step.sampled.tolist() == [0, 1, 1, 1, 2]
    assert step.last.tolist() == [0, 1, 2, 3, 5]
    assert step.draw_positions.tolist() == [3, 4, 5, 6, 2]


def test_without_a_draft_each_row_samples_once() -> None:
    step = prepare_inputs([row(1, 2), row(0, 3, (11, 12, 13)), row(2, 1, (9,))], TABLES, 4)
    assert not step.has_drafts
    assert step.draw_positions.tolist() == step.seq_lens.tolist() == [3, 6, 2]


def test_an_empty_step_is_empty() -> None:
    step = prepare_inputs([], TABLES, 4)
    assert [len(part) for part in step] == [0, 0, 0, 0, 0, 1, 1, 0, 0, 0]


def test_a_decode_behind_a_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="must follow"):
        prepare_inputs([row(0, 0, (1, 2)), row(1, 2)], TABLES, 4)


def test_packing_keeps_every_bit() -> None:
    arrays = (
        np.array([-1, 2**62], dtype=np.int64),
        np.array([[0.5, -2.0]], dtype=np.float32),
        np.array([], dtype=np.int32),
        np.array([7], dtype=np.int32),
    )
    packed, sizes = pack(arrays)
    assert sizes == [4, 2, 0, 1]
    assert packed[:4].view(np.int64).tolist() == [-1, 2**62]
    assert packed[4:6].view(np.float32).tolist() == [0.5, -2.0]
