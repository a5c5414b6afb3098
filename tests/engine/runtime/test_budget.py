"""The step budget on made-up machines, and the whole loop with it on a virtual clock."""

import math
import random
from dataclasses import dataclass, replace

import pytest

from engine.runtime.virtual_gpu import Arrival, Machine, percentile, poisson, serve
from yaie.runtime.loop.step_budget import FIRST_CHUNK, MIN_CHUNK, StepBudget, StepLimits
from yaie.runtime.loop.step_cost import StepShape

ON_GPU = StepLimits(8192, 0.016, floor_tokens=512, pay_overhead=True)
EAGER_1B = Machine(decode_s=1.2e-3, mixed_s=8e-3, token_s=3.3e-6)
EAGER_8B = Machine(decode_s=4.7e-3, mixed_s=15e-3, token_s=18e-6)
GRAPHS_1B = Machine(decode_s=1.2e-3, mixed_s=1.5e-3, token_s=3.3e-6, row_s=5e-6)
GRAPHS_8B = Machine(decode_s=4.7e-3, mixed_s=5e-3, token_s=18e-6, row_s=1e-5)
CPU = Machine(decode_s=3e-3, mixed_s=7e-3, token_s=7e-5, row_s=4e-4, context_s=3e-8, depth=0)
"""A 6-million-parameter model on one core, as measured."""


