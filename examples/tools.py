"""Tool calling: the model asks for a function, this program runs it, the model answers with it.

python examples/tools.py
python examples/tools.py --model qwen "What is 17 + 25, and how is the weather in Oslo?"
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import openai

ENDPOINT = "http://127.0.0.1:8000/v1"
MAX_ROUNDS = 4
"""Then a model that does nothing but call functions has to answer."""


def get_weather(city: str) -> str:
    return {"oslo": "snowy", "cairo": "sunny"}.get(city.lower(), "cloudy")


def add(a: int, b: int) -> int:
    return a + b


FUNCTIONS: dict[str, Callable[..., object]] = {"get_weather": get_weather, "add": add}


def tool(name: str, description: str, **properties: dict[str, Any]) -> Any:
    """How a function is described to the model. Its arguments are enforced to be like this."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [
    tool("get_weather", "Get the weather in a city.", city={"type": "string", "maxLength": 40}),
    tool("add", "Add two numbers.", a={"type": "integer"}, b={"type": "integer"}),
]


def main() -> None:
    arguments = _parser().parse_args()
    key = os.environ.get("OPENAI_API_KEY", "unused")
    client = openai.OpenAI(base_url=arguments.endpoint, api_key=key)
    try:
        model = arguments.model or next(iter(client.models.list())).id
        print("answer:", ask(client, model, arguments.question))
    except openai.APIConnectionError:
        sys.exit(f"Nothing answers at {arguments.endpoint}: start a server, or give --endpoint.")
    except openai.APIStatusError as error:
        sys.exit(f"The server refused: {error.message}")


def ask(client: openai.OpenAI, model: str, question: str) -> str | None:
    """The model's answer, after every function that it asked for has run."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for i in range(MAX_ROUNDS):
        # "auto" leaves it to the model; "required", or naming a function, enforces a call
        answer = client.chat.completions.create(
            model=model,
            messages=messages,
            tools=TOOLS,
            tool_choice="auto" if i < MAX_ROUNDS - 1 else "none",
            temperature=0,
            max_tokens=200,
        )
        message = answer.choices[0].message
        calls: list[Any] = message.tool_calls or []
        if not calls:
            break
        messages.append(message)
        for call in calls:
            result = run(call.function.name, call.function.arguments)
            print(f"{call.function.name}({call.function.arguments}) -> {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return message.content


def run(name: str, arguments: str) -> str:
    """What the function says, as text. The model is told of an error: it may know better then."""
    try:
        return str(FUNCTIONS[name](**json.loads(arguments)))
    except (KeyError, TypeError, ValueError) as error:  # cut off by max_tokens, for example
        return f"error: {error!r}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="?", default="What is the weather in Oslo?")
    parser.add_argument("--endpoint", metavar="URL", default=ENDPOINT, help=f"default: {ENDPOINT}")
    parser.add_argument("--model", metavar="NAME", help="default: the first of /v1/models")
    return parser


if __name__ == "__main__":
    main()
