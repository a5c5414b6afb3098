"""Preempted sequences whose pages wait in host memory."""

import msgspec
import pytest

from engine_harness import (
    PAGE,
    VOCAB,
    Rig,
    add,
    commit,
    generate,
    isolated,
    make_scheduler,
    rows,
    schedule,
    step,
)
from fakes.stub_runner import StubRunner, _StepHandle, hashed
from yaie.core.batch import Batch, PageCopy
from yaie.core.kv_cache.host_pages import HostBlockTable, HostPages
from yaie.core.outputs import Failure
from yaie.core.scheduler.scheduler import Scheduler

LOST = Failure("engine_error", "lost")


def crowded(**options: int) -> Scheduler:
    """Two sequences of six tokens in five pages: the next page that one needs is the other's."""
    settings = {"num_pages": 6, "host_pages": 8, "swap_min_tokens": 1} | options
    scheduler = make_scheduler(enable_prefix_caching=False, **settings)
    for name, first in (("a", 10), ("b", 20)):
        add(scheduler, name, range(first, first + 6), max_tokens=9)
    step(scheduler)
    step(scheduler)
    return scheduler


def schedule_and_commit(scheduler: Scheduler) -> Batch:
    batch = schedule(scheduler)
    commit(scheduler, batch)
    return batch


def preempting(scheduler: Scheduler) -> Batch:
    """The batch in which "b" has to go."""
    for _ in range(4):
        batch = schedule(scheduler)
        if scheduler.stats().preemptions:
            return batch
        commit(scheduler, batch)
    raise AssertionError("nobody was preempted")


def test_what_a_preempted_sequence_computed_goes_to_the_host_and_comes_back() -> None:
    scheduler = crowded()
    out = preempting(scheduler)
    assert [(copy.source, copy.target) for copy in out.swap_out] == [(4, 0), (3, 1)]
    assert scheduler.stats().host_pages_used == 2
    commit(scheduler, out)
    scheduler.abort("a")
    back = schedule(scheduler)
    assert [copy.source for copy in back.swap_in] == [0, 1]
    assert [copy.target for copy in back.swap_in] == list(back.inits[0].pages[0][:2])
    assert rows(back) == [(1, 8, 1, True)]  # only the token that was never run
    assert scheduler.stats().host_pages_used == 2
    commit(scheduler, back)
    stats = scheduler.stats()
    assert (stats.host_pages_used, stats.swaps_out, stats.swaps_in) == (0, 1, 1)


@pytest.mark.parametrize("options", [{"host_pages": 0}, {"host_pages": 1}, {"swap_min_tokens": 9}])
def test_it_is_computed_again_where_the_host_has_no_room_or_it_is_little(
    options: dict[str, int],
) -> None:
    scheduler = crowded(**options)
    out = preempting(scheduler)
    assert out.swap_out == ()
    commit(scheduler, out)
    scheduler.abort("a")
    back = schedule(scheduler)
    assert back.swap_in == ()
    assert rows(back) == [(1, 0, 9, True)]


def test_an_abort_gives_the_host_pages_back() -> None:
    scheduler = crowded()
    preempting(scheduler)
    scheduler.abort("b")
    scheduler.check()
    assert scheduler.stats().host_pages_used == 0


def test_a_copy_that_was_never_made_is_forgotten_with_its_sequence() -> None:
    """Nobody runs, so that no batch is sealed; the pages it was to fill may serve another."""
    scheduler = make_scheduler(
        num_pages=3, enable_prefix_caching=False, host_pages=2, swap_min_tokens=1
    )
    add(scheduler, "a", range(6), max_tokens=None)
    step(scheduler)
    scheduler._lifecycle.preempt(scheduler._lifecycle.running[0])
    scheduler.check()
    assert scheduler.stats().host_pages_used == 2
    scheduler.abort("a")
    scheduler.check()
    add(scheduler, "b", [1], max_tokens=2)
    assert schedule(scheduler).swap_out == ()


def test_a_swap_in_a_step_that_failed_is_not_trusted() -> None:
    scheduler = crowded()
    out = preempting(scheduler)
    scheduler.fail_step(out.step_id, LOST)
    assert scheduler.stats().host_pages_used == 0
    back = schedule(scheduler)
    assert back.swap_in == ()
    assert rows(back) == [(1, 0, 9, True)]


def test_who_came_back_from_a_swap_that_failed_starts_again() -> None:
    """With steps in flight it may run already when the step that took it out turns out failed."""
    scheduler = crowded()
    out = preempting(scheduler)
    scheduler.abort("a")
    back = schedule(scheduler)
    assert back.swap_in
    scheduler.fail_step(out.step_id, LOST)
    scheduler.check()
    assert commit(scheduler, back) == []
    again = schedule(scheduler)
    assert again.swap_in == ()
    assert rows(again) == [(1, 0, 9, True)]


