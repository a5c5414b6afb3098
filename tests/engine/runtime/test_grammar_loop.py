"""Structured output through the real loop: the built-in model, the CPU, the sampler's masks."""

import json
import time
from typing import Any

import jsonschema_rs
import pytest

from yaie.core.messages import Abort, Command, Event, Generate, Rejected, Stats, Tokens
from yaie.core.request import Grammar, SamplingParams
from yaie.runtime.startup import factory
from yaie.text.grammar.forms import grammar_of
from yaie.text.prompt.tokenizer import Tokenizer
from yaie.text.tools import ToolChoice, ToolSpec, format_for
from yaie_api.engine_config import EngineConfig

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "kind": {"enum": ["cat", "dog", "Vögel"]},
        "ages": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": 120},
            "minItems": 2,
            "maxItems": 6,
        },
        "born": {"type": "string", "format": "date"},
    },
    "required": ["name", "kind", "ages", "born"],
    "additionalProperties": False,
}


class Bench:
    """An engine over the built-in model; it is its own port. Wants of pages are what `tokens` is
    for: fewer than the requests need, and some are preempted.
    """

    def __init__(self, tokens: int = 4096) -> None:
        config = EngineConfig(
            model="builtin://yaie-demo",
            device="cpu",
            cpu_threads=1,
            kv_cache_tokens=tokens,
            max_num_seqs=8,
            max_model_len=256,
        )
        engine = factory.create(config)
        self.tokenizer = Tokenizer.load(engine.info.tokenizer_path)
        self.loop = engine.loop(self)
        self.inbox: list[Command] = []
        self.events: list[Event] = []
        self.preemptions = 0

    def drain(self, *, wait_s: float) -> list[Command]:
        if wait_s > 0 and not self.inbox:  # a grammar is being compiled in another process
            time.sleep(min(wait_s, 0.002))
        commands, self.inbox = self.inbox, []
        return commands

    def publish(self, events: list[Event]) -> None:
        self.events += events
        for event in events:
            if isinstance(event, Stats):
                self.preemptions = event.preemptions

    def ask(self, request_id: str, grammar: Grammar | None, **sampling: Any) -> None:
        prompt = self.tokenizer.encode(f"<|im_start|>user\nJSON {request_id}<|im_end|>\n")
        wishes = {"temperature": 1.0, "seed": 7, "max_tokens": 220, **sampling}
        params = SamplingParams(grammar=grammar, **wishes)
        self.inbox.append(Generate(request_id, tuple(prompt), params))

    def run(self, n_outputs: int) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            self.loop.step()
            if len(self.ended) >= n_outputs:
                return
        raise AssertionError("the outputs did not end")

    @property
    def ended(self) -> list[Event]:
        final = [e for e in self.events if isinstance(e, Tokens) and e.finish_reason]
        return [*final, *(e for e in self.events if isinstance(e, Rejected))]

    def outputs(self, request_id: str) -> dict[int, tuple[str, str | None]]:
        """Text and finish reason by index."""
        found: dict[int, tuple[str, str | None]] = {}
        ids: dict[int, list[int]] = {}
        for event in self.events:
            if isinstance(event, Tokens) and event.request_id == request_id:
                ids.setdefault(event.index, []).extend(event.token_ids)
                text = self.tokenizer.decode(ids[event.index])
                found[event.index] = (text, event.finish_reason)
        return found


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


@pytest.fixture(autouse=True)
def forget(bench: Bench) -> None:
    bench.events.clear()


def schema_grammar(schema: Any = SCHEMA) -> Grammar:
    grammar = grammar_of({"response_format": {"type": "json_schema", "schema": schema}})
    assert grammar is not None
    return grammar


