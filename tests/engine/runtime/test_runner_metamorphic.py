"""Through the whole engine: who else runs, in which order, and what they wish changes no answer.

Float32 on the CPU. Each request is first answered alone; then all together, in other orders, with
too few pages (so that sequences are preempted), with small chunks, with grammars beside them.
"""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from engine_harness import MemoryPort
from yaie.core.messages import Generate, Tokens
from yaie.core.request import Grammar, SamplingParams
from yaie.runtime.startup import factory
from yaie_api.engine_config import EngineConfig

MODEL = "builtin://yaie-demo"
DIGITS = Grammar("regex", "[0-9]{1,12}")

WISHES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 1.0, "seed": 3},
    "filtered": {"temperature": 1.1, "top_k": 30, "top_p": 0.9, "min_p": 0.01, "seed": 4},
    "penalised": {"temperature": 0.9, "seed": 12, "repetition_penalty": 1.3},
    "counted": {"temperature": 0.0, "frequency_penalty": 0.9, "presence_penalty": 0.6},
    "biased": {"temperature": 0.8, "seed": 6, "logit_bias": {40: 3.0, 50: 2.0, 60: -9.0}},
    "allowed": {"temperature": 1.0, "seed": 7, "allowed_token_ids": tuple(range(40, 140))},
    "worded": {"temperature": 0.0, "bad_words_ids": tuple((t,) for t in range(0, 300, 3))},
    "long": {"temperature": 1.0, "seed": 8, "min_tokens": 16, "ignore_eos": False},
    "scored": {"temperature": 1.0, "seed": 9, "logprobs": 5, "prompt_logprobs": 2},
    "two": {"temperature": 1.0, "seed": 10, "n": 2, "repetition_penalty": 1.1},
    "digits": {"temperature": 1.0, "seed": 11, "grammar": DIGITS},
}


Answer = tuple[dict[int, list[int]], list[tuple[int, int, tuple[int, ...]]]]


class Answers:
    """A whole engine, driven until every request has ended."""

    def __init__(self, **settings: Any) -> None:
        defaults = {"device": "cpu", "cpu_threads": 1, "max_num_seqs": 8, "kv_cache_tokens": 4096}
        config = EngineConfig(model=MODEL, **(defaults | settings))
        self.engine = factory.create(config)
        self.port = MemoryPort()
        self.loop = self.engine.loop(self.port)

    def of(self, requests: dict[str, Generate]) -> dict[str, Answer]:
        """Tokens of each output, and which tokens its log-probabilities rank."""
        self.port.events.clear()
        self.port.inbox.extend(requests.values())
        self.loop.step()
        while not self.loop.is_idle:
            self.loop.step()
        return {name: self._answer(name) for name in requests}

    def _answer(self, name: str) -> Answer:
        events = [event for event in self.port.of(Tokens) if event.request_id == name]
        assert not [event.error for event in events if event.finish_reason == "error"]
        entries = [entry for event in events for entry in event.logprobs]
        entries += [entry for event in events for entry in event.prompt_logprobs or ()]
        outputs = {
            index: [t for event in events if event.index == index for t in event.token_ids]
            for index in {event.index for event in events}
        }
        return outputs, [(entry.token_id, entry.rank, entry.top_ids) for entry in entries]


def request(number: int, wish: str) -> Generate:
    rng = random.Random(number % 5)  # some prompts come twice
    prompt = tuple(rng.randrange(20, 400) for _ in range(3 + 7 * (number % 5)))
    params = {"max_tokens": 20, "ignore_eos": True} | WISHES[wish]
    return Generate(wish, prompt, SamplingParams(**params))


REQUESTS = {wish: request(number, wish) for number, wish in enumerate(WISHES)}


@pytest.fixture(scope="module")
def alone() -> dict[str, Answer]:
    engine = Answers()
    return {name: engine.of({name: one})[name] for name, one in REQUESTS.items()}


