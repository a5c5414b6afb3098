"""What a router believes about caches: what engines say, and what it has just sent."""

import random

import pytest

from yaie_api.prefix import Load, Outcome, PrefixUpdate, snapshot
from yaie_router.prefixes import holdings
from yaie_router.prefixes.holdings import EXPECTED_S, Holdings, TooManyKeysError


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def known(clock: Clock) -> Holdings:
    return Holdings(clock)


def says(*keys: int, epoch: int = 1, sequence: int = 0) -> PrefixUpdate:
    """A snapshot of one line."""
    return PrefixUpdate(epoch, sequence, tuple((key, 16) for key in keys), parts=1)


ENGINES = ("a", "b", "c")


def test_each_engine_is_as_deep_as_the_last_key_that_it_has(known: Holdings) -> None:
    known.take("a", says(1, 2, 3))
    known.take("b", says(1))
    assert known.depths([1, 2, 3, 4], ENGINES) == {"a": 2, "b": 0}


def test_a_key_in_the_middle_may_be_missing(known: Holdings) -> None:
    known.take("a", says(1, 3))
    assert known.depths([1, 2, 3], ENGINES) == {"a": 2}


def test_an_evicted_key_is_forgotten(known: Holdings) -> None:
    known.take("a", says(1, 2))
    known.take("a", PrefixUpdate(1, 1, removed=(2,)))
    assert known.depths([1, 2], ENGINES) == {"a": 0}


def test_what_was_sent_counts_before_the_engine_says_so(known: Holdings) -> None:
    known.expect("b", [1, 2])
    assert known.depths([1, 2, 3], ENGINES) == {"b": 1}


def test_what_was_sent_is_forgotten_if_the_engine_never_says_so(
    known: Holdings, clock: Clock
) -> None:
    known.expect("b", [1, 2])
    for _ in range(2):
        clock.now_s += EXPECTED_S + 1
        known.expect("c", [9])
    assert known.depths([1, 2, 3], ENGINES) == {}


def test_an_eviction_ends_what_was_expected(known: Holdings) -> None:
    known.take("b", says(1, 2))
    known.expect("b", [1, 2])
    known.take("b", PrefixUpdate(1, 1, removed=(2,)))
    assert known.depths([1, 2], ENGINES) == {"b": 0}


def test_an_engine_that_has_started_again_has_nothing(known: Holdings) -> None:
    known.take("a", says(1, 2))
    known.take("a", says(epoch=2))
    assert known.depths([1, 2], ENGINES) == {}


def test_a_snapshot_that_breaks_off_changes_nothing(known: Holdings) -> None:
    known.take("a", says(1, 2))
    first, *_ = snapshot({7: 16, 8: 16}, epoch=2, sequence=0, load=Load(), keys_per_line=1)
    assert known.take("a", first) is Outcome.PARTIAL
    assert known.depths([1, 2], ENGINES) == {"a": 1}
    assert known.depths([7], ENGINES) == {}


def test_a_lost_line_asks_for_a_snapshot_and_keeps_the_guesses(known: Holdings) -> None:
    known.take("a", says(1))
    assert known.take("a", PrefixUpdate(1, 2, ((2, 16),))) is Outcome.NEEDS_SNAPSHOT
    assert known.depths([1, 2], ENGINES) == {"a": 0}


def test_a_doubled_line_changes_nothing(known: Holdings) -> None:
    known.take("a", says(1))
    line = PrefixUpdate(1, 1, ((2, 16),))
    known.take("a", line)
    assert known.take("a", line) is Outcome.STALE
    assert known.depths([1, 2], ENGINES) == {"a": 1}


def test_an_engine_that_is_gone_leaves_its_place_to_the_next(known: Holdings) -> None:
    known.take("a", says(1))
    known.expect("a", [2])
    known.retain(["b"])
    known.take("b", says(5))
    known.take("c", says(6))
    assert known.depths([1, 2], ENGINES) == {}
    assert known.num_keys == 2


def test_an_engine_that_says_too_much_is_forgotten(
    known: Holdings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "MOST_KEYS", 3)
    known.take("a", says(1, 2, 3))
    with pytest.raises(TooManyKeysError):
        known.take("a", PrefixUpdate(1, 1, ((4, 16),)))
    assert known.num_keys == 0


def test_guesses_are_bounded(known: Holdings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MOST_EXPECTED", 10)
    for start in range(0, 1000, 5):
        known.expect("a", range(start, start + 5))
    assert sum(len(one) for one in known._expected) <= 2 * (10 + 5)


def test_whatever_is_lost_doubled_or_cut_a_current_index_is_the_engines_own(
    known: Holdings,
) -> None:
    draw = random.Random(3)
    keys: dict[int, int] = {}
    epoch, sequence, current = 1, 0, False
    for _ in range(3000):
        if draw.random() < 0.01:
            epoch, sequence, keys, current = epoch + 1, 0, {}, False
        if not current:
            lines = list(
                snapshot(keys, epoch=epoch, sequence=sequence, load=Load(), keys_per_line=2)
            )
            sent = lines if draw.random() < 0.8 else lines[:-1]
        else:
            added = {draw.randrange(30): 16 for _ in range(draw.randrange(3))}
            gone = tuple(key for key in keys if key not in added and draw.random() < 0.2)
            sequence += bool(added or gone)
            keys = {key: n for key, n in keys.items() if key not in gone} | added
            line = PrefixUpdate(epoch, sequence, tuple(added.items()), gone)
            sent = [] if draw.random() < 0.05 else [line] * (1 + (draw.random() < 0.05))
        outcomes = [known.take("a", one) for one in sent]
        if outcomes:
            current = outcomes[-1] in (Outcome.APPLIED, Outcome.STALE)
        if outcomes and outcomes[-1] is Outcome.APPLIED:
            have = {key for key in range(30) if known.depths([key], ["a"])}
            assert have == set(keys)
