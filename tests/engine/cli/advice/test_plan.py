"""`yaie plan`: its figures beside the engine's own, and what it says of GPUs and nodes."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from engine.models import oracle
from fakes.model_folders import write_hollow_weights
from yaie.cli.advice.planning import cards, memory, subject
from yaie.cli.advice.planning.memory import Subject
from yaie.cli.main import build_parser, main
from yaie.runtime.startup import factory
from yaie_api.engine_config import EngineConfig

GIB = 2**30
LLAMA_70B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_8B: dict[str, Any] = {
    **LLAMA_70B, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip
QWEN3_06B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151936, "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}  # fmt: skip
MODEL = """\
apiVersion: yaie.dev/v1alpha1
kind: InferenceModel
metadata: {name: demo}
spec:
  model: {source: SOURCE}
"""


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit status and output of a plan without a cluster."""
    status = main(["plan", "--no-cluster", *words])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    main(["plan", "--no-cluster", "-o", "json", *words])
    (found,) = json.loads(capsys.readouterr().out)["models"]
    return dict(found)


def config_only(folder: Path, raw: dict[str, Any] = LLAMA_70B) -> str:
    """A folder with config.json alone."""
    (folder / "config.json").write_text(json.dumps(raw))
    return str(folder)


def of_70b(folder: Path, **settings: Any) -> Subject:
    config = EngineConfig(model=config_only(folder), **settings)
    wish = subject.Wish(
        name="m",
        namespace=None,
        source=config.model,
        config=config,
        pod={},
        is_open=False,
        replicas=1,
        by_load=False,
        max_surge=1,
        strategy="Auto",
        memory=None,
    )
    return subject.subject_of(wish)


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--max-model-len", "200", "--max-num-seqs", "3"),
        ("--kv-cache-tokens", "1000", "--page-size", "32"),
        ("--dtype", "bfloat16"),
    ],
)
@pytest.mark.parametrize("variant", ["qwen3", "gemma2", "deepseek-v3"])
def test_the_engine_reports_the_planned_figures_on_a_cpu(
    variant: str, flags: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from engine.models.variants_sparse import SPARSE

    oracle.VARIANTS.update(SPARSE)
    folder = str(oracle.save(variant, tmp_path))
    planned = told(capsys, folder, "--device", "cpu", *flags)
    args = build_parser("plan").parse_args(["plan", folder, "--device", "cpu", *flags])
    info = factory.create(subject.engine_config(args)).info
    (device,) = planned["devices"]
    assert (planned["parameters"], planned["dtype"]) == (info.parameters, info.dtype)
    assert planned["weight_bytes"][info.dtype] == info.weight_bytes
    assert (device["kv_pages"], device["longest"]) == (info.kv_pages, info.max_model_len)


@pytest.mark.parametrize(
    ("raw", "measured"), [(QWEN3_06B, 69_564), (LLAMA_8B, 53_762)], ids=["qwen3-0.6b", "llama-8b"]
)
def test_an_h200_gets_the_pages_that_an_engine_reported_on_one(
    raw: dict[str, Any], measured: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`measured`: KV pages of `yaie serve` on a card of 143,771 MiB, with default settings."""
    (card,) = told(capsys, config_only(tmp_path, raw), "--gpu", "h200")["devices"]
    assert card["kv_pages"] == pytest.approx(measured, rel=0.003)


def test_a_gpu_that_is_large_enough_is_named_with_its_arithmetic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = plan(capsys, config_only(tmp_path))
    assert status == 0
    assert "parameters   70,553,706,496" in text
    assert "80 layers x 2 x 8 heads x 128 = 320 KiB per token in bfloat16" in text
    assert "One GPU is enough: B200 (179.06 GiB)." in text
    assert "- 131.42 GiB  weights: 70,553,706,496 in bfloat16" in text


def test_the_lines_of_the_arithmetic_add_up(tmp_path: Path) -> None:
    fit = memory.on_gpu(of_70b(tmp_path), cards.card("b200"))
    assert fit.memory_bytes - sum(part.n_bytes for part in fit.parts) == fit.cache_bytes
    assert fit.kv_tokens == fit.cache_bytes // (320 * 1024 * 16) * 16


def test_a_gpu_that_is_too_small_is_refused_and_several_are_no_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = plan(capsys, config_only(tmp_path), "--gpu", "H100")
    assert status == 1
    assert "One H100 is not enough: 65.45 GiB are missing for the weights." in text
    assert "would need the memory of 2" in text
    assert "tensor parallelism is not supported" in text


def test_a_length_that_the_cache_cannot_hold_is_said(tmp_path: Path) -> None:
    fit = memory.on_gpu(of_70b(tmp_path, max_model_len=131072), cards.card("b200"))
    assert fit.refusal.startswith("the KV cache holds 70,")
    shorter = memory.on_gpu(of_70b(tmp_path, max_model_len=8192), cards.card("b200"))
    assert shorter.fits
    assert shorter.concurrency == pytest.approx((shorter.kv_tokens or 0) / 8192)


def test_more_utilization_leaves_more_for_the_cache(tmp_path: Path) -> None:
    card = cards.card("b200")
    low = memory.on_gpu(of_70b(tmp_path), card)
    high = memory.on_gpu(of_70b(tmp_path, gpu_memory_utilization=0.95), card)
    assert high.cache_bytes - low.cache_bytes == pytest.approx(0.05 * card.memory_bytes, abs=2)


def test_sequences_at_once_are_bounded_by_max_num_seqs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, text = plan(capsys, "builtin://yaie-demo", "--gpu", "l4")
    assert "   4,096     256       yes" in text
    assert "of which 256 may run at once (max_num_seqs)" in text


def test_a_file_is_planned_as_its_engine_would_be_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.yaml"
    more = "  engine: {maxModelLen: 2048, args: [--max-num-seqs=8]}\n  resources: {memory: 1Gi}\n"
    file.write_text(MODEL.replace("SOURCE", "'builtin://yaie-demo'") + more)
    (device,) = told(capsys, "-f", str(file))["devices"]
    assert (device["name"], device["dtype"]) == ("resources.memory 1Gi", "float32")
    assert (device["kv_tokens"], device["concurrency"]) == (8 * 2048, 8.0)
    assert told(capsys, "-f", str(file), "--max-model-len", "64")["max_model_len"] == 64


def test_a_container_that_is_too_small_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(
        MODEL.replace("SOURCE", "'builtin://yaie-demo'") + "  resources: {memory: 20Mi}\n"
    )
    status, text = plan(capsys, "-f", str(file))
    assert (status, "It does not fit: 2.0 MiB are missing" in text) == (1, True)


def test_a_volume_needs_a_copy_of_its_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(
        MODEL.replace("SOURCE", "'pvc://weights/llama'") + "  resources: {gpu: {count: 1}}\n"
    )
    status, text = plan(capsys, "-f", str(file))
    assert (status, "yaie plan FOLDER -f model.yaml" in text) == (1, True)
    status, text = plan(capsys, config_only(tmp_path), "-f", str(file))
    assert (status, "One GPU is enough: B200" in text) == (0, True)


def test_a_model_of_transformers_alone_is_counted_by_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = {"architectures": ["BloomForCausalLM"], "model_type": "bloom"}
    status, text = plan(capsys, config_only(tmp_path, raw))
    assert (status, "yaie pull" in text) == (1, True)


def test_files_of_such_a_model_tell_its_weights_but_not_its_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(
        config_only(tmp_path, {"architectures": ["BloomForCausalLM"], "model_type": "bloom"})
    )
    write_hollow_weights(folder, 2)
    status, text = plan(capsys, str(folder), "--gpu", "l4")
    assert status == 0
    assert "BloomForCausalLM, run by transformers" in text
    assert "KV cache     not known" in text
    assert "L4    22.49 GiB   ?           ?         ?         yes" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "say what to plan: MODEL, or -f model.yaml"),
        (("-f", "none.yaml"), "cannot read none.yaml"),
        (("no-such-model",), "There is no model 'no-such-model'"),
        (("builtin://yaie-demo", "--max-model-len", "5000"), "this model has 4096 positions"),
    ],
)
def test_wrong_words_end_in_one_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = plan(capsys, *words)
    assert (status, sentence in text) == (1, True), text


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("80GiB", 80 * GIB), ("80Gi", 80 * GIB), ("24GB", 24 * 10**9), ("81559MiB", 81559 * 2**20),
     ("1.5gib", 3 * GIB // 2)],
)  # fmt: skip
def test_sizes_are_read_with_their_units(text: str, n_bytes: int) -> None:
    assert cards.size(text) == n_bytes


@pytest.mark.parametrize("text", ["80", "GiB", "0GiB", "-1GiB", "80 apples"])
def test_a_size_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write for example 80GiB"):
        cards.size(text)


def test_an_unknown_card_is_refused_with_the_way_to_give_its_memory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "builtin://yaie-demo", "--gpu", "voodoo2"])
    assert "--gpu-memory 48GiB" in capsys.readouterr().err
