import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from llguidance import LLMatcher, LLParserLimits

from engine.grammars import DEMO, EOS, PADDING, demo
from engine.text.vocabularies import byte_fallback, space_marks
from yaie.core.matcher import Matcher
from yaie.core.messages import Generate
from yaie.core.request import Grammar, SamplingParams
from yaie.runtime.grammar import build, cache
from yaie.runtime.grammar import compiler as grammar_module
from yaie.runtime.grammar import masks as masks_module
from yaie.runtime.grammar.compiler import GrammarCompiler
from yaie.runtime.grammar.matcher import CompiledGrammar, TokenMatcher
from yaie.runtime.grammar.probe import MEMORY_BYTES, GrammarProbe
from yaie_api.errors import InvalidRequestError, OverloadedError, YaieError

SIZE = demo().get_vocab_size() + PADDING
PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
HARD = {"type": "integer", "multipleOf": 99_999_999}
"""Nearly a hundred million states."""


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(DEMO, SIZE, EOS, time_limit_s=20.0)
    yield made
    made.close()


def request(kind: str, text: str, request_id: str = "r", **more: str) -> Generate:
    grammar = Grammar(kind, text, **more)  # type: ignore[arg-type]  # any kind
    return Generate(request_id, (1,), SamplingParams(grammar=grammar))


def schema(value: object, **more: str) -> Generate:
    return request("json_schema", json.dumps(value), **more)


def take_one(compiler: GrammarCompiler, limit_s: float = 30.0) -> Matcher | YaieError:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if taken := compiler.take():
            ((_, outcome),) = taken
            return outcome
        time.sleep(0.001)
    raise AssertionError("nothing was compiled")


def compiled(compiler: GrammarCompiler, asked: Generate) -> TokenMatcher:
    compiler.submit(asked)
    outcome = take_one(compiler)
    assert isinstance(outcome, TokenMatcher), outcome
    return outcome


def refused(compiler: GrammarCompiler, asked: Generate) -> YaieError:
    compiler.submit(asked)
    outcome = take_one(compiler)
    assert isinstance(outcome, YaieError)
    return outcome


def feed(matcher: Matcher, text: str) -> bool:
    ids = demo().encode(text, add_special_tokens=False).ids
    return all(matcher.consume(token_id) for token_id in ids)


def options(compiler: GrammarCompiler, matcher: Matcher) -> set[int]:
    masks = compiler.masks([(0, matcher)])
    assert masks is not None
    bits = np.unpackbits(masks.words[0].view(np.uint8), bitorder="little")
    return {int(token_id) for token_id in np.flatnonzero(bits)}


def test_only_what_the_schema_allows_is_consumed(compiler: GrammarCompiler) -> None:
    matcher = compiled(compiler, schema(PAIR))
    assert not feed(matcher.fork(), '{"b"')
    assert feed(matcher, '{"a": 1, "b": "x"')
    assert not matcher.is_finished
    assert feed(matcher, "}")
    assert matcher.is_finished


def test_a_token_that_is_refused_leaves_the_state_as_it_was(compiler: GrammarCompiler) -> None:
    matcher = compiled(compiler, schema(PAIR))
    assert not feed(matcher, "x")
    assert feed(matcher, '{"a": 1')


def test_the_mask_agrees_with_what_is_consumed(compiler: GrammarCompiler) -> None:
    matcher = compiled(compiler, schema(PAIR))
    assert feed(matcher, '{"a": 12')
    allowed = options(compiler, matcher)
    assert allowed == {i for i in range(SIZE) if matcher.fork().consume(i)}
    assert allowed


def test_eos_is_allowed_at_the_end_only(compiler: GrammarCompiler) -> None:
    matcher = compiled(compiler, request("regex", "(ab)+"))
    assert not options(compiler, matcher) & set(EOS)
    assert feed(matcher, "ab")
    assert set(EOS) <= options(compiler, matcher)
    assert matcher.consume(EOS[0])
    assert matcher.is_finished


def test_nothing_but_eos_is_allowed_after_the_end(compiler: GrammarCompiler) -> None:
    matcher = compiled(compiler, schema({"const": 1}))
    assert feed(matcher, "1")
    assert options(compiler, matcher) == set(EOS)


