"""One model type of transformers, served through the real factory and loop, and judged.

"right": greedy tokens are those of transformers' own forward pass, in any batch, in chunks and from
the prefix cache, and their log-probabilities are within its own float32 error. "refused": with the
reason that a user reads. "wrong": anything else. "unbuilt": transformers itself builds no tiny one.
"""

import logging
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig

from engine.models.tiny_transformers import tiny_config, tiny_model
from engine_harness import MemoryPort
from yaie.core.messages import Generate, Tokens
from yaie.core.request import SamplingParams
from yaie.layers.options import TensorOptions
from yaie.models.hf import check, choose, load
from yaie.runtime.startup import factory
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import InvalidRequestError, YaieError

CPU = TensorOptions(torch.device("cpu"), torch.float32)
PROMPTS = (3, 41, 26)
"""Lengths: a few tokens, several chunks, one and more pages."""
STEP_TOKENS = 24
GREEDY_TOKENS = 8
GATE = 3.0
"""Largest error of ours in multiples of transformers' own in float32; root mean squares of both."""
FLOOR = 1.5e-5
"""What such tiny models err by in float32: where less is measured, by luck or without float64."""
LIKELIEST = 8
"""Tokens whose log-probabilities are compared at each position."""


class Outcome(NamedTuple):
    """What became of a type. `note`: of "right", where it differs from `generate`."""

    kind: str
    outcome: str
    implementation: str = ""
    reason: str = ""


def judge(kind: str) -> Outcome:
    """Serve a tiny model of type `kind` and compare."""
    torch.set_num_threads(1)
    try:
        model = tiny_model(kind)
        model(input_ids=torch.tensor([[5, 6, 7]]), use_cache=False)
    except Exception as error:  # noqa: BLE001 - whatever the library raises is the finding
        return _unbuilt(kind, error)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return compare(kind, model, Path(folder))


def _unbuilt(kind: str, error: Exception) -> Outcome:
    """Our own refusal, where one comes before a model is built; else what the library raised."""
    try:
        config = tiny_config(kind)
        config, cls = load.class_of(config, {})
        if isinstance(error, ImportError):
            load.model_of(config, cls, CPU, folder=None)
    except InvalidRequestError as refusal:
        return Outcome(kind, "refused", "", refusal.message)
    except Exception as again:  # noqa: BLE001 - the same, mostly
        error = again
    return Outcome(kind, "unbuilt", "", f"{type(error).__name__}: {error}"[:200])


def compare(kind: str, model: Any, folder: Path, **settings: Any) -> Outcome:
    """Serve the checkpoint in `folder` and compare with `model`."""
    config = {
        "device": "cpu",
        "cpu_threads": 1,
        "kv_cache_tokens": 1024,
        "max_num_batched_tokens": STEP_TOKENS,
        "model_impl": "transformers",
    } | settings
    try:
        with _noted() as notes:
            engine = factory.create(EngineConfig(model=str(folder), **config))
    except YaieError as refusal:
        return Outcome(kind, "refused", "", refusal.message)
    how = engine.info.implementation
    model.set_experts_implementation("eager")  # products of groups have no float64
    expected = [_expected(model, prompt) for prompt in _prompts(engine.info.vocab_size)]
    prompts = [one.prompt for one in expected]
    served = [_serve(engine, [prompt])[0] for prompt in prompts] + _serve(engine, prompts)
    for one, mine in zip(expected * 2, served, strict=True):
        if mine.tokens != one.tokens:
            return Outcome(kind, "wrong", how, f"{mine.tokens} instead of {one.tokens}")
    ratio = _error(expected * 2, served)
    if not ratio <= GATE:
        if how != "transformers" or not _error_of_cache(model, expected, served) <= GATE:
            return Outcome(kind, "wrong", how, f"log-probabilities are {ratio:.3g} times off")
        notes.append(f"its own cache is off by as much ({ratio:.3g} times its float32 error)")
    notes.append(_compared_with_generate(model, expected))
    return Outcome(kind, "right", how, "; ".join(note for note in notes if note))


@contextmanager
def _noted() -> Iterator[list[str]]:
    """Why the model does not run in our pages, and how it runs instead: what the log says."""
    notes: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: notes.extend(  # type: ignore[method-assign]  # simplest handler
        str(value) for key, value in record.fields.items() if key in {"reason", "takes"}
    )
    choose.log.addHandler(handler)
    try:
        yield notes
    finally:
        choose.log.removeHandler(handler)


class Expected(NamedTuple):
    """A prompt, its greedy continuation by whole forward passes, and the log-probabilities
    [tokens, vocab] there: in float32 and in float64. Where the model has no float64, `exact` is
    float32 and `float32` the same with one rounding error at each layer.
    """

    prompt: list[int]
    tokens: list[int]
    float32: torch.Tensor
    exact: torch.Tensor


