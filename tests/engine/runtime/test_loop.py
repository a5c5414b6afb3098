"""The loop: overlap, containment of failing steps, statistics, idling."""

import pytest

from engine_harness import VOCAB, Rig, generate, isolated_tokens
from yaie.core.messages import Accepted
from yaie.runtime.stub import hashed


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_every_depth_gives_the_tokens_of_an_isolated_run(depth):
    requests = [generate(f"r{i}", range(i, i + 9), max_tokens=12) for i in range(6)]
    rig = Rig(depth=depth)
    rig.run(*requests)
    for request in requests:
        expected = isolated_tokens(request, hashed(VOCAB))
        assert rig.port.tokens(request.request_id) == expected
        assert rig.port.finish(request.request_id).finish_reason == "length"


def test_accepted_comes_before_the_first_token():
    rig = Rig()
    rig.run(generate("a", [1, 2, 3]))
    assert isinstance(rig.port.events[0], Accepted)
    assert rig.port.of(Accepted) == [Accepted("a")]
