"""On a GPU every wish gives the textbook's tokens too: with graphs and without, launched ahead."""

import random

import pytest
import torch

from engine.runtime.table_model import VOCAB, Drive, TableModel, oracle, table_runner
from engine.runtime.test_runner_sampling_metadata import (
    DRAWS,
    PROMPT,
    STEPS,
    WISHES,
    masks_of,
    params,
)
from yaie.core.batch import PageCopy, Row
from yaie.core.request import Grammar, SamplingParams
from yaie.runtime.sampling.logprobs import score
from yaie.runtime.tensors.kv_tensors import KVTensors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
KINDS = [(wish, draw) for wish in WISHES for draw in DRAWS]


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
def test_any_mixture_gives_the_textbooks_tokens(graphs: bool) -> None:
    """Plain batches, batches in which one row wishes something, and batches of wishes."""
    runner, rng = table_runner("cuda", graphs=graphs), random.Random(1)
    runner.warm_up()
    for first in range(0, len(KINDS), 3):
        drive, wanted = Drive(runner), {}
        kinds = KINDS[first : first + 3] + [("nothing", draw) for draw in DRAWS]
        for slot, (wish, draw) in enumerate(kinds):
            prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 9))]
            drive.start(slot, prompt, params(wish, draw), seed=first + slot)
            wanted[slot] = oracle(prompt, params(wish, draw), STEPS, seed=first + slot)
        while unfinished := [s for s in wanted if len(drive.output(s)) < STEPS]:
            drive.step(*rng.sample(unfinished, rng.randint(1, len(unfinished))))
        assert {slot: drive.output(slot) for slot in wanted} == wanted
    if graphs and runner.graphs is not None:
        tails = {key.tail for key in runner.graphs.decode.captured}
        assert tails == {"greedy", "plain", "filtered", "logits"}


@pytest.mark.parametrize("wish", ["nothing", "all"])
@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
def test_steps_launched_ahead_follow_on_the_device(graphs: bool, wish: str) -> None:
    runner, sampling = table_runner("cuda", graphs=graphs), params(wish, "drawn")
    runner.warm_up()
    drive, handles, tokens = Drive(runner), [], []
    drive.start(0, PROMPT, sampling, seed=77)
    for step in range(STEPS):
        start, ids = (0, PROMPT) if step == 0 else (len(PROMPT) + step - 1, ())
        handles.append(drive.launch([Row(0, 0, 0, start, len(ids) or 1, ids, True)]))
        if len(handles) == 2:  # as the loop does: launch, collect the one before, sample
            tokens.append(runner.collect(handles.pop(0)).tokens[0])
        runner.sample(handles[-1])
    tokens.append(runner.collect(handles[0]).tokens[0])
    assert tokens == oracle(PROMPT, sampling, STEPS, seed=77)


@pytest.mark.parametrize("draw", DRAWS)
def test_grammar_masks(draw: str) -> None:
    runner, allowed = table_runner("cuda"), (0, 3, 31, 32, 33, 63, 64, 69)
    sampling = SamplingParams(
        grammar=Grammar("regex", "a"), max_tokens=99, presence_penalty=0.5, **DRAWS[draw]
    )
    drive = Drive(runner)
    drive.start(2, PROMPT, sampling, seed=3)
    drive.start(3, PROMPT, params("nothing", draw), seed=4)
    for _ in range(STEPS):
        drive.step(2, 3, masks=masks_of((0,), allowed))
    assert drive.output(2) == oracle(PROMPT, sampling, STEPS, seed=3, allowed=allowed)
    assert drive.output(3) == oracle(PROMPT, params("nothing", draw), STEPS, seed=4)


@pytest.mark.parametrize("count", [0, 5, 20, VOCAB])
def test_logprobs_are_the_cpus(count: int) -> None:
    logits = TableModel().table.repeat(3, 1).bfloat16()
    tokens = torch.arange(len(logits)) % VOCAB
    here, there = score(logits, tokens, count), score(logits.cuda(), tokens.cuda(), count)
    assert torch.equal(here.rank, there.rank.cpu())
    assert torch.equal(here.top_ids, there.top_ids.cpu())
    torch.testing.assert_close(here.chosen, there.chosen.cpu(), atol=1e-5, rtol=0)
    torch.testing.assert_close(here.top, there.top.cpu(), atol=1e-5, rtol=0)


def test_pages_survive_a_stay_on_the_host() -> None:
    model = TableModel("cuda")
    kv = KVTensors(model.caches * 3, 40, 16, model.options, host_pages=20)
    assert kv.host.is_pinned()
    for pool in kv.pools:
        pool.copy_(torch.randn(pool.shape))
    before = [pool[1:11].clone() for pool in kv.pools]
    kv.swap_out([PageCopy(0, page, (page * 7) % 20) for page in range(1, 11)])
    for pool in kv.pools:
        pool[1:11] = torch.nan
    kv.swap_in([PageCopy(0, (page * 7) % 20, 40 - page) for page in range(1, 11)])
    for pool, want in zip(kv.pools, before, strict=True):
        assert torch.equal(pool[30:40].flip(0), want)
