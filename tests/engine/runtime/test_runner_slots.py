"""What a runner must survive: stale pages, reused slots, copies, sequences that are not finite."""

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from engine.models.hand import GREEDY, Hand, load_runner
from engine.models.oracle import Reference, reference, save
from yaie.core.batch import Batch, PageCopy, SlotInit
from yaie.runtime.worker.runner import ModelRunner

VARIANT = "llama-gqa"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(VARIANT, tmp_path_factory.mktemp("model"))


@pytest.fixture
def runner(folder: Path) -> ModelRunner:
    return load_runner(folder)


@pytest.fixture(scope="module")
def expected() -> Reference:
    return reference(VARIANT, 16)


def run(runner: ModelRunner, expected: Reference, *others: int) -> Hand:
    hand = Hand(runner)
    hand.start(0, expected.prompt)
    hand.step({0: 16})
    hand.decode(0, steps=15)
    return hand


def spoil(runner: ModelRunner, pages: Iterable[int]) -> None:
    for pool in runner.kv.pools:
        pool[list(pages)] = torch.nan


def test_values_left_in_pages_are_never_read(runner: ModelRunner, expected: Reference) -> None:
    spoil(runner, range(runner.kv.num_pages))
    hand = run(runner, expected)
    assert hand.finite[0]
    assert tuple(hand.tokens[0][16:]) == expected.greedy[:16]


def test_one_sequence_that_is_not_finite_harms_no_other(
    runner: ModelRunner, expected: Reference
) -> None:
    hand = Hand(runner)
    hand.start(0, expected.prompt)
    hand.start(1, expected.prompt)
    hand.step({0: 16, 1: 16})
    spoil(runner, hand.pages[1])
    hand.decode(0, 1, steps=5)
    assert hand.finite == {0: True, 1: False}
    assert tuple(hand.tokens[0][16:]) == expected.greedy[:6]


def test_a_reused_slot_forgets_its_last_owner(runner: ModelRunner, expected: Reference) -> None:
    run(runner, expected)
    hand = run(runner, expected)
    assert tuple(hand.tokens[0][16:]) == expected.greedy[:16]


def test_a_copied_page_serves_like_the_original(runner: ModelRunner, expected: Reference) -> None:
    """Prefill, copy the only page to page 9, zero the original, go on from the copy."""
    hand = run(runner, expected)
    init = SlotInit(1, 1, GREEDY, 0, ((9,),))
    copied = Batch(99, (), (init,), (), (PageCopy(0, hand.pages[0][0], 9),), ())
    result = runner.collect(runner.launch(copied))
    assert (result.tokens, result.finite) == ((), ())
    spoil(runner, hand.pages[0][:1])
    again = Hand(runner)
    again.start(1, expected.prompt + expected.greedy[:1], shared_pages=(9,))
    again._next_page = iter(range(20, 30))  # type: ignore[assignment]  # keep off page 9
    again.step({1: 1})
    again.decode(1, steps=10)
    assert tuple(again.tokens[1][16:]) == expected.greedy[:12]


def test_a_batch_without_rows_is_an_empty_result(runner: ModelRunner) -> None:
    handle = runner.launch(Batch(5, (), (), (), (), ()))
    runner.sample(handle)
    assert runner.collect(handle).tokens == ()