def assert_valid(bench: Bench, request_id: str, n: int = 1) -> set[str]:
    outputs = bench.outputs(request_id)
    assert len(outputs) == n
    for text, reason in outputs.values():
        assert reason == "stop"
        assert jsonschema_rs.is_valid(SCHEMA, json.loads(text), validate_formats=True), text
    return {text for text, _ in outputs.values()}


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
def test_every_output_validates(bench: Bench, temperature: float) -> None:
    for number in range(6):
        bench.ask(f"r{number}", schema_grammar(), temperature=temperature, seed=number)
    bench.run(6)
    for number in range(6):
        assert_valid(bench, f"r{number}")


def test_outputs_of_one_request_go_their_own_ways(bench: Bench) -> None:
    bench.ask("many", schema_grammar(), n=3)
    bench.run(3)
    assert len(assert_valid(bench, "many", n=3)) == 3


def test_a_preempted_output_goes_on_where_it_was() -> None:
    """Fewer pages than six sequences need; the texts are those of a roomy engine."""
    texts: list[list[str]] = []
    for tokens in (4096, 272):
        bench = Bench(tokens)
        for number in range(6):
            bench.ask(f"r{number}", schema_grammar(), seed=number)
        bench.run(6)
        for number in range(6):
            assert_valid(bench, f"r{number}")
        texts.append([bench.outputs(f"r{number}")[0][0] for number in range(6)])
        bench.loop.step()
        assert (bench.preemptions > 0) == (tokens == 272)
    assert texts[0] == texts[1]


def test_rows_with_and_without_a_form_share_a_batch(bench: Bench) -> None:
    bench.ask("free", None, max_tokens=20, ignore_eos=True)
    bench.ask("alone", schema_grammar())
    bench.run(2)
    with_neighbour = bench.outputs("free")
    assert_valid(bench, "alone")
    bench.events.clear()
    bench.ask("free", None, max_tokens=20, ignore_eos=True)
    bench.run(1)
    assert bench.outputs("free") == with_neighbour


def test_penalties_and_bans_do_not_break_a_form(bench: Bench) -> None:
    quote = bench.tokenizer.encode('"')[0]
    bench.ask("bans", schema_grammar(), logit_bias={quote: -100.0}, repetition_penalty=1.5)
    bench.ask("top", schema_grammar(), top_k=5, top_p=0.5, min_p=0.05)
    bench.run(2)
    assert_valid(bench, "bans")
    assert_valid(bench, "top")


def test_a_required_tool_is_called(bench: Bench) -> None:
    form = format_for(None)
    spec = ToolSpec("zoo", parameters=SCHEMA)
    bench.ask("call", form.grammar([spec], ToolChoice("required"), parallel=False))
    bench.run(1)
    ((text, reason),) = bench.outputs("call").values()
    assert reason == "stop"
    parser = form.parser([spec])
    parts = [*parser.push(text), *parser.finish()]
    (call,) = parts
    assert getattr(call, "name", None) == "zoo"
    assert jsonschema_rs.is_valid(SCHEMA, json.loads(getattr(call, "arguments", "")))


def test_an_output_that_is_too_long_ends_with_length(bench: Bench) -> None:
    bench.ask("short", schema_grammar(), max_tokens=5)
    bench.run(1)
    ((text, reason),) = bench.outputs("short").values()
    assert reason == "length"
    assert text.startswith("{")


def test_a_form_that_cannot_be_honoured_rejects_the_request(bench: Bench) -> None:
    bench.ask("bad", Grammar("regex", "(", "guided_regex"))
    bench.run(1)
    (event,) = bench.ended
    assert isinstance(event, Rejected)
    assert (event.status, event.param) == (400, "guided_regex")


def test_a_request_may_be_taken_back_while_its_form_compiles(bench: Bench) -> None:
    bench.ask("gone", schema_grammar({"const": "never seen before"}))
    bench.loop.step()
    bench.inbox.append(Abort("gone"))
    bench.run(1)
    assert not any(text for text, _ in bench.outputs("gone").values())
    bench.ask("next", schema_grammar())
    bench.run(2)
    assert_valid(bench, "next")
