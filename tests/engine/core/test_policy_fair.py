"""Tenants share the engine by tokens; idle time earns nothing; inside a tenant nobody overtakes."""

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_harness import Rig, generate, isolated
from yaie.core.messages import Tokens
from yaie.core.queues.fair import OUTPUT_WEIGHT, FairQueue
from yaie.core.sequence import Sequence, StopLimits

STOP_LIMITS = StopLimits(frozenset(), 10_000)


class Server:
    """Serves up to `slots` sequences of known length, one output token each a tick."""

    def __init__(self, slots: int) -> None:
        self.queue = FairQueue()
        self.slots = slots
        self.running: list[tuple[Sequence, int]] = []
        self.service: Counter[str] = Counter()
        self.order: dict[str, list[int]] = defaultdict(list)
        self.outputs: dict[int, int] = {}
        self.arrivals = 0

    def send(self, tenant: str, prompt: int, output: int) -> Sequence:
        request = generate(str(self.arrivals), [1] * prompt, tenant=tenant)
        sequence = Sequence(request, STOP_LIMITS, seq_id=self.arrivals, arrival=self.arrivals)
        self.outputs[self.arrivals] = output
        self.arrivals += 1
        self.queue.push(sequence)
        return sequence

    def tick(self) -> None:
        self.queue.refresh([sequence for sequence, _ in self.running])
        while len(self.running) < self.slots and (sequence := self.queue.peek()):
            self.queue.pop()
            self.queue.started(sequence)
            self.running.append((sequence, self.outputs[sequence.arrival]))
            self.service[sequence.request.tenant] += sequence.n_prompt
            self.order[sequence.request.tenant].append(sequence.arrival)
        for sequence, length in list(self.running):
            sequence.tokens.append(1)
            self.service[sequence.request.tenant] += OUTPUT_WEIGHT
            if sequence.n_generated == length:
                self.running.remove((sequence, length))
                self.queue.left(sequence)


@settings(max_examples=30, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=2, max_size=5),
    slots=st.integers(1, 6),
    seed=st.integers(0, 999),
)
def test_tenants_that_always_wait_are_served_alike_within_a_bound(
    shapes: list[tuple[int, int]], slots: int, seed: int
) -> None:
    """The bound of the paper: what one round of admissions may give beyond what is counted yet."""
    server, draw = Server(slots), random.Random(seed)
    bound = 2 * (40 + OUTPUT_WEIGHT * slots * 20)
    for _ in range(80):
        for number, (prompt, output) in enumerate(shapes):
            for _ in range(slots):
                server.send(str(number), draw.randint(1, prompt), draw.randint(1, output))
        server.tick()
        service = [server.service[str(number)] for number in range(len(shapes))]
        assert max(service) - min(service) <= bound
    for order in server.order.values():
        assert order == sorted(order)


def test_a_tenant_that_comes_back_gets_no_credit_for_the_past() -> None:
    server = Server(slots=1)
    for _ in range(400):
        server.send("busy", 10, 5)
    server.send("idle", 10, 5)
    for _ in range(600):
        server.tick()
    before = Counter(server.service)
    assert before["busy"] > 10 * before["idle"]
    for _ in range(200):
        server.send("idle", 10, 5)
    for _ in range(400):
        server.tick()
    gained = server.service - before
    assert abs(gained["busy"] - gained["idle"]) <= 2 * 20


def test_a_tenant_that_comes_back_while_another_only_runs_gets_no_credit_either() -> None:
    server = Server(slots=2)
    server.send("busy", 10, 1000)
    for _ in range(500):
        server.tick()
    server.send("idle", 10, 5)
    server.tick()
    assert server.queue.served("idle") >= OUTPUT_WEIGHT * 500


def test_a_tenant_that_comes_back_to_an_idle_engine_starts_where_the_last_one_left() -> None:
    server = Server(slots=1)
    server.send("first", 10, 50)
    for _ in range(60):
        server.tick()
    server.send("second", 1, 1)
    server.tick()
    assert server.queue.served("second") >= 10 + OUTPUT_WEIGHT * 50


def test_a_preempted_sequence_is_not_charged_twice() -> None:
    server = Server(slots=1)
    sequence = server.send("a", 10, 9)
    server.tick()
    server.running.clear()
    server.queue.left(sequence)
    served = server.queue.served("a")
    server.queue.push(sequence)
    server.queue.refresh([])
    assert server.queue.peek() is sequence
    server.queue.pop()
    server.queue.started(sequence)
    assert server.queue.served("a") == served == 10 + OUTPUT_WEIGHT


def test_who_leaves_and_comes_back_before_a_round_is_served() -> None:
    server = Server(slots=1)
    sequence = server.send("a", 1, 1)
    server.queue.discard(sequence)
    again = server.send("a", 1, 1)
    server.queue.refresh([])
    assert server.queue.peek() is again


def test_tenants_of_the_past_are_forgotten() -> None:
    server = Server(slots=4)
    for number in range(2000):
        server.send(f"tenant-{number}", 5, 2)
        server.tick()
    assert server.queue.n_tenants < 300


@pytest.mark.parametrize("caching", [True, False])
def test_the_scheduler_gives_a_quiet_tenant_its_turn(*, caching: bool) -> None:
    rig = Rig(policy="fair", max_num_seqs=2, enable_prefix_caching=caching)
    crowd = [generate(f"crowd-{i}", [i, 1, 2], tenant="crowd", n=2) for i in range(8)]
    quiet = generate("quiet", [40, 41, 42], tenant="quiet")
    rig.send(*crowd)
    for _ in range(3):
        rig.step()
    rig.run(quiet)
    ended = [e.request_id for e in rig.port.of(Tokens) if e.finish_reason]
    assert ended.index("quiet") <= 6
    for request in [*crowd, quiet]:
        assert rig.port.tokens(request.request_id) == isolated(request)[0]
