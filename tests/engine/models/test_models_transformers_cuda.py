"""Transformers models on a GPU: in our pages and on their own cache, with the kernels that run
there.
"""

from pathlib import Path

import pytest
import torch

from engine.models.tiny_transformers import tiny_model
from engine.models.transformers_case import _expected, _prompts, _serve
from yaie.runtime.startup import factory
from yaie_api.engine_config import EngineConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(
    ("kind", "implementation"),
    [("llama", "paged transformers"), ("cohere2", "paged transformers"), ("bloom", "transformers")],
)
def test_greedy_tokens_are_those_of_the_cpu(kind: str, implementation: str, tmp_path: Path) -> None:
    model = tiny_model(kind)
    model.save_pretrained(tmp_path)
    config = EngineConfig(
        model=str(tmp_path),
        device="cuda",
        dtype="float32",
        model_impl="transformers",
        kv_cache_tokens=2048,
    )
    engine = factory.create(config)
    assert engine.info.implementation == implementation
    expected = [_expected(model, prompt) for prompt in _prompts(engine.info.vocab_size)]
    served = _serve(engine, [one.prompt for one in expected])
    assert [one.tokens for one in served] == [one.tokens for one in expected]
