"""Anthropic's official client, for programs that speak /v1/messages."""

import anthropic
from checks import MODEL, URL, check, main

client = anthropic.Anthropic(base_url=URL, api_key="none", timeout=60, max_retries=0)
QUESTION = [{"role": "user", "content": "What is a dog?"}]
WEATHER = {
    "name": "get_weather",
    "description": "Get the weather at a location.",
    "input_schema": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}


@check
def message_answers_with_usage() -> None:
    answer = client.messages.create(
        model=MODEL, messages=QUESTION, max_tokens=24, system="Be kind."
    )
    assert answer.content[0].text
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.output_tokens > 0


@check
def stream_joins_to_the_final_message() -> None:
    with client.messages.stream(model=MODEL, messages=QUESTION, max_tokens=40) as stream:
        text = "".join(stream.text_stream)
        assert stream.get_final_message().content[0].text == text


@check
def tool_is_used_and_its_result_is_answered() -> None:
    ask = [{"role": "user", "content": "What is the weather in Boston, MA?"}]
    answer = client.messages.create(
        model=MODEL, messages=ask, max_tokens=200, tools=[WEATHER], tool_choice={"type": "any"}
    )
    assert answer.stop_reason == "tool_use"
    use = next(block for block in answer.content if block.type == "tool_use")
    assert set(use.input) == {"location"}
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}
    turns = [
        *ask,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [result]},
    ]
    assert client.messages.create(
        model=MODEL, messages=turns, max_tokens=40, tools=[WEATHER]
    ).content


@check
def tool_use_streams() -> None:
    with client.messages.stream(
        model=MODEL, messages=QUESTION, max_tokens=200, tools=[WEATHER], tool_choice={"type": "any"}
    ) as stream:
        final = stream.get_final_message()
    assert final.content[-1].type == "tool_use"
    assert set(final.content[-1].input) == {"location"}


@check
def tokens_are_counted() -> None:
    assert client.messages.count_tokens(model=MODEL, messages=QUESTION).input_tokens > 3


@check
def errors_have_their_types() -> None:
    try:
        client.messages.create(model="nobody", messages=QUESTION, max_tokens=8)
    except anthropic.NotFoundError:
        pass
    else:
        raise AssertionError("an unknown model was accepted")
    try:
        client.messages.create(model=MODEL, messages=[], max_tokens=8)
    except anthropic.BadRequestError:
        return
    raise AssertionError("no messages were accepted")


main()
