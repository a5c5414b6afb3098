"""Any causal language model of transformers: served right through the real factory and loop, or
refused with the reason; and the guards that see to it.
"""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.models.tiny_transformers import tiny_model
from engine.models.transformers_case import judge
from engine_harness import MemoryPort
from yaie.checkpoint.source import read_config
from yaie.core.messages import Generate
from yaie.core.request import SamplingParams
from yaie.layers.options import TensorOptions
from yaie.models import registry
from yaie.models.hf import attention, cached, check, choose, load, paged
from yaie.models.hf.cached import CacheMode
from yaie.models.hf.errors import UnfitError
from yaie.models.hf.masks import Visible, visible
from yaie.runtime.startup import factory
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import InvalidRequestError

CPU = TensorOptions(torch.device("cpu"), torch.float32)
PAGED = "paged transformers"
OWN_CACHE = "transformers"


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("kind", "implementation"),
    [
        ("llama", PAGED),
        ("gpt2", PAGED),
        ("gpt_neox", PAGED),
        ("opt", PAGED),
        ("olmo2", PAGED),
        ("cohere2", PAGED),
        ("granite", PAGED),
        ("starcoder2", PAGED),
        ("deepseek_v3", PAGED),
        ("stablelm", PAGED),
        ("falcon", OWN_CACHE),
        ("bloom", OWN_CACHE),
        ("mpt", OWN_CACHE),
        ("gptj", OWN_CACHE),
        ("gpt_oss", OWN_CACHE),
        ("mamba", OWN_CACHE),
        ("rwkv", OWN_CACHE),
        ("minimax", OWN_CACHE),
    ],
)
def test_a_type_is_served_as_transformers_computes_it(kind: str, implementation: str) -> None:
    """Greedy tokens alone, together and in chunks; log-probabilities within its own error."""
    outcome = judge(kind)
    assert (outcome.outcome, outcome.implementation) == ("right", implementation), outcome.reason


def test_a_model_that_looks_ahead_is_refused() -> None:
    outcome = judge("xlm")
    assert outcome.outcome == "refused"
    assert "self-check failed" in outcome.reason


def served(
    kind: str, folder: Path, *requests: Generate, **settings: Any
) -> tuple[factory.Engine, MemoryPort]:
    """An engine over a tiny model of `kind`, and what it answered."""
    tiny_model(kind).save_pretrained(folder)
    options = {"device": "cpu", "cpu_threads": 1, "kv_cache_tokens": 512} | settings
    engine = factory.create(EngineConfig(model=str(folder), model_impl="transformers", **options))
    port = MemoryPort()
    loop = engine.loop(port)
    port.inbox += requests
    while port.inbox or not loop.is_idle:
        loop.step()
    engine.scheduler.check()
    return engine, port


def outputs(port: MemoryPort, request_id: str) -> list[list[int]]:
    """Tokens of each output of a request."""
    found: dict[int, list[int]] = {}
    for event in port.events:
        if getattr(event, "request_id", "") == request_id and hasattr(event, "token_ids"):
            found.setdefault(event.index, []).extend(event.token_ids)
    return [found[index] for index in sorted(found)]


@pytest.mark.parametrize("kind", ["llama", "bloom", "mamba"])
def test_several_outputs_are_those_of_requests_with_their_seeds(kind: str, tmp_path: Path) -> None:
    """Without pages to share, each output of a request computes the prompt itself."""
    prompt = tuple(range(5, 35))

    def request(name: str, **sampling: Any) -> Generate:
        params = SamplingParams(temperature=0.8, max_tokens=6, ignore_eos=True, **sampling)
        return Generate(name, prompt, params)

    requests = [request("all", n=3, seed=40), *(request(f"{i}", seed=40 + i) for i in range(3))]
    _, port = served(kind, tmp_path, *requests)
    assert outputs(port, "all") == [outputs(port, f"{i}")[0] for i in range(3)]


@pytest.mark.parametrize("kind", ["llama", "bloom"])
def test_wishes_reach_the_sampler(kind: str, tmp_path: Path) -> None:
    params = SamplingParams(
        temperature=0.0,
        max_tokens=6,
        ignore_eos=True,
        logprobs=2,
        prompt_logprobs=1,
        allowed_token_ids=(7, 8, 9),
        presence_penalty=1.5,
    )
    _, port = served(kind, tmp_path, Generate("a", (5, 6, 7, 8), params))
    end = port.finish("a")
    assert end.finish_reason == "length"
    assert set(port.tokens("a")) <= {7, 8, 9}
    scores = next(e.prompt_logprobs for e in port.events if getattr(e, "prompt_logprobs", None))
    assert [score.token_id for score in scores] == [6, 7, 8]


