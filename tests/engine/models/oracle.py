"""Tiny random models built offline, and transformers' own float64 and float32 runs to judge by.

Weights are strong (initializer_range 0.3) and norm weights random: with the default 0.02 a model
hardly looks at its context, and a test that compares it with anything proves nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.models.variants import BASE, DENSE

torch.set_num_threads(1)  # tiny matrices: more threads only wait for each other
GREEDY_TOKENS = 64
VARIANTS: dict[str, dict[str, Any]] = dict(DENSE)
"""Test modules of other families add theirs."""


@cache
def hf_model(variant: str) -> Any:
    """Transformers' float32 model of a variant, random but always the same."""
    torch.manual_seed(7)
    config = AutoConfig.for_model(**(BASE | VARIANTS[variant]))
    config._attn_implementation = config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).eval()
    make_strong(model)
    return model


def make_strong(model: torch.nn.Module) -> None:
    """Give norms, biases and correction buffers values whose loss would be seen."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:  # around 0 where the norm adds 1 itself, around 1 elsewhere
                middle = float(parameter.mean())
                parameter.uniform_(middle - 0.5, middle + 0.5)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.3)
        for name, buffer in model.named_buffers():
            if name.endswith("bias"):
                buffer.normal_(0.0, 0.3)


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
class Truth:
    """Logits after every token of a sequence, each from one pass over the whole sequence."""

    exact: torch.Tensor
    float32: tuple[torch.Tensor, ...]
    """One for each device that transformers ran on."""


@cache
def truth(variant: str, ids: tuple[int, ...], devices: tuple[str, ...] = ("cpu",)) -> Truth:
    """Run transformers on a whole sequence, in float64 and, on each device, in float32."""
    whole = torch.tensor([ids])
    with torch.inference_mode():
        exact = hf_model_float64(variant)(whole, use_cache=False).logits[0]
    return Truth(exact, tuple(_float32(variant, whole, device) for device in devices))


@torch.inference_mode()
def _float32(variant: str, whole: torch.Tensor, device: str) -> torch.Tensor:
    model = hf_model(variant).to(device)
    try:
        return model(whole.to(device), use_cache=False).logits[0].double().cpu()
    finally:
        model.to("cpu")


def prompt(variant: str, length: int, seed: int = 0, shared: int = 0) -> tuple[int, ...]:
    """Return random ids; the first `shared` do not depend on `seed`."""
    vocab = hf_model(variant).config.vocab_size
    return _ids(0, shared, vocab) + _ids(seed + 1, length - shared, vocab)


def _ids(seed: int, count: int, vocab: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(3, vocab, (count,), generator=generator).tolist())


@dataclass(frozen=True)
class Reference:
    """A prompt, its greedy continuation, and logits after every token of both together."""

    prompt: tuple[int, ...]
    greedy: tuple[int, ...]
    exact: torch.Tensor
    float32: tuple[torch.Tensor, ...]


@cache
def reference(variant: str, length: int, seed: int = 0, shared: int = 0) -> Reference:
    """Let transformers continue a random prompt in float64."""
    start = prompt(variant, length, seed, shared)
    ids = list(start)
    exact = hf_model_float64(variant)
    with torch.inference_mode():
        cached = None
        for _ in range(GREEDY_TOKENS):
            fresh = ids if cached is None else ids[-1:]
            output = exact(torch.tensor([fresh]), past_key_values=cached, use_cache=True)
            cached = output.past_key_values
            ids.append(int(output.logits[0, -1].argmax()))
    known = truth(variant, tuple(ids))
    return Reference(start, tuple(ids[length:]), known.exact, known.float32)


def check(
    variant: str,
    start: Sequence[int],
    ids: Sequence[int],
    logits: dict[int, torch.Tensor],
    *,
    devices: tuple[str, ...] = ("cpu",),
) -> None:
    """Judge a sequence that began with `start` and grew by greedy decoding to `ids`.

    Every generated token must be what float64 would have chosen after the tokens before it: by
    induction the sequence is then its greedy continuation. `logits[p]` predict position p.
    `devices`: where transformers' own float32 may err, ours among them.
    """
    assert tuple(ids[: len(start)]) == tuple(start)
    assert len(ids) - len(start) == GREEDY_TOKENS
    known = truth(variant, tuple(ids), devices)
    chosen = known.exact[len(start) - 1 : -1].argmax(-1).tolist()
    assert list(ids[len(start) :]) == chosen
    assert set(logits) <= set(range(len(start), len(ids)))
    assert_within_gate(logits, known)


def assert_within_gate(
    ours: dict[int, torch.Tensor], expected: Reference | Truth, *, label: str = ""
) -> None:
    """`ours[p]`: logits that predict the token at position p. RMS <= 1.5x, largest <= 3x of
    transformers' own float32 error at the same positions.
    """
    rms, largest = error_ratios(ours, expected)
    assert rms <= 1.5, f"{label}: RMS error is {rms:.2f} times transformers'"
    assert largest <= 3.0, f"{label}: largest error is {largest:.2f} times transformers'"


def error_ratios(ours: dict[int, torch.Tensor], expected: Reference | Truth) -> tuple[float, float]:
    """(RMS, largest) of our error over transformers' own in float32, where it errs most: on a GPU
    the rounding of one device may suit a sequence twice as well as that of the other.
    """
    positions = sorted(ours)
    exact = torch.stack([expected.exact[p - 1] for p in positions])
    mine = torch.stack([ours[p].double() for p in positions]) - exact
    theirs = [torch.stack([run[p - 1] for p in positions]) - exact for run in expected.float32]
    rms = _rms(mine) / max(_rms(errors) for errors in theirs)
    largest = mine.abs().max() / max(errors.abs().max() for errors in theirs)
    return float(rms), float(largest)


def _rms(errors: torch.Tensor) -> torch.Tensor:
    return errors.square().mean().sqrt()
