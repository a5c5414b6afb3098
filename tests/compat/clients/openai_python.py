"""The official Python client, both majors: what a user's program does with it."""

import json
import re

import openai
from checks import MODEL, URL, check, main
from pydantic import BaseModel, Field

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", timeout=60, max_retries=0)
QUESTION = [{"role": "user", "content": "What is a dog?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather at a location.",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string"}},
            "required": ["location"],
            "additionalProperties": False,
        },
    },
}
ASK_WEATHER = [{"role": "user", "content": "What is the weather in Boston, MA?"}]


class City(BaseModel):
    """Bounded, so that the smallest model comes to an end."""

    name: str = Field(max_length=24)
    inhabitants: int = Field(ge=0, le=50_000_000)
    capital: bool


@check
def models_are_listed_and_found() -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


@check
def chat_answers_with_usage() -> None:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=24)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@check
def stream_is_the_same_text_and_ends_with_usage() -> None:
    wish = {"model": MODEL, "messages": QUESTION, "max_tokens": 40, "temperature": 0}
    whole = client.chat.completions.create(**wish).choices[0].message.content
    chunks = list(
        client.chat.completions.create(**wish, stream=True, stream_options={"include_usage": True})
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole
    assert chunks[-1].usage.completion_tokens > 0
    assert not chunks[-1].choices
    assert {c.id for c in chunks} == {chunks[0].id}


@check
def several_choices_differ_and_are_numbered() -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, n=3, max_tokens=24, temperature=1.2, seed=7
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1


@check
def same_seed_same_text() -> None:
    wish = {"model": MODEL, "messages": QUESTION, "max_tokens": 24, "temperature": 1.0, "seed": 5}
    first, second = (client.chat.completions.create(**wish) for _ in range(2))
    assert first.choices[0].message.content == second.choices[0].message.content


@check
def logprobs_spell_the_text() -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=12, logprobs=True, top_logprobs=3, temperature=0
    )
    content = answer.choices[0].logprobs.content
    spelled = b"".join(bytes(entry.bytes) for entry in content).decode()
    assert spelled.startswith(answer.choices[0].message.content)
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 3 for entry in content)
    assert all(entry.top_logprobs[0].logprob >= entry.logprob for entry in content)


@check
def stop_strings_end_the_text() -> None:
    whole = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)
    stop = whole.choices[0].message.content.split()[3]
    cut = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0, stop=stop)
    assert stop not in cut.choices[0].message.content
    assert cut.choices[0].finish_reason == "stop"


@check
def penalties_and_biases_are_taken() -> None:
    client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        max_tokens=12,
        presence_penalty=1.0,
        frequency_penalty=0.5,
        logit_bias={"7": -100},
        extra_body={"repetition_penalty": 1.1, "min_tokens": 4, "bad_words": ["dog"], "top_k": 20},
    )


@check
def required_tool_is_called_with_valid_arguments() -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=ASK_WEATHER, tools=[WEATHER], tool_choice="required"
    )
    (call,) = answer.choices[0].message.tool_calls[:1]
    assert call.function.name == "get_weather"
    assert set(json.loads(call.function.arguments)) == {"location"}
    assert answer.choices[0].finish_reason == "tool_calls"


@check
def automatic_tool_call_streams_and_its_result_is_answered() -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=ASK_WEATHER, tools=[WEATHER | {"type": "function"}], temperature=0
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in kinds, kinds
    assert final.finish_reason == "tool_calls"
    turn = final.message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})
    for call in turn["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
    result = {"role": "tool", "tool_call_id": turn["tool_calls"][0]["id"], "content": "sunny"}
    answer = client.chat.completions.create(
        model=MODEL, messages=[*ASK_WEATHER, turn, result], tools=[WEATHER], temperature=0
    )
    assert answer.choices[0].message.content


@check
def named_tool_is_called() -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        tools=[WEATHER],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
    )
    assert answer.choices[0].message.tool_calls[0].function.name == "get_weather"


@check
def parse_returns_a_checked_object() -> None:
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Describe a city as JSON."}],
        response_format=City,
    )
    assert isinstance(answer.choices[0].message.parsed, City)


@check
def json_object_is_json() -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "As JSON please: name Ann, age 7."}],
        response_format={"type": "json_object"},
        temperature=0,  # drawn at random, a small model may write a string without an end
    )
    assert isinstance(json.loads(answer.choices[0].message.content), dict)


@check
def completions_echo_with_logprobs() -> None:
    answer = client.completions.create(
        model=MODEL, prompt="A dog is", echo=True, logprobs=2, max_tokens=4, temperature=0
    )
    found = answer.choices[0].logprobs
    assert found.token_logprobs[0] is None
    assert len(found.tokens) == len(found.token_logprobs) == len(found.text_offset)
    assert "".join(found.tokens) == answer.choices[0].text


