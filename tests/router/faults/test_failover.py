"""An engine is killed under real streams, and no client notices. `YAIE_FAILOVER_STREAMS`: how many
streams; 32 without it.
"""

import os
from pathlib import Path

import pytest

from router.faults.failover import Gaps, Story, kill_one, slower, story_of

STREAMS = int(os.environ.get("YAIE_FAILOVER_STREAMS", "32"))


@pytest.mark.drill
async def test_streams_of_a_killed_engine_are_those_of_one_that_lives(tmp_path: Path) -> None:
    wrong = await kill_one(tmp_path, STREAMS, seed=STREAMS)
    assert not wrong, "\n".join(wrong[:20])


def test_the_drill_sees_a_seam() -> None:
    head = b'"id":"a","created":1,"model":"m"'
    chunk = b'data: {%b,"choices":[{"delta":{"content":"%b"},"finish_reason":%b}]}\n\n'
    end = b"data: [DONE]\n\n"
    whole = story_of(chunk % (head, b"ab", b"null") + chunk % (head, b"c", b'"stop"') + end)
    assert whole.differs(whole) == []
    assert whole.text == "abc"
    split = story_of(chunk % (head, b"a", b"null") + chunk % (head, b"bc", b'"stop"') + end)
    assert split.differs(whole) == []
    twice = story_of(chunk % (head, b"ab", b"null") + chunk % (head, b"bc", b'"stop"') + end)
    assert twice.differs(whole) == ["text"]
    other = head.replace(b'"a"', b'"b"')
    ids = story_of(chunk % (head, b"ab", b"null") + chunk % (other, b"c", b'"stop"') + end)
    assert ids.differs(whole) == ["heads"]
    assert story_of(chunk % (head, b"abc", b'"stop"')).differs(whole) == ["errors"]
    assert Story().differs(whole)


def test_survivors_that_become_twice_as_slow_are_wrong() -> None:
    before = [0.05] * 980 + [0.1] * 20
    as_slow = [0.1] * 980 + [0.19] * 20
    slow = [0.1] * 980 + [0.21] * 20
    assert slower(Gaps(before, as_slow), engines=4) == []
    assert slower(Gaps(before, slow), engines=4) == ["survivors' p99 210 ms, above 200"]
    assert slower(Gaps(before, slow), engines=2) == []
    assert slower(Gaps(before[-200:], slow), engines=4) == []
    fast = [0.001] * 1000
    assert slower(Gaps(fast, [0.019] * 1000), engines=4) == []
    assert slower(Gaps(fast, [0.021] * 1000), engines=4) == ["survivors' p99 21 ms, above 20"]
