"""A chat through the OpenAI client: an answer at once, then one that is printed as it is written.

python examples/chat_openai.py
python examples/chat_openai.py --endpoint http://127.0.0.1:9000/v1 --model qwen "What is a pod?"
"""

import argparse
import os
import sys

import openai

ENDPOINT = "http://127.0.0.1:8000/v1"


def main() -> None:
    arguments = _parser().parse_args()
    key = os.environ.get("OPENAI_API_KEY", "unused")
    client = openai.OpenAI(base_url=arguments.endpoint, api_key=key)
    try:
        model = arguments.model or next(iter(client.models.list())).id
        print("whole:", whole(client, model, arguments.question))
        print("streamed: ", end="")
        streamed(client, model, arguments.question)
    except openai.APIConnectionError:
        sys.exit(f"Nothing answers at {arguments.endpoint}: start a server, or give --endpoint.")
    except openai.APIStatusError as error:
        sys.exit(f"The server refused: {error.message}")


def whole(client: openai.OpenAI, model: str, question: str) -> str | None:
    """The answer, once it is complete."""
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], max_tokens=200
    )
    return answer.choices[0].message.content


def streamed(client: openai.OpenAI, model: str, question: str) -> None:
    """Print the answer piece by piece, and what it cost."""
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_tokens=200,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
        if chunk.usage is not None:  # the last chunk: it has no choice
            print(f"\n{chunk.usage.prompt_tokens} + {chunk.usage.completion_tokens} tokens")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="?", default="What is Kubernetes?")
    parser.add_argument("--endpoint", metavar="URL", default=ENDPOINT, help=f"default: {ENDPOINT}")
    parser.add_argument("--model", metavar="NAME", help="default: the first of /v1/models")
    return parser


if __name__ == "__main__":
    main()
