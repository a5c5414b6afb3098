"""Scheduling decisions, one case each."""

from engine_harness import Rig, generate


def test_a_repeated_prompt_is_taken_from_the_cache_except_its_last_token():
    rig = Rig()
    rig.run(generate("first", range(16)))
    rig.run(generate("second", range(16)))
    assert rig.port.finish("first").cached_tokens == 0
    assert rig.port.finish("second").cached_tokens == 12
    assert rig.port.tokens("first") == rig.port.tokens("second")
