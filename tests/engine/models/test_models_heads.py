"""Other tops and names: classifiers, bare decoders, the text part of a multimodal model."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
)

from engine.models.hand import load_runner
from engine.models.oracle import VARIANTS, hf_model, make_strong, prompt, save
from engine.models.variants import BASE, ONE_EACH
from yaie.layers.attention import Segment, StepInput
from yaie.runtime.worker.runner import ModelRunner

IDS = tuple(range(3, 40))
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
    "model_type": "siglip_vision_model",
}


@torch.inference_mode()
def hidden_states(runner: ModelRunner, ids: tuple[int, ...]) -> torch.Tensor:
    """One prefill of all ids on pages 1, 2, …"""
    count, size = len(ids), runner.kv.page_size
    positions = torch.arange(count)
    segment = Segment(
        first=0,
        last=count,
        block_tables=torch.arange(1, -(-count // size) + 1, dtype=torch.int32)[None],
        seq_lens=torch.tensor([count], dtype=torch.int32),
        query_start=torch.tensor([0, count], dtype=torch.int32),
        max_query_len=count,
        max_seq_len=count,
    )
    step = StepInput(positions, positions + size, (segment,), runner.kv.caches)
    return runner.model.forward(torch.tensor(ids), step)


def strong(auto: Any, variant: str, **more: Any) -> Any:
    """Transformers' model of a variant with another top."""
    torch.manual_seed(11)
    config = AutoConfig.for_model(**(BASE | VARIANTS[variant] | more))
    config._attn_implementation = "eager"
    model = auto.from_config(config).eval()
    make_strong(model)
    return model


def assert_as_exact(ours: torch.Tensor, model: Any, pick: Any) -> None:
    """Judge against the model's own float64 run by the model's own float32 error, which by luck
    may be next to nothing.
    """
    ids = torch.tensor([IDS])
    with torch.inference_mode():
        theirs = pick(model(ids)).double()
        exact = pick(model.double()(ids))
    largest = (theirs - exact).abs().max()
    assert largest > 0
    rounding = 16 * torch.finfo(torch.float32).eps * exact.abs().max()
    assert (ours.double() - exact).abs().max() <= max(3 * largest, rounding)


@pytest.mark.parametrize("variant", ONE_EACH)
def test_a_classifier_scores_the_last_token(variant: str, tmp_path: Path) -> None:
    model = strong(AutoModelForSequenceClassification, variant, num_labels=3)
    model.save_pretrained(tmp_path)
    runner = load_runner(tmp_path)
    assert runner.model.num_labels == 3
    scores = runner.model.classify(hidden_states(runner, IDS)[-1:])
    assert_as_exact(scores, model, lambda output: output.logits)
    with pytest.raises(NotImplementedError, match="no language model head"):
        runner.model.logits(torch.zeros(1, 64))


@pytest.mark.parametrize("variant", ONE_EACH)
def test_a_bare_decoder_gives_hidden_states(variant: str, tmp_path: Path) -> None:
    model = strong(AutoModel, variant)
    model.save_pretrained(tmp_path)
    assert "embed_tokens.weight" in load_file(tmp_path / "model.safetensors")
    ours = hidden_states(load_runner(tmp_path), IDS)
    assert_as_exact(ours, model, lambda output: output.last_hidden_state[0])


@pytest.mark.parametrize("variant", ["qwen3-tied-bias-odd-vocab", "llama-gqa"])
def test_a_language_model_may_be_saved_without_its_prefix(variant: str, tmp_path: Path) -> None:
    save(variant, tmp_path)
    path = tmp_path / "model.safetensors"
    save_file({k.removeprefix("model."): v for k, v in load_file(path).items()}, path)
    runner = load_runner(tmp_path)
    ours = runner.model.logits(hidden_states(runner, prompt(variant, 20)))
    with torch.inference_mode():
        theirs = hf_model(variant)(torch.tensor([prompt(variant, 20)])).logits[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spelling", ["model.language_model.", "language_model.model."])
def test_the_text_of_a_multimodal_gemma_is_served(
    spelling: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(11)
    text = BASE | VARIANTS["gemma3-pattern"] | {"pad_token_id": 0}
    config = Gemma3Config(text_config=text, vision_config=VISION, mm_tokens_per_image=4)
    config._attn_implementation = "eager"
    model = Gemma3ForConditionalGeneration(config).eval()
    make_strong(model.model.language_model)
    model.save_pretrained(tmp_path)
    rename(tmp_path / "model.safetensors", spelling)
    with caplog.at_level(logging.INFO):
        runner = load_runner(tmp_path)
    assert "other modalities" in caplog.text
    ours = runner.model.logits(hidden_states(runner, IDS))
    assert_as_exact(ours, model, lambda output: output.logits[0])


def rename(path: Path, spelling: str) -> None:
    """Write a checkpoint's decoder and its other parts in one of the two usual spellings."""
    tensors = load_file(path)
    if spelling not in {name[: len(spelling)] for name in tensors}:
        old = {
            f"{spelling}{name.split('language_model.', 1)[1].removeprefix('model.')}"
            if "language_model." in name
            else name.removeprefix("model."): tensor
            for name, tensor in tensors.items()
        }
        save_file(old, path)
