"""LiteLLM: the proxy layer of many agents; it must recognise our errors."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import json

import litellm
from checks import MODEL, URL, check, main

COMMON = {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": "none", "timeout": 60}
QUESTION = [{"role": "user", "content": "What is a dog?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"location": {"type": "string"}},
    "required": ["location"],
}


@check
def completion() -> None:
    answer = litellm.completion(**COMMON, messages=QUESTION, max_tokens=24)
    assert answer.choices[0].message.content
    assert answer.usage.total_tokens > 0


@check
def stream() -> None:
    chunks = list(litellm.completion(**COMMON, messages=QUESTION, max_tokens=24, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


@check
def tools() -> None:
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
    answer = litellm.completion(**COMMON, messages=QUESTION, tools=[tool], tool_choice="required")
    call = answer.choices[0].message.tool_calls[0]
    assert set(json.loads(call.function.arguments)) == {"location"}


@check
def embedding() -> None:
    answer = litellm.embedding(**COMMON, input=["a dog"], encoding_format="float")
    assert len(answer.data[0]["embedding"]) > 8


@check
def text_completion() -> None:
    wish = COMMON | {"model": f"text-completion-openai/{MODEL}"}
    assert litellm.text_completion(**wish, prompt="A dog is", max_tokens=8).choices[0].text


@check
def too_long_a_prompt_is_recognised() -> None:
    try:
        litellm.completion(**COMMON, messages=[{"role": "user", "content": "word " * 6000}])
    except litellm.ContextWindowExceededError:
        return
    raise AssertionError("it was accepted")


@check
def unknown_model_is_recognised() -> None:
    try:
        litellm.completion(**(COMMON | {"model": "openai/nobody"}), messages=QUESTION)
    except litellm.NotFoundError:
        return
    raise AssertionError("it was accepted")


main()