def test_padding_and_special_tokens_are_never_text(compiler: GrammarCompiler) -> None:
    matcher = compiled(compiler, request("regex", r"(?s:.)*"))
    allowed = options(compiler, matcher)
    assert max(allowed) < demo().get_vocab_size()
    assert 1 not in allowed  # <|im_start|>
    assert set(EOS) <= allowed


def test_blanks_are_bounded(compiler: GrammarCompiler) -> None:
    matcher = compiled(compiler, schema(PAIR))
    assert feed(matcher.fork(), '{"a":1,"b":""}')
    assert feed(matcher.fork(), '{"a": 1, "b": ""}')
    for text in ("{ ", '{"a":  1', '{"a": 1 ', '{"a": 1,  "b"', "\n{"):
        assert not feed(matcher.fork(), text)


def test_a_schema_cannot_change_how_it_is_enforced(compiler: GrammarCompiler) -> None:
    lenient = {"not": {}, "x-guidance": {"lenient": True, "whitespace_flexible": True}}
    assert isinstance(refused(compiler, schema(lenient)), InvalidRequestError)


def test_forks_go_their_own_ways(compiler: GrammarCompiler) -> None:
    matcher = compiled(compiler, schema(PAIR))
    assert feed(matcher, '{"a": 1')
    fork = matcher.fork()
    assert feed(fork, '2, "b": "y"}')
    assert fork.is_finished
    assert not matcher.is_finished
    assert feed(matcher, ', "b": "z"}')


def test_a_grammar_is_compiled_once(compiler: GrammarCompiler) -> None:
    for number in range(3):
        compiler.submit(request("regex", "once+", f"r{number}"))
    taken: list[tuple[Generate, Matcher | YaieError]] = []
    while len(taken) < 3:
        taken += compiler.take()
    assert {one.request_id for one, _ in taken} == {"r0", "r1", "r2"}
    compiler.submit(request("regex", "once+", "again"))
    ((_, outcome),) = compiler.take()  # at once
    assert isinstance(outcome, TokenMatcher)
    assert feed(outcome, "onceee")
    assert compiler.pending == 0


