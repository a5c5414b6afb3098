"""The matrix of test_models_sparse.py on a GPU, with captured graphs and without."""

from pathlib import Path

import pytest
import torch

from engine.models import oracle
from engine.models.hand import GREEDY, load_runner
from engine.models.journey import PAGES, travel
from engine.models.variants_sparse import EXPERT_NAMES, LATENT_NAMES, SPARSE
from yaie.core.request import SamplingParams
from yaie.model_config.moe import MLAForm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
oracle.VARIANTS.update(SPARSE)
SCORED = SamplingParams(temperature=0.0, max_tokens=64, logprobs=1)
"""With log-probabilities a captured step ends at the logits, where the test can read them."""
FORMS: tuple[MLAForm, ...] = ("absorbed", "latent", "naive")
RUNS = [(name, FORMS[0]) for name in EXPERT_NAMES]
RUNS += [(name, form) for name in LATENT_NAMES for form in FORMS]


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
@pytest.mark.parametrize(("variant", "form"), RUNS)
def test_a_variant_matches_on_the_gpu(
    variant: str, form: MLAForm, graphs: bool, tmp_path: Path
) -> None:
    folder = oracle.save(variant, tmp_path)
    runner = load_runner(folder, pages=PAGES, mla_form=form, device="cuda", graphs=graphs)
    for one in travel(variant, runner, sampling=SCORED if graphs else GREEDY).values():
        oracle.check(variant, one.start, one.ids, one.logits, devices=("cpu", "cuda"))
