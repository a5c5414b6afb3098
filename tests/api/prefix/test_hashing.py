"""Prefix keys: equal beginnings have equal keys, different ones do not, nothing raises."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yaie_api.prefix import (
    MAX_KEYS,
    STRIDE_BYTES,
    PrefixKeys,
    answer_key,
    key_of,
    keys,
)

KEY = b"secret"
TEXT = st.text(max_size=60)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": st.text()},
    optional={"name": TEXT, "tool_calls": JSON},
)
CHAT = st.builds(
    lambda messages, more: {"model": "m", "messages": messages} | more,
    st.lists(MESSAGE, max_size=6),
    st.fixed_dictionaries({}, optional={"tools": JSON, "chat_template_kwargs": JSON}),
)


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    roles = ["system", "user", "assistant", "user", "assistant", "user"]
    messages = [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)]
    return {"model": "m", "messages": messages} | more


def home_key(body: dict[str, Any]) -> int:
    return keys(body, KEY).home_key


def shared(a: PrefixKeys, b: PrefixKeys) -> int:
    """How many keys from the start are equal."""
    pairs = zip(a.keys, b.keys, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a.keys), len(b.keys)))


@settings(deadline=None)
@given(CHAT, st.lists(MESSAGE, max_size=3))
def test_more_messages_keep_all_keys_of_the_shorter(
    body: dict[str, Any], more: list[dict[str, Any]]
) -> None:
    longer = body | {"messages": body["messages"] + more}
    short, long = keys(body, KEY), keys(longer, KEY)
    assert long.keys[: len(short.keys)] == short.keys
    assert long.ends[: len(short.ends)] == short.ends


@settings(deadline=None)
@given(CHAT)
def test_keys_are_well_formed(body: dict[str, Any]) -> None:
    found = keys(body, KEY)
    assert 1 <= len(found.keys) == len(found.ends) <= MAX_KEYS
    assert all(0 <= key < 1 << 64 for key in found.keys)
    steps = [b - a for a, b in zip((0, *found.ends), found.ends, strict=False)]
    assert all(0 < step <= STRIDE_BYTES for step in steps)
    assert found.ends[-1] == found.total_bytes or len(found.keys) == MAX_KEYS
    assert 0 <= found.home < len(found.keys)


@settings(deadline=None)
@given(CHAT)
def test_keys_do_not_depend_on_field_order_or_on_fields_that_do_not_render(
    body: dict[str, Any],
) -> None:
    backwards = dict(reversed(body.items())) | {"temperature": 0.5, "stream": True, "tools2": 1}
    backwards["messages"] = [dict(reversed(m.items())) for m in body["messages"]]
    assert keys(backwards, KEY) == keys(body, KEY)


@settings(deadline=None)
@given(CHAT, CHAT)
def test_equal_last_keys_mean_equal_requests(one: dict[str, Any], two: dict[str, Any]) -> None:
    a, b = keys(one, KEY), keys(two, KEY)
    if len(a.keys) == len(b.keys) < MAX_KEYS:
        assert (a.keys[-1] == b.keys[-1]) == _same(one, two)


def _same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Equal as JSON text: 1 and 1.0 and True differ; an absent field of a body or of a message
    equals null.
    """
    return repr(_sorted(one)) == repr(_sorted(two))


def _sorted(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict):
        may_lack = depth == 0 or "role" in value
        kept = {k: v for k, v in value.items() if not may_lack or v is not None}
        return {k: _sorted(kept[k], depth + 1) for k in sorted(kept)}
    if isinstance(value, list):
        return [_sorted(item, depth + 1) for item in value]
    return value


@settings(deadline=None)
@given(
    st.dictionaries(TEXT, JSON) | st.builds(lambda m, p: {"messages": m, "prompt": p}, JSON, JSON)
)
def test_any_json_object_has_keys_and_stays_unchanged(body: dict[str, Any]) -> None:
    before = copy.deepcopy(body)
    assert home_key(body) in keys(body, KEY).keys
    assert body == before


@settings(deadline=None)
@given(JSON)
def test_any_prompt_has_a_home(prompt: Any) -> None:
    assert home_key({"model": "m", "prompt": prompt})


