"""The step budget on made-up machines: cost in, tokens out."""

import math
import random
from dataclasses import dataclass

import pytest

from yaie.core.batch import Batch, Row
from yaie.runtime.budget import FIRST_CHUNK, MIN_CHUNK, StepBudget
from yaie.runtime.cost import CostModel, StepLoad


@dataclass(frozen=True)
class Machine:
    """Seconds of a step: fixed, and for one of each term of its load."""

    fixed: float = 3e-3
    decode: float = 4e-4
    chunk: float = 4e-3
    read: float = 2.5e-6
    prefill: float = 7e-5
    context: float = 3e-8
    noise: float = 0.0

    def seconds(self, load: StepLoad, rng: random.Random) -> float:
        costs = (self.fixed, self.decode, self.chunk, self.read, self.prefill, self.context)
        exact = sum(cost * term for cost, term in zip(costs, load.terms, strict=True))
        return exact * (1 + self.noise * rng.expovariate(1.0))

    def slower(self, times: float) -> "Machine":
        costs = (self.fixed, self.decode, self.chunk, self.read, self.prefill, self.context)
        return Machine(*(cost * times for cost in costs), self.noise)


CPU = Machine()
"""The shape of a 6-million-parameter model on one core, as measured."""
GPU = Machine(2e-3, 5e-6, 1e-3, 1e-9, 2.6e-6, 1e-10)
SLOW = Machine(0.2, 0.01, 0.05, 1e-5, 2e-3, 1e-7)


