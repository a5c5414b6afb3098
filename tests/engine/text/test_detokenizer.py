import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.vocabularies import byte_fallback, byte_level, space_marks, word_pieces
from yaie.core.request import SamplingParams
from yaie.text.detokenizer import ByteDetokenizer, StopStrings, TextStream, WindowDetokenizer
from yaie.text.prompt.tokenizer import Tokenizer

BYTES = Tokenizer(byte_level(), None)
FALLBACK = Tokenizer(byte_fallback(), None)
PIECES = Tokenizer(word_pieces(), None)
MARKS = Tokenizer(space_marks(), None)
byte_ids = st.lists(st.integers(0, BYTES.vocab_size + 3), max_size=40)


def chunks(ids: Sequence[int], sizes: Sequence[int]) -> list[Sequence[int]]:
    """Cut `ids` into pieces of the given sizes, then the rest."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(ids[start : start + size])
        start += size
    return [*pieces, ids[start:]]


def stream(
    tokenizer: Tokenizer, ids: Sequence[int], sizes: Sequence[int] = (), **sampling: object
) -> tuple[str, TextStream]:
    text = TextStream(tokenizer, SamplingParams(**sampling))  # type: ignore[arg-type]  # any field
    shown = "".join([text.push(piece) for piece in chunks(ids, sizes)])
    return shown + text.finish(), text


def test_the_right_detokenizer_is_chosen() -> None:
    assert (BYTES.is_exact, BYTES.strips_space) == (True, False)
    assert (FALLBACK.is_exact, FALLBACK.strips_space) == (True, True)
    assert not PIECES.is_exact
    assert not MARKS.is_exact


@settings(max_examples=300)
@given(ids=byte_ids, sizes=st.lists(st.integers(0, 5), max_size=10), skip=st.booleans())
def test_streamed_text_equals_the_full_decode(ids: list[int], sizes: list[int], skip: bool) -> None:
    text, _ = stream(BYTES, ids, sizes, skip_special_tokens=skip)
    assert text == BYTES.decode(ids, skip_special_tokens=skip)


@settings(max_examples=200)
@given(data=st.binary(max_size=60), sizes=st.lists(st.integers(0, 3), max_size=20))
def test_random_bytes_stream_like_their_full_decode(data: bytes, sizes: list[int]) -> None:
    of_byte = {BYTES.token_bytes(i): i for i in range(BYTES.vocab_size)}
    ids = [of_byte[bytes([byte])] for byte in data]
    text, _ = stream(BYTES, ids, sizes)
    assert text == BYTES.decode(ids) == data.decode(errors="replace")


@given(text=st.text(max_size=40), sizes=st.lists(st.integers(0, 5), max_size=10))
def test_any_text_survives_encoding_and_streaming(text: str, sizes: list[int]) -> None:
    ids = BYTES.encode(text)
    streamed, _ = stream(BYTES, ids, sizes, skip_special_tokens=False)
    assert streamed == text


@settings(max_examples=200)
@given(
    words=st.lists(st.sampled_from([" hello", " world", "ab", "é", "日", "😀", "ü", "stop"])),
    sizes=st.lists(st.integers(0, 4), max_size=10),
)
def test_byte_fallback_text_streams_like_its_full_decode(
    words: list[str], sizes: list[int]
) -> None:
    ids = FALLBACK.encode("".join(words).replace(" ", "▁"), add_special_tokens=False)
    text, _ = stream(FALLBACK, ids, sizes)
    assert text == FALLBACK.decode(ids)


@settings(max_examples=150)
@given(
    ids=st.lists(
        st.integers(0, FALLBACK.vocab_size - 1) | st.integers(3 + 0xC0, 3 + 0xFF), max_size=30
    ),
    sizes=st.lists(st.integers(0, 5), max_size=10),
)
def test_random_tokens_with_byte_fallback_are_their_bytes(ids: list[int], sizes: list[int]) -> None:
    """Where bytes are broken, the good ones beside them stay; the library drops the whole run."""
    text, _ = stream(FALLBACK, ids, sizes, skip_special_tokens=False)
    whole = b"".join(map(FALLBACK.token_bytes, ids)).decode(errors="replace").removeprefix(" ")
    assert text == whole
    if "\ufffd" not in whole:
        assert text == FALLBACK.decode(ids, skip_special_tokens=False)


@settings(max_examples=80)
@given(
    numbers=st.lists(st.integers(0, 99), max_size=15), sizes=st.lists(st.integers(0, 4), max_size=9)
)
@pytest.mark.parametrize("tokenizer", [PIECES, MARKS])
@pytest.mark.parametrize("skip", [False, True])
def test_pieces_stream_like_their_full_decode(
    tokenizer: Tokenizer, numbers: list[int], sizes: list[int], skip: bool
) -> None:
    ids = [number % tokenizer.vocab_size for number in numbers]
    text, _ = stream(tokenizer, ids, sizes, skip_special_tokens=skip)
    assert text == tokenizer.decode(ids, skip_special_tokens=skip)


@settings(max_examples=80)
@given(
    ids=st.lists(st.integers(0, 270), max_size=20),
    stops=st.lists(
        st.sampled_from(["a", "ab", "é", "日a", " hello", "stop", "\ufffd"]), max_size=3
    ),
    sizes=st.lists(st.integers(0, 4), max_size=9),
)
@pytest.mark.parametrize("tokenizer", [BYTES, FALLBACK, PIECES, MARKS])
def test_stop_strings_across_chunks_in_every_vocabulary(
    tokenizer: Tokenizer, ids: list[int], stops: list[str], sizes: list[int]
) -> None:
    ids = [token_id % tokenizer.vocab_size for token_id in ids]
    whole, _ = stream(tokenizer, ids)
    shown, state = stream(tokenizer, ids, sizes, stop=tuple(stops))
    assert (shown, state.stop_reason) == reference_stop(whole, stops)


def test_special_tokens_that_a_parser_needs_are_shown() -> None:
    ids = [*BYTES.encode("<|im_start|>hi"), *BYTES.encode("<|im_end|>")]
    text = TextStream(BYTES, SamplingParams(), frozenset({"<|im_start|>"}))
    assert text.push(ids) + text.finish() == "<|im_start|>hi"
    window = TextStream(PIECES, SamplingParams(), frozenset({"[X]"}))
    assert window.push([11, 3, 11]) + window.finish() == PIECES.decode(
        [11, 3, 11], skip_special_tokens=False
    )
    hidden = TextStream(PIECES, SamplingParams())
    assert hidden.push([11, 3, 11]) + hidden.finish() == "the"


def test_endless_broken_bytes_do_not_pile_up() -> None:
    exact = ByteDetokenizer(FALLBACK, skip_special_tokens=True)
    assert "".join(exact.push([3 + 0xFF]) for _ in range(100)) == "\ufffd" * 100
    window = WindowDetokenizer(FALLBACK, skip_special_tokens=True)
    for _ in range(100):
        window.push([3 + 0xFF])
    assert len(window._pending) < 4
    assert len(window._context) <= 4


def test_no_half_character_is_ever_shown() -> None:
    text = TextStream(BYTES, SamplingParams())
    shown = [text.push([i]) for i in BYTES.encode("😀")]
    assert shown[-1] == "😀"
    assert set(shown[:-1]) <= {""}


def test_an_unfinished_character_ends_as_a_replacement() -> None:
    first_byte = BYTES.encode("😀")[0]
    text, _ = stream(BYTES, [first_byte])
    assert text == BYTES.decode([first_byte]) == "\ufffd"


def reference_stop(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """Character by character: the first stop string that is complete, the longest of several."""
    for end in range(1, len(text) + 1):
        done = [s for s in stops if text[:end].endswith(s)]
        if done:
            longest = max(done, key=len)
            return text[: end - len(longest)], longest
    return text, None


letters = st.text("ab😀c", max_size=20)
stop_sets = st.lists(st.text("ab😀c", min_size=1, max_size=4), max_size=4)


@settings(max_examples=500)
@given(text=letters, stops=stop_sets, sizes=st.lists(st.integers(0, 4), max_size=12))
def test_stop_strings_cut_alike_however_the_text_is_chunked(
    text: str, stops: list[str], sizes: list[int]
) -> None:
    finder = StopStrings(stops)
    shown = "".join([finder.push(str(piece)) for piece in chunks(text, sizes)])  # type: ignore[arg-type]  # a str is a sequence too
    shown += finder.finish()
    assert (shown, finder.met) == reference_stop(text, stops)


@settings(max_examples=200)
@given(text=letters, stops=stop_sets, sizes=st.lists(st.integers(0, 4), max_size=12))
def test_stop_strings_across_tokens_and_characters(
    text: str, stops: list[str], sizes: list[int]
) -> None:
    shown, state = stream(BYTES, BYTES.encode(text), sizes, stop=tuple(stops))
    assert (shown, state.stop_reason) == reference_stop(text, stops)


def test_text_that_may_become_a_stop_string_is_held_back() -> None:
    finder = StopStrings(["END"])
    assert finder.push("the E") == "the "
    assert finder.push("N") == ""
    assert finder.push("E") == "EN"
    assert finder.push("ND now") == ""
    assert finder.met == "END"
    assert finder.push("more") == ""


def test_the_stop_string_is_kept_on_request() -> None:
    text, state = stream(
        BYTES, BYTES.encode("go stop go"), stop=("stop",), include_stop_str_in_output=True
    )
    assert text == "go stop"
    assert state.stopped


def test_tokens_after_the_stop_string_are_not_counted() -> None:
    ids = BYTES.encode("ab stop") + BYTES.encode(" and more of it")
    whole, state = stream(BYTES, ids, stop=("stop",))
    assert whole == "ab "
    assert state.num_tokens == len(BYTES.encode("ab stop"))
    assert state.push(ids) == ""
    assert state.num_tokens == len(BYTES.encode("ab stop"))


def test_all_tokens_count_without_a_stop_string() -> None:
    ids = BYTES.encode("one two")
    _, state = stream(BYTES, ids, [1, 2])
    assert state.num_tokens == len(ids)


def test_the_token_that_stopped_counts_but_is_not_shown() -> None:
    ids = BYTES.encode("hi!")
    text = TextStream(BYTES, SamplingParams(stop=("zz",)))
    shown = text.push(ids, stop_token_id=ids[-1]) + text.finish()
    assert shown == BYTES.decode(ids[:-1])
    assert text.num_tokens == len(ids)
    kept = TextStream(BYTES, SamplingParams(include_stop_str_in_output=True))
    assert kept.push(ids, stop_token_id=ids[-1]) == "hi!"


def test_stop_strings_wait_for_min_tokens() -> None:
    ids = BYTES.encode("a") * 6
    text, state = stream(BYTES, ids, stop=("a",), min_tokens=3)
    assert text == "aa"
    assert state.num_tokens == 3


@pytest.mark.parametrize("tokenizer", [BYTES, FALLBACK])
def test_time_is_linear_in_the_length(tokenizer: Tokenizer) -> None:
    """Ten times the tokens take well below a hundred times the processor time (best of three)."""
    ids = tokenizer.encode("a" * 6000)

    def run(count: int) -> float:
        started = time.thread_time()
        stream(tokenizer, ids[:count], [1] * count, stop=("aaab", "b" * 200))
        return time.thread_time() - started

    short = min(run(len(ids) // 10) for _ in range(3))
    long = min(run(len(ids)) for _ in range(3))
    assert long < 40 * short


def test_special_tokens_are_left_out_unless_asked_for() -> None:
    ids = [*BYTES.encode("hi"), *BYTES.encode("<|im_end|>")]
    assert ByteDetokenizer(BYTES, skip_special_tokens=True).push(ids) == "hi"
    assert ByteDetokenizer(BYTES, skip_special_tokens=False).push(ids) == "hi<|im_end|>"
