"""Structured output: a pydantic model becomes a JSON schema, the answer becomes a pydantic model.

python examples/structured_output.py
python examples/structured_output.py --model qwen "Since this morning the router answers 503."
"""

import argparse
import os
import sys
from typing import Literal

import openai
from pydantic import BaseModel, ConfigDict, Field

ENDPOINT = "http://127.0.0.1:8000/v1"


class Ticket(BaseModel):
    """Every text and list has a limit: the schema is enforced, so an answer has to end."""

    model_config = ConfigDict(extra="forbid")

    title: str = Field(min_length=1, max_length=60)
    severity: Literal["low", "medium", "high"]
    parts: list[Literal["engine", "router", "operator"]] = Field(max_length=3)
    can_be_repeated: bool


def main() -> None:
    arguments = _parser().parse_args()
    key = os.environ.get("OPENAI_API_KEY", "unused")
    client = openai.OpenAI(base_url=arguments.endpoint, api_key=key)
    try:
        model = arguments.model or next(iter(client.models.list())).id
        ticket = read(client, model, arguments.report)
    except openai.APIConnectionError:
        sys.exit(f"Nothing answers at {arguments.endpoint}: start a server, or give --endpoint.")
    except openai.APIStatusError as error:
        sys.exit(f"The server refused: {error.message}")
    print("title:   ", ticket.title)
    print("severity:", ticket.severity)
    print("parts:   ", ", ".join(ticket.parts) or "none named")
    print("repeats: ", "yes" if ticket.can_be_repeated else "no")


def read(client: openai.OpenAI, model: str, report: str) -> Ticket:
    """The ticket that the model makes of a report."""
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"Make a ticket of this report, as JSON: {report}"}],
        response_format={
            "type": "json_schema",
            "json_schema": {
                "name": "ticket",
                "strict": True,
                "schema": Ticket.model_json_schema(),
            },
        },
        temperature=0,
        max_tokens=300,
    )
    choice = answer.choices[0]
    if choice.finish_reason == "length":  # what is cut off is no JSON yet
        sys.exit("The answer was cut off: allow it more tokens.")
    return Ticket.model_validate_json(choice.message.content or "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", nargs="?", default="The router is slow whenever I add an engine.")
    parser.add_argument("--endpoint", metavar="URL", default=ENDPOINT, help=f"default: {ENDPOINT}")
    parser.add_argument("--model", metavar="NAME", help="default: the first of /v1/models")
    return parser


if __name__ == "__main__":
    main()