def test_turns_of_one_conversation_share_their_home() -> None:
    first = chat("You help.", "Who was Ada?")
    later = chat("You help.", "Who was Ada?", "A mathematician.", "When?")
    other = chat("You help.", "Who was Alan?")
    assert home_key(first) == home_key(later) != home_key(other)
    assert shared(keys(first, KEY), keys(other, KEY)) == 2  # header and system message


@pytest.mark.parametrize(
    "change",
    [
        {"model": "n"},
        {"tools": [{"type": "function"}]},
        {"chat_template_kwargs": {"thinking": True}},
        {"reasoning_effort": "high"},
        {"tool_choice": "none"},
    ],
)
def test_what_changes_the_rendering_changes_every_key(change: dict[str, Any]) -> None:
    a, b = keys(chat("s", "u"), KEY), keys(chat("s", "u") | change, KEY)
    assert not set(a.keys) & set(b.keys)


def test_adapter_secret_and_model_name_change_every_key_and_an_alias_does_not() -> None:
    body = chat("s", "u")
    plain = keys(body, KEY)
    for changed in (keys(body, b"other"), keys(body, KEY, adapter="a"), keys(body, b"")):
        assert not set(plain.keys) & set(changed.keys)
    assert keys(body | {"model": "alias"}, KEY, model="m") == plain


def test_long_messages_share_the_cuts_of_what_is_alike() -> None:
    common = "word " * 1000
    a, b = keys(chat(common + "x"), KEY), keys(chat(common + "y"), KEY)
    assert len(a.keys) == 1 + -(-(a.total_bytes - a.ends[0]) // STRIDE_BYTES)
    assert shared(a, b) >= len(common) // STRIDE_BYTES


def test_long_requests_have_256_keys() -> None:
    found = keys(chat("s", "u" * 1_000_000), KEY)
    assert len(found.keys) == MAX_KEYS
    assert found.home == MAX_KEYS - 1
    assert found.total_bytes > 1_000_000


def test_a_border_is_not_a_stride() -> None:
    """A prompt that ends where another goes on has another key there."""
    text = "x" * (STRIDE_BYTES - 1)  # the block's tag makes it a whole stride
    short, long = (keys({"model": "m", "prompt": p}, KEY) for p in (text, text + "y"))
    assert short.ends[1] == long.ends[1]
    assert short.keys[0] == long.keys[0]
    assert short.keys[1] != long.keys[1]


def test_text_tokens_and_other_prompts_never_meet() -> None:
    prompts = ["abcd", [1684234849], ["abcd"], [[1684234849], "x"], None, [], [1.5], [-1], [2**32]]
    found = [keys({"model": "m", "prompt": prompt}, KEY) for prompt in prompts]
    last = [entry.keys[-1] for entry in found]
    assert last[0] == last[2]  # a list of one prompt is that prompt
    assert len(set(last)) == len(prompts) - 1


def test_the_home_of_a_prompt_is_its_first_cut_so_that_growing_it_keeps_the_home() -> None:
    start = "Once upon a time " * 40
    bodies = [{"model": "m", "prompt": start + tail} for tail in ("", "there", "there was")]
    assert len({home_key(body) for body in bodies}) == 1
    tokens = [{"model": "m", "prompt": list(range(300 + n))} for n in range(3)]
    assert len({home_key(body) for body in tokens}) == 1


def test_cut_emoji_are_hashed() -> None:
    cut, whole = (home_key(chat("s", text)) for text in ("\ud83d", "\\ud83d"))
    assert cut != whole
    assert home_key({"model": "m", "prompt": "\ud83d"})


def test_keys_are_the_same_in_every_process_and_version() -> None:
    found = keys(chat("You help.", "Who was Ada?", tools=[{"b": 1, "a": 2.5}]), bytes(range(32)))
    assert found == PrefixKeys(
        keys=(16743507864005976699, 5786047981627846656, 7516044315322894924),
        ends=(36, 62, 89),
        total_bytes=89,
        home=2,
    )


def test_responses_and_messages_have_keys_like_chats() -> None:
    """Turns of one conversation share their home, whichever API they come through."""
    first = {"model": "m", "instructions": "Be brief.", "input": [{"role": "user", "content": "a"}]}
    second = first | {"input": [*first["input"], {"role": "assistant", "content": "b"}]}
    assert home_key(first) == home_key(second)
    assert home_key(first) != home_key(first | {"instructions": "Be long."})
    anthropic = {"model": "m", "system": "s", "messages": [{"role": "user", "content": "a"}]}
    assert home_key(anthropic) != home_key(anthropic | {"system": "t"})
    thinking = anthropic | {"thinking": {"type": "enabled"}}
    assert home_key(anthropic) != home_key(thinking)


MARK = {"cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    "first",
    [
        {"input": "hello"},
        {"input": [{"role": "user", "content": "hello"}]},
        {"input": [{"type": "message", "role": "user", "content": "hello"}]},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"} | MARK]}]},
    ],
)
def test_a_text_has_one_home_however_it_is_wrapped(first: dict[str, Any]) -> None:
    plain = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert keys({"model": "m"} | first, KEY) == keys(plain, KEY)


def test_a_cache_mark_that_moves_on_leaves_the_home_where_it_is() -> None:
    def turns(*marked: bool) -> list[dict[str, Any]]:
        texts = [({"type": "text", "text": f"{i}"}, mark) for i, mark in enumerate(marked)]
        images = {"type": "image"}
        contents = [[images, text | MARK if mark else text] for text, mark in texts]
        return [{"role": "user", "content": content} for content in contents]

    system = [{"type": "text", "text": "be brief"}, {"type": "text", "text": "and kind"}]
    marked = [system[0], system[1] | MARK]
    first = {"model": "m", "system": system, "messages": turns(True)}
    later = {"model": "m", "system": marked, "messages": turns(False, True)}
    assert home_key(first) == home_key(later)


def test_several_texts_are_not_one() -> None:
    def with_texts(*texts: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text} for text in texts]
        return {"model": "m", "messages": [{"role": "user", "content": content}]}

    assert home_key(with_texts("a", "b")) != home_key(with_texts("ab"))
    assert home_key(with_texts("a")) != home_key(with_texts("b"))


