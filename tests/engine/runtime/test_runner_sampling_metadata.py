"""What each sampling parameter does to an output, against the textbook, in any company."""

import random

import numpy as np
import pytest
import torch

from engine.runtime.table_model import EOS, VOCAB, Drive, oracle, table_runner
from yaie.core.batch import FORBIDDEN, Row
from yaie.core.request import Grammar, SamplingParams
from yaie.runtime.loop.engine_loop import TokenMasks
from yaie.runtime.sampling.metadata import mask_of
from yaie.runtime.worker.runner import ModelRunner

STEPS = 14
PROMPT = (5, 9, 5, 30, 61)
LETTERS = tuple(range(10, 22))
GRAMMAR = Grammar("regex", "a")

WISHES = {
    "nothing": {},
    "allowed": {"allowed_token_ids": LETTERS},
    "one allowed": {"allowed_token_ids": (33,)},
    "bad words": {  # each of the plain outputs would run into one
        "bad_words_ids": ((18,), (55, 11), (31, 11, 53), (13, 61, 17), (8, 29), (61, 36))
    },
    "min tokens": {"min_tokens": 6, "logit_bias": {2: 50, 68: 49, 33: 50}, "stop_token_ids": (33,)},
    "repetition": {"repetition_penalty": 1.7},
    "less repetition penalty": {"repetition_penalty": 0.6},
    "frequency": {"frequency_penalty": 1.3},
    "presence": {"presence_penalty": 1.9},
    "rewarded": {"presence_penalty": -1.5, "frequency_penalty": -0.7},
    "bias": {"logit_bias": {7: 4.0, 8: -100.0, 69: 3.5, 0: 2.0}},
    "all": {
        "allowed_token_ids": (*LETTERS, *EOS, 40, 41, 69),
        "bad_words_ids": ((12,), (13, 14), (14, 13), (11, 10, 11)),
        "min_tokens": 5,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.4,
        "presence_penalty": 0.3,
        "logit_bias": {12: 100.0, 2: 6.0, 40: 1.5},
    },
}
DRAWS = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 1.2},
    "filtered": {"temperature": 0.9, "top_k": 12, "top_p": 0.9, "min_p": 0.02},
}


def params(wish: str, draw: str) -> SamplingParams:
    return SamplingParams(max_tokens=100, **WISHES[wish], **DRAWS[draw])


@pytest.fixture
def runner() -> ModelRunner:
    return table_runner()


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("wish", WISHES)
def test_the_output_is_the_textbooks(runner: ModelRunner, wish: str, draw: str) -> None:
    sampling = params(wish, draw)
    drive = Drive(runner)
    drive.start(3, PROMPT, sampling, seed=77)
    drive.run(3, steps=STEPS)
    assert drive.output(3) == oracle(PROMPT, sampling, STEPS, seed=77)


@pytest.mark.parametrize("wish", [wish for wish in WISHES if wish != "nothing"])
def test_each_wish_changes_outputs(wish: str) -> None:
    """The tests above have something to see."""
    plain, changed = (
        [oracle(PROMPT, params(name, "drawn"), 8, seed=seed) for seed in (77, 78)]
        for name in ("nothing", wish)
    )
    assert plain != changed


@pytest.mark.parametrize("order", range(2))
def test_neighbours_slots_and_chunks_do_not_matter(runner: ModelRunner, order: int) -> None:
    """All kinds of wishes share batches, in any slots, prompts cut anywhere, ends at any time."""
    rng = random.Random(order)
    kinds = [(wish, draw) for wish in WISHES for draw in DRAWS]
    rng.shuffle(kinds)
    for first in range(0, len(kinds), 6):
        drive, wanted = Drive(runner), {}
        slots = rng.sample(range(6), 6)
        for slot, (wish, draw) in zip(slots, kinds[first : first + 6], strict=False):
            prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 9))]
            sampling = params(wish, draw)
            drive.start(slot, prompt, sampling, seed=first + slot)
            wanted[slot] = oracle(prompt, sampling, STEPS, seed=first + slot)
        while unfinished := [s for s in wanted if len(drive.output(s)) < STEPS]:
            some = rng.sample(unfinished, rng.randint(1, len(unfinished)))
            drive.step(*some, chunk=rng.randint(1, 4))
        assert {slot: drive.output(slot) for slot in wanted} == wanted


@pytest.mark.parametrize("wish", WISHES)
def test_a_preempted_sequence_goes_on_as_if_nothing_had_been(
    runner: ModelRunner, wish: str
) -> None:
    """It comes back in another slot, which somebody else has used, with its past."""
    sampling = params(wish, "drawn")
    drive = Drive(runner)
    drive.start(1, PROMPT, params("all", "drawn"), seed=5)
    drive.start(2, PROMPT, sampling, seed=77)
    drive.run(1, 2, steps=6)
    drive.start(1, PROMPT, sampling, seed=77, output=drive.output(2)[:4])
    drive.run(1, steps=STEPS - 4)
    assert drive.output(1) == oracle(PROMPT, sampling, STEPS, seed=77)


def test_a_bad_word_may_begin_before_a_preemption(runner: ModelRunner) -> None:
    plain = oracle(PROMPT, params("nothing", "greedy"), 5)
    sampling = SamplingParams(temperature=0.0, bad_words_ids=(tuple(plain[2:5]),), max_tokens=9)
    drive = Drive(runner)
    drive.start(1, PROMPT, sampling, output=plain[:4])
    drive.step(1)
    assert drive.output(1) == oracle(PROMPT, sampling, 5) != plain


