"""Embeddings, scores, ranks and classes over the scripted engine: vectors count tokens."""

import base64
import math
import struct
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine.server.running import Answer, Server, serving
from yaie_api.names import HEADER_TIMEOUT

SIZE = 8


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("embedder")) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("classifier")
    with serving(folder, engine=["--tasks", "classify", "--labels", "1"]) as running:
        running.wait_ready()
        yield running


def tokens_of(server: Server, text: str) -> list[int]:
    return list(server.call("/tokenize", {"prompt": text}).json["tokens"])


def expected(token_ids: list[int], dimensions: int = SIZE) -> list[float]:
    counts = [float(i) for i in range(SIZE)]
    for token in token_ids:
        counts[token % SIZE] += 1
    length = math.hypot(*counts[:dimensions])
    return [count / length for count in counts[:dimensions]]


def embed(server: Server, given: Any, **fields: Any) -> Answer:
    return server.call("/v1/embeddings", {"input": given} | fields)


def test_the_openai_client_gets_unit_vectors(server: Server) -> None:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none") as client:
        # The client asks for base64 by itself and decodes it.
        answer = client.embeddings.create(model="stub", input=["hello you", "stop"])
        short = client.embeddings.create(model="stub", input="hello you", dimensions=3)
    first, second = (tokens_of(server, text) for text in ("hello you", "stop"))
    assert answer.data[0].embedding == pytest.approx(expected(first))
    assert answer.data[1].embedding == pytest.approx(expected(second))
    assert [one.index for one in answer.data] == [0, 1]
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == len(first) + len(second)
    assert short.data[0].embedding == pytest.approx(expected(first, 3))


@pytest.mark.parametrize("given", ["ab c", [5, 9, 9], ["ab c", "d"], [[5, 9], [7]]])
def test_texts_and_token_ids_alone_or_in_lists(server: Server, given: Any) -> None:
    several = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
    ids = [tokens_of(server, one) if isinstance(one, str) else one for one in several]
    answer = embed(server, given).json
    assert [one["embedding"] for one in answer["data"]] == [pytest.approx(expected(i)) for i in ids]
    assert answer["model"] == "stub"
    assert answer["usage"]["prompt_tokens"] == sum(map(len, ids))


def test_base64_is_the_same_numbers(server: Server) -> None:
    numbers = embed(server, "hello").json["data"][0]["embedding"]
    text = embed(server, "hello", encoding_format="base64").json["data"][0]["embedding"]
    assert list(struct.unpack(f"<{SIZE}f", base64.b64decode(text))) == pytest.approx(numbers)


def test_two_thousand_inputs_come_in_order(server: Server) -> None:
    given = [[i % 50 + 1] * (i % 7 + 1) for i in range(2048)]
    answer = embed(server, given).json
    found = [one["embedding"] for one in answer["data"]]
    assert found == [pytest.approx(expected(ids)) for ids in given]


def test_what_is_too_long_is_refused_or_cut(server: Server) -> None:
    long = [3] * 200 + [4] * 200
    answer = embed(server, long)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert answer.error["param"] == "input"
    kept = embed(server, long, truncate_prompt_tokens=-1).json
    assert kept["usage"]["prompt_tokens"] == 256
    left = embed(server, long, truncate_prompt_tokens=5, truncation_side="left").json
    assert left["data"][0]["embedding"] == pytest.approx(expected([4] * 5))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": [10**6]}, "input"),
        ({"input": ["a", [1]]}, "input"),
        ({}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": SIZE + 1}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 257}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 2**40}, "truncate_prompt_tokens"),
        ({"input": "a", "priority": 1}, "priority"),
        ({"input": "a", "cache_salt": "a\0b"}, "cache_salt"),
        ({"input": "a", "cache_salt": "tenant/salt"}, "cache_salt"),
        ({"input": "a", "encoding_format": "bytes"}, "encoding_format"),
        ({"input": "a", "embed_dtype": "float16"}, "embed_dtype"),
        ({"input": "a", "endianness": "big"}, "endianness"),
        ({"input": "a", "input_type": "query"}, "input_type"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages"),
    ],
)
def test_bad_embedding_requests_name_the_field(
    server: Server, fields: dict[str, Any], param: str
) -> None:
    answer = server.call("/v1/embeddings", fields)
    assert (answer.status, answer.error["param"]) == (400, param)


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("/score", "max_tokens_per_query", 5),
        ("/score", "dimensions", 4),
        ("/score", "instruction", "Find the answer."),
        ("/rerank", "max_tokens_per_doc", 5),
        ("/rerank", "rank_fields", ["title"]),
        ("/rerank", "encoding_format", "base64"),
        ("/rerank", "truncate_prompt_tokens", 300),
        ("/rerank", "cache_salt", "a\0b"),
        ("/score", "cache_salt", "a@b"),
    ],
)
def test_what_would_change_a_score_is_not_ignored(
    server: Server, path: str, field: str, value: Any
) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/score": {"text_1": "a", "text_2": "b"},
        "/rerank": {"query": "a", "documents": ["b"]},
    }
    answer = server.call(path, bodies[path] | {field: value})
    assert (answer.status, answer.error["param"]) == (400, field)


def test_fields_that_ask_for_nothing_are_taken(server: Server) -> None:
    nothing = {
        "embed_dtype": "float32",
        "endianness": "little",
        "truncate": "NONE",
        "softmax": True,
    }
    taken, plain = (embed(server, "hello", **fields).json for fields in (nothing, {}))
    assert taken["data"] == plain["data"]