ANSWER = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.text(max_size=2000)}, optional={"tool_calls": JSON}
)


@settings(deadline=None)
@given(CHAT, ANSWER, st.lists(MESSAGE, max_size=2))
def test_the_key_of_an_answer_is_among_the_keys_of_the_next_turn(
    body: dict[str, Any], answer: dict[str, Any], more: list[dict[str, Any]]
) -> None:
    found = keys(body, KEY)
    told = answer | {"refusal": None, "annotations": None}
    following = keys(body | {"messages": [*body["messages"], told, *more]}, KEY)
    only_answer = keys(body | {"messages": [*body["messages"], answer]}, KEY)
    assert answer_key(found, answer, KEY) == only_answer.keys[-1]
    assert only_answer.keys[-1] in following.keys


def test_beyond_the_most_keys_an_answer_has_none() -> None:
    full = chat("x" * STRIDE_BYTES * (MAX_KEYS + 3))
    nearly = chat("x" * (STRIDE_BYTES * (MAX_KEYS - 2) - 40))
    answer = {"role": "assistant", "content": "x" * 3 * STRIDE_BYTES}
    assert answer_key(keys(full, KEY), answer, KEY) is None
    assert len(keys(nearly, KEY).keys) < MAX_KEYS
    assert answer_key(keys(nearly, KEY), answer, KEY) is None
    assert answer_key(keys(nearly, KEY), {"role": "assistant", "content": "x"}, KEY) is not None


def test_caches_that_are_kept_apart_have_keys_of_their_own() -> None:
    body = chat("s", "u")
    apart = [keys(body | {"cache_salt": salt}, KEY).keys for salt in ("a", "b")]
    assert not set(apart[0]) & set(apart[1])
    assert not set(apart[0]) & set(keys(body, KEY).keys)


@pytest.mark.parametrize("text", ["xyz", "0", "00" * 65])
def test_a_key_that_is_not_hexadecimal_or_too_long_is_refused(text: str) -> None:
    assert key_of("00ff") == b"\x00\xff"
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the text
        key_of(text)