@pytest.mark.parametrize("cores", [2, 4])
def test_rows_of_many_matchers_are_those_of_each(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr(masks_module, "MIN_PARALLEL_ROWS", 4)
    monkeypatch.setattr(compiler._masks, "_cores", cores)
    matchers = [compiled(compiler, schema({"const": "x" * n})) for n in range(6)]
    for number, matcher in enumerate(matchers):
        assert feed(matcher, '"' + "x" * (number // 2))
    alone = [options(compiler, matcher) for matcher in matchers]
    masks = compiler.masks([(7 - n, matcher) for n, matcher in enumerate(matchers)])
    assert masks is not None
    assert (compiler._masks._executor is not None) == (cores == 4)
    assert masks.rows == (7, 6, 5, 4, 3, 2)
    assert masks.words.shape == (6, -(-SIZE // 32))
    bits = np.unpackbits(masks.words.view(np.uint8), axis=1, bitorder="little")
    assert [set(map(int, np.flatnonzero(row))) for row in bits] == alone


def test_masks_of_the_step_before_stay_valid(compiler: GrammarCompiler) -> None:
    first, second = (compiled(compiler, schema({"const": text})) for text in ("x", 7))
    kept = compiler.masks([(0, first)])
    assert kept is not None
    words = kept.words.copy()
    other = compiler.masks([(0, second)])
    assert other is not None
    assert (kept.words == words).all()
    assert (kept.words != other.words).any()


def test_no_rows_need_no_masks(compiler: GrammarCompiler) -> None:
    assert compiler.masks([]) is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (request("regex", "(a"), "unclosed group"),
        (request("regex", "(?=a)b"), "look-around"),
        (request("lark", "start: other"), "other"),
        (request("lark", "start: <|nope|>"), "special token"),
        (request("lark", "nonsense"), "Expected token"),
        (request("lark", "start: " + "(" * 20_000 + '"a"' + ")" * 20_000), "nested"),
        (schema({"format": "colour", "type": "string"}), "colour"),
        (schema({"type": "string", "const": 1}), "incompatible"),
        (schema({"oneOf": [{"type": "string"}, {"type": "string"}]}), "anyOf"),
        (request("json_schema", "{" * 100_000), "form"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_words(
    compiler: GrammarCompiler, asked: Generate, words: str
) -> None:
    error = refused(compiler, asked)
    assert isinstance(error, InvalidRequestError)
    assert words in error.message
    assert error.param == "structured_outputs"
    assert "llguidance" not in error.message.lower()
    assert len(error.message) < 400


def test_errors_name_the_field_that_asked(compiler: GrammarCompiler) -> None:
    assert refused(compiler, schema({"not": {}}, param="response_format")).param == (
        "response_format"
    )


def test_a_compilation_that_explodes_is_ended_in_time() -> None:
    compiler = GrammarCompiler(DEMO, SIZE, EOS, time_limit_s=0.5, max_workers=1)
    try:
        compiled(compiler, request("regex", "warm"))
        began = time.monotonic()
        error = refused(compiler, schema(HARD))
        assert time.monotonic() - began < 3.0
        assert isinstance(error, InvalidRequestError)
        assert "too long" in error.message
        assert feed(compiled(compiler, request("regex", "next")), "next")
    finally:
        compiler.close()


def test_a_grammar_that_ends_the_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exhausted memory, or a stack overflow of the builder, ends the probe and nothing else."""
    compiler = GrammarCompiler(DEMO, SIZE, EOS, max_workers=1, time_limit_s=20.0)
    try:
        compiled(compiler, request("regex", "warm"))
        (probe,) = compiler._workshop._probes
        child = probe.start()
        child.kill()
        child.wait()
        error = refused(compiler, request("regex", "victim"))
        assert isinstance(error, InvalidRequestError)
        assert "too large" in error.message
        assert feed(compiled(compiler, request("regex", "next")), "next")
    finally:
        compiler.close()


def test_the_probe_has_a_limit_of_memory(tmp_path: Path) -> None:
    """What a child may allocate beyond its vocabulary is set before the first grammar."""
    probe = GrammarProbe(DEMO, SIZE, EOS, 20.0)
    probe.ask(Grammar("regex", "a"))
    limits = Path(f"/proc/{probe.start().pid}/limits").read_text(encoding="ascii")
    (line,) = [line for line in limits.splitlines() if line.startswith("Max address space")]
    assert MEMORY_BYTES < int(line.split()[3]) < 8 * MEMORY_BYTES
    probe.close()


def test_a_probe_ends_with_the_last_who_holds_it() -> None:
    probe = GrammarProbe(DEMO, SIZE, EOS, 20.0)
    child = probe.start()
    del probe
    assert child.wait(10) != 0


def test_too_many_waiting_grammars_are_told_to_retry(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_module, "MAX_PENDING", 1)
    compiler.submit(request("regex", "first?"))
    compiler.submit(request("regex", "second?"))
    outcomes: list[Matcher | YaieError] = []
    while len(outcomes) < 2:
        outcomes += [outcome for _, outcome in compiler.take()]
    (error,) = [outcome for outcome in outcomes if isinstance(outcome, YaieError)]
    assert isinstance(error, OverloadedError)
    assert error.retry_after_s == 1.0


def test_the_cache_forgets_the_least_recently_used() -> None:
    matcher = LLMatcher(build.load_vocabulary(DEMO, SIZE, EOS), "start: /a/")
    kept = cache.GrammarCache(100)
    for name in (b"old", b"used", b"big"):
        kept.put(name, CompiledGrammar(matcher, 40))
        kept.get(b"used")
    assert kept.get(b"old") is None
    assert kept.get(b"used") is not None
    kept.put(b"giant", CompiledGrammar(matcher, 101))
    assert kept.get(b"giant") is None


def test_grammars_are_told_apart_by_all_that_makes_them(compiler: GrammarCompiler) -> None:
    text = 'start: marker_0 "x"'
    tags = [
        Generate(tag, (1,), SamplingParams(grammar=Grammar("lark", text, markers=(tag,))))
        for tag in ("<a>", "<b>")
    ]
    for asked in tags:
        assert feed(compiled(compiler, asked), f"{asked.request_id}x")


def test_a_refused_grammar_is_refused_at_once_the_next_time(compiler: GrammarCompiler) -> None:
    first = refused(compiler, request("regex", "(((", param="regex"))
    compiler.submit(request("regex", "(((", param="guided_regex"))
    ((_, second),) = compiler.take()
    assert isinstance(second, InvalidRequestError)
    assert (first.param, second.param) == ("regex", "guided_regex")
    assert second.message == first.message


def test_a_refusal_is_forgotten_after_a_while(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "REFUSAL_S", 0.0)
    refused(compiler, request("regex", "(((("))
    compiler.submit(request("regex", "(((("))
    assert compiler.take() == []
    assert isinstance(take_one(compiler), InvalidRequestError)


def test_requests_that_wait_for_the_same_refusal_each_get_their_own_field(
    compiler: GrammarCompiler,
) -> None:
    for param in ("regex", "guided_regex"):
        compiler.submit(request("regex", "[[[", param, param=param))
    taken: list[tuple[Generate, Matcher | YaieError]] = []
    while len(taken) < 2:
        taken += compiler.take()
    assert all(isinstance(e, InvalidRequestError) and e.param == r.request_id for r, e in taken)


def test_a_grammar_that_ran_into_a_limit_is_compiled_anew(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies share a lexer, so an exhausted one must not come out of the cache."""
    limits = LLParserLimits(step_lexer_fuel=1000, verbose_errors=False)
    monkeypatch.setattr(build, "LIMITS", limits)
    asked = request("lark", 'start: "a" /(x{1,30}y|.{1,20}z){40}/')
    text = "a" + "x" * 20 + "y" * 20
    tired = compiled(compiler, asked)
    assert not feed_with_masks(compiler, tired, text)
    assert not tired.is_finished
    monkeypatch.undo()
    fresh = compiled(compiler, asked)
    assert feed_with_masks(compiler, fresh, text)


def feed_with_masks(compiler: GrammarCompiler, matcher: Matcher, text: str) -> bool:
    for token_id in demo().encode(text, add_special_tokens=False).ids:
        compiler.masks([(0, matcher)])
        if not matcher.consume(token_id):
            return False
    return True


def test_a_panic_in_a_thread_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panics(*_: object) -> None:
        raise PanicException

    compiler = GrammarCompiler(DEMO, SIZE, EOS)
    monkeypatch.setattr(compiler._workshop, "compile", panics)
    assert refused(compiler, request("regex", "a")).status == 500
    compiler.close()


def test_a_vocabulary_without_bytes_is_refused(tmp_path: Path) -> None:
    space_marks().save(str(tmp_path / "tokenizer.json"))
    compiler = GrammarCompiler(tmp_path, 20, [0])
    error = refused(compiler, request("regex", "a"))
    assert error.status == 400
    assert "vocabulary" in error.message
    compiler.close()


def test_byte_fallback_vocabularies_follow_grammars_too(tmp_path: Path) -> None:
    tokenizer = byte_fallback()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    compiler = GrammarCompiler(tmp_path, 300, [2], time_limit_s=20.0)
    matcher = compiled(compiler, request("regex", "(a|b)é hello 日\n"))
    assert options(compiler, matcher) == {tokenizer.token_to_id(t) for t in "ab"} | {
        3 + ord("a"),
        3 + ord("b"),
    }
    pieces = ["b", "<0xC3>", "<0xA9>", "▁hello", "▁", "日", "<0x0A>"]
    assert all(matcher.consume(tokenizer.token_to_id(piece)) for piece in pieces)
    assert options(compiler, matcher) == {2}
    compiler.close()


def test_a_panic_of_the_builder_is_an_error_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panics(*_: object, **__: object) -> LLMatcher:
        raise PanicException("index out of bounds")

    vocabulary = build.load_vocabulary(DEMO, SIZE, EOS)
    monkeypatch.setattr(build, "LLMatcher", panics)
    with pytest.raises(InvalidRequestError):
        build.build(vocabulary, Grammar("lark", "start: /a/"))

    def interrupts(*_: object, **__: object) -> LLMatcher:
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "LLMatcher", interrupts)
    with pytest.raises(KeyboardInterrupt):
        build.build(vocabulary, Grammar("lark", "start: /a/"))


def test_a_matcher_that_ran_into_a_limit_takes_nothing_more() -> None:
    vocabulary = build.load_vocabulary(DEMO, SIZE, EOS)
    native = LLMatcher(vocabulary, "start: /a/", log_level=0)
    assert not native.consume_token(5)
    compiled_one = CompiledGrammar(native, 1)
    matcher = TokenMatcher(compiled_one, native)
    assert not matcher.consume(EOS[0])
    assert not matcher.is_finished
    assert compiled_one.exhausted
