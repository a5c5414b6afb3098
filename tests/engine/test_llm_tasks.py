"""What a model without a language model head can be asked for offline, and what it says else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from engine.models.oracle import VARIANTS, make_strong
from engine.models.variants import BASE
from yaie import LLM
from yaie_api.errors import InvalidRequestError

USER = [{"role": "user", "content": "hello"}]


def saved(folder: Path, auto: Any, **more: Any) -> LLM:
    """A tiny model with another top than a language model's."""
    torch.manual_seed(11)
    config = AutoConfig.for_model(**(BASE | VARIANTS["llama-gqa"] | more))
    model = auto.from_config(config).eval()
    make_strong(model)
    model.save_pretrained(folder)
    return LLM(folder, device="cpu", cpu_threads=1, kv_cache_tokens=512)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return saved(tmp_path_factory.mktemp("decoder"), AutoModel)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    folder = tmp_path_factory.mktemp("classifier")
    return saved(folder, AutoModelForSequenceClassification, num_labels=3)


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        call()
    assert caught.value.code == "task_not_supported"
    return caught.value.message


def test_a_bare_decoder_says_that_it_can_only_embed(decoder: LLM) -> None:
    for call in (lambda: decoder.generate([[5, 6]]), lambda: decoder.chat(USER)):
        assert refusal(call) == "This model cannot generate text; it can make embeddings."
    assert "cannot classify" in refusal(lambda: decoder.classify([[5, 6]]))
    assert decoder._driver.is_idle
    assert len(decoder.embed([[5, 6]])[0].outputs.embedding) == decoder.info.hidden_size


def test_a_classifier_says_that_it_can_only_classify(classifier: LLM) -> None:
    for call in (lambda: classifier.generate([[5, 6]]), lambda: classifier.chat(USER)):
        assert refusal(call) == "This model cannot generate text; it can classify texts."
    assert "cannot make embeddings" in refusal(lambda: classifier.embed([[5, 6]]))
    assert "needs one label" in refusal(lambda: classifier.score("a", "b"))
    assert classifier._driver.is_idle
    assert sum(classifier.classify([[5, 6]])[0].outputs.probs) == pytest.approx(1.0)
