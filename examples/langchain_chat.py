"""LangChain's ChatOpenAI: a prompt, a model and a parser as one chain, run whole and streamed.

python examples/langchain_chat.py
python examples/langchain_chat.py --endpoint http://127.0.0.1:9000/v1 --model qwen "a pod"
"""

import argparse
import os
import sys

import openai
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

ENDPOINT = "http://127.0.0.1:8000/v1"


def main() -> None:
    arguments = _parser().parse_args()
    key = os.environ.get("OPENAI_API_KEY", "unused")
    try:
        model = arguments.model or first_model(arguments.endpoint, key)
        chat = ChatOpenAI(
            base_url=arguments.endpoint, api_key=SecretStr(key), model=model, max_tokens=200
        )
        chain = ChatPromptTemplate.from_template("What is {thing}?") | chat | StrOutputParser()
        print("whole:", chain.invoke({"thing": arguments.thing}))
        print("streamed: ", end="")
        for piece in chain.stream({"thing": arguments.thing}):
            print(piece, end="", flush=True)
        print()
    except openai.APIConnectionError:
        sys.exit(f"Nothing answers at {arguments.endpoint}: start a server, or give --endpoint.")
    except openai.APIStatusError as error:
        sys.exit(f"The server refused: {error.message}")


def first_model(endpoint: str, key: str) -> str:
    """LangChain does not list models; the client below it does."""
    return next(iter(openai.OpenAI(base_url=endpoint, api_key=key).models.list())).id


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("thing", nargs="?", default="Kubernetes")
    parser.add_argument("--endpoint", metavar="URL", default=ENDPOINT, help=f"default: {ENDPOINT}")
    parser.add_argument("--model", metavar="NAME", help="default: the first of /v1/models")
    return parser


if __name__ == "__main__":
    main()
