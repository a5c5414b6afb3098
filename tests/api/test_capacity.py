"""Memory arithmetic: what the KV cache gets, on a GPU and on a CPU."""

import pytest

from yaie_api.resource import capacity

GIB = 2**30


def test_a_gpu_leaves_its_share_alone() -> None:
    assert capacity.gpu_budget_bytes(80 * GIB, 80 * GIB, 0.75) == 60 * GIB
    assert capacity.gpu_budget_bytes(70 * GIB, 80 * GIB, 0.75) == 50 * GIB
    assert capacity.gpu_budget_bytes(10 * GIB, 80 * GIB, 0.75) == 0


def test_the_cache_gets_what_activations_tables_and_graphs_leave() -> None:
    left = capacity.gpu_cache_bytes(40 * GIB, 80 * GIB, activations=2 * GIB, tables=GIB)
    assert left == (40 - 2 - 1 - 2) * GIB
    assert capacity.gpu_cache_bytes(GIB, 80 * GIB, activations=GIB, tables=0) < 0


def test_tables_hold_a_count_and_three_bits_for_each_token() -> None:
    assert capacity.table_bytes(255, 32_000) == 256 * (32_000 * 4 + 3 * 1000 * 4)


@pytest.mark.parametrize(("gpu_gib", "sequences"), [(0, 256), (24, 256), (69, 256), (80, 1024)])
def test_large_gpus_run_more_sequences(gpu_gib: int, sequences: int) -> None:
    assert capacity.default_max_num_seqs(gpu_gib * GIB) == sequences


def test_a_cpu_takes_a_quarter_of_small_memory_and_at_most_a_gib() -> None:
    sizes = {"per_sequence": 10_000, "max_num_seqs": 10_000}
    assert capacity.cpu_cache_pages(2 * GIB, 2**20, **sizes) == 512
    assert capacity.cpu_cache_pages(64 * GIB, 2**20, **sizes) == 1024


def test_a_cpu_keeps_no_pages_that_no_sequence_could_fill() -> None:
    assert capacity.cpu_cache_pages(64 * GIB, 2**20, per_sequence=8, max_num_seqs=4) == 32


def test_a_length_that_was_asked_for_has_its_pages_on_a_cpu() -> None:
    pages = capacity.cpu_cache_pages(GIB, 2**20, per_sequence=4096, max_num_seqs=256, at_least=4096)
    assert pages == 4096


def test_concurrency_is_in_sequences_of_full_length() -> None:
    assert capacity.max_concurrency(4096, 1024) == 4.0