def chunk(decodes: int, tokens: int, position: int = 0) -> StepShape:
    return StepShape(decodes, 1, tokens, tokens * (position + tokens // 2))


@dataclass
class Steps:
    """Steps of `decodes` rows on a machine; prompts come and go."""

    machine: Machine
    budget: StepBudget
    noise: float = 0.0

    def __post_init__(self) -> None:
        self.rng = random.Random(1)

    def run(
        self, decodes: int, left: int = 0, position: int = 0, arriving_per_s: float = 0.0
    ) -> tuple[int, float]:
        """Run a step with up to `left` prompt tokens: how many it took, and its seconds."""
        tokens = min(left, self.budget.tokens(decodes, position, arriving_per_s) - decodes)
        load = chunk(decodes, tokens, position) if tokens else StepShape(decodes)
        seconds = self.machine.seconds(load) * (1 + self.noise * self.rng.expovariate(1.0))
        self.budget.observe(load, seconds)
        return tokens, seconds

    def prompt(self, decodes: int, length: int) -> list[float]:
        """Seconds of every step that a prompt takes beside `decodes` decodes."""
        times, position = [], 0
        while position < length:
            tokens, seconds = self.run(decodes, length - position, position)
            position += tokens
            times.append(seconds)
        return times


def on_cpu(noise: float = 0.0) -> Steps:
    return Steps(CPU, StepBudget(StepLimits(2048, 0.05, context_weight=4e-4)), noise)


def test_without_decodes_a_step_takes_all_it_may() -> None:
    steps = on_cpu()
    assert steps.budget.tokens(0) == 2048
    steps.prompt(16, 2000)
    assert steps.budget.tokens(0) == 2048


def test_an_offline_budget_is_never_limited() -> None:
    assert StepBudget(StepLimits(8192, math.inf)).tokens(100) == 8192


@pytest.mark.parametrize("decodes", [1, 16, 256, 4000])
def test_prefill_always_gets_some_room(decodes: int) -> None:
    slow = replace(CPU, decode_s=0.2, mixed_s=0.3, token_s=2e-3)
    steps = Steps(slow, StepBudget(StepLimits(2048, 0.05)))
    steps.run(decodes, 16)
    assert steps.budget.tokens(decodes) >= decodes + MIN_CHUNK


def test_steps_that_take_no_time_at_all_are_no_problem() -> None:
    steps = Steps(Machine(0.0, 0.0, 0.0), StepBudget(StepLimits(2048, 0.05)))
    for _ in range(20):
        steps.prompt(4, 64)
    assert steps.budget.tokens(4) >= 4 + MIN_CHUNK


def test_the_first_chunk_beside_decodes_is_small_on_a_cpu_and_the_floor_on_a_gpu() -> None:
    assert on_cpu().budget.tokens(16) == 16 + FIRST_CHUNK
    assert StepBudget(ON_GPU).tokens(16) == 512


@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_a_long_prompt_on_a_cpu_keeps_to_the_target_and_one_decode_step(noise: float) -> None:
    steps = on_cpu(noise)
    decode_s = percentile([steps.run(15)[1] for _ in range(50)], 0.5)
    for _ in range(3):
        times = steps.prompt(15, 2000)
    assert percentile(times, 0.75) <= 0.05 + decode_s
    assert len(times) <= 12


def test_a_machine_that_suddenly_slows_down_is_followed() -> None:
    steps = on_cpu()
    steps.prompt(16, 4000)
    steps.machine = Machine(7.5e-3, 18e-3, 1.7e-4, row_s=1e-3, depth=0)
    steps.prompt(16, 4000)
    assert max(steps.prompt(16, 2000)) <= 0.05 + steps.machine.seconds(StepShape(16))


def test_a_machine_that_was_slow_for_a_while_is_used_again() -> None:
    steps = on_cpu()
    steps.machine = replace(CPU, mixed_s=0.5, decode_s=0.5)
    steps.prompt(16, 500)
    steps.machine = CPU
    steps.prompt(16, 2000)
    assert len(steps.prompt(16, 2000)) <= 12


def test_on_a_gpu_a_chunk_pays_for_its_launch() -> None:
    steps = Steps(EAGER_1B, StepBudget(ON_GPU))
    for _ in range(3):
        steps.prompt(16, 8000)
    tokens, seconds = steps.run(16, 10_000)
    assert tokens * EAGER_1B.token_s >= 0.9 * EAGER_1B.mixed_s
    assert seconds <= 1.25 * ON_GPU.target_s


def test_a_step_that_found_no_memory_makes_later_ones_smaller_for_a_while() -> None:
    budget = StepBudget(ON_GPU)
    budget.exhausted(4000)
    assert budget.tokens(0) == 2000
    for _ in range(300):
        budget.observe(StepShape(0, 1, 100), 1e-3)
    assert budget.tokens(0) == 8192


def test_prompts_that_come_faster_than_the_target_drains_them_get_longer_steps() -> None:
    steps = Steps(GRAPHS_8B, StepBudget(ON_GPU))
    for _ in range(10):
        steps.prompt(32, 8000)
    within = steps.budget.tokens(32) - 32
    for _ in range(5):
        beyond, _ = steps.run(32, 8000, arriving_per_s=40_000)
    assert within / GRAPHS_8B.seconds(chunk(32, within)) < 1.2 * 40_000
    assert beyond / GRAPHS_8B.seconds(chunk(32, beyond)) >= 1.1 * 40_000
    assert beyond < 8192, "the smallest chunk that drains them"
    steps.budget.launched(chunk(32, beyond))
    assert steps.budget.steps_past_target == 1
    steps.budget.tokens(32)
    steps.budget.launched(chunk(32, within))
    assert steps.budget.steps_past_target == 1


@pytest.mark.parametrize(
    ("machine", "per_s", "ttft_s"),
    [
        (EAGER_1B, 20, 0.06),
        (EAGER_8B, 10, 0.06),
        (GRAPHS_1B, 100, 0.03),
        (GRAPHS_8B, 10, 0.06),
        (GRAPHS_8B, 30, 0.15),
    ],
)
def test_open_loop_traffic_is_served_at_once(machine: Machine, per_s: float, ttft_s: float) -> None:
    """Prompts of 200 to 800 tokens, answers of 100 to 300; from the second second on."""
    report = serve(machine, poisson(per_s, seconds=10), ON_GPU)
    assert len(report.ended) == len(report.arrivals)
    assert percentile(report.ttft_s(after_s=1.0), 0.99) < ttft_s
    assert percentile(report.gaps_s, 0.99) < 2.2 * ON_GPU.target_s


def test_two_prompts_share_a_step_where_every_step_misses_the_target() -> None:
    """A step with prefill takes 15 ms without any, of 16; three minutes of traffic."""
    reports = [serve(EAGER_8B, poisson(10, seconds=60, seed=seed), ON_GPU) for seed in (5, 6, 7)]
    ttft_s = [seconds for report in reports for seconds in report.ttft_s(after_s=1.0)]
    assert len(ttft_s) > 1700
    assert percentile(ttft_s, 0.99) < 0.06
    assert all(max(report.gaps_s) < 3.5 * ON_GPU.target_s for report in reports)


def test_a_long_prompt_in_traffic_delays_nobody_for_long() -> None:
    arrivals = sorted([*poisson(10, seconds=8), Arrival(4.0, 8000, 64)])
    report = serve(GRAPHS_8B, arrivals, ON_GPU)
    assert len(report.ended) == len(arrivals)
    assert max(report.gaps_s) <= 1.6 * ON_GPU.target_s
    assert max(report.ttft_s()) < 0.35


def test_under_three_times_the_load_the_machine_works_at_its_capacity() -> None:
    """Capacity: what it serves when everything is there from the start."""
    many = 1200
    at_once = [Arrival(0.0, 500, 200)] * many
    ceiling = serve(GRAPHS_8B, at_once, StepLimits(8192, math.inf), limit_s=40)
    capacity = many / ceiling.now_s
    overload = poisson(3 * capacity, seconds=20, n_prompt=(500, 500), n_output=(200, 200))
    report = serve(GRAPHS_8B, overload, ON_GPU, limit_s=20)
    served = report.output_per_s(8, 20) / 200
    assert served >= 0.95 * capacity
    assert report.refused + len(report.ended) > 0


def test_a_burst_drains_in_order() -> None:
    arrivals = [Arrival(0.001 * (i // 50), 400, 20) for i in range(200)]
    report = serve(GRAPHS_8B, arrivals, ON_GPU)
    firsts = [report.first_s[number] for number in range(200)]
    assert firsts == sorted(firsts)
    assert len(report.ended) == 200


def test_short_prompts_do_not_wait_for_a_long_one_that_came_before() -> None:
    """Prompts of 8,000 tokens take a quarter of a second each; those that come meanwhile do not."""
    long = [Arrival(at_s, 8000, 64) for at_s in (4.0, 8.0, 12.0)]
    arrivals = sorted([*poisson(20, seconds=15), *long])
    report = serve(GRAPHS_8B, arrivals, ON_GPU)
    ttft_s = dict(enumerate(report.ttft_s()))
    of_long = [s for number, s in ttft_s.items() if arrivals[number].n_prompt == 8000]
    others = [s for number, s in ttft_s.items() if arrivals[number].n_prompt < 8000]
    assert percentile(others, 0.99) < 0.12
    assert 0.15 < max(of_long) < 0.4


def test_a_request_joins_the_next_step_although_another_one_is_in_flight() -> None:
    """It comes 1 ms into a decode step of 4.7 ms, and is computed in the step after that one."""
    arrivals = [Arrival(0.0, 16, 200), Arrival(0.5, 200, 4)]
    report = serve(GRAPHS_8B, arrivals, ON_GPU)
    prefill_s = GRAPHS_8B.seconds(chunk(1, 200))
    assert report.ttft_s()[1] <= GRAPHS_8B.seconds(StepShape(1)) + prefill_s + 1e-3


def test_a_step_that_ends_sooner_than_expected_is_not_waited_for() -> None:
    """The machine becomes four times faster; nobody tells the loop."""
    steps = [Arrival(0.0, 16, 400)]
    slow, fast = (serve(replace(GRAPHS_8B, decode_s=s), steps, ON_GPU) for s in (8e-3, 2e-3))
    assert fast.now_s < 0.3 * slow.now_s
