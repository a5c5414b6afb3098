"""Two engines: different prompts spread over both, equal prefixes come home to one."""

from collections.abc import Iterator

import pytest

from e2e.support import Demo, ask

pytestmark = pytest.mark.e2e

TOPICS = (
    *("rivers", "mountains", "clocks", "bread", "ships", "music", "winter", "gardens"),
    *("horses", "letters", "glass", "storms", "maps", "candles", "stone", "birds"),
)


@pytest.fixture(scope="module")
def pair(demo: Demo) -> Iterator[Demo]:
    demo.scale(2)
    yield demo
    demo.scale(1)


def prompt_about(topic: str) -> str:
    return f"Here is what I know about {topic}. " + f"I have read a lot about {topic}. " * 20


def test_both_engines_take_part_of_the_load(pair: Demo) -> None:
    with pair.client() as client:
        pods = [ask(client, prompt_about(topic), max_tokens=4).pod for topic in TOPICS]
    assert set(pods) == set(pair.pods())
    assert min(pods.count(pod) for pod in pair.pods()) >= 3


def test_a_repeated_prefix_goes_to_the_same_engine_and_is_cached(pair: Demo) -> None:
    with pair.client() as client:
        for topic in TOPICS[:4]:
            opening = prompt_about(f"old {topic}")
            first = ask(client, opening)
            again = ask(client, opening)
            assert again.pod == first.pod
            assert again.text == first.text
            assert again.cached_tokens > first.prompt_tokens // 2
