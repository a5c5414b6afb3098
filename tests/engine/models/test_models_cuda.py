"""The matrix of test_models_oracle.py on a GPU, with captured graphs and without.

Each new shape compiles kernels: one variant of each family runs always, the others as slow tests.
"""

from pathlib import Path

import pytest
import torch

from engine.models.hand import GREEDY, load_runner
from engine.models.journey import PAGES, travel
from engine.models.oracle import check, save
from engine.models.variants import DENSE, ONE_EACH
from yaie.core.request import SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SCORED = SamplingParams(temperature=0.0, max_tokens=64, logprobs=1)
"""With log-probabilities a captured step ends at the logits, where the test can read them."""
SOON = {*ONE_EACH, "gemma2-wide-heads", "phi3-longrope-partial", "llama-head-dim-80"}
VARIANTS = [
    name if name in SOON else pytest.param(name, marks=pytest.mark.slow) for name in sorted(DENSE)
]


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_matches_on_the_gpu(variant: str, graphs: bool, tmp_path: Path) -> None:
    runner = load_runner(save(variant, tmp_path), pages=PAGES, device="cuda", graphs=graphs)
    for one in travel(variant, runner, sampling=SCORED if graphs else GREEDY).values():
        check(variant, one.start, one.ids, one.logits, devices=("cpu", "cuda"))
