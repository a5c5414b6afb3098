"""The streams of requests are those that the peers' figures were measured with."""

import hashlib
import json

from bench.programs import arrivals, workloads

SMALL = arrivals.Mix(inp=(20, 80), out=(10, 30), big_every_s=0, vocab=4000)


def digest(work: list[arrivals.Arrival]) -> str:
    return hashlib.sha256(json.dumps(work).encode()).hexdigest()


def test_arrivals_are_those_that_peers_were_measured_with() -> None:
    work = arrivals.poisson(20.0, 15.0, arrivals.Mix())

    assert digest(work) == "cb60fb881f21e7623df0822a5af71cbfb9401291d65d9eef76a3f127d571918f"


def test_the_warm_up_is_the_one_that_peers_had() -> None:
    work = arrivals.warm_up(arrivals.Mix())

    assert digest(work) == "ccb7e42933322a518f178e659c1dc688a65293b851a20d10118cd7a3678dff3d"


def test_one_seed_gives_the_same_prompts_at_every_rate() -> None:
    slow = arrivals.poisson(2.0, 10.0, SMALL)
    fast = arrivals.poisson(8.0, 10.0, SMALL)

    assert [each.prompt for each in fast][: len(slow)] == [each.prompt for each in slow]


def test_big_prompts_come_at_their_interval_but_not_with_the_last_arrivals() -> None:
    work = arrivals.poisson(1.0, 15.0, arrivals.Mix(big_every_s=4))

    big = [each for each in work if len(each.prompt) == arrivals.BIG_PROMPT]
    assert [each.at_s for each in big] == [4, 8]
    assert [each.max_tokens for each in big] == [64, 64]


def test_arrivals_are_in_the_order_of_time() -> None:
    times = [each.at_s for each in arrivals.poisson(10.0, 12.0, arrivals.Mix(big_every_s=3))]

    assert times == sorted(times)


def test_a_burst_is_the_first_short_chats_at_one_moment() -> None:
    work = arrivals.burst(5, vocab=100_001)

    prompts, lengths = workloads.workload("short")
    assert [each.at_s for each in work] == [0.0] * 5
    assert [each.prompt for each in work] == prompts[:5]
    assert [each.max_tokens for each in work] == lengths[:5]


def test_a_burst_keeps_to_a_small_vocabulary() -> None:
    ids = [i for each in arrivals.burst(20, vocab=4000) for i in each.prompt]

    assert max(ids) < 4000


def test_other_ids_keep_times_and_lengths() -> None:
    work = arrivals.poisson(5.0, 6.0, SMALL)

    other = arrivals.with_other_ids(work, 1, SMALL.vocab)
    assert [(each.at_s, len(each.prompt), each.max_tokens) for each in other] == [
        (each.at_s, len(each.prompt), each.max_tokens) for each in work
    ]
    assert all(a.prompt[0] != b.prompt[0] for a, b in zip(work, other, strict=True))
    assert all(300 <= i < SMALL.vocab for each in other for i in each.prompt)


def test_the_first_turn_has_the_ids_of_the_seed() -> None:
    work = arrivals.poisson(5.0, 6.0, SMALL)

    assert arrivals.with_other_ids(work, 0, SMALL.vocab) == work
