"""The waiting queue and the rate at which it drains."""

import pytest

from engine_harness import Rig, generate
from yaie.core.messages import Tokens
from yaie.core.queues.completion_rate import MAX_RETRY_S, MIN_RETRY_S, CompletionRate
from yaie.core.queues.policy import OrderedQueue, WaitingQueue, fcfs, priority
from yaie.core.sequence import Sequence, StopLimits

STOP_LIMITS = StopLimits(frozenset(), 64)


def make(seq_id: int, priority: int = 0) -> Sequence:
    request = generate(str(seq_id), [1, 2], priority=priority)
    return Sequence(request, STOP_LIMITS, seq_id=seq_id, arrival=seq_id)


def pop_all(queue: WaitingQueue) -> list[int]:
    order = []
    while (sequence := queue.peek()) is not None:
        queue.pop()
        order.append(sequence.seq_id)
    return order


def test_first_come_first_served() -> None:
    queue = OrderedQueue(fcfs)
    for seq_id in (4, 1, 3):
        queue.push(make(seq_id))
    assert pop_all(queue) == [1, 3, 4]


def test_a_lower_priority_value_goes_first_and_ties_by_arrival() -> None:
    queue = OrderedQueue(priority)
    for seq_id, value in ((1, 2), (2, 0), (3, 2), (4, 1)):
        queue.push(make(seq_id, value))
    assert pop_all(queue) == [2, 4, 1, 3]


def test_discarded_sequences_are_skipped_and_do_not_pile_up() -> None:
    queue = OrderedQueue(fcfs)
    queue.push(make(0))
    for seq_id in range(1, 1000):
        sequence = make(seq_id)
        queue.push(sequence)
        queue.discard(sequence)
    assert len(queue) < 10
    assert pop_all(queue) == [0]


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = CompletionRate(window_s=10)
    for tick in range(100):
        rate.record(tick * 0.5, 1)
    assert rate.per_second == pytest.approx(2.0, rel=0.1)
    rate.record(50 + 60, 0)
    assert rate.per_second < 0.02


def test_retry_after_stays_within_bounds() -> None:
    rate = CompletionRate()
    assert rate.retry_after_s(0) == MIN_RETRY_S
    assert MIN_RETRY_S < rate.retry_after_s(5) <= 5.0  # nothing is known of it yet
    rate.resume(0.0)
    assert rate.retry_after_s(5) <= 5.0
    rate.record(1.0, 1000)
    assert rate.retry_after_s(5) == MIN_RETRY_S
    assert rate.retry_after_s(10**6) == MAX_RETRY_S


def test_the_time_in_which_nothing_was_to_do_says_nothing_of_the_rate() -> None:
    rate = CompletionRate()
    rate.resume(0.0)
    rate.record(1.0, 5)
    rate.resume(3600.0)
    rate.record(3601.0, 5)
    assert rate.per_second == pytest.approx(5.0, rel=0.1)
    assert rate.retry_after_s(50) == pytest.approx(10.0, rel=0.1)


def test_the_scheduler_serves_and_keeps_the_important_first() -> None:
    rig = Rig(policy="priority", max_num_seqs=1)
    rig.run(
        *(generate(str(value), [1, value], priority=value, max_tokens=2) for value in (3, 1, 2))
    )
    ended = [event.request_id for event in rig.port.of(Tokens) if event.finish_reason]
    assert ended == ["1", "2", "3"]
