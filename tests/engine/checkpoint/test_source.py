"""Where models come from, and which folders are refused before anything in them is run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from yaie.checkpoint import source
from yaie_api.errors import InvalidRequestError


def write(folder: Path, name: str, value: object) -> None:
    (folder / name).write_text(json.dumps(value))


def test_a_plain_path_and_a_file_url_name_the_same_folder(tmp_path: Path) -> None:
    assert source.resolve(str(tmp_path)) == tmp_path
    assert source.resolve(f"file://{tmp_path}") == tmp_path


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("/no/such/folder", "no model folder"),
        ("builtin://nothing", "no built-in model"),
        ("builtin://../layers", "no built-in model"),
        ("gs://bucket/model", "Unknown model source"),
    ],
)
def test_unknown_sources_are_refused(name: str, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        source.resolve(name)


def test_a_bare_name_is_pointed_to_the_hub() -> None:
    with pytest.raises(InvalidRequestError, match=r"write hf://Qwen/Qwen3-0\.6B"):
        source.resolve("Qwen/Qwen3-0.6B")


def test_a_folder_has_no_revisions(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="hf:// sources only"):
        source.resolve(str(tmp_path), "main")


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("builtin://yaie-demo", "yaie-demo"),
        ("hf://org/Model-1B@main", "Model-1B"),
        ("/models/tiny/", "tiny"),
    ],
)
def test_the_served_name_is_the_last_part(name: str, served: str) -> None:
    assert source.default_served_name(name) == served


CODE = {"auto_map": {"AutoModel": "evil.Model"}}


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"model_type": "evil"},
        {"architectures": ["EvilForCausalLM"], "model_type": "evil"},
        {"architectures": "LlamaForCausalLM"},
        {"architectures": [], "model_type": ["llama"]},
    ],
    ids=str,
)
def test_a_model_that_needs_the_code_of_its_folder_is_refused(
    tmp_path: Path, names: dict[str, object]
) -> None:
    write(tmp_path, "config.json", CODE | names)
    with pytest.raises(InvalidRequestError, match="auto_map"):
        source.read_config(tmp_path)


@pytest.mark.parametrize(
    "names", [{"architectures": ["Phi3ForCausalLM"]}, {"model_type": "bloom"}], ids=str
)
def test_a_known_model_needs_no_code_of_its_folder(
    tmp_path: Path, names: dict[str, object]
) -> None:
    write(tmp_path, "config.json", CODE | names)
    assert source.read_config(tmp_path) == CODE | names


def test_refusing_imports_neither_torch_nor_transformers(tmp_path: Path) -> None:
    write(tmp_path, "config.json", {"auto_map": {}})
    script = (
        "import sys; from pathlib import Path; from yaie.checkpoint import source\n"
        "try: source.read_config(source.resolve(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__)\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["InvalidRequestError", "False", "False"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pytorch_model.bin", "pickled"),
        ("model.pt", "pickled"),
        ("weights.pkl", "pickled"),
        ("a.ckpt", "pickled"),
        ("model-Q4_K_M.gguf", "GGUF"),
        ("config.json", r"no \*\.safetensors"),
        ("weights.safetensors", r"lacks model\.safetensors\. Download"),
    ],
)
def test_a_folder_without_a_models_safetensors_is_refused(
    tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(InvalidRequestError, match=says):
        source.weight_paths(tmp_path)


def test_pickled_files_beside_safetensors_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "optimizer.pt").write_bytes(b"")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert source.weight_paths(tmp_path) == [tmp_path / "model.safetensors"]


def test_shards_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "3.safetensors"}}
    write(tmp_path, source.WEIGHTS_INDEX, index)
    (tmp_path / "2.safetensors").write_bytes(b"")
    with pytest.raises(InvalidRequestError, match=r"lacks 1\.safetensors and 1 more of its files"):
        source.weight_paths(tmp_path)


@pytest.mark.parametrize(
    ("where", "table", "says"),
    [
        ("quantization_config", {"quant_method": "fp8"}, r"\(fp8\)"),
        ("quantization_config", {"quant_method": "gptq", "bits": 4}, r"\(gptq\)"),
        ("compression_config", {"format": "pack-quantized"}, "is quantized"),
        ("text_config", {"quantization_config": {"quant_method": "awq"}}, r"\(awq\)"),
    ],
)
def test_a_quantized_checkpoint_is_refused(
    tmp_path: Path, where: str, table: dict[str, object], says: str
) -> None:
    """Whichever implementation would run it, and before its weights are downloaded."""
    write(tmp_path, "config.json", {"architectures": ["LlamaForCausalLM"], where: table})
    with pytest.raises(InvalidRequestError, match=says):
        source.read_config(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "not valid JSON"), ("[1]", "JSON object"), ("[" * 100_000, "not valid JSON")],
)
def test_a_malformed_config_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InvalidRequestError, match=says):
        source.read_config(tmp_path)


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        ("model.safetensors", "has no config.json"),
        ("model.gguf", "GGUF"),
        ("adapter_config.json", "adapter, not a model"),
    ],
)
def test_a_missing_config_is_refused(tmp_path: Path, beside: str, says: str) -> None:
    (tmp_path / beside).write_bytes(b"")
    with pytest.raises(InvalidRequestError, match=says):
        source.read_config(tmp_path)


def test_end_of_sequence_ids_come_from_both_files(tmp_path: Path) -> None:
    write(tmp_path, "generation_config.json", {"eos_token_id": [7, 5]})
    assert source.eos_token_ids(tmp_path, {"eos_token_id": 2}) == (2, 5, 7)
    assert source.eos_token_ids(tmp_path, {"eos_token_id": None}) == (5, 7)
