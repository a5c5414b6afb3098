"""Command lines written for vLLM or Ollama: each flag is accepted, mapped or explained."""

import argparse
import logging
from typing import Any

import pytest

from engine.cli.vllm_options import SHORT, SWITCHES, WITH_VALUE
from yaie.cli import foreign_flags
from yaie.cli.commands import serve
from yaie.cli.main import build_parser, main
from yaie.cli.parser import Parser
from yaie_api.engine_config import EngineConfig


def parse(line: str, command: str = "serve") -> argparse.Namespace:
    return build_parser(command).parse_args([command, *line.split()])


def config(line: str) -> EngineConfig:
    return serve.engine_config(parse(line))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["serve", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[0]


@pytest.fixture(scope="module")
def parser() -> Any:
    found = build_parser("serve")
    (actions,) = (a for a in found._actions if isinstance(a, argparse._SubParsersAction))
    return actions.choices["serve"]


@pytest.mark.parametrize("name", [*WITH_VALUE, *SWITCHES])
def test_no_option_of_vllm_is_unknown(parser: Parser, name: str) -> None:
    assert parser.has(f"--{name}")


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_of_vllm_can_be_turned_off(parser: Parser, name: str) -> None:
    assert parser.has(f"--no-{name}")


@pytest.mark.parametrize("short", SHORT)
def test_short_forms_of_vllm_are_known(parser: Parser, short: str) -> None:
    known = parser._option_string_actions
    assert known[short] is known[f"--{SHORT[short]}"]


@pytest.mark.parametrize("command", ["serve", "run-batch", "warmup"])
def test_every_command_with_an_engine_knows_them(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "m", "-tp", "2"])
    assert f"yaie {command}: -tp 2: An engine runs on one GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "m -tp 1",
        "m -tp=1",
        "m --tensor-parallel-size 1 --pipeline-parallel-size=1",
        "m --tensor_parallel_size 1",
        "--enable-chunked-prefill m",
        "m --no-enable-log-requests --disable-log-stats --disable-log-requests",
        "m --distributed-executor-backend mp --no-trust-remote-code",
        "m --no-enforce-eager --no-enable-auto-tool-choice",
        "m -O3 --kv-cache-dtype auto --max-seq-len-to-capture 8192",
        "m --limit-mm-per-prompt {} --max-loras 4",
        "m --dtype auto --load-format safetensors",
    ],
)
def test_what_happens_anyway_is_accepted(line: str) -> None:
    assert config(line) == EngineConfig(model="m")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-tp 2", "-tp 2: An engine runs on one GPU"),
        ("--tensor-parallel-size=8", "--tensor-parallel-size 8: An engine runs on one GPU"),
        ("--trust-remote-code", "Code of a checkpoint is never run"),
        ("--quantization awq", "Weights are float32, bfloat16 or float16 safetensors"),
        ("-q fp8", "name the unquantized model"),
        ("--enable-lora --lora-modules a=b", "--enable-lora: LoRA adapters are not served yet"),
        ("--lora-modules a=b c=d", "--lora-modules a=b c=d: LoRA"),
        ("--speculative-config {}", "There is no speculative decoding yet"),
        ("--no-enable-chunked-prefill", "Prefill is always chunked"),
        ("--kv-cache-dtype fp8", "choose it by --dtype"),
        ("--kv-cache-memory-bytes 8G", "write --kv-cache-tokens"),
        ("--compilation-config.mode 3", "write --enforce-eager to have no graphs"),
        ("--ssl-keyfile key.pem", "end TLS in a proxy"),
        ("--model Qwen/Qwen3-0.6B", "yaie serve MODEL"),
        ("--num-predict 100", "Clients send max_tokens with each request"),
        ("--num-gpu 20", "write --device"),
        ("--num-ctx 0", "--num-ctx 0: '0' is not a whole number of at least 1"),
    ],
)
def test_what_cannot_be_had_is_explained_in_one_sentence(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in refusal(capsys, *line.split())


def test_similar_names_are_guessed_only_for_flags_that_nobody_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = refusal(capsys, "m", "--tensor-paralel-size", "1")
    assert told.endswith("did you mean --tensor-parallel-size?")
    assert "did you mean" not in refusal(capsys, "m", "--tensor-parallel-size", "2")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("m --num-ctx 4096", {"max_model_len": 4096}),
        ("m --num_thread 3", {"cpu_threads": 3}),
        ("m --max_model_len 8k", {"max_model_len": 8000}),
        ("m --max-model-len=8K", {"max_model_len": 8192}),
        ("m --max-model-len 25.6k", {"max_model_len": 25600}),
        ("m --max-model-len auto", {"max_model_len": None}),
        ("m --max-model-len -1", {"max_model_len": None}),
        ("m --dtype half", {"dtype": "float16"}),
        ("m --dtype float", {"dtype": "float32"}),
        ("m --model-impl vllm", {"model_impl": "yaie"}),
        ("m -O0", {"enforce_eager": True}),
        ('m --pooler-config {"pooling_type":"MEAN"}', {"pooling": "mean"}),
        ("m --block-size 32", {"page_size": 32}),
    ],
)
def test_what_is_ours_under_another_name_is_ours(line: str, expected: dict[str, Any]) -> None:
    assert config(line) == EngineConfig(model="m", **expected)


def test_api_server_count_has_vllms_short_form() -> None:
    assert parse("m -asc 2").api_server_count == 2


def test_the_log_tells_what_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    args = parse("m -tp 1 --enable-chunked-prefill")
    with caplog.at_level(logging.INFO):
        foreign_flags.log_notes(args, {"OLLAMA_NUM_PARALLEL": "4", "OLLAMA_HOST": "", "HOME": "x"})
    found = [(record.message, record.__dict__) for record in caplog.records]
    assert [message for message, _ in found] == [
        "a flag changes nothing",
        "a flag changes nothing",
        "a variable is not read",
    ]
    told = str(found)
    assert "-tp 1" in told
    assert "--enable-chunked-prefill" in told
    assert "write --max-num-seqs" in told


def test_the_settings_of_a_server_hold_no_notes() -> None:
    assert foreign_flags.NOTES not in serve.settings(parse("m -tp 1"))


def test_the_help_shows_only_our_own_flags(parser: Parser) -> None:
    shown = parser.format_help()
    assert "--max-model-len" in shown
    assert "tensor-parallel" not in shown
    assert "num-ctx" not in shown


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("qwen3:0.6b", "write hf://Qwen/Qwen3-0.6B"),
        ("llama3.2", "write hf://meta-llama/Llama-3.2-3B-Instruct"),
        ("nomic-embed-text:v1.5", "is a name of Ollama's library. Write hf://org/name"),
        ("hf.co/org/name-GGUF:Q4_K_M", "is a name of Ollama's library"),
        ("models/qwen3-0.6b-q4.gguf", "is a GGUF file, and GGUF is not read"),
    ],
)
def test_names_of_ollamas_and_gguf_files_are_called_so(
    model: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", model]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("list", "`yaie ls` lists the models on the disk, `yaie ps` those that run"),
        ("stop qwen3", "`yaie scale NAME --replicas 0` stops a model of `yaie up`"),
        ("bench serve", "there is no command bench"),
    ],
)
def test_commands_of_ollama_and_vllm_are_explained(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
