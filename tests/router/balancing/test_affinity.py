"""The choice of an endpoint: properties of the ring and of the bound."""

import hashlib
import random
from collections import Counter
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yaie_router.balancing import affinity
from yaie_router.balancing.affinity import LIGHT_LOAD, Decision, pick, ring
from yaie_router.discovery.objects import Endpoint


def endpoints(*names: str) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(name, "127.0.0.1", 8000) for name in sorted(names))


def choose(names: list[str], key: int | None, **more: object) -> Decision | None:
    given = {"loads": {}, "policy": "PrefixAffinity", "load_factor": 1.25, "turn": 0} | more
    return pick(endpoints(*names), key=key, **given)  # type: ignore[arg-type]


def homes(names: list[str], keys: range) -> dict[int, str]:
    return {key: _name(choose(names, key)) for key in keys}


def _name(decision: Decision | None) -> str:
    assert decision is not None
    return decision.endpoint.name


NAMES = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=12, unique=True)
KEYS = st.integers(min_value=0, max_value=2**64 - 1)


@settings(deadline=None)
@given(NAMES, KEYS)
def test_the_same_key_has_the_same_home_whatever_the_order(names: list[str], key: int) -> None:
    assert choose(names, key) == choose(list(reversed(names)), key)


@settings(max_examples=20, deadline=None)
@given(NAMES, st.text(min_size=13, max_size=14))
def test_a_new_endpoint_takes_about_its_share_and_moves_nothing_else(
    names: list[str], new: str
) -> None:
    keys = range(600)
    before, after = homes(names, keys), homes([*names, new], keys)
    moved = [key for key in keys if before[key] != after[key]]
    assert {after[key] for key in moved} <= {new}
    fair = 1 / (len(names) + 1)
    assert len(moved) / len(keys) <= fair + 0.15


@settings(max_examples=20, deadline=None)
@given(NAMES.filter(lambda names: len(names) > 1))
def test_a_lost_endpoint_moves_only_its_own_keys(names: list[str]) -> None:
    keys = range(400)
    lost, *left = names
    before, after = homes(names, keys), homes(left, keys)
    assert all(before[key] == after[key] for key in keys if before[key] != lost)


def test_keys_spread_evenly_over_eight_endpoints() -> None:
    names = [f"demo-7d9f8-{i}" for i in range(8)]
    counts = Counter(homes(names, range(8000)).values())
    assert min(counts.values()) > 0.6 * 1000
    assert max(counts.values()) < 1.4 * 1000


@settings(deadline=None)
@given(
    NAMES,
    st.lists(KEYS, min_size=1, max_size=60),
    st.floats(min_value=1.0, max_value=3.0),
)
def test_no_endpoint_ever_exceeds_the_bound(
    names: list[str], keys: list[int], load_factor: float
) -> None:
    loads: Counter[str] = Counter()
    for key in keys:
        chosen = _name(choose(names, key, loads=loads, load_factor=load_factor))
        loads[chosen] += 1
        assert loads[chosen] <= max(LIGHT_LOAD, ceil(load_factor * loads.total() / len(names)))


@settings(deadline=None)
@given(NAMES, KEYS, st.data())
def test_unusable_endpoints_are_never_chosen_and_keep_their_keys(
    names: list[str], key: int, data: st.DataObject
) -> None:
    unusable = set(data.draw(st.lists(st.sampled_from(names), unique=True)))
    decision = choose(names, key, unusable=unusable)
    home = _name(choose(names, key))
    if unusable == set(names):
        assert decision is None
    elif home in unusable:
        assert decision is not None
        assert decision.outcome == "spilled"
        assert decision.endpoint.name not in unusable
    else:
        assert _name(decision) == home


def test_spilling_is_told_apart_from_home() -> None:
    names = ["a", "b", "c", "d"]
    home = choose(names, 7)
    assert home is not None
    assert home.outcome == "home"
    spilled = choose(names, 7, loads={home.endpoint.name: 9})
    assert spilled is not None
    assert spilled.outcome == "spilled"
    assert spilled.endpoint != home.endpoint


def test_spilled_keys_of_one_home_spread_over_the_others() -> None:
    names = [f"pod-{i}" for i in range(6)]
    by_home: dict[str, set[str]] = {}
    for key in range(600):
        home = _name(choose(names, key))
        by_home.setdefault(home, set()).add(_name(choose(names, key, loads={home: 50})))
    assert all(len(others) >= 3 for others in by_home.values())


@pytest.mark.parametrize("policy", ["LeastLoaded", "PrefixAffinity"])
def test_without_a_key_the_least_loaded_gets_it_and_ties_take_turns(policy: str) -> None:
    loads = {"a": 3, "b": 1, "c": 1}
    chosen = [
        _name(choose(["a", "b", "c"], None, loads=loads, policy=policy, turn=turn))
        for turn in range(4)
    ]
    assert chosen == ["b", "c", "b", "c"]


def test_least_loaded_ignores_the_key() -> None:
    assert _name(choose(["a", "b"], 1, loads={"a": 1}, policy="LeastLoaded")) == "b"
    assert _name(choose(["a", "b"], 1, loads={"b": 1}, policy="LeastLoaded")) == "a"


def test_round_robin_takes_each_in_turn() -> None:
    chosen = [
        _name(choose(["a", "b", "c"], 1, policy="RoundRobin", turn=turn, unusable=("b",)))
        for turn in range(4)
    ]
    assert chosen == ["a", "c", "a", "c"]


def test_nobody_is_chosen_from_nothing() -> None:
    assert choose([], 1) is None


def test_the_ring_is_the_same_in_every_process_and_version() -> None:
    order = ring(("pod-0", "pod-1", "pod-2"))
    digest = hashlib.sha256(
        repr((tuple(order.points), tuple(order.names[i] for i in order.owners))).encode()
    ).hexdigest()
    assert digest.startswith("f69bace7bf404734")
    assert list(order.walk(1)) == ["pod-1", "pod-2", "pod-0"]


def test_rings_take_bounded_memory_and_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "MOST_NODES", 10 * affinity.VIRTUAL_NODES)
    monkeypatch.setattr(affinity, "rings", affinity._Rings())
    first = ring(("a", "b"))
    assert ring(("a", "b")) is first
    for number in range(100):
        ring((f"pod-{number}", f"pod-{number + 1}"))
    assert affinity.rings.nodes <= 10 * affinity.VIRTUAL_NODES
    assert ring(("a", "b")) == first
    assert first.points.itemsize + first.owners.itemsize <= 12


@pytest.mark.parametrize("engines", [4, 8])
@pytest.mark.parametrize("clients", [1, 2, 3, 4, 8, 12, 16])
def test_few_clients_stay_at_their_homes_while_nobody_queues(clients: int, engines: int) -> None:
    """Each client streams one conversation after the other; answers end in random order."""
    rng = random.Random(clients * engines)
    names = [f"demo-{i}" for i in range(engines)]
    loads: Counter[str] = Counter()
    running: list[str] = []
    spilled, picks = 0, 4000
    for _ in range(picks):
        if len(running) == clients:
            loads[running.pop(rng.randrange(clients))] -= 1
        decision = choose(names, rng.getrandbits(64), loads=loads)
        assert decision is not None
        spilled += decision.outcome == "spilled"
        loads[decision.endpoint.name] += 1
        running.append(decision.endpoint.name)
    assert spilled / picks <= 0.02
