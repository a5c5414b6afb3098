"""Whatever happens, every output ends once, with the tokens of a run on its own.

Steps fail at any stage, rows are not finite, pages run out, time runs out, clients go away, the
engine is stopped or lost and another one gets what the old one had shown nothing of.
"""

import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.scheduler_trial import LIMIT, STAGES, Trial
from engine_harness import PAGE
from yaie.core.queues.policies import POLICIES
from yaie.core.scheduler import plan

STEMS = [(), (1,) * 4, (1,) * 8, (1, 1, 1, 1, 2, 2, 2, 2), (1,) * 12]
OPTIONS = {
    "depth": [0, 1, 2],
    "chunk": [1, 3, 5, 8, 24],
    "compile_steps": [0, 1, 2],
    "page_size": [PAGE, PAGE, 1],
    "guesses": [0, 0, 1, 4],
    "tokens": [LIMIT, LIMIT + PAGE, LIMIT + 2 * PAGE, LIMIT + 4 * PAGE],
    "groups": [1, 2],
    "max_num_seqs": [2, 3, 4, 5],
    "enable_prefix_caching": [True, True, False],
    "share_prompts": [True, True, True, False],
    "policy": list(POLICIES),
    "host_pages": [0, 3, 12, 48],
    "swap_min_tokens": [1, 6],
}
IDENTITY = {
    "priority": [0, 0, 0, 1, -1],
    "salt": ["", "", "", "b"],
    "tenant": ["", "t", "u"],
    "timeout_s": [None, None, None, 0.05, 0.2],
}
WISHES = IDENTITY | {
    "seed": [None, None, 0, 1, 2],
    "words": [None, None, None, None, "1", "5", "nonsense"],
    "n": [1, 1, 1, 2, 3],
    "max_tokens": [None, None, None, 0, 1, 6, 12],
    "min_tokens": [0, 0, 1],
    "ignore_eos": [True, False],
    "stop_token_ids": [(), (), (), (5, 11)],
    "logprobs": [None, None, 2],
    "prompt_logprobs": [None, None, None, 0, 1],
}
POOLINGS = ["last", "mean", "classify"]


def drawn(choices: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: st.sampled_from(some) for name, some in choices.items()})


class SchedulerMachine(RuleBasedStateMachine):
    """Hypothesis looks for the shortest story that goes wrong."""

    @initialize(options=drawn(OPTIONS), calm=st.booleans())
    def start(self, *, options: dict[str, Any], calm: bool) -> None:
        self.trial = Trial(max_num_queued_reqs=12, **options)
        self.calm = calm

    @rule(
        stem=st.sampled_from(STEMS),
        tail=st.lists(st.integers(1, 2), min_size=1, max_size=4),
        wishes=drawn(WISHES),
    )
    def ask(self, *, stem: tuple[int, ...], tail: list[int], wishes: dict[str, Any]) -> None:
        self.trial.ask((*stem, *tail), **wishes)

    @rule(stem=st.sampled_from(STEMS), pooling=st.sampled_from(POOLINGS), identity=drawn(IDENTITY))
    def pool(self, *, stem: tuple[int, ...], pooling: str, identity: dict[str, Any]) -> None:
        self.trial.ask((*stem, 2), pooling=pooling, **identity)

    @rule(count=st.integers(1, 8))
    def step(self, count: int) -> None:
        self.trial.step(count)

    @rule()
    def reset_prefix_cache(self) -> None:
        self.trial.reset_prefix_cache()

    @precondition(lambda self: self.trial.requests and not self.calm)
    @rule(data=st.data(), index=st.sampled_from([None, 0, 1, 2]))
    def abort(self, data: st.DataObject, index: int | None) -> None:
        self.trial.abort(data.draw(st.sampled_from(sorted(self.trial.requests))), index)

    @precondition(lambda self: not self.calm)
    @rule(stage=st.sampled_from(STAGES))
    def break_a_step(self, stage: str) -> None:
        self.trial.break_a_step(stage)

    @precondition(lambda self: not self.calm)
    @rule(row=st.integers(-1, 2))
    def break_a_row(self, row: int) -> None:
        self.trial.break_a_row(row)

    @precondition(lambda self: len(self.trial.requests) > 4 and not self.calm)
    @rule(stage=st.sampled_from(STAGES), steps=st.integers(0, 4))
    def start_another_engine(self, stage: str, steps: int) -> None:
        self.trial.start_another_engine(stage, steps)

    @invariant()
    def proves_itself(self) -> None:
        if hasattr(self, "trial"):
            self.trial.rig.scheduler.check()

    def teardown(self) -> None:
        if hasattr(self, "trial"):
            self.trial.judge()


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """No records of steps that were broken on purpose; followers are many when they are two."""
    logging.getLogger("yaie.runtime.loop.engine_loop").setLevel(logging.CRITICAL)
    most, plan.MOST_FOLLOWERS = plan.MOST_FOLLOWERS, 2
    yield
    plan.MOST_FOLLOWERS = most
    logging.getLogger("yaie.runtime.loop.engine_loop").setLevel(logging.NOTSET)


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("seed", range(30))
def test_in_a_storm_nobody_is_forgotten_and_no_token_is_wrong(seed: int) -> None:
    """Many requests at once: pages are short all the time."""
    chance = random.Random(seed)
    trial = Trial(max_num_queued_reqs=40, **_chosen(chance, OPTIONS))
    calm = chance.random() < 0.3
    for _ in range(15):
        for _ in range(chance.randint(0, 5)):
            stem, tail = chance.choice(STEMS), chance.choices((1, 2), k=chance.randint(1, 4))
            if chance.random() < 0.1:
                trial.ask((*stem, *tail), pooling=chance.choice(POOLINGS))
            else:
                trial.ask((*stem, *tail), **_chosen(chance, WISHES | LONG))
        if not calm:
            _disturb(trial, chance)
        trial.step(chance.randint(1, 8))
    trial.judge()


def test_what_was_not_finite_is_not_there_for_the_next() -> None:
    """The first chunk is broken and cached; that shows when a token is drawn."""
    options = {name: choices[0] for name, choices in OPTIONS.items()} | {"chunk": PAGE}
    trial = Trial(max_num_queued_reqs=12, **options)
    trial.ask(STEMS[-1] + (1,))
    trial.break_a_row(0)
    trial.step(1)
    trial.judge()


LONG = {"timeout_s": [None] * 9 + [0.2], "max_tokens": [None, None, None, 12], "min_tokens": [0, 6]}
"""SlotSampling with which requests live long enough to get in each other's way."""


def _chosen(chance: random.Random, choices: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: chance.choice(some) for name, some in choices.items()}


def _disturb(trial: Trial, chance: random.Random) -> None:
    match chance.randrange(12):
        case 0 if trial.requests:
            trial.abort(chance.choice(list(trial.requests)), chance.choice([None, 0, 1, 2]))
        case 1 | 2:
            trial.break_a_step(chance.choice(STAGES))
        case 3 | 4:
            trial.break_a_step("swap")
        case 5 | 8:
            trial.break_a_row(chance.choice([0, 1, -1, -1]))
        case 6 if chance.random() < 0.3:
            trial.start_another_engine(chance.choice(STAGES), chance.randrange(5))
        case 7:
            trial.reset_prefix_cache()
