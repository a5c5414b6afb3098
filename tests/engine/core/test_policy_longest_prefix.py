"""What is cached goes first, and nobody waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from engine_harness import Rig, generate
from yaie.core.queues.longest_prefix import PATIENCE, WINDOW, LongestPrefixQueue
from yaie.core.sequence import Sequence, StopLimits

STOP_LIMITS = StopLimits(frozenset(), 64)


def make(arrival: int) -> Sequence:
    return Sequence(generate(str(arrival), [1]), STOP_LIMITS, seq_id=arrival, arrival=arrival)


def serve(queue: LongestPrefixQueue) -> int:
    queue.refresh([])
    sequence = queue.peek()
    assert sequence is not None
    queue.pop()
    return sequence.arrival


def test_what_is_cached_most_goes_first_and_ties_by_arrival() -> None:
    cached = {0: 4, 1: 8, 2: 8, 3: 0}
    queue = LongestPrefixQueue(lambda sequence: cached[sequence.arrival])
    for arrival in (3, 1, 0, 2):
        queue.push(make(arrival))
    assert [serve(queue) for _ in cached] == [1, 2, 0, 3]


def test_a_round_looks_up_a_window_of_the_oldest_only() -> None:
    looked_up = []
    queue = LongestPrefixQueue(lambda sequence: looked_up.append(sequence.arrival) or 0)
    for arrival in range(3 * WINDOW):
        queue.push(make(arrival))
    queue.refresh([])
    assert looked_up == list(range(WINDOW))
    for _ in range(5):
        queue.peek()
        queue.pop()
    assert len(looked_up) == WINDOW


def test_who_leaves_the_queue_is_not_served() -> None:
    queue = LongestPrefixQueue(lambda sequence: sequence.arrival)
    sequences = [make(arrival) for arrival in range(4)]
    for sequence in sequences:
        queue.push(sequence)
    queue.refresh([])
    queue.discard(sequences[3])
    queue.discard(sequences[0])
    assert [serve(queue), serve(queue)] == [2, 1]
    queue.refresh([])
    assert queue.peek() is None


@given(data=st.data(), n_before=st.integers(0, 6))
def test_nobody_starves_however_well_cached_the_others_are(
    data: st.DataObject, n_before: int
) -> None:
    """The unlucky one has nothing cached, and somebody luckier arrives before every round."""
    queue = LongestPrefixQueue(lambda sequence: 0 if sequence.arrival == n_before else 99)
    for arrival in range(n_before + 1):
        queue.push(make(arrival))
    arrival = n_before
    for served in range(1, (n_before + 1) * (PATIENCE + 1) + 1):
        for _ in range(data.draw(st.integers(1, 3)) if served < 20 else 1):
            arrival += 1
            queue.push(make(arrival))
        if serve(queue) == n_before:
            return
    raise AssertionError("the unlucky one was never served")


def test_the_scheduler_serves_a_cached_prompt_before_an_older_one() -> None:
    rig = Rig(policy="longest-prefix", max_num_seqs=1)
    rig.run(generate("warm", range(16), max_tokens=1))
    rig.run(
        generate("older", range(20, 36), max_tokens=1),
        generate("cached", [*range(12), 40], max_tokens=1),
    )
    ended = [event.request_id for event in rig.port.events if getattr(event, "finish_reason", None)]
    assert ended == ["warm", "cached", "older"]