def test_shared_pages_stay_and_only_the_rest_goes_to_the_host() -> None:
    scheduler = make_scheduler(num_pages=7, host_pages=8, swap_min_tokens=1)
    add(scheduler, "a", range(9), max_tokens=None)
    step(scheduler)
    add(scheduler, "b", [*range(8), 30, 31], max_tokens=None)
    (init,) = schedule_and_commit(scheduler).inits
    while not scheduler.stats().preemptions:
        out = schedule_and_commit(scheduler)
    shared = init.pages[0][: 8 // PAGE]
    assert len(out.swap_out) == scheduler.stats().host_pages_used > 0
    assert not {copy.source for copy in out.swap_out}.intersection(shared)
    scheduler.abort("a")
    back = schedule(scheduler)
    assert back.inits[0].pages[0][: len(shared)] == shared
    assert {copy.target for copy in back.swap_in} < set(back.inits[0].pages[0][len(shared) :])
    assert back.rows[0].n_tokens == 1


def test_a_prefix_that_is_gone_from_the_cache_makes_the_host_copy_useless() -> None:
    scheduler = make_scheduler(num_pages=7, host_pages=8, swap_min_tokens=1)
    add(scheduler, "a", range(9), max_tokens=None)
    step(scheduler)
    add(scheduler, "b", [*range(8), 30, 31], max_tokens=None)
    while not scheduler.stats().preemptions:
        step(scheduler)
    scheduler.abort("a")
    scheduler.reset_prefix_cache()
    back = schedule(scheduler)
    assert back.swap_in == ()
    assert back.rows[0].start == 0
    assert scheduler.stats().host_pages_used == 0


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_tokens_do_not_depend_on_where_the_pages_waited(depth: int, *, caching: bool) -> None:
    requests = [generate(name, [i] * 7, max_tokens=14) for i, name in enumerate("abcde")]
    rig = Rig(
        num_pages=12,
        groups=2,
        depth=depth,
        host_pages=30,
        swap_min_tokens=1,
        enable_prefix_caching=caching,
    )
    rig.run(*requests)
    assert rig.scheduler.stats().swaps_in > 0
    for request in requests:
        assert rig.port.tokens(request.request_id) == isolated(request)[0]


def test_the_engine_double_notices_a_swap_that_brings_the_wrong_page() -> None:
    class Confused(StubRunner):
        def launch(self, batch: Batch) -> _StepHandle:
            sources = [copy.source for copy in batch.swap_in]
            wrong = [
                PageCopy(copy.group, source, copy.target)
                for copy, source in zip(batch.swap_in, reversed(sources), strict=True)
            ]
            return super().launch(msgspec.structs.replace(batch, swap_in=tuple(wrong)))

    requests = [generate(name, [i] * 7, max_tokens=14) for i, name in enumerate("abcde")]
    runner = Confused(hashed(VOCAB), page_size=PAGE)
    rig = Rig(
        runner=runner, num_pages=12, host_pages=30, swap_min_tokens=1, enable_prefix_caching=False
    )
    rig.run(*requests)
    assert rig.scheduler.stats().swaps_in > 0
    assert any(rig.port.tokens(r.request_id) != isolated(r)[0] for r in requests)


def test_host_pages_are_counted() -> None:
    host = HostPages(4)
    copy = HostBlockTable(0, 9, host.allocate(3))
    host.check([copy])
    with pytest.raises(AssertionError):
        host.check([])
    with pytest.raises(AssertionError):
        host.allocate(2)
    host.release(copy)
    assert host.free == 4
    host.check([])


def test_what_a_batch_copies_from_is_not_swapped_over_before() -> None:
    """The last output of a prompt starts and gives its page up; swaps come before copies."""
    scheduler = make_scheduler(host_pages=8, swap_min_tokens=1, enable_prefix_caching=False)
    add(scheduler, "two", range(6), n=2, max_tokens=1)
    add(scheduler, "swapped", range(20, 26))
    step(scheduler)
    (sequence,) = scheduler._lifecycle.running
    scheduler._lifecycle.preempt(sequence)
    batch = schedule(scheduler)
    sources = {copy.source for copy in batch.copies}
    assert sources
    assert batch.swap_in
    assert not sources.intersection(copy.target for copy in batch.swap_in)
    commit(scheduler, batch)
    scheduler.abort("swapped")
    stats = scheduler.stats()
    assert stats.pages_free == stats.pages_total
