"""The arithmetic of a model's memory: how much of it the KV cache gets, and how many tokens that
holds. Pure: bytes and tokens. The engine sizes its cache with it, and `yaie plan` tells the same
figures before anything is loaded.
"""

from typing import Final

DTYPE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
GRAPH_SHARE: Final = 0.025
"""Share of the GPU's memory that is reserved for captured graphs and their activations."""
LOGIT_MASKS: Final = 3
"""Bit masks over the vocabulary that each sequence may have."""
CPU_CACHE_BYTES: Final = 2**30
CPU_CACHE_SHARE: Final = 0.25
"""On a CPU the cache takes at most this share of the memory, so that small containers can run."""
LARGE_GPU_BYTES: Final = 70 * 2**30
MAX_NUM_SEQS: Final = 256
LARGE_GPU_MAX_NUM_SEQS: Final = 1024
"""Defaults of max_num_seqs, as in vLLM; the larger one for GPUs with at least LARGE_GPU_BYTES."""


def gpu_budget_bytes(free_bytes: int, total_bytes: int, utilization: float) -> int:
    """What a model may still take of a GPU: what is free, without the share that is left alone."""
    return max(0, free_bytes - int(total_bytes * (1.0 - utilization)))


def gpu_cache_bytes(budget_bytes: int, total_bytes: int, *, activations: int, tables: int) -> int:
    """What the KV cache gets of the budget that is left beside the weights; at most 0: nothing.

    `activations`: of a step of maximum size. `tables`: for penalties and masks.
    """
    return budget_bytes - activations - tables - int(GRAPH_SHARE * total_bytes)


def table_bytes(max_num_seqs: int, vocab_size: int) -> int:
    """Device memory of the tables that grow with the vocabulary: counts of tokens and bit masks."""
    return (max_num_seqs + 1) * (vocab_size * 4 + LOGIT_MASKS * -(-vocab_size // 32) * 4)


def default_max_num_seqs(gpu_bytes: int) -> int:
    """How many sequences run at once if nobody says it. `gpu_bytes`: 0 on a CPU."""
    return LARGE_GPU_MAX_NUM_SEQS if gpu_bytes >= LARGE_GPU_BYTES else MAX_NUM_SEQS


def cpu_cache_pages(
    memory_bytes: int, page_bytes: int, *, per_sequence: int, max_num_seqs: int, at_least: int = 0
) -> int:
    """Pages of the KV cache on a CPU, where nothing is measured: at most what all sequences fill.

    `memory_bytes`: of the machine or the container. `per_sequence`: pages of the longest sequence.
    `at_least`: pages of the longest sequence that the user has asked for.
    """
    cache_bytes = min(CPU_CACHE_BYTES, int(memory_bytes * CPU_CACHE_SHARE))
    return max(min(cache_bytes // page_bytes, per_sequence * max_num_seqs), at_least)


def max_concurrency(kv_tokens: int, max_model_len: int) -> float:
    """Number of sequences of `max_model_len` tokens that the KV cache holds at once."""
    return kv_tokens / max_model_len