@check
def completions_take_lists_and_token_ids() -> None:
    answer = client.completions.create(model=MODEL, prompt=["One", "Two"], max_tokens=4, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    ids = client.completions.create(model=MODEL, prompt=[[10, 11, 12], [13, 14]], max_tokens=2)
    assert ids.usage.prompt_tokens == 5


@check
def completions_stream() -> None:
    wish = {"model": MODEL, "prompt": "A cat is", "max_tokens": 16, "temperature": 0}
    whole = client.completions.create(**wish).choices[0].text
    assert (
        "".join(c.choices[0].text for c in client.completions.create(**wish, stream=True)) == whole
    )


@check
def embeddings_are_unit_vectors() -> None:
    answer = client.embeddings.create(model=MODEL, input=["a dog", "a cat"])
    vectors = [item.embedding for item in answer.data]
    assert all(abs(sum(x * x for x in vector) - 1) < 1e-3 for vector in vectors)
    short = client.embeddings.create(model=MODEL, input="a dog", dimensions=32)
    assert len(short.data[0].embedding) == 32


@check
def responses_answer_and_stream() -> None:
    answer = client.responses.create(model=MODEL, input="What is a dog?", max_output_tokens=24)
    assert answer.output_text
    with client.responses.stream(model=MODEL, input="What is a dog?", temperature=0) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created", kinds
    assert kinds[-1] in ("response.completed", "response.incomplete"), kinds
    assert final.output_text


@check
def responses_call_tools_and_parse() -> None:
    tool = {"type": "function", "strict": True} | WEATHER["function"]
    answer = client.responses.create(
        model=MODEL, input="What is the weather in Oslo?", tools=[tool], tool_choice="required"
    )
    call = next(item for item in answer.output if item.type == "function_call")
    assert set(json.loads(call.arguments)) == {"location"}
    parsed = client.responses.parse(model=MODEL, input="A city, as JSON.", text_format=City)
    assert isinstance(parsed.output_parsed, City)


@check
def responses_call_custom_tools_under_a_grammar() -> None:
    syntax = 'start: DAY " of " MONTH\nDAY: /[1-9]/\nMONTH: "May" | "June"'
    tool = {
        "type": "custom",
        "name": "set_date",
        "description": "Sets the date.",
        "format": {"type": "grammar", "syntax": "lark", "definition": syntax},
    }
    wish = {"model": MODEL, "input": "A date.", "tools": [tool]}
    choice = {"type": "custom", "name": "set_date"}
    with client.responses.stream(**wish, tool_choice=choice) as stream:
        events = list(stream)
    deltas = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
    done = next(e for e in events if e.type == "response.custom_tool_call_input.done")
    assert "".join(deltas) == done.input
    assert re.fullmatch("[1-9] of (May|June)", done.input), done.input
    made = next(e.item for e in events if e.type == "response.output_item.done")
    result = {"type": "custom_tool_call_output", "call_id": made.call_id, "output": "It is set."}
    turns = [{"role": "user", "content": "A date."}, made.model_dump(exclude_none=True), result]
    answer = client.responses.create(
        model=MODEL, input=turns, tools=[tool], tool_choice="none", max_output_tokens=24
    )
    assert answer.output_text


@check
def responses_allow_some_tools_and_leave_others_out() -> None:
    tools = [
        {"type": "function"} | WEATHER["function"],
        {"type": "function", "name": "get_time", "parameters": {"type": "object"}},
        {"type": "web_search"},
    ]
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "get_time"}],
    }
    raw = client.responses.with_raw_response.create(
        model=MODEL, input="hello", tools=tools, tool_choice=allowed, max_output_tokens=200
    )
    assert "web_search" in raw.headers["warning"]
    called = {item.name for item in raw.parse().output if item.type == "function_call"}
    assert called == {"get_time"}, called


@check
def responses_tell_logprobs_and_count_tokens() -> None:
    answer = client.responses.create(
        model=MODEL, input="What is a dog?", max_output_tokens=12, top_logprobs=2,
        include=["message.output_text.logprobs"],
    )  # fmt: skip
    part = answer.output[0].content[0]
    assert "".join(one.token for one in part.logprobs).startswith(part.text)
    assert all(len(one.top_logprobs) == 2 for one in part.logprobs)
    counted = client.responses.input_tokens.count(model=MODEL, input="What is a dog?")
    assert counted.input_tokens == answer.usage.input_tokens


def _refused(kind: type[Exception], code: str | None, **wish: object) -> None:
    try:
        client.chat.completions.create(**({"model": MODEL, "messages": QUESTION} | wish))
    except kind as error:
        if code is not None and error.code != code:
            raise AssertionError(f"the code is {error.code}") from error
    else:
        raise AssertionError(f"{wish} was accepted")


@check
def errors_have_their_types() -> None:
    _refused(openai.NotFoundError, "model_not_found", model="no-such-model")
    _refused(openai.BadRequestError, None, temperature=-1)
    _refused(openai.BadRequestError, None, response_format={"type": "json_schema"})
    _refused(openai.BadRequestError, None, tool_choice="required")
    _refused(
        openai.BadRequestError,
        "context_length_exceeded",
        messages=[{"role": "user", "content": "word " * 6000}],
    )
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    _refused(openai.BadRequestError, None, messages=[{"role": "user", "content": [image]}])


@check
def closing_a_stream_early_is_no_error() -> None:
    with client.chat.completions.create(model=MODEL, messages=QUESTION, stream=True) as stream:
        next(iter(stream))
    client.models.list()


@check
async def thirty_two_at_once() -> None:
    import asyncio

    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", timeout=100) as many:
        answers = await asyncio.gather(
            *(
                many.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=16)
                for _ in range(32)
            )
        )
    assert all(answer.choices[0].message.content for answer in answers)


main()
