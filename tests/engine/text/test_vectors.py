import math

import numpy as np
import pytest

from yaie.text import vectors


def test_an_embedding_has_unit_length_whole_and_cut() -> None:
    pooled = np.array([3.0, 4.0, 12.0], dtype=np.float32)
    assert vectors.embedding(pooled).tolist() == pytest.approx([3 / 13, 4 / 13, 12 / 13])
    assert vectors.embedding(pooled, 2).tolist() == pytest.approx([0.6, 0.8])
    assert vectors.embedding(pooled, 2, normalize=False).tolist() == [3.0, 4.0]


def test_a_vector_of_zeros_stays_what_it_is() -> None:
    assert vectors.embedding(np.zeros(3, dtype=np.float32)).tolist() == [0.0] * 3


def test_bytes_are_little_endian_float32() -> None:
    assert vectors.from_bytes(b"\x00\x00\x80\x3f\x00\x00\x00\xc0").tolist() == [1.0, -2.0]


def test_sigmoid_and_softmax_keep_their_range_for_any_logit() -> None:
    assert vectors.sigmoid(0.0) == 0.5
    assert vectors.sigmoid(2.0) == pytest.approx(1 / (1 + math.exp(-2)))
    assert (vectors.sigmoid(-1e4), vectors.sigmoid(1e4)) == (0.0, 1.0)
    probabilities = vectors.softmax(np.array([1e4, 1e4, -1e4], dtype=np.float32))
    assert probabilities.tolist() == [0.5, 0.5, 0.0]
    assert vectors.softmax(np.array([0.0], dtype=np.float32)).tolist() == [0.5]
