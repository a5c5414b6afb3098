"""A reader's index: equal to the engine's, or it says that it needs a snapshot. Always."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yaie_api.prefix import (
    KEYS_PER_LINE,
    Load,
    Outcome,
    PrefixIndex,
    PrefixUpdate,
    decode,
    encode,
    snapshot,
)


@dataclass
class Engine:
    """Writes lines as an engine does, and remembers which keys it had at each of them."""

    epoch: int = 1
    sequence: int = 0
    keys: dict[int, int] = field(default_factory=dict)
    lines: list[PrefixUpdate] = field(default_factory=list)
    had: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.note()
        self.snapshot()

    def note(self) -> None:
        self.had[self.epoch, self.sequence] = dict(self.keys)

    def snapshot(self, cut: int | None = None) -> None:
        """`cut`: the stream goes on with something else after so many lines."""
        lines = snapshot(
            self.keys, epoch=self.epoch, sequence=self.sequence, load=Load(), keys_per_line=2
        )
        self.lines += list(lines)[:cut]

    def change(self, chance: random.Random) -> None:
        added = {chance.randrange(12): chance.randrange(1, 9) for _ in range(chance.randrange(4))}
        gone = {key for key in self.keys if key not in added and chance.random() < 0.3}
        self.sequence += bool(added or gone)
        self.keys = {k: n for k, n in self.keys.items() if k not in gone} | added
        self.note()
        line = PrefixUpdate(self.epoch, self.sequence, tuple(added.items()), tuple(gone))
        self.lines.append(line)

    def restart(self) -> None:
        self.epoch, self.sequence, self.keys = self.epoch + 1, 0, {}
        self.note()
        self.snapshot()


def lived(steps: list[str], seed: int) -> Engine:
    engine, chance = Engine(), random.Random(seed)
    for step in steps:
        if step == "snapshot":
            engine.snapshot()
        elif step == "restart":
            engine.restart()
        elif step == "restart in mid-snapshot":
            engine.snapshot(cut=1)
            engine.restart()
        else:
            engine.change(chance)
    return engine


STEPS = st.lists(
    st.sampled_from(["change"] * 8 + ["snapshot", "restart", "restart in mid-snapshot"]),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS, st.integers(0, 1 << 32))
def test_an_index_that_gets_every_line_equals_the_engine(steps: list[str], seed: int) -> None:
    engine, index = lived(steps, seed), PrefixIndex()
    assert all(index.apply(decode(encode(line))) is not Outcome.NEEDS_SNAPSHOT
               for line in engine.lines)  # fmt: skip
    assert index.current
    assert (index.epoch, index.sequence, index.tokens) == (
        engine.epoch, engine.sequence, engine.keys,
    )  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(STEPS, st.integers(0, 1 << 32), st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 0.5))
def test_lost_doubled_and_reordered_lines_never_make_a_current_index_wrong(
    steps: list[str], seed: int, lost: float, doubled: float, moved: float
) -> None:
    engine, index = lived(steps, seed), PrefixIndex()
    chance = random.Random(seed)
    lines = [line for line in engine.lines if chance.random() >= lost]
    lines = [line for line in lines for _ in range(1 + (chance.random() < doubled))]
    for place in range(len(lines)):
        if chance.random() < moved:
            lines.insert(chance.randrange(len(lines)), lines.pop(place))
    for line in lines:
        outcome = index.apply(line)
        assert (outcome is Outcome.NEEDS_SNAPSHOT) <= (not index.current)
        if index.current:
            assert index.tokens == engine.had[index.epoch, index.sequence]
        if outcome is Outcome.APPLIED:
            assert index.current
            assert (index.epoch, index.sequence) == (line.epoch, line.sequence)
    engine.change(chance)
    engine.lines.clear()
    engine.snapshot()
    for line in engine.lines:
        index.apply(line)
    assert index.current
    assert index.tokens == engine.keys


def test_a_lost_change_is_noticed_at_the_next_heartbeat() -> None:
    index = PrefixIndex()
    assert index.apply(PrefixUpdate(1, 4, ((7, 16),), parts=1)) is Outcome.APPLIED
    assert index.apply(PrefixUpdate(1, 4)) is Outcome.APPLIED
    assert index.apply(PrefixUpdate(1, 5)) is Outcome.NEEDS_SNAPSHOT
    assert index.tokens == {7: 16}  # guesses


def test_changes_before_a_snapshot_and_of_a_new_epoch_need_one() -> None:
    index = PrefixIndex()
    assert index.apply(PrefixUpdate(1, 1, ((7, 16),))) is Outcome.NEEDS_SNAPSHOT
    assert index.apply(PrefixUpdate(1, 1, ((7, 16),), parts=1)) is Outcome.APPLIED
    assert index.apply(PrefixUpdate(1, 1, ((7, 16),))) is Outcome.STALE
    assert index.apply(PrefixUpdate(2, 2, ((8, 16),))) is Outcome.NEEDS_SNAPSHOT


def test_a_snapshot_replaces_the_keys_when_its_last_part_is_there() -> None:
    index = PrefixIndex()
    index.apply(PrefixUpdate(1, 1, ((7, 16),), parts=1))
    first, second = snapshot(
        {8: 16, 9: 32}, epoch=2, sequence=0, load=Load(running=3), keys_per_line=1
    )
    assert index.apply(first) is Outcome.PARTIAL
    assert index.tokens == {7: 16}
    assert index.apply(second) is Outcome.APPLIED
    assert (index.tokens, index.load.running) == ({8: 16, 9: 32}, 3)


def test_a_line_of_most_keys_stays_under_64_kib() -> None:
    most = range((1 << 64) - KEYS_PER_LINE, 1 << 64)
    line = encode(PrefixUpdate(1 << 62, 1 << 40, tuple((k, 1 << 20) for k in most), tuple(most)))
    assert len(line) < 64 << 10
    assert line.count(b"\n") == 1
    assert decode(line).removed == tuple(most)


@pytest.mark.parametrize("line", [b"", b"[]", b'{"type":"prefixes"}', b'{"epoch":-1}', b"\xff"])
def test_other_lines_are_refused_with_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the text
        decode(line)
