"""Anthropic's official client, for programs that speak /v1/messages."""

import json

import anthropic
from checks import MODEL, URL, check, main

client = anthropic.Anthropic(base_url=URL, api_key="none", timeout=60, max_retries=0)
QUESTION = [{"role": "user", "content": "What is a dog?"}]
GREEDY = {"temperature": 0}
"""A field that this client no longer names, and that its service still takes."""
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
def stream_s_events_tell_blocks_and_the_end() -> None:
    with client.messages.stream(model=MODEL, messages=QUESTION, max_tokens=24) as stream:
        kinds = {event.type for event in stream}
        assert stream.get_final_text() == stream.get_final_message().content[0].text
        assert stream.request_id
    assert {"message_start", "text", "content_block_stop", "message_stop"} <= kinds


@check
def stop_sequence_is_told() -> None:
    wish = {"model": MODEL, "messages": QUESTION, "max_tokens": 40, "extra_body": GREEDY}
    word = client.messages.create(**wish).content[0].text.split()[2]
    answer = client.messages.create(**wish, stop_sequences=[word])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", word)


@check
def thinking_fields_and_server_tools_are_taken() -> None:
    raw = client.messages.with_raw_response.create(
        model=MODEL,
        messages=QUESTION,
        max_tokens=24,
        thinking={"type": "enabled", "budget_tokens": 1024},
        tools=[WEATHER, {"type": "web_search_20250305", "name": "web_search"}],
    )
    assert raw.parse().content
    assert "web_search_20250305" in raw.headers["warning"]


@check
def thinking_of_an_earlier_turn_is_taken() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    turns = [
        *QUESTION,
        {"role": "assistant", "content": [thought, {"type": "text", "text": "A pet."}]},
        {"role": "user", "content": "And a cat?"},
    ]
    assert client.messages.create(model=MODEL, messages=turns, max_tokens=24).content


@check
def tool_runner_runs_to_an_answer() -> None:
    asked = []

    @anthropic.beta_tool
    def get_weather(location: str) -> str:
        """Get the weather at a location."""
        asked.append(location)
        return "sunny"

    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=200, tools=[get_weather], max_iterations=2, extra_body=GREEDY,
        messages=[{"role": "user", "content": "What is the weather in Boston, MA?"}],
    )  # fmt: skip
    turns = list(runner)
    assert asked
    assert turns[0].stop_reason == "tool_use"


@check
def output_has_the_form_of_a_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}},
        "required": ["name"],
        "additionalProperties": False,
    }
    answer = client.messages.create(
        model=MODEL, messages=QUESTION, max_tokens=60,
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )  # fmt: skip
    assert set(json.loads(answer.content[0].text)) == {"name"}


@check
def context_is_edited() -> None:
    turns = [*QUESTION]
    for number in range(3):
        use = {"type": "tool_use", "id": f"t{number}", "name": "get_weather", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "sunny, warm, dry"}
        turns += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "tool_uses", "value": 1},
        "keep": {"type": "tool_uses", "value": 1},
    }
    answer = client.beta.messages.create(
        model=MODEL, messages=turns, max_tokens=24, tools=[WEATHER],
        betas=["context-management-2025-06-27"], context_management={"edits": [edit]},
    )  # fmt: skip
    assert answer.context_management.applied_edits[0].cleared_tool_uses == 2


@check
def models_are_listed() -> None:
    assert MODEL in [model.id for model in client.models.list()]
    model = client.models.retrieve(MODEL)
    assert model.type == "model"
    assert model.created_at.year > 2000


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
