"""Rotary factors that change with a sequence's length: exact, limited, or said aloud.

The tiny Phi has factors for sequences of up to 128 tokens and others for longer ones, up to 256.
"""

import logging
from pathlib import Path

import pytest

from engine.models.harness import GREEDY, Harness
from engine.models.oracle import check, prompt, save
from yaie_api.errors import InvalidRequestError

VARIANT = "phi3-longrope-partial"
SAID = "short sequences are rotated like long ones"
LIMITED = "sequences are as long as the model's short rotary factors hold"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(VARIANT, tmp_path_factory.mktemp(VARIANT))


def assert_right(harness: Harness, length: int) -> None:
    start = prompt(VARIANT, length)
    number = harness.add(start, GREEDY)
    harness.finish()
    ids = [*start, *harness.tokens[number]]
    check(VARIANT, start, ids, harness.recorder.logits[number])


def test_by_default_sequences_are_as_long_as_the_short_factors_hold(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        harness = Harness(folder)
    assert harness.scheduler.max_model_len == 128
    assert LIMITED in caplog.text
    assert_right(harness, 64)


def test_when_longer_ones_are_asked_for_long_sequences_are_right(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        harness = Harness(folder, max_model_len=256)
    assert SAID in caplog.text
    assert_right(harness, 130)
    with pytest.raises(AssertionError):
        assert_right(harness, 64)


def test_no_sequence_is_longer_than_the_long_factors_hold(folder: Path) -> None:
    with pytest.raises(InvalidRequestError, match="this model has 256 positions"):
        Harness(folder, max_model_len=257)