@pytest.mark.parametrize("field", ["normalize", "use_activation"])
def test_an_embedding_without_activation_is_not_of_unit_length(server: Server, field: str) -> None:
    length = math.hypot(*embed(server, "hello", **{field: False}).json["data"][0]["embedding"])
    assert length > 2


def test_a_time_limit_that_is_no_number_is_refused(server: Server) -> None:
    answer = server.call("/v1/embeddings", {"input": "a"}, headers={HEADER_TIMEOUT: "soon"})
    assert (answer.status, answer.error["code"]) == (400, "invalid_timeout")


def test_a_score_is_the_cosine_of_two_embeddings(server: Server) -> None:
    body = {"text_1": "hello you", "text_2": ["hello you", "stop there"]}
    answer = server.call("/v1/score", body).json
    left, right = (expected(tokens_of(server, text)) for text in ("hello you", "stop there"))
    cosine = sum(a * b for a, b in zip(left, right, strict=True))
    assert [one["score"] for one in answer["data"]] == [pytest.approx(1.0), pytest.approx(cosine)]
    other_names = {"queries": ["hello you"], "documents": ["hello you", "stop there"]}
    assert server.call("/score", other_names).json["data"] == answer["data"]


def test_two_lists_of_one_length_pair_up(server: Server) -> None:
    body = {"text_1": ["a", "b"], "text_2": ["a", "b"]}
    scores = [one["score"] for one in server.call("/score", body).json["data"]]
    assert scores == [pytest.approx(1.0)] * 2
    answer = server.call("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]})
    assert (answer.status, answer.error["param"]) == (400, "text_1")


LONG = "hello " * 300


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/rerank", {"query": "a", "documents": ["b", LONG]}, "documents"),
        ("/rerank", {"query": LONG, "documents": ["b"]}, "query"),
        ("/rerank", {"query": "a", "documents": []}, "documents"),
        ("/score", {"text_1": "a", "text_2": LONG}, "text_2"),
        ("/score", {"queries": LONG, "documents": "b"}, "queries"),
        ("/score", {"queries": "a", "items": [""]}, "items"),
        ("/score", {"data_1": ["a", "b"], "data_2": ["a", "b", "c"]}, "data_1"),
        ("/score", {"data_1": "a"}, "text_2"),
        ("/score", {"text_1": "a", "text_2": "b", "items": "c"}, "items"),
    ],
)
def test_an_error_names_the_field_that_was_sent(
    server: Server, path: str, body: dict[str, Any], param: str
) -> None:
    answer = server.call(path, body)
    assert (answer.status, answer.error["param"]) == (400, param)


def test_a_classifier_names_the_document_that_is_too_long(classifier: Server) -> None:
    answer = classifier.call("/rerank", {"query": "a", "documents": ["b", LONG]})
    assert (answer.status, answer.error["param"]) == (400, "documents")


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_come_best_first(server: Server, path: str) -> None:
    documents = ["stop there", {"text": "hello you"}, "hello me"]
    body = {"query": "hello you", "documents": documents, "top_n": 2}
    answer = server.call(path, body).json
    results = answer["results"]
    assert len(results) == 2
    assert results[0]["index"] == 1
    assert results[0]["relevance_score"] >= results[1]["relevance_score"]
    assert results[0]["document"] == {"text": "hello you"}
    bare = server.call(path, body | {"return_documents": False}).json["results"]
    assert all("document" not in one for one in bare)


def test_an_embedder_says_that_it_cannot_classify(server: Server) -> None:
    answer = server.call("/classify", {"input": "hello"})
    assert (answer.status, answer.error["code"]) == (400, "task_not_supported")


def test_a_classifier_reads_both_texts_at_once(classifier: Server) -> None:
    pair = classifier.call("/tokenize", {"prompt": "hello"}).json["count"]
    pair += classifier.call("/tokenize", {"prompt": "you"}).json["count"]
    body = {"text_1": "hello", "text_2": "you"}
    logit = classifier.call("/score", body | {"use_activation": False}).json
    assert logit["data"][0]["score"] == pair
    answer = classifier.call("/score", body).json
    assert answer["data"][0]["score"] == pytest.approx(1 / (1 + math.exp(-pair)))
    assert answer["usage"]["prompt_tokens"] == pair
    ranked = classifier.call("/rerank", {"query": "a", "documents": ["b", "a longer text"]}).json
    assert [one["index"] for one in ranked["results"]] == [1, 0]


def test_a_classifier_gives_probabilities_and_no_embeddings(classifier: Server) -> None:
    answer = classifier.call("/classify", {"input": [[5], [5, 6]]}).json
    assert [one["probs"][0] for one in answer["data"]] == [
        pytest.approx(1 / (1 + math.exp(-count))) for count in (1, 2)
    ]
    assert {one["num_classes"] for one in answer["data"]} == {1}
    refused = embed(classifier, "hello")
    assert (refused.status, refused.error["param"]) == (400, "model")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "hello"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
        ("/v1/responses", {"input": "hello"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}),
    ],
)
def test_a_classifier_says_that_it_cannot_generate(
    classifier: Server, path: str, body: dict[str, Any]
) -> None:
    refused = classifier.call(path, body)
    assert refused.status == 400
    said = refused.json["error"]["message"]
    assert said == "This model cannot generate text; it can classify texts."


def test_a_score_needs_one_label(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("labels")
    with serving(folder, engine=["--tasks", "classify", "--labels", "3"]) as running:
        running.wait_ready()
        refused = running.call("/score", {"text_1": "a", "text_2": "b"})
        assert "3 labels" in refused.error["message"]
        found = running.call("/classify", {"input": [2]}).json["data"][0]
        assert found["label"] == "LABEL_2"
        assert sum(found["probs"]) == pytest.approx(1.0)
