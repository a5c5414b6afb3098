"""Retrieval: the passages nearest to a question, ranked again, and an answer from the best one.

python examples/rag.py
python examples/rag.py --model assistant --embedding-model embedder "What is bread made of?"
"""

import argparse
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import openai

ENDPOINT = "http://127.0.0.1:8000/v1"
KEPT = 3
"""So many of the nearest passages are ranked again."""
PASSAGES = (
    "A pod is the smallest unit that Kubernetes runs: containers that share an address.",
    "A cat sleeps most of the day and hunts mice at night.",
    "Bread is baked from flour, water, salt and yeast.",
    "Oslo is the capital of Norway and lies at a fjord.",
    "A deployment keeps the wanted number of pods running and replaces them one by one.",
)


def main() -> None:
    arguments = _parser().parse_args()
    key = os.environ.get("OPENAI_API_KEY", "unused")
    client = openai.OpenAI(base_url=arguments.endpoint, api_key=key)
    try:
        model = arguments.model or next(iter(client.models.list())).id
        retriever = arguments.embedding_model or model
        near = nearest(client, retriever, arguments.question, PASSAGES)
        for similarity, passage in near:
            print(f"near {similarity:6.3f}  {passage}")
        ranker = arguments.rerank_model or retriever
        ranked = rerank(client, ranker, arguments.question, [passage for _, passage in near])
        for score, passage in ranked:
            print(f"rank {score:6.3f}  {passage}")
        print("answer:", answer(client, model, arguments.question, ranked[0][1]))
    except openai.APIConnectionError:
        sys.exit(f"Nothing answers at {arguments.endpoint}: start a server, or give --endpoint.")
    except openai.APIStatusError as error:
        sys.exit(f"The server refused: {error.message}")


def nearest(
    client: openai.OpenAI, model: str, question: str, passages: Sequence[str]
) -> list[tuple[float, str]]:
    """The passages most like the question, best first. A real program keeps their vectors."""
    embedded = client.embeddings.create(model=model, input=[question, *passages]).data
    vectors = [item.embedding for item in embedded]
    similarities = [cosine(vectors[0], vector) for vector in vectors[1:]]
    return sorted(zip(similarities, passages, strict=True), reverse=True)[:KEPT]


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def rerank(
    client: openai.OpenAI, model: str, question: str, passages: Sequence[str]
) -> list[tuple[float, str]]:
    """Passages with their scores, best first. OpenAI's client has no method for this path."""
    body = {"model": model, "query": question, "documents": passages}
    found: Any = client.post("/rerank", body=body, cast_to=object)
    return [(r["relevance_score"], passages[r["index"]]) for r in found["results"]]


def answer(client: openai.OpenAI, model: str, question: str, passage: str) -> str | None:
    """What the model says when it has read the passage."""
    prompt = f"Answer from this passage only.\n\n{passage}\n\nQuestion: {question}"
    messages: Any = [{"role": "user", "content": prompt}]
    found = client.chat.completions.create(
        model=model, messages=messages, temperature=0, max_tokens=100
    )
    return found.choices[0].message.content


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="?", default="What is a pod in Kubernetes?")
    parser.add_argument("--endpoint", metavar="URL", default=ENDPOINT, help=f"default: {ENDPOINT}")
    parser.add_argument("--model", metavar="NAME", help="default: the first of /v1/models")
    parser.add_argument("--embedding-model", metavar="NAME", help="default: the same as --model")
    parser.add_argument("--rerank-model", metavar="NAME", help="default: as --embedding-model")
    return parser


if __name__ == "__main__":
    main()
