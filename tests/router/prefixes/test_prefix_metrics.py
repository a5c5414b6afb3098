"""What the router's metrics tell of prefixes, over HTTP."""

import pytest

from router.conftest import StackMaker
from router.fakes import FakeEngine
from yaie_api.prefix import PrefixUpdate
from yaie_router import run
from yaie_router.prefixes.placer import Placer

HIT = 'yaie_router_prefix_match_ratio_{}{{model="demo"}}'


async def test_match_ratios_and_known_prefixes_are_told(
    start_router: StackMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    placer = Placer(b"secret")
    monkeypatch.setattr(run, "Placer", lambda _secret: placer)
    stack = await start_router()
    await stack.serve("demo", FakeEngine("pod-a"))
    placer.take("demo", "pod-a", PrefixUpdate(1, 0, parts=1))
    for _ in range(2):
        async with stack.chat("hello " * 400) as response:
            assert response.status == 200
            await response.read()
    assert await stack.metric(HIT.format("count")) == 2
    assert 0.9 < await stack.metric(HIT.format("sum")) <= 1.0  # nothing, and then nearly all
    known = [(71, 16), (72, 32)]
    placer.take("demo", "pod-a", PrefixUpdate(1, 1, tuple(known)))
    assert await stack.metric('yaie_router_prefix_keys{model="demo"}') >= 2
