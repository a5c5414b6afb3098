import argparse
import json
from pathlib import Path

import msgspec
import pytest

from yaie.cli.commands import serve
from yaie.cli.main import build_parser
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import InvalidRequestError
from yaie_api.names import ENV_POD_NAME
from yaie_api.response_id import mark_of_pod


def parse(*arguments: str) -> argparse.Namespace:
    return build_parser("serve").parse_args(["serve", *arguments])


def test_defaults_are_those_of_the_engine() -> None:
    assert serve.engine_config(parse("builtin://x")) == EngineConfig(model="builtin://x")


def test_every_field_of_the_engine_has_a_flag() -> None:
    flags = vars(parse("m"))
    assert {field.name for field in msgspec.structs.fields(EngineConfig)} <= flags.keys()


def test_flags_reach_the_configuration() -> None:
    config = serve.engine_config(
        parse(
            *("m", "--max-model-len", "512", "--dtype", "bfloat16", "--device", "cpu"),
            *("--served-model-name", "a", "b", "--block-size", "8", "--enforce-eager"),
            *("--no-enable-prefix-caching", "--gpu-memory-utilization", "0.5", "--seed", "7"),
        )
    )
    assert config == EngineConfig(
        model="m",
        max_model_len=512,
        dtype="bfloat16",
        device="cpu",
        served_model_name="a",
        page_size=8,
        enforce_eager=True,
        enable_prefix_caching=False,
        gpu_memory_utilization=0.5,
        seed=7,
    )


def test_the_engine_process_gets_its_configuration_as_one_argument() -> None:
    config = EngineConfig(model="/models/with space; rm -rf")
    command = serve.engine_command(config, "info", "json")("ipc:///tmp/x")
    assert command[1:3] == ["-m", "yaie.runtime.process.engine_process"]
    assert command[-2:] == ["--address", "ipc:///tmp/x"]
    sent = command[command.index("--config") + 1]
    assert msgspec.json.decode(sent, type=EngineConfig) == config
    assert json.loads(sent)["model"] == "/models/with space; rm -rf"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "70000"],
        ["--port", "x"],
        ["--max-num-seqs", "0"],
        ["--gpu-memory-utilization", "1.5"],
        ["--gpu-memory-utilization", "nan"],
        ["--shutdown-timeout", "-1"],
        ["--shutdown-timeout", "inf"],
        ["--dtype", "int4"],
    ],
)
def test_values_out_of_range_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse("m", *arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_flags_reach_the_http_process() -> None:
    options = serve.serve_options(
        parse(
            *("m", "--admin-port", "9001", "--tool-call-parser", "hermes"),
            *("--sse-keep-alive-interval", "5", "--scheduling-policy", "priority"),
            *("--tenant-header", "X-Tenant", "--enable-auto-tool-choice"),
            "--enable-vllm-metrics",
        )
    )
    assert (options.admin_host, options.admin_port) == ("127.0.0.1", 9001)
    assert options.tool_call_parser == "hermes"
    assert options.sse_keep_alive_s == 5.0
    assert options.priorities
    assert options.tenant_header == "x-tenant"
    assert options.vllm_metrics


def test_keys_and_origins_reach_the_http_process(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one\ntwo\n")
    options = serve.serve_options(
        parse(
            *("m", "--api-key-file", str(tmp_path / "keys")),
            *("--allowed-origins", '["https://app.example"]', "--allow-credentials"),
        )
    )
    assert options.api_keys == ("one", "two")
    assert (options.cors.origins, options.cors.credentials) == (("https://app.example",), True)


def test_there_is_no_admin_port_by_default() -> None:
    assert serve.serve_options(parse("m")).admin_port is None


@pytest.mark.parametrize("flag", ["--tool-call-parser", "--reasoning-parser", "--chat-template"])
def test_parsers_and_templates_that_do_not_exist_are_named(flag: str) -> None:
    with pytest.raises(InvalidRequestError, match="no-such-thing"):
        serve.serve_options(parse("m", flag, "no-such-thing"))


def test_ids_of_responses_name_the_pod_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV_POD_NAME, raising=False)
    assert serve.serve_options(parse("m")).response_mark == ""
    monkeypatch.setenv(ENV_POD_NAME, "demo-7d9f8-abcde")
    assert serve.serve_options(parse("m")).response_mark == mark_of_pod("demo-7d9f8-abcde")


def test_the_settings_hold_no_key() -> None:
    options = serve.serve_options(parse("m", "--api-key", "secret-key"))
    assert options.settings["model"] == "m"
    assert "secret" not in json.dumps(options.settings)
    assert "secret" not in repr(options)
