"""The replay simulator: the policy that routers use, against the oracle and the hash ring."""

import random
from pathlib import Path

import msgspec
import pytest

from bench.programs import cache, engine, rivals, traces, world


def run(trace: str, rival: str, *, routers: int = 1, clients: int | None = None) -> world.Outcome:
    shape = traces.Shape(4, 16_384, 16.0, 500, answer_tokens=40)
    sessions = traces.WORKLOADS[trace](random.Random(77), shape)
    return world.World(
        sessions,
        engine.GPU,
        engines=4,
        cache_tokens=16_384,
        make=rivals.RIVALS[rival],
        routers=routers,
        clients=clients,
    ).run()


NAMES = [f"engine-{i}" for i in range(4)]


@pytest.mark.parametrize("trace", list(traces.WORKLOADS))
def test_one_policy_keeps_hits_and_balance_of_every_trace(trace: str) -> None:
    found = run(trace, "placed", routers=2)
    assert found.share >= 0.88  # a short trace: the oracle's first misses weigh more
    assert found.balance(NAMES, lambda _: 1.0) <= 1.3
    assert found.agreed / found.asked >= 0.9


def test_nobody_leaves_a_prefix_while_nobody_waits() -> None:
    assert run("conversations", "placed", clients=3).spilled <= 0.03


def test_a_hash_of_the_first_message_misses_documents() -> None:
    assert run("documents", "chwbl").share < 0.7 * run("documents", "placed").share


def test_the_cache_drops_leaves_first_and_tells_of_their_keys() -> None:
    pages = cache.Cache(3)
    pages.put([1, 2, 3])
    pages.tie([1, 2, 3], [(70, 16), (71, 48)])
    assert pages.changes() == (((70, 16), (71, 48)), ())
    pages.put([4])
    assert pages.matched([1, 2, 3]) == 2
    assert pages.changes() == ((), (71,))


def test_a_recorded_trace_is_replayed_as_the_one_it_was_written_from(tmp_path: Path) -> None:
    shape = traces.Shape(4, 16_384, 16.0, 100, answer_tokens=40)
    sessions = traces.conversations(random.Random(5), shape)
    file = tmp_path / "sessions.jsonl"
    file.write_bytes(b"\n".join(map(msgspec.json.encode, sessions)))
    assert traces.recorded(file) == sessions


def test_a_line_that_is_no_session_is_an_error_that_names_the_field(tmp_path: Path) -> None:
    file = tmp_path / "sessions.jsonl"
    file.write_text('{"starts_s": "soon", "turns": []}')
    with pytest.raises(msgspec.ValidationError, match="starts_s"):
        traces.recorded(file)
