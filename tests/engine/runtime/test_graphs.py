"""Captured steps give the tokens of the eager path, whatever else is in the step.

The graphs' code runs here without a GPU (`rerun`): layouts, padding and who reads which logits are
the same there. test_runner_cuda.py has real graphs.
"""

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.rerun import RerunRecorder
from engine.runtime.test_runner_metamorphic import REQUESTS, Answer, Answers, Memory
from yaie.core.batch import Row
from yaie.runtime.graphs import mixed
from yaie.runtime.graphs.capture import STAND_INS
from yaie.runtime.graphs.mixed import CHUNKS, PADDING, MixedKey, _Layout, pack
from yaie.runtime.tensors.inputs import prepare_inputs


class Captured(Answers):
    """An engine whose steps are captured, as far as graphs hold them."""

    def __init__(self, *, put_off: bool = False, drafts: bool = False, **settings: object) -> None:
        super().__init__(**settings)
        runner = self.engine.runner
        self.recorder = RerunRecorder()
        runner.capture_with(self.recorder, max_mixed_tokens=128, drafts=drafts)
        assert runner.graphs is not None
        with torch.inference_mode():
            runner.warm_up(put_off=put_off)
        self.loop = self.engine.loop(self.port)

    @property
    def n_replays(self) -> int:
        return sum(graph.n_replays for graph in self.recorder.graphs)

    def replays(self, kind: str) -> int:
        graphs = self.engine.runner.graphs
        assert graphs is not None
        return sum(graph.graph.n_replays for graph in getattr(graphs, kind).captured.values())


@pytest.fixture(scope="module")
def captured() -> Captured:
    return Captured()


@pytest.fixture(scope="module")
def alone() -> dict[str, object]:
    """Each request's answer when nobody else runs, without graphs."""
    answers = Answers(enable_prefix_caching=False)
    return {name: answers.of({name: request})[name] for name, request in REQUESTS.items()}


def test_a_mixture_is_answered_as_if_each_were_alone_and_run_eagerly(
    captured: Captured, alone: dict[str, object]
) -> None:
    names = list(REQUESTS)
    for seed in range(3):
        random.Random(seed).shuffle(names)
        answers = captured.of({name: REQUESTS[name] for name in names})
        assert {name: answers[name] for name in REQUESTS} == alone
    assert captured.replays("decode") > 0
    assert captured.replays("mixed") > 0


def test_an_engine_with_its_main_graphs_alone_gives_the_same_answers(
    captured: Captured, alone: dict[str, object]
) -> None:
    partial = Captured(put_off=True)
    runner, every = partial.engine.runner, captured.engine.runner.graphs
    assert runner.graphs is not None
    assert every is not None
    assert len(runner.graphs.decode.captured) < len(every.decode.captured)
    answers = partial.of(REQUESTS)
    assert {name: answers[name] for name in REQUESTS} == alone
    assert partial.replays("decode") > 0
    assert partial.replays("mixed") > 0
    n_runs = partial.recorder.n_runs
    while runner.warm_up_next():
        continue
    assert partial.recorder.n_runs == n_runs, "nothing is left to compile"
    for kind in ("decode", "mixed"):
        assert set(getattr(runner.graphs, kind).captured) == set(getattr(every, kind).captured)


def test_main_graphs_hold_every_step_that_all_graphs_hold(captured: Captured) -> None:
    every = captured.engine.runner.graphs
    assert every is not None
    for graphs in (every.decode, every.mixed):
        main = [key for key in graphs.planned() if graphs.is_main(key)]
        for key in graphs.planned():
            assert any(
                other.rows >= key.rows
                and getattr(other, "tokens", 0) >= getattr(key, "tokens", 0)
                and other.tail in STAND_INS[key.tail]
                for other in main
            ), key


def test_small_chunks_beside_decodes_run_in_mixed_graphs(alone: dict[str, object]) -> None:
    captured = Captured(max_num_batched_tokens=24, enable_prefix_caching=False)
    before = captured.replays("mixed")
    plain = [name for name in REQUESTS if name != "scored"]
    answers = captured.of({name: REQUESTS[name] for name in plain})
    assert {name: answers[name] for name in plain} == {name: alone[name] for name in plain}
    assert captured.replays("mixed") - before >= 8


def test_a_step_with_more_prompts_than_a_graph_has_rows_runs_eagerly() -> None:
    rows = [Row(i, i, 0, 0, 2, (1, 2), True) for i in range(CHUNKS + 1)]
    tables = np.arange(4 * (CHUNKS + 1), dtype=np.int32).reshape(CHUNKS + 1, 4)
    captured = Captured(max_num_seqs=CHUNKS + 1)
    graphs = captured.engine.runner.graphs
    assert graphs is not None
    assert graphs.mixed.find(prepare_inputs(rows, tables, 16), "plain") is None
    assert graphs.mixed.find(prepare_inputs(rows[:-1], tables, 16), "plain") is not None