def test_a_model_on_its_own_cache_runs_one_sequence_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    engine, _ = served("bloom", tmp_path)
    assert (engine.config.max_num_seqs, engine.config.enable_prefix_caching) == (1, False)
    assert engine.info.implementation == "transformers"
    assert engine.info.architecture == "BloomForCausalLM"
    assert engine.info.tasks == ("generate", "embed")
    (said,) = [r for r in caplog.records if "does not run in pages" in r.message]
    assert said.levelname == "WARNING"
    assert said.fields["reason"]  # type: ignore[attr-defined]  # yaie_api.logs puts it there


def test_the_prefix_cache_serves_a_paged_model(tmp_path: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    first, second = (Generate(name, tuple(range(5, 55)), params) for name in "ab")
    engine, port = served("llama", tmp_path, first)
    loop = engine.loop(port)
    port.inbox.append(second)
    while port.inbox or not loop.is_idle:
        loop.step()
    assert port.finish("b").cached_tokens == 48
    assert port.tokens("a") == port.tokens("b")


# -- guards -----------------------------------------------------------------------------------


def lost_position(positions: torch.Tensor) -> torch.Tensor:
    return torch.where(positions > 0, positions - 1, positions)


@pytest.mark.parametrize(
    "fault", ["position off by one", "wrong scale", "lost window", "neighbour's tokens"]
)
def test_the_self_check_catches_a_fault_of_ours(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would give fluent, wrong text. The model then runs on its own cache instead."""
    own = paged.PagedTransformer.forward
    attend = attention._attend

    def forward(self: Any, ids: torch.Tensor, step: Any) -> torch.Tensor:
        step = type(step)(
            lost_position(step.positions), step.slot_mapping, step.segments, step.caches
        )
        return own(self, ids, step)

    def attended(layer: Any, q: torch.Tensor, keys: Any, values: Any, segment: Any) -> Any:
        if fault == "wrong scale":
            q = q * 1.01
        if fault == "lost window":
            layer = replaced(layer, cache=layer.cache._replace(window=None))
        if fault == "neighbour's tokens":
            segment = replaced(
                segment, block_tables=segment.block_tables[:1].expand_as(segment.block_tables)
            )
        return attend(layer, q, keys, values, segment)

    if fault == "position off by one":
        monkeypatch.setattr(paged.PagedTransformer, "forward", forward)
    else:
        monkeypatch.setattr(attention, "_attend", attended)
    model = tiny_model("cohere2" if fault == "lost window" else "llama")
    assert choose.choose(model, CPU, 256).carry is CacheMode.CHUNKS


@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_the_sweep_calls_a_wrong_model_wrong(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the self-check switched off, a wrong scale gets as far as the comparison."""
    attend = attention._attend
    monkeypatch.setattr(check.Yardstick, "judge", lambda *_: None)
    monkeypatch.setattr(
        attention, "_attend", lambda layer, q, *rest: attend(layer, q * 1.0001, *rest)
    )
    outcome = judge(kind)
    assert (outcome.outcome, outcome.implementation) == ("wrong", PAGED)


def test_the_sweep_calls_a_wrong_state_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recurrent state that is off by one part in ten thousand after each step."""
    run = cached.CachedTransformer._run

    def forgetful(self: Any, ids: torch.Tensor) -> torch.Tensor:
        hidden = run(self, ids)
        states = self._cache.linear_cache if self._cache is not None else []
        states[:] = [state * 0.9999 if len(state) else state for state in states]
        return hidden

    monkeypatch.setattr(check.Yardstick, "judge", lambda *_: None)
    monkeypatch.setattr(cached.CachedTransformer, "_run", forgetful)
    outcome = judge("minimax")
    assert (outcome.outcome, outcome.implementation) == ("wrong", OWN_CACHE)


def replaced(value: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(value, **changes)


def test_the_noise_is_a_yardstick_in_low_precision_too() -> None:
    """Right in bfloat16 stays right; an error of one part in fifty does not."""
    model = tiny_model("llama").to(torch.bfloat16)
    with torch.inference_mode():
        ids = check.sequences(model.config, (13, 18), 320)
        yardstick = check.Yardstick(model, ids)
        yardstick.judge(yardstick.exact)
        with pytest.raises(UnfitError, match="self-check"):
            yardstick.judge([logits.roll(1, 0) for logits in yardstick.exact])


def test_the_noise_is_that_of_the_layers_that_run_for_text() -> None:
    """Its encoder of images holds more parameters than its decoder, and stays silent."""
    with torch.inference_mode():
        model = tiny_model("git")
        layers = check._layers(model, torch.arange(5, 9))
    assert {type(layer).__name__ for layer in layers} == {"GitLayer"}


def causal(_b: Any, _h: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return k <= q


@pytest.mark.parametrize("window", [1, 2, 7, 4096])
def test_a_window_is_read_from_the_mask_function(window: int) -> None:
    def masked(b: Any, h: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return causal(b, h, q, k) & (k > q - window)

    assert visible(masked, 32768) == Visible(window)
    assert visible(causal, 32768) == Visible(None)
    assert visible(masked, window) == Visible(None)


@pytest.mark.parametrize(
    "odd",
    [
        lambda _b, _h, _q, k: k >= 0,
        lambda b, h, q, k: causal(b, h, q, k) & (k // 8192 == q // 8192),
        lambda b, h, q, k: causal(b, h, q, k) & (k % 2 == 0),
        lambda _b, _h, q, k: k < q,
        lambda _b, _h, q, k: k <= q + 1,
    ],
    ids=["both ways", "chunks", "holes", "not itself", "one ahead"],
)
def test_other_masks_are_refused_at_any_distance(odd: Any) -> None:
    with pytest.raises(UnfitError, match="neither causal nor a sliding window"):
        visible(odd, 32768)


@pytest.mark.parametrize("name", ["s_aux", "position_bias", "anything_new"])
def test_an_argument_that_nobody_understands_is_refused(name: str) -> None:
    attention.refuse_unknown({name: None, "dropout": 0.0, "use_cache": True})
    with pytest.raises(UnfitError, match=name):
        attention.refuse_unknown({name: torch.zeros(1)})


# -- what is not served -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"model_type": "t5", "is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}, "images"),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "not a causal language"),
        ({"model_type": "nonsense"}, "not known"),
        ({"model_type": "gpt2", "n_layer": 10**9}, "n_layer"),
        ({"model_type": "llama", "hidden_size": "wide"}, "not valid"),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else None,
)
def test_what_cannot_run_is_refused_with_the_reason(raw: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason) as refused:
        load.class_of(load.config_of(raw), raw)
    assert "/" not in refused.value.message


def test_a_model_without_positions_has_a_default_length_and_no_limit(tmp_path: Path) -> None:
    engine, _ = served("bloom", tmp_path / "default")
    assert engine.info.max_model_len == 8192
    engine, _ = served("bloom", tmp_path / "longer", max_model_len=20_000)
    assert engine.info.max_model_len == 20_000
    with pytest.raises(InvalidRequestError, match="256 positions"):
        served("llama", tmp_path / "llama", max_model_len=257)


def test_settings_that_choose_code_are_left_out() -> None:
    raw = {
        "model_type": "llama",
        "attn_implementation": "somebody/kernels",
        "text_config": {"_attn_implementation": "x", "kept": [1, {"auto_map": {}}]},
        "limit": {"__float__": "Infinity"},
    }
    cleaned = load._settings(raw)
    assert "somebody" not in json.dumps(cleaned | {"limit": 0})
    assert cleaned["text_config"] == {"kept": [1, {}]}
    assert cleaned["limit"] == float("inf")


def test_a_type_that_transformers_knows_needs_no_code_of_its_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny_model("bloom").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text()) | {"auto_map": {"AutoModelForCausalLM": "evil.Model"}}
    path.write_text(json.dumps(raw))
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    engine = factory.create(EngineConfig(model=str(tmp_path), device="cpu", kv_cache_tokens=64))
    assert engine.info.architecture == "BloomForCausalLM"
    assert "code in the model's folder is ignored" in [r.message for r in caplog.records]
    path.write_text(json.dumps(raw | {"model_type": "evil"}))
    with pytest.raises(InvalidRequestError, match="auto_map"):
        factory.create(EngineConfig(model=str(tmp_path), device="cpu", kv_cache_tokens=64))


def test_a_checkpoint_that_lacks_tensors_is_refused(tmp_path: Path) -> None:
    model = tiny_model("bloom")
    state = {name: value for name, value in model.state_dict().items() if "h.1" not in name}
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(InvalidRequestError, match="lacks"):
        factory.create(EngineConfig(model=str(tmp_path), device="cpu", kv_cache_tokens=64))


@pytest.mark.parametrize(
    ("name", "tensor", "says"),
    [
        (
            "transformer.h.0.strange.weight",
            torch.zeros(2),
            r"no place for: transformer\.h\.0\.stra",
        ),
        (
            "transformer.ln_f.weight",
            torch.zeros(63),
            r"ln_f\.weight has shape \[63\]; config\.json",
        ),
        ("transformer.h.0.attn.bias", torch.ones(1, 1, 4, 4), None),
        ("vision_tower.head.weight", torch.ones(2), None),
    ],
)
def test_no_learned_tensor_is_left_out(
    tmp_path: Path, name: str, tensor: torch.Tensor, says: str | None
) -> None:
    """Old checkpoints keep their causal masks too, and a model of text leaves out images."""
    tiny_model("gpt2").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {name: tensor}, file)
    config = load.config_of(raw := read_config(tmp_path))
    kind = load.class_of(config, raw)[1]
    with pytest.raises(InvalidRequestError, match=says) if says else nullcontext():
        load.model_of(config, kind, CPU, tmp_path)


def test_the_implementation_is_chosen_by_what_there_is() -> None:
    llama, bloom = {"architectures": ["LlamaForCausalLM"]}, {"architectures": ["BloomForCausalLM"]}
    assert registry.native(bloom, "auto") is None
    assert registry.native(llama, "transformers") is None
    with pytest.raises(InvalidRequestError):
        registry.native(bloom, "yaie")