class Served(NamedTuple):
    """Greedy tokens, and for each the ids and log-probabilities of the likeliest."""

    tokens: list[int]
    top_ids: list[list[int]]
    top_logprobs: list[list[float]]


def _error(expected: list[Expected], served: list[Served]) -> float:
    """Our error in multiples of transformers' own float32 error, over the likeliest tokens."""
    ids = [torch.tensor(mine.top_ids) for mine in served]
    ours = torch.cat([torch.tensor(mine.top_logprobs, dtype=torch.float64) for mine in served])
    pairs = list(zip(expected, ids, strict=True))
    theirs = torch.cat([one.float32.gather(1, chosen) for one, chosen in pairs])
    exact = torch.cat([one.exact.gather(1, chosen) for one, chosen in pairs])
    noise = max(_rms(theirs - exact), FLOOR)
    return _rms(ours - exact) / noise


def _error_of_cache(model: Any, expected: list[Expected], served: list[Served]) -> float:
    """Our error in multiples of that of transformers' own cache: some models are so sensitive that
    its decoding is far from its own forward pass, and no way to use that cache is nearer.
    """
    cached = [one._replace(float32=_through_its_cache(model, one)) for one in expected]
    return _error(cached * 2, served)


def _serve(engine: factory.Engine, prompts: list[list[int]]) -> list[Served]:
    """Greedy continuations of prompts that arrive together."""
    port = MemoryPort()
    loop = engine.loop(port)
    params = SamplingParams(
        temperature=0.0, max_tokens=GREEDY_TOKENS, ignore_eos=True, logprobs=LIKELIEST
    )
    port.inbox += [Generate(str(i), tuple(ids), params) for i, ids in enumerate(prompts)]
    while port.inbox or not loop.is_idle:
        loop.step()
    return [_served(port, str(i)) for i in range(len(prompts))]


def _served(port: MemoryPort, request_id: str) -> Served:
    end = port.finish(request_id)
    if end.finish_reason != "length":
        raise AssertionError(f"ended with {end.finish_reason}: {end.error}")
    messages = [event for event in port.of(Tokens) if event.request_id == request_id]
    scores = [one for message in messages for one in message.logprobs]
    return Served(
        port.tokens(request_id),
        [list(one.top_ids) for one in scores],
        [list(one.top_logprobs) for one in scores],
    )


def _prompts(vocab_size: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    high = min(vocab_size, 300)
    return [torch.randint(5, high, (length,), generator=generator).tolist() for length in PROMPTS]


@torch.inference_mode()
def _expected(model: Any, prompt: list[int]) -> Expected:
    ids = list(prompt)
    for _ in range(GREEDY_TOKENS):
        ids.append(int(_logits(model, ids)[-1].argmax()))
    tokens = ids[len(prompt) :]
    theirs = _logprobs(_logits(model, ids), prompt)
    try:
        exact = _logprobs(_logits(model.double(), ids), prompt)
    except RuntimeError:  # some models mix float32 into any dtype
        model.float()
        exact = theirs
        with check._noise(check._layers(model, torch.tensor(ids)), 0, model.device):
            theirs = _logprobs(_logits(model, ids), prompt)
    finally:
        model.float()
    return Expected(prompt, tokens, theirs, exact)


@torch.inference_mode()
def _through_its_cache(model: Any, one: Expected) -> torch.Tensor:
    """Log-probabilities as `generate` computes them: the prompt at once, then token by token."""
    ids, cache, rows = one.prompt, None, []
    for token in one.tokens:
        output = model(input_ids=torch.tensor([ids]), past_key_values=cache, use_cache=True)
        cache, ids = output.past_key_values, [token]
        rows.append(output.logits[0, -1])
    return torch.stack(rows).double().log_softmax(-1)


def _logits(model: Any, ids: list[int]) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return logits


def _logprobs(logits: torch.Tensor, prompt: list[int]) -> torch.Tensor:
    """Those that predict the tokens after the prompt."""
    return logits[len(prompt) - 1 : -1].double().log_softmax(-1)


def _rms(values: torch.Tensor) -> float:
    return math.sqrt(float(values.square().mean()))


@torch.inference_mode()
def _compared_with_generate(model: Any, expected: list[Expected]) -> str:
    """Empty where `generate` gives the same tokens; else what it does."""
    model.generation_config = GenerationConfig(
        max_new_tokens=GREEDY_TOKENS, do_sample=False, pad_token_id=0
    )
    try:
        for one in expected:
            ids = torch.tensor([one.prompt])
            output = model.generate(ids, attention_mask=torch.ones_like(ids))
            if output[0, ids.shape[1] :].tolist() != one.tokens:
                return "its generate() disagrees with its own forward pass"
    except Exception as error:  # noqa: BLE001 - whatever the library raises is the finding
        return f"its generate() raises {type(error).__name__}"
    return ""
