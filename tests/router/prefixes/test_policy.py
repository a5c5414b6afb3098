"""The choice by tokens: what moves a request away from its prefix, and what does not."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from yaie_router.prefixes.policy import FULL_BATCH, NEAR_TOKENS, OTHERS, Option, place

KEY = 0x1234


def chosen(*options: Option, is_free: bool = False, key: int = KEY) -> tuple[str, str]:
    placement = place(options, key=key, is_free=is_free)
    return placement.option.name, placement.reason


def test_a_conversation_goes_to_the_engine_that_has_most_of_it() -> None:
    assert chosen(Option("a", 900), Option("b", 100), Option("c", 1000)) == ("b", "cached")


def test_a_conversation_stays_though_its_engine_got_far_more_than_the_others() -> None:
    assert chosen(Option("a", 900), Option("b", 100, recent=500)) == ("b", "cached")


def test_a_conversation_leaves_when_more_waits_there_than_it_would_have_to_compute_elsewhere() -> (
    None
):
    idle = Option("a", 900)
    assert chosen(idle, Option("b", 100, queued=1500)) == ("b", "cached")
    assert chosen(idle, Option("b", 100, queued=1700)) == ("a", "spilled")


def test_of_two_that_take_as_long_the_one_that_computes_less_is_chosen() -> None:
    waits = Option("b", 100, queued=int(800 * OTHERS))
    for key in range(8):
        assert chosen(Option("a", 900), waits, key=key) == ("b", "cached")


def test_a_shared_prefix_is_computed_again_where_its_engine_had_more_than_its_share() -> None:
    options = (Option("a", 900, recent=10), Option("b", 100, recent=60))
    assert chosen(*options, is_free=True) == ("a", "spread")
    assert chosen(*options) == ("b", "cached")


def test_a_shared_prefix_stays_as_long_as_the_engines_are_balanced() -> None:
    options = (Option("a", 900, recent=40), Option("b", 100, recent=44))
    assert chosen(*options, is_free=True) == ("b", "cached")


def test_two_requests_more_than_the_mean_are_chance_at_the_start() -> None:
    assert chosen(Option("a", 900), Option("b", 100, recent=2), is_free=True)[0] == "b"


def test_sequences_beyond_a_full_batch_cost_those_that_come_later() -> None:
    few, many = Option("a", 300), Option("b", 100, in_flight=FULL_BATCH + 6)
    assert chosen(few, many) == ("a", "spilled")
    assert chosen(few, Option("b", 100, in_flight=FULL_BATCH)) == ("b", "cached")


def test_an_engine_that_got_nothing_is_found_among_many_that_got_little_more_than_the_mean() -> (
    None
):
    """Fifteen of sixteen at 64 have 1.07 times the mean, which no limit above it would see."""
    have = [Option(f"engine-{i}", 100, recent=64) for i in range(15)]
    assert chosen(*have, Option("empty", 900), is_free=True) == ("empty", "spread")
    assert chosen(*have, Option("empty", 900))[1] == "cached"


def test_an_engine_that_comes_back_with_few_requests_is_not_buried() -> None:
    others = [Option(name, 900, recent=64) for name in "abc"]
    assert chosen(*others, Option("back", 900), is_free=True)[0] == "back"
    assert chosen(*others, Option("back", 900, queued=2000), is_free=True)[0] in "abc"


def test_what_another_router_just_sent_does_not_change_where_its_prefix_goes() -> None:
    """The router knows neither of the prompt there nor whose it is, but sees its tokens wait."""
    idle = [Option(name, 4000) for name in "abcd"]
    for key in range(32):
        name, _ = chosen(*idle, is_free=True, key=key)
        unknown = [replace(one, queued=4000) if one.name == name else one for one in idle]
        known = [replace(one, missing=100) if one.name == name else one for one in unknown]
        assert chosen(*unknown, is_free=True, key=key)[0] == name
        assert chosen(*known, is_free=True, key=key)[0] == name


def test_a_new_prefix_does_not_wait_for_two_prompts_of_its_size() -> None:
    """One that waits is let be, so that routers agree; two are a queue."""
    idle = [Option(name, 4000) for name in "ab"]
    for key in range(8):
        name, _ = chosen(*idle, is_free=True, key=key)
        queue = [replace(one, queued=8000) if one.name == name else one for one in idle]
        assert chosen(*queue, is_free=True, key=key)[0] != name


def test_what_is_new_everywhere_is_balanced() -> None:
    name, reason = chosen(Option("a", 900), Option("b", 900), is_free=True)
    assert reason == "balanced"
    assert chosen(Option("b", 900), Option("a", 900), is_free=True)[0] == name


def test_equal_costs_are_decided_by_the_key_so_that_prefixes_go_everywhere() -> None:
    options = [Option(name, 900) for name in "abcd"]
    taken = {chosen(*options, key=key)[0] for key in range(64)}
    assert taken == set("abcd")


def test_a_new_engine_takes_only_what_it_wins() -> None:
    before = [Option(name, 900) for name in "abcd"]
    after = [*before, Option("e", 900)]
    moved = [key for key in range(400) if chosen(*before, key=key) != chosen(*after, key=key)]
    assert all(chosen(*after, key=key)[0] == "e" for key in moved)
    assert len(moved) < 400 / 5 * 1.6


NUMBERS = st.integers(min_value=0, max_value=5000)
OPTIONS = st.lists(
    st.tuples(NUMBERS, NUMBERS, st.integers(0, 64), st.floats(0, 500)), min_size=1, max_size=8
)


@settings(deadline=None)
@given(OPTIONS, st.integers(0, 2**64 - 1), st.booleans())
def test_every_state_has_a_choice_that_does_not_depend_on_the_order(
    states: list[tuple[int, int, int, float]], key: int, is_free: bool
) -> None:
    options = [Option(f"engine-{i}", *state) for i, state in enumerate(states)]
    found = {
        place(order, key=key, is_free=is_free).option.name
        for order in list(permutations(options))[:6]
    }
    assert len(found) == 1


@settings(deadline=None)
@given(OPTIONS, st.integers(0, 2**64 - 1))
def test_a_conversation_never_goes_where_it_costs_more(
    states: list[tuple[int, int, int, float]], key: int
) -> None:
    options = [Option(f"engine-{i}", *state) for i, state in enumerate(states)]
    cost = place(options, key=key, is_free=False).option.cost
    assert cost < min(one.cost for one in options) + NEAR_TOKENS
