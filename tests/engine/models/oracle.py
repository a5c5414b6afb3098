"""Tiny random models built offline, and transformers' own float64 and float32 runs to judge by.

Weights are strong (initializer_range 0.3) and norm weights random: with the default 0.02 a model
hardly looks at its context, and a test that compares it with anything proves nothing.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_num_threads(1)  # tiny matrices: more threads only wait for each other
GREEDY_TOKENS = 64
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}

VARIANTS: dict[str, dict[str, Any]] = {
    "llama-gqa": {"model_type": "llama"},
    "llama-mqa-odd-vocab": {"model_type": "llama", "num_key_value_heads": 1, "vocab_size": 509},
    "llama-head-dim-bias": {
        "model_type": "llama",
        "head_dim": 24,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "llama-tied-llama3-rope": {
        "model_type": "llama",
        "tie_word_embeddings": True,
        "rope_parameters": LLAMA3,
    },
    "llama-yarn-rope": {"model_type": "llama", "rope_parameters": YARN},
    "llama-linear-rope": {"model_type": "llama", "rope_parameters": LINEAR},
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
    "qwen3-tied-bias-odd-vocab": {
        "model_type": "qwen3",
        "head_dim": 16,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "vocab_size": 509,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
    },
    "qwen3-window": {
        "model_type": "qwen3",
        "head_dim": 16,
        "use_sliding_window": True,
        "sliding_window": 24,
        "max_window_layers": 1,
    },
}
BASE: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@cache
def hf_model(variant: str) -> Any:
    """Transformers' float32 model of a variant, random but always the same."""
    torch.manual_seed(7)
    config = AutoConfig.for_model(**(BASE | VARIANTS[variant]))
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.3)
    return model


@cache
def hf_model_float64(variant: str) -> Any:
    """The same weights, computed in float64."""
    model = hf_model(variant)
    exact = AutoModelForCausalLM.from_config(model.config).eval().double()
    exact.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    return exact


def save(variant: str, folder: Path, **kwargs: Any) -> Path:
    """Write a variant's checkpoint as safetensors."""
    hf_model(variant).save_pretrained(folder, **kwargs)
    return folder


@dataclass(frozen=True)
class Reference:
    """A prompt, its greedy continuation, and logits after every token of both together."""

    prompt: tuple[int, ...]
    greedy: tuple[int, ...]
    exact: torch.Tensor
    float32: torch.Tensor


@cache
def reference(variant: str, length: int, seed: int = 0, shared: int = 0) -> Reference:
    """Run transformers on a random prompt; the first `shared` tokens do not depend on `seed`."""
    vocab = hf_model(variant).config.vocab_size
    prompt = _ids(0, shared, vocab) + _ids(seed + 1, length - shared, vocab)
    ids = list(prompt)
    exact = hf_model_float64(variant)
    with torch.inference_mode():
        cached = None
        for _ in range(GREEDY_TOKENS):
            fresh = ids if cached is None else ids[-1:]
            output = exact(torch.tensor([fresh]), past_key_values=cached, use_cache=True)
            cached = output.past_key_values
            ids.append(int(output.logits[0, -1].argmax()))
        whole = torch.tensor([ids])
        return Reference(
            prompt=prompt,
            greedy=tuple(ids[length:]),
            exact=exact(whole, use_cache=False).logits[0],
            float32=hf_model(variant)(whole, use_cache=False).logits[0].double(),
        )


def _ids(seed: int, count: int, vocab: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(3, vocab, (count,), generator=generator).tolist())


def assert_within_gate(
    ours: dict[int, torch.Tensor], expected: Reference, *, label: str = ""
) -> None:
    """`ours[p]`: logits that predict the token at position p. RMS <= 1.5x, largest <= 3x of
    transformers' own float32 error at the same positions.
    """
    positions = sorted(ours)
    exact = torch.stack([expected.exact[p - 1] for p in positions])
    theirs = torch.stack([expected.float32[p - 1] for p in positions]) - exact
    mine = torch.stack([ours[p].double() for p in positions]) - exact
    rms = (mine.square().mean().sqrt() / theirs.square().mean().sqrt()).item()
    largest = (mine.abs().max() / theirs.abs().max()).item()
    assert rms <= 1.5, f"{label}: RMS error is {rms:.2f} times transformers'"
    assert largest <= 3.0, f"{label}: largest error is {largest:.2f} times transformers'"
