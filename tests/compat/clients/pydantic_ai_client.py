"""pydantic-ai over the three APIs that we serve: text, tools, structured output, streams.

The demo model calls a tool only when it must: where a run would never end for that, the tool's
output ends it.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from checks import MODEL, URL, check, main
from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelSettings, NativeOutput, RunContext, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

QUESTION = "What is a dog?"
SHORT = ModelSettings(max_tokens=40, temperature=0.0)
LONG = ModelSettings(max_tokens=200, temperature=0.0)


class City(BaseModel):
    """Bounds of numbers never reach the server through Anthropic's client, which drops them."""

    name: str = Field(max_length=24)
    is_capital: bool


def _openai() -> OpenAIProvider:
    return OpenAIProvider(base_url=f"{URL}/v1", api_key="none")


MODELS: dict[str, Callable[[str], Model]] = {
    "chat": lambda name: OpenAIChatModel(name, provider=_openai()),
    "responses": lambda name: OpenAIResponsesModel(name, provider=_openai()),
    "anthropic": lambda name: AnthropicModel(
        name,
        provider=AnthropicProvider(api_key="none", base_url=URL),
        profile=ModelProfile(supports_json_schema_output=True),  # it knows Anthropic's models only
    ),
}
Scenario = Callable[[Callable[[str], Model]], Coroutine[Any, Any, None]]


def everywhere(scenario: Scenario) -> Scenario:
    """Register a check for each API."""
    for api, make in MODELS.items():

        def run(make: Callable[[str], Model] = make) -> Any:
            return scenario(make)

        run.__name__ = f"{api}_{scenario.__name__}"
        check(run)
    return scenario


@everywhere
async def answers_with_usage(make: Callable[[str], Model]) -> None:
    agent = Agent(make(MODEL), instructions="Be kind.", model_settings=SHORT)
    done = await agent.run(QUESTION)
    assert done.output
    assert done.usage.input_tokens > 5
    assert done.usage.output_tokens > 0


@everywhere
async def streams_text_that_joins(make: Callable[[str], Model]) -> None:
    agent = Agent(make(MODEL), model_settings=SHORT)
    async with agent.run_stream(QUESTION) as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
        assert "".join(pieces) == await stream.get_output()
    assert len(pieces) > 1


@everywhere
async def goes_on_a_conversation(make: Callable[[str], Model]) -> None:
    agent = Agent(make(MODEL), model_settings=SHORT)
    first = await agent.run(QUESTION)
    second = await agent.run("And a cat?", message_history=first.all_messages())
    assert second.output
    assert second.usage.input_tokens > first.usage.input_tokens


@everywhere
async def gets_structured_output_by_a_tool(make: Callable[[str], Model]) -> None:
    agent = Agent(make(MODEL), output_type=ToolOutput(City), model_settings=LONG)
    assert isinstance((await agent.run("A city.")).output, City)


@everywhere
async def gets_structured_output_by_a_schema(make: Callable[[str], Model]) -> None:
    agent = Agent(make(MODEL), output_type=NativeOutput(City), model_settings=LONG)
    assert isinstance((await agent.run("A city.")).output, City)


@everywhere
async def streams_structured_output(make: Callable[[str], Model]) -> None:
    agent = Agent(make(MODEL), output_type=ToolOutput(City), model_settings=LONG)
    async with agent.run_stream("A city.") as stream:
        async for _ in stream.stream_output(debounce_by=None):
            continue
        assert isinstance(await stream.get_output(), City)


@everywhere
async def runs_a_tool_and_sends_its_result(make: Callable[[str], Model]) -> None:
    """Every turn must call a tool. Once the weather was asked for, only the output's is offered:
    the demo model would ask for ever.
    """
    agent = Agent(make(MODEL), output_type=ToolOutput(City, name="city"), model_settings=LONG)
    asked: list[str] = []

    async def until_asked(_: RunContext[None], tool: ToolDefinition) -> ToolDefinition | None:
        return None if asked else tool

    @agent.tool_plain(prepare=until_asked)
    def get_weather(location: str) -> str:
        """Get the weather at a location."""
        asked.append(location)
        return "sunny"

    done = await agent.run("What is the weather in Boston, MA?")
    assert isinstance(done.output, City)
    assert asked
    _returned(done.all_messages(), "sunny")


@everywhere
async def sends_results_of_tools_from_history(make: Callable[[str], Model]) -> None:
    """A call and its result made elsewhere are turns of the conversation here."""
    agent = Agent(make(MODEL), output_type=ToolOutput(City, name="city"), model_settings=LONG)
    first = await agent.run("A city.")
    calls = [p for m in first.all_messages() for p in m.parts if isinstance(p, ToolCallPart)]
    assert [call.tool_name for call in calls] == ["city"]
    _returned(first.all_messages(), "Final result processed.")
    second = await agent.run("Another one.", message_history=first.all_messages())
    assert isinstance(second.output, City)


@everywhere
async def is_told_of_an_unknown_model(make: Callable[[str], Model]) -> None:
    status = 200
    try:
        await Agent(make("nobody"), model_settings=SHORT).run(QUESTION)
    except ModelHTTPError as error:
        status = error.status_code
    assert status == 404


def _returned(messages: list[ModelMessage], content: str) -> None:
    results = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
    assert any(one.content == content for one in results), results


main()
