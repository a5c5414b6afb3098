"""Which engine goes on, and when none may."""

from yaie_router.discovery.objects import Endpoint
from yaie_router.upstream.failover.decision import may_try, peer

A, B, C = (Endpoint(name, "127.0.0.1", 1) for name in "abc")


def chosen(unusable: str = "", loads: str = "", replays: str = "", most: int = 2) -> object:
    return peer(
        (A, B, C),
        unusable=set(unusable),
        loads={name: loads.count(name) for name in "abc"},
        replays={name: replays.count(name) for name in "abc"},
        most_replays=most,
    )


def test_the_least_loaded_of_the_healthy_goes_on() -> None:
    assert chosen(unusable="a", loads="bb") == C
    assert chosen(unusable="a", loads="cc") == B


def test_replays_count_before_other_requests() -> None:
    assert chosen(unusable="a", loads="ccc", replays="b") == C


def test_an_engine_with_as_many_replays_as_it_may_have_gets_no_more() -> None:
    assert chosen(unusable="a", replays="bb", loads="ccccc") == C
    assert chosen(unusable="a", replays="bbcc") == "no_room"


def test_without_a_healthy_engine_there_is_no_peer() -> None:
    assert chosen(unusable="abc") == "no_peer"


def test_two_engines_that_die_of_it_are_enough() -> None:
    assert may_try(attempts=0, fruitless=1)
    assert may_try(attempts=2, fruitless=1)
    assert not may_try(attempts=1, fruitless=2)
    assert not may_try(attempts=3, fruitless=1)