@pytest.mark.parametrize("depth", [0, 1])
def test_steps_with_drafts_run_in_graphs_and_give_the_same_answers(
    depth: int, alone: dict[str, Answer]
) -> None:
    captured = Captured(drafts=True)
    memory = Memory(
        [
            (*REQUESTS[name].prompt_token_ids, *tokens)
            for name, (outputs, _) in alone.items()
            for tokens in outputs.values()
        ]
    )
    captured.engine.scheduler.drafter = memory
    captured.engine.runner.depth = depth
    assert captured.of(REQUESTS) == alone
    assert memory.n_guesses > 20
    graphs = captured.engine.runner.graphs
    assert graphs is not None
    replays = [graph.graph.n_replays for key, graph in graphs.mixed.captured.items() if key.drafts]
    assert sum(replays) > 5


def test_more_drafts_than_chunks_fit_a_graph_and_without_its_kind_they_run_eagerly() -> None:
    """16 rows of 3 tokens each: a graph of 64 tokens has 32 such rows."""
    rows = [Row(i, i, 0, 4, 3, (1, 2, 3), True, n_draft=2) for i in range(CHUNKS + 4)]
    tables = np.arange(4 * len(rows), dtype=np.int32).reshape(len(rows), 4)
    arrays = prepare_inputs(rows, tables, 16)
    for drafts in (True, False):
        graphs = Captured(max_num_seqs=len(rows), drafts=drafts).engine.runner.graphs
        assert graphs is not None
        found = graphs.mixed.find(arrays, "plain")
        assert (found is not None) is drafts
        if found is not None:
            assert (found.key.tokens, found.key.tail) == (64, "logits")
            assert found.places(arrays).tolist() == list(range(3 * len(rows)))


@st.composite
def steps(draw: st.DrawFn) -> list[Row]:
    n_decode, n_chunks = draw(st.integers(0, 12)), draw(st.integers(0, CHUNKS))
    slots = draw(st.permutations(range(12 + CHUNKS)))
    rows = [Row(slot, slot, 0, draw(st.integers(0, 60)), 1, (), True) for slot in slots[:n_decode]]
    for slot in slots[n_decode : n_decode + n_chunks]:
        tokens = tuple(range(100, 100 + draw(st.integers(1, 5))))
        start = draw(st.integers(0, 50))
        rows.append(Row(slot, slot, 0, start, len(tokens), tokens, draw(st.booleans())))
    return rows


@given(steps())
def test_a_packed_step_says_what_the_step_says(rows: Sequence[Row]) -> None:
    tables = np.arange(40 * 28, dtype=np.int32).reshape(28, 40) % 997
    arrays = prepare_inputs(rows, tables, 4)
    size, max_num_seqs, scratch = 128, 16, 99
    layout = _Layout.of(size, max_num_seqs)
    buffer = pack(arrays, MixedKey(size, max_num_seqs, "plain"), scratch)
    n, tokens, chunks = arrays.n_decode, len(arrays.positions), arrays.n_chunks
    part = {name: buffer[where] for name, where in zip(layout._fields, layout, strict=True)}

    assert (part["ids"][:n] == PADDING).all()
    assert part["ids"][n:tokens].tolist() == arrays.ids.tolist()
    assert part["positions"][:tokens].tolist() == arrays.positions.tolist()
    assert part["slot_mapping"][:tokens].tolist() == arrays.slot_mapping.tolist()
    assert not part["slot_mapping"][tokens:].any(), "padding writes to the scratch page"
    assert (part["slots"][n:max_num_seqs] == scratch).all()
    assert (part["slots"][max_num_seqs + chunks :] == scratch).all()
    assert not part["seq_lens"][n:max_num_seqs].any()
    assert not part["seq_lens"][max_num_seqs + chunks :].any()

    starts = np.concatenate((part["decode_start"], part["chunk_start"]))
    assert (np.diff(part["decode_start"]) == [1] * n + [0] * (max_num_seqs - n)).all()
    counts = [row.n_tokens for row in rows[n:]] + [0] * (CHUNKS - chunks)
    assert np.diff(part["chunk_start"]).tolist() == counts
    assert starts.max(initial=0) <= tokens

    for number, row in enumerate(rows):
        place = number if number < n else max_num_seqs + number - n
        assert part["slots"][place] == row.slot
        assert part["seq_lens"][place] == row.start + row.n_tokens
        assert part["last"][place] == sum(other.n_tokens for other in rows[: number + 1]) - 1


def test_every_size_up_to_the_largest_finds_a_graph(captured: Captured) -> None:
    graphs = captured.engine.runner.graphs
    assert graphs is not None
    tables = captured.engine.runner.slots.host_tables
    for decodes in range(8):
        for length in (1, 2, 63, 64, 65, 110):
            rows = [Row(i, i, 0, 5, 1, (), True) for i in range(decodes)]
            rows.append(Row(7, 7, 0, 0, length, tuple(range(length)), True))
            arrays = prepare_inputs(rows, tables, 16)
            for tail in ("greedy", "plain", "filtered", "logits"):
                found = graphs.mixed.find(arrays, tail)
                if decodes + length <= max(
                    key.tokens for key in graphs.mixed.captured if key.tail == "plain"
                ) and tail in {"greedy", "plain"}:
                    assert found is not None
                if found is not None:
                    assert found.key.tokens >= decodes + length
                    assert found.key.rows >= decodes


def test_no_graph_is_larger_than_asked_for(captured: Captured) -> None:
    graphs = captured.engine.runner.graphs
    assert graphs is not None
    assert max(key.tokens for key in graphs.mixed.captured) == 128
    assert mixed.TOKENS[0] == min(key.tokens for key in graphs.mixed.captured)
