"""Invariants of a request and of its outputs, which hold between two calls of the scheduler."""

from yaie.core.group import SequenceGroup
from yaie.core.sequence import NO_SLOT, Sequence, SequenceStatus


def check_group(group: SequenceGroup) -> None:
    """Raise AssertionError if an unstarted output could never start, or an ended output is kept."""
    request_id = group.request.request_id
    if group.ended:
        raise AssertionError(f"request {request_id} has ended and stays")
    if group.unstarted and (group.next is None) == (group.primary is None):
        raise AssertionError(f"outputs of {request_id} wait for nobody")
    for one in (group.next, group.primary):
        if one is not None and group.live.get(one.index) is not one:
            raise AssertionError(f"request {request_id} counts on an output that has ended")


def check_sequence(sequence: Sequence, following: set[int]) -> None:
    """Raise AssertionError if positions, pages, slot and state disagree. `following`: `id()` of
    each sequence that a running sequence will wake.
    """
    known = len(sequence.tokens) + sequence.in_flight
    if not sequence.committed <= sequence.scheduled <= known <= sequence.length_limit:
        raise AssertionError(f"sequence {sequence.seq_id} is ahead of itself")
    if sequence.decoding and sequence.samples and known != sequence.scheduled + 1:
        raise AssertionError(f"sequence {sequence.seq_id} decodes what it does not know")
    if (sequence.state is SequenceStatus.RUNNING) != (sequence.slot != NO_SLOT):
        raise AssertionError(f"sequence {sequence.seq_id} runs without a slot")
    if (sequence.state is SequenceStatus.FOLLOWING) and id(sequence) not in following:
        raise AssertionError(f"sequence {sequence.seq_id} waits for nobody")
    if sequence.table is not None and sequence.scheduled > sequence.table.capacity:
        raise AssertionError(f"sequence {sequence.seq_id} has fewer pages than positions")
