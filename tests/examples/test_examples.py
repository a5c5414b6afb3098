"""Every program in examples, started as a user starts it, against the two models of
examples/two_models.yaml: operator, router and both engines are real.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.running_up import up

pytestmark = pytest.mark.drill
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CLIENTS = ("chat_openai.py", "rag.py", "structured_output.py", "tools.py")
"""langchain_chat.py needs an environment of its own: `make compat` runs it."""
MAIN = "import sys; from yaie.cli.main import main; sys.exit(main())"
NOBODY = "http://127.0.0.1:9/v1"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The router's address while `yaie up -f examples/two_models.yaml` runs."""
    folder = tmp_path_factory.mktemp("up")
    script = folder / "real_main.py"
    script.write_text(MAIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fakes.running_up.SCRIPT", script)
        patch.setenv("OMP_NUM_THREADS", "1")
        with up(folder / "state", "-f", str(EXAMPLES / "two_models.yaml")) as running:
            running.wait_for("Ctrl-C", timeout_s=100)
            yield f"http://127.0.0.1:{running.port}/v1"
            assert running.interrupt() == 0


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, EXAMPLES / program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"},
    )


def told(program: str, *arguments: object) -> list[str]:
    """The lines that a program prints when all goes well."""
    process = started(program, *arguments)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return output.splitlines()


def test_a_chat_comes_whole_and_streamed_with_its_tokens(endpoint: str) -> None:
    lines = told("chat_openai.py", "--endpoint", endpoint)
    assert re.match(r"whole: \S", lines[0])
    assert any(re.match(r"streamed: \S", line) for line in lines)
    assert re.fullmatch(r"\d+ \+ \d+ tokens", lines[-1])


def test_the_function_runs_and_its_result_reaches_the_answer(endpoint: str) -> None:
    call, answer = told("tools.py", "--endpoint", endpoint)
    assert call == 'get_weather({"city": "Oslo"}) -> snowy'
    assert re.match(r"answer: .*snowy", answer)


def test_the_answer_is_a_pydantic_model(endpoint: str) -> None:
    title, severity, parts, repeats = told("structured_output.py", "--endpoint", endpoint)
    assert re.match(r"title: +\S", title)
    assert re.fullmatch(r"severity: (low|medium|high)", severity)
    assert re.fullmatch(r"parts: +(none named|((engine|router|operator)(, )?){1,3})", parts)
    assert re.fullmatch(r"repeats: +(yes|no)", repeats)


def test_retrieval_answers_from_the_passage_that_ranks_first(endpoint: str) -> None:
    models = ("--model", "chat", "--embedding-model", "embedder")
    lines = told("rag.py", "--endpoint", endpoint, *models)
    near = [line.split(maxsplit=2)[1:] for line in lines if line.startswith("near")]
    rank = [line.split(maxsplit=2)[1:] for line in lines if line.startswith("rank")]
    assert len(near) == len(rank) == 3
    for found in (near, rank):
        assert found == sorted(found, key=lambda pair: -float(pair[0]))
    assert rank[0][1].startswith("A pod is the smallest unit that Kubernetes runs")
    assert re.match(r"answer: .*pod", lines[-1])


def test_a_batch_is_answered_and_read(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    source = ("-i", EXAMPLES / "batch/input.jsonl", "-o", results)
    command = [sys.executable, "-m", "yaie", "run-batch", *source]
    subprocess.run([*command, "--model", "builtin://yaie-demo"], check=True, capture_output=True)
    *answers, total = told("batch/read_results.py", results)
    assert [answer.partition(":")[0] for answer in answers] == [
        *("kubernetes", "story", "weather", "vector")
    ]
    assert set(json.loads(answers[2].partition(": ")[2])) == {"city", "degrees"}
    assert answers[3] == "vector: 1 x 256 numbers"
    assert total == "4 answered, 0 failed"


def test_the_reader_of_a_batch_tells_what_failed(tmp_path: Path) -> None:
    refused = {"status_code": 400, "body": {"error": {"message": "too long"}}}
    results = [
        {"custom_id": "a", "response": refused, "error": None},
        {"custom_id": "b", "response": None, "error": {"message": "no such url"}},
    ]
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, results)))
    process = started("batch/read_results.py", tmp_path / "results.jsonl")
    output, errors = process.communicate(timeout=60)
    assert output.splitlines() == [
        "a: failed: too long",
        "b: failed: no such url",
        "0 answered, 2 failed",
    ]
    assert (process.returncode, errors) == (1, "")


def test_clients_pick_a_model_by_name_or_alias(endpoint: str) -> None:
    with urllib.request.urlopen(f"{endpoint}/models", timeout=20) as answer:
        listed = [model["id"] for model in json.load(answer)["data"]]
    assert listed == ["assistant", "chat", "embedder"]
    vectors = [embedding(endpoint, model) for model in listed]
    assert vectors[0] == vectors[1] != vectors[2]


def embedding(endpoint: str, model: str) -> list[float]:
    body = json.dumps({"model": model, "input": "a pod"}).encode()
    request = urllib.request.Request(
        f"{endpoint}/embeddings", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        vector: list[float] = json.load(answer)["data"][0]["embedding"]
    return [round(number, 4) for number in vector]


def test_where_nothing_listens_one_line_says_so() -> None:
    processes = [started(program, "--endpoint", NOBODY) for program in CLIENTS]
    for process in processes:
        output, errors = process.communicate(timeout=60)
        assert output == ""
        assert errors == (f"Nothing answers at {NOBODY}: start a server, or give --endpoint.\n")
        assert process.returncode == 1


def test_a_model_that_is_not_served_is_named_in_one_line(endpoint: str) -> None:
    process = started("chat_openai.py", "--endpoint", endpoint, "--model", "nobody")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors.count("\n")) == (1, "", 1)
    assert "The model 'nobody' does not exist" in errors


def test_help_shows_how_it_is_started() -> None:
    programs = (*CLIENTS, "batch/read_results.py")
    for program, process in [(program, started(program, "--help")) for program in programs]:
        output, _ = process.communicate(timeout=60)
        assert f"\npython examples/{program}" in output
