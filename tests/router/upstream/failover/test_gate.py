"""The gate lets whole pieces pass, however a stream is cut into reads."""

import random

import pytest

from router.fakes import DONE, event
from yaie_api.http.replay import LOST, MARK, add_words, new_words, note
from yaie_api.http.usage_note import TokenUsage
from yaie_router.upstream.delivery.stream import MOST_HELD_BYTES
from yaie_router.upstream.failover.gate import NotedGate

USAGE = TokenUsage(3, 1, 4)
TEXTS = ["a", "日本", ": yaie-note 7", "\\n: yaie-note 7\\n\\n", "é" * 40]
STREAM = b"".join(event(text) + note([number + 5, 9], 2 if not number else None)
                  for number, text in enumerate(TEXTS))  # fmt: skip
SHOWN = b"".join(event(text) for text in TEXTS)
END = event("the end") + USAGE.comment() + DONE
WORDS = new_words()
for number in range(len(TEXTS)):
    told = note([number + 5, 9], 2 if not number else None)
    add_words(WORDS, told.removeprefix(MARK))


def test_a_piece_passes_with_its_note_and_without_it() -> None:
    gate = NotedGate()
    assert gate.push(event("a")) == b""
    assert not gate.has_passed
    assert gate.push(note([4])) == event("a")
    assert gate.has_passed
    assert gate.push(event("b") + note([5])) == event("b")
    assert len(gate.words) == 2


@pytest.mark.parametrize("seed", range(40))
def test_it_does_not_matter_where_reads_end(seed: int) -> None:
    rng, whole, gate = random.Random(seed), STREAM + END, NotedGate()
    out, at = b"", 0
    while at < len(whole):
        size = rng.choice((1, 2, 7, 40, 400))
        out += gate.push(whole[at : at + size])
        at += size
    assert out == SHOWN
    assert gate.words == WORDS
    assert out + gate.flush() == SHOWN + event("the end") + DONE
    assert gate.usage == USAGE


def test_the_client_has_what_the_words_say_wherever_the_stream_breaks() -> None:
    for size in range(len(STREAM)):
        gate = NotedGate()
        out = gate.push(STREAM[:size])
        pieces = SHOWN.split(b"\n\n")[: out.count(b"\n\n")]
        assert out == b"".join(piece + b"\n\n" for piece in pieces)
        assert gate.words == WORDS[: len(gate.words)]
        ends = sum(1 for word in gate.words if word >> 31)
        assert ends == len(pieces)


def test_what_is_lost_does_not_pass_when_another_engine_goes_on() -> None:
    gate = NotedGate()
    shown = gate.push(event("a") + note([4]) + event("half")[:9])
    gate.another()
    assert shown + gate.push(event("b") + note([5])) == event("a") + event("b")


def test_heartbeats_pass_at_once() -> None:
    gate = NotedGate()
    assert gate.push(b": ping\n\n" + note(())) == b": ping\n\n"
    assert not gate.words


@pytest.mark.parametrize("told", [b"x", b"-1", b"99999999999", b"1.5"])
def test_a_note_that_is_none_makes_it_a_stream_like_any_other(told: bytes) -> None:
    gate = NotedGate()
    stream = event("a") + MARK + told + b"\n\n" + event("b")
    assert gate.push(stream).startswith(event("a"))
    assert gate.is_lost
    assert gate.push(event("c")) == event("c")


def test_a_piece_beyond_all_bounds_is_not_kept() -> None:
    gate = NotedGate()
    huge = event("x" * MOST_HELD_BYTES)
    assert gate.push(huge) == huge
    assert gate.is_lost


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_gate_knows_when_the_engine_process_died(size: int) -> None:
    gate, stream = (
        NotedGate(),
        event("a") + note([4]) + event("b") + LOST + event("an error") + DONE,
    )
    shown = b"".join(gate.push(stream[at : at + size]) for at in range(0, len(stream), size))
    assert gate.is_cut_off
    assert shown == event("a")
    assert gate.flush() == event("b") + event("an error") + DONE


def test_text_of_a_model_is_no_mark() -> None:
    gate = NotedGate()
    gate.push(event("a") + note([4]) + event(LOST.decode()) + DONE)
    assert not gate.is_cut_off


def test_notes_without_pieces_between_them_are_all_taken_out() -> None:
    gate = NotedGate()
    stream = note([1]) + note([2]) + event("a") + note([3, 4]) + note(()) + event("b") + note([5])
    assert gate.push(stream) == event("a") + event("b")
    assert [word & 0xFF for word in gate.words] == [1, 2, 3, 4, 5]