def test_the_wishes_lead_to_different_answers(alone: dict[str, Answer]) -> None:
    assert len({str(outputs) for outputs, _ in alone.values()}) == len(alone)
    assert alone["two"][0][0] != alone["two"][0][1]
    assert len(alone["scored"][1]) == 20 + len(REQUESTS["scored"].prompt_token_ids) - 1


SETTINGS: dict[str, dict[str, Any]] = {
    "together": {},
    "in few slots": {"max_num_seqs": 3},
    "in small chunks": {"max_num_batched_tokens": 5},
    "with few pages": {"kv_cache_tokens": 160},
    "with few pages and swap": {"kv_cache_tokens": 160, "swap_space_gib": 0.1},
    "without a prefix cache": {"enable_prefix_caching": False},
}


class Memory:
    """Guesses what the answers of before say, and every third time something else."""

    def __init__(self, answers: list[tuple[int, ...]]) -> None:
        self.answers = answers
        self.n_guesses = 0

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        known = tuple(tokens)
        answer = next((a for a in self.answers if a[: len(known)] == known), known)
        guesses = list(answer[len(known) :][: min(most, 4)])
        self.n_guesses += len(guesses)
        if guesses and self.n_guesses % 3 == 0:
            guesses[-1] += 1
        return guesses


@pytest.mark.parametrize("depth", [0, 1])
def test_guesses_change_no_answer_and_save_steps(depth: int, alone: dict[str, Answer]) -> None:
    engine, without = Answers(), Answers()
    memory = Memory(
        [
            (*REQUESTS[name].prompt_token_ids, *tokens)
            for name, (outputs, _) in alone.items()
            for tokens in outputs.values()
        ]
    )
    engine.engine.scheduler.drafter = memory
    for each in (engine, without):
        each.engine.runner.depth = depth
        assert each.of(REQUESTS) == alone
    assert memory.n_guesses > 40
    # The requests that cannot be guessed take as many steps as before.
    plain = {name: REQUESTS[name] for name in ("greedy", "drawn", "filtered", "long")}
    steps = []
    for each in (engine, without):
        before = each.engine.scheduler.stats().steps
        each.of(plain)
        steps.append(each.engine.scheduler.stats().steps - before)
    assert steps[0] < 0.6 * steps[1]


@pytest.mark.parametrize("setting", SETTINGS)
def test_company_changes_no_answer(setting: str, alone: dict[str, Answer]) -> None:
    order = list(REQUESTS)
    random.Random(setting).shuffle(order)
    engine = Answers(**SETTINGS[setting])
    engine.engine.scheduler._kv_cache._swap_min_tokens = 1  # short sequences too
    assert engine.of({name: REQUESTS[name] for name in order}) == alone
    stats = engine.engine.scheduler.stats()
    assert (stats.preemptions > 0) == ("few pages" in setting)
    assert (stats.swaps_in > 0) == ("swap" in setting)


@pytest.mark.parametrize("setting", ["together", "with few pages", "in small chunks"])
def test_an_output_goes_on_from_any_of_its_tokens(setting: str, alone: dict[str, Answer]) -> None:
    """As when another engine began it: what it draws depends on the prompt, the seed and the
    tokens so far alone.
    """
    asked: dict[str, Generate] = {}
    expected: dict[str, Answer] = {}
    for name in REQUESTS.keys() - {"two"}:
        tokens, entries = alone[name][0][0], alone[name][1]
        sampling = msgspec.structs.replace(REQUESTS[name].sampling, prompt_logprobs=None)
        for cut in (1, len(tokens) // 2, len(tokens) - 1):
            asked[f"{name} {cut}"] = msgspec.structs.replace(
                REQUESTS[name],
                request_id=f"{name} {cut}",
                sampling=sampling,
                resumed_token_ids=tuple(tokens[:cut]),
            )
            scored = entries[cut : len(tokens)] if sampling.logprobs is not None else []
            expected[f"{name} {cut}"] = ({0: tokens[cut:]}, scored)
    assert Answers(**SETTINGS[setting]).of(asked) == expected
