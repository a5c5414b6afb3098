"""bfloat16 on the CPU, by the rule of `check_logprobs_close`: where greedy runs first part, each
must have ranked the other's token among its likeliest.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.models.harness import Harness
from engine.models.oracle import prompt, save
from engine.models.variants import ONE_EACH
from yaie.core.request import SamplingParams

TOKENS = 32
LIKELIEST = 5
GREEDY = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
LENGTH = 37


@torch.inference_mode()
def greedy(model: Any, start: tuple[int, ...]) -> tuple[list[int], list[torch.Tensor]]:
    """Transformers' greedy tokens and the logits that chose each."""
    ids, logits, cached = list(start), [], None
    for _ in range(TOKENS):
        fresh = ids if cached is None else ids[-1:]
        output = model(torch.tensor([fresh]), past_key_values=cached, use_cache=True)
        cached = output.past_key_values
        logits.append(output.logits[0, -1])
        ids.append(int(logits[-1].argmax()))
    return ids[len(start) :], logits


@pytest.mark.parametrize("variant", ONE_EACH)
def test_bfloat16_parts_from_transformers_among_the_likeliest_only(
    variant: str, tmp_path: Path
) -> None:
    folder = save(variant, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, attn_implementation="eager"
    )
    harness = Harness(folder, dtype="bfloat16", step_tokens=24)
    start = prompt(variant, LENGTH)
    theirs, their_logits = greedy(model, start)
    number = harness.add(start, GREEDY)
    harness.finish()
    ours, our_logits = harness.tokens[number], harness.recorder.logits[number]
    assert our_logits[LENGTH].dtype == torch.bfloat16
    part = next((i for i in range(TOKENS) if ours[i] != theirs[i]), None)
    if part is not None:
        assert ours[part] in their_logits[part].topk(LIKELIEST).indices
        assert theirs[part] in our_logits[LENGTH + part].topk(LIKELIEST).indices
