"""When the engine says which prefixes it has, and how its reader's copy stays equal."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_harness import PAGE, Rig, generate
from yaie.core.kv_cache.radix_tree import pack
from yaie.core.messages import ResetPrefixCache, TiePrefixKeys, WatchPrefixes
from yaie.runtime.loop.prefix_publisher import INTERVAL_S, PrefixPublisher
from yaie_api.prefix import Outcome, PrefixIndex, PrefixUpdate


def updates(rig: Rig) -> list[PrefixUpdate]:
    """Those since the last call."""
    found = rig.port.of(PrefixUpdate)
    rig.port.events.clear()
    return found


def run(rig: Rig, seconds: float = 0.2) -> list[PrefixUpdate]:
    """Let the loop work, and `seconds` pass after its last step."""
    while rig.loop.step():
        pass
    rig.now += seconds
    rig.loop.step()
    return updates(rig)


def ties(n_tokens: int, *keys: tuple[int, int], salt: str = "") -> TiePrefixKeys:
    return TiePrefixKeys(salt, pack(prompt(n_tokens)), keys)


def prompt(n_tokens: int) -> list[int]:
    return [1 + token % 7 for token in range(n_tokens)]


def test_nothing_is_published_until_somebody_watches() -> None:
    rig = Rig()
    rig.send(generate("a", prompt(3 * PAGE), max_tokens=2))
    assert run(rig, 5.0) == []


def test_a_watcher_gets_a_snapshot_then_changes_then_heartbeats() -> None:
    rig = Rig()
    rig.send(generate("a", prompt(3 * PAGE), max_tokens=2))
    run(rig)
    rig.send(ties(3 * PAGE, (5, PAGE)), WatchPrefixes())
    first, *_ = run(rig)
    assert (first.parts, first.added, first.sequence) == (1, ((5, PAGE),), 1)
    rig.send(ties(3 * PAGE, (6, 3 * PAGE)))
    (change,) = run(rig)
    assert (change.parts, change.added, change.sequence) == (0, ((6, 3 * PAGE),), 2)
    assert change.load.kv_tokens_cached == 3 * PAGE
    rig.send(ResetPrefixCache("r"))
    (gone,) = run(rig)
    assert set(gone.removed) == {5, 6}
    assert run(rig, 0.2) == []
    (beat,) = run(rig, 0.6)
    assert (beat.added, beat.removed, beat.sequence) == ((), (), 3)


def test_an_idle_loop_with_changes_does_not_sleep_over_them() -> None:
    rig = Rig()
    rig.send(WatchPrefixes(), generate("a", prompt(3 * PAGE), max_tokens=2))
    run(rig)
    rig.send(ties(3 * PAGE, (5, PAGE)))
    rig.loop.step()  # too soon after the last update
    rig.loop.step()
    assert rig.port.waits[-1] == INTERVAL_S
    rig.now += INTERVAL_S
    rig.loop.step()
    rig.loop.step()
    assert rig.port.waits[-1] > INTERVAL_S
    assert updates(rig)[-1].added == ((5, PAGE),)


def test_load_counts_prompt_tokens_that_no_step_has_got() -> None:
    rig = Rig(budget=8, max_num_seqs=1)
    rig.send(
        WatchPrefixes(),
        generate("a", prompt(20), max_tokens=2),
        generate("b", [9, *prompt(11)], max_tokens=2, n=3),
    )
    rig.loop.step()
    load = updates(rig)[0].load
    assert (load.running, load.waiting, load.queued_tokens) == (1, 3, 4 + 12)
    while rig.loop.step():
        assert rig.scheduler.load().queued_tokens >= 0
    assert rig.scheduler.load().queued_tokens == 0


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(8, 20), st.integers(1, 3))
def test_a_readers_copy_equals_the_engines_after_every_update(
    data: st.DataObject, pages: int, per_line: int
) -> None:
    """With tiny lines, so that snapshots have parts and changes wait for the next update."""
    rig, index = Rig(num_pages=pages), PrefixIndex()
    publisher = PrefixPublisher(rig.scheduler, 9, keys_per_line=per_line)
    publisher.watch()
    for step in range(data.draw(st.integers(1, 15))):
        tokens = [step % 3, *prompt(data.draw(st.integers(1, 4 * PAGE)))]
        kind = data.draw(st.sampled_from(["run", "run", "watch", "reset"]))
        if kind == "run":
            rig.run(generate(f"{step}", tokens, max_tokens=2))
            keys = ((2 * step, PAGE), (2 * step + 1, len(tokens)))
            rig.scheduler.tie(TiePrefixKeys("", pack(tokens), keys))
        elif kind == "watch":
            publisher.watch()
        else:
            rig.scheduler.reset_prefix_cache()
        rig.scheduler.check()
        rig.now += 0.2
        for update in publisher.updates(rig.now):
            assert index.apply(update) is not Outcome.NEEDS_SNAPSHOT
        if not rig.scheduler.prefix_keys.has_changes:
            assert index.tokens == rig.scheduler.prefix_keys.tokens