def test_a_step_may_be_launched_before_the_last_is_collected(runner: ModelRunner) -> None:
    """Counts and remembered tokens follow on the device: nothing waits for the host."""
    sampling = params("all", "drawn")
    drive = Drive(runner)
    drive.start(0, PROMPT, sampling, seed=77)
    handles = []
    for step in range(STEPS):
        start, ids = (0, PROMPT) if step == 0 else (len(PROMPT) + step - 1, ())
        handles.append(drive.launch([Row(0, 0, 0, start, len(ids) or 1, ids, True)]))
        runner.sample(handles[-1])
    tokens = [runner.collect(handle).tokens[0] for handle in handles]
    assert tokens == oracle(PROMPT, sampling, STEPS, seed=77)


def masks_of(rows: tuple[int, ...], allowed: tuple[int, ...]) -> TokenMasks:
    return TokenMasks(rows, np.stack([mask_of(allowed, VOCAB, allowed=True) for _ in rows]))


@pytest.mark.parametrize("draw", DRAWS)
def test_a_grammars_mask_holds_for_its_row_and_step_alone(runner: ModelRunner, draw: str) -> None:
    drive = Drive(runner)
    guided = SamplingParams(grammar=GRAMMAR, max_tokens=100, **DRAWS[draw])
    drive.start(0, PROMPT, params("all", draw), seed=1)
    drive.start(4, PROMPT, guided, seed=2)
    drive.step(0, 4, masks=masks_of((1,), LETTERS))
    drive.step(0, 4, masks=masks_of((1,), (50, 51, 52)))
    drive.step(0, 4)
    assert drive.output(0) == oracle(PROMPT, params("all", draw), 3, seed=1)
    first = oracle(PROMPT, guided, 1, seed=2, allowed=LETTERS)
    assert drive.output(4)[:1] == first
    assert drive.output(4)[1] in {50, 51, 52}
    free = oracle((*PROMPT, *drive.output(4)[:2]), guided, 1, seed=2)
    assert drive.output(4)[2:] == free


def test_a_mask_joins_the_other_wishes_of_its_row(runner: ModelRunner) -> None:
    sampling = SamplingParams(
        grammar=GRAMMAR, max_tokens=100, temperature=1.0, bad_words_ids=((12,),), top_k=3,
        logit_bias={12: 90.0}, repetition_penalty=2.0,
    )  # fmt: skip
    drive = Drive(runner)
    drive.start(2, PROMPT, sampling, seed=3)
    for _ in range(STEPS):
        drive.step(2, masks=masks_of((0,), LETTERS))
    assert drive.output(2) == oracle(PROMPT, sampling, STEPS, seed=3, allowed=LETTERS)


def test_a_mask_for_a_row_without_a_grammar_is_refused(runner: ModelRunner) -> None:
    drive = Drive(runner)
    drive.start(0, PROMPT, params("nothing", "greedy"))
    with pytest.raises(ValueError, match="mask"):
        drive.step(0, masks=masks_of((0,), LETTERS))


def test_a_sequence_without_the_past_it_needs_is_refused(runner: ModelRunner) -> None:
    drive = Drive(runner)
    drive.start(0, PROMPT, params("repetition", "greedy"))
    import msgspec

    drive._inits = [msgspec.structs.replace(drive._inits[0], history=None)]
    with pytest.raises(ValueError, match="past"):
        drive.step(0)


@pytest.mark.parametrize("draw", ["greedy", "drawn"])
def test_a_row_of_which_everything_is_forbidden_fails_alone(runner: ModelRunner, draw: str) -> None:
    nothing_left = SamplingParams(
        allowed_token_ids=(7,), bad_words_ids=((7,),), max_tokens=9, **DRAWS[draw]
    )
    drive = Drive(runner)
    drive.start(0, PROMPT, nothing_left)
    drive.start(1, PROMPT, params("all", draw), seed=1)
    result = drive.step(0, 1)
    assert (result.finite, result.tokens[0]) == ((False, True), FORBIDDEN)
    assert drive.output(1) == oracle(PROMPT, params("all", draw), 1, seed=1)


def test_a_broken_row_is_found_out_behind_a_mask(runner: ModelRunner) -> None:
    runner.model.table[61, 40] = torch.nan  # type: ignore[attr-defined]  # the table model's own
    drive = Drive(runner)
    drive.start(0, PROMPT, params("allowed", "drawn"))
    result = drive.step(0)
    assert (result.finite, result.tokens) == ((False,), (0,))


def test_ids_outside_the_vocabulary_are_nobodys(runner: ModelRunner) -> None:
    strange = SamplingParams(
        allowed_token_ids=(3, 4, VOCAB, 10**6), logit_bias={VOCAB + 5: 9.0}, max_tokens=9,
        bad_words_ids=((4, VOCAB), (VOCAB,)), min_tokens=1, stop_token_ids=(10**6,), temperature=0,
    )  # fmt: skip
    drive = Drive(runner)
    drive.start(0, PROMPT, strange)
    drive.run(0, steps=5)
    assert set(drive.output(0)) <= {3, 4}