def chunk_load(decodes: int, n: int, position: int) -> StepLoad:
    return StepLoad(decodes, 1, position + n, n, n * (position + n // 2))


class Simulation:
    """Steps of `decodes` rows; prompts come and go."""

    def __init__(self, machine: Machine, *, max_tokens: int = 2048, target_s: float = 0.05) -> None:
        self.machine = machine
        self.rng = random.Random(1)
        self.budget = StepBudget(max_tokens, target_s)

    def step(self, decodes: int, left: int = 0, position: int = 0) -> tuple[int, float]:
        """Run a step with up to `left` prompt tokens: how many it took, and its seconds."""
        n = min(left, self.budget.tokens(decodes, position) - decodes)
        load = chunk_load(decodes, n, position) if n else StepLoad(decodes)
        seconds = self.machine.seconds(load, self.rng)
        self.budget.observe(load, seconds)
        return n, seconds

    def prompt(self, decodes: int, length: int) -> list[float]:
        """Seconds of every step that a prompt takes beside `decodes` decodes."""
        times, position = [], 0
        while position < length:
            n, seconds = self.step(decodes, length - position, position)
            position += n
            times.append(seconds)
        return times

    def decode(self, decodes: int, steps: int = 50) -> float:
        """Median seconds of steps without prefill."""
        return sorted(self.step(decodes)[1] for _ in range(steps))[steps // 2]


def test_a_load_counts_what_a_batch_computes() -> None:
    rows = (
        Row(0, 0, 0, 40, 1, (), True),
        Row(1, 1, 0, 50, 1, (), True),
        Row(2, 2, 0, 100, 4, (1, 2, 3, 4), False),
        Row(3, 3, 0, 0, 2, (1, 2), True),
    )
    assert StepLoad.of(Batch(0, (), (), (), (), rows)) == StepLoad(
        2, 2, 104 + 2, 6, 4 * 102 + 2 * 1
    )


def test_without_decodes_a_step_takes_all_it_may() -> None:
    simulation = Simulation(CPU)
    assert simulation.budget.tokens(0) == 2048
    simulation.prompt(16, 2000)
    assert simulation.budget.tokens(0) == 2048


def test_an_offline_budget_is_never_limited() -> None:
    budget = StepBudget(8192, math.inf)
    assert budget.tokens(100) == 8192


@pytest.mark.parametrize("decodes", [1, 16, 256, 4000])
def test_prefill_always_gets_some_room(decodes: int) -> None:
    simulation = Simulation(SLOW)
    simulation.step(decodes, 16)
    assert simulation.budget.tokens(decodes) >= decodes + MIN_CHUNK


def test_steps_that_take_no_time_at_all_are_no_problem() -> None:
    simulation = Simulation(CPU.slower(0.0))
    for _ in range(20):
        simulation.prompt(4, 64)
    assert simulation.budget.tokens(4) >= 4 + MIN_CHUNK


def test_the_first_chunk_beside_decodes_is_small() -> None:
    budget = StepBudget(8192, 0.05)
    assert budget.tokens(16) <= 16 + FIRST_CHUNK
    budget.observe(chunk_load(0, 2048, 0), 0.08)
    assert budget.tokens(16) <= 16 + FIRST_CHUNK


@pytest.mark.parametrize("machine", [CPU, GPU, SLOW], ids=["cpu", "gpu", "slow"])
@pytest.mark.parametrize("warm", [False, True])
def test_a_long_prompt_does_not_stall_the_decodes(machine: Machine, warm: bool) -> None:
    simulation = Simulation(machine)
    simulation.step(0, 2048)
    if warm:
        simulation.prompt(8, 500)
    median_s = simulation.decode(16)
    times = simulation.prompt(16, 2000)
    assert max(times) <= 3 * median_s
    if machine is not SLOW:
        assert max(times) <= 0.1


def test_a_long_prompt_is_not_starved_either() -> None:
    simulation = Simulation(CPU)
    simulation.prompt(16, 2000)
    median_s = simulation.decode(16)
    alone_s = CPU.seconds(chunk_load(0, 2000, 0), simulation.rng)
    times = simulation.prompt(16, 2000)
    assert sum(times) - len(times) * median_s <= 3 * alone_s


def test_noise_and_one_very_slow_first_step_are_survived() -> None:
    simulation = Simulation(Machine(noise=0.15))
    simulation.budget.observe(chunk_load(0, 16, 0), 3.0)
    simulation.prompt(16, 2000)
    median_s = simulation.decode(16)
    times = simulation.prompt(16, 2000)
    assert len(times) < 70
    assert sorted(times)[len(times) * 9 // 10] <= 3 * median_s


def test_prefill_without_pause_keeps_its_share_as_decodes_grow() -> None:
    simulation = Simulation(CPU)
    position = 0
    for decodes in range(1, 80):
        n, seconds = simulation.step(decodes, 512, position % 512)
        position += n
    assert n >= 4 * MIN_CHUNK
    assert seconds <= 0.075


def test_a_machine_that_suddenly_slows_down_is_followed() -> None:
    simulation = Simulation(CPU)
    simulation.prompt(16, 4000)
    simulation.machine = CPU.slower(2.5)
    median_s = simulation.decode(16)
    assert max(simulation.prompt(16, 2000)) <= 3.2 * median_s


def test_the_cost_model_finds_the_costs_it_was_fed() -> None:
    model, rng = CostModel(), random.Random(0)
    for _ in range(300):
        decodes, n, position = rng.randrange(1, 64), rng.choice([0, 64, 256]), rng.randrange(2000)
        load = chunk_load(decodes, n, position) if n else StepLoad(decodes)
        model.observe(load, CPU.seconds(load, rng))
    load = chunk_load(16, 300, 1000)
    assert model.seconds(load) == pytest.approx(CPU.seconds(load, rng), rel=0.05)
    assert model.overhead_s(1000) == pytest.approx(CPU.chunk + CPU.read * 1000, rel=0.3)
    n = round(model.prefill_tokens(0.010, 1000))
    longer = CPU.seconds(chunk_load(16, n + 1, 1000), rng)
    assert longer - CPU.seconds(chunk_load(16, 1, 1000), rng) == pytest.approx(0.010, rel=0.2)


def test_costs_that_cannot_be_told_apart_are_split_and_none_is_negative() -> None:
    model, rng = CostModel(), random.Random(0)
    for _ in range(50):
        model.observe(chunk_load(16, 64, 0), 0.02 * rng.uniform(0.9, 1.1))
    assert min(model.costs) >= 0
    assert 0 < model.overhead_s(0) < 0.02
    assert model.seconds(chunk_load(16, 64, 0)) == pytest.approx(0.02, rel=0.1)
