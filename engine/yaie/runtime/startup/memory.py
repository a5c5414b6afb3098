"""Computes the size of the KV cache: measured on a GPU, a fixed default on a CPU."""

import torch

from yaie.core.kv_cache.spec import KVSpec
from yaie.layers.attention import Segment, StepInput
from yaie.layers.options import TensorOptions
from yaie.models.model import DecoderModel
from yaie.runtime.host import usable_memory_bytes
from yaie.runtime.startup.preflight import Memory, host_memory
from yaie.runtime.tensors.kv_tensors import KVTensors
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import InvalidRequestError
from yaie_api.resource import capacity

LARGEST_SHARE = 0.95
"""Of a GPU's memory; above it, other programs and the driver have too little."""


def num_pages(
    config: EngineConfig,
    model: DecoderModel,
    spec: KVSpec,
    *,
    max_model_len: int,
    step_tokens: int,
    asked_len: int = 0,
) -> int:
    """Number of pages of the KV cache, the scratch page included. `asked_len`: the longest sequence
    that the user has asked for, in tokens; 0: it was left open.

    Raises:
        InvalidRequestError: there is no memory for a page.

    """
    if config.kv_cache_tokens is not None:
        pages = -(-config.kv_cache_tokens // spec.page_size)
    elif model.options.device.type == "cuda":
        pages = _measured_bytes(config, model, step_tokens) // spec.bytes_per_page
    else:
        pages = capacity.cpu_cache_pages(
            usable_memory_bytes(),
            spec.bytes_per_page,
            per_sequence=-(-max_model_len // spec.page_size),
            max_num_seqs=config.max_num_seqs or 1,
            at_least=-(-asked_len // spec.page_size),
        )
    if pages < 1:
        raise InvalidRequestError(
            "There is no memory left for the KV cache. Use a smaller model or a larger "
            "gpu_memory_utilization.",
            param="gpu_memory_utilization",
        )
    return pages + 1


def memory_for(config: EngineConfig, options: TensorOptions) -> Memory:
    """The memory that is free for a model, before it is loaded."""
    if options.device.type != "cuda":
        return host_memory(str(options.dtype).removeprefix("torch."))
    free, total = torch.cuda.mem_get_info(options.device)
    share = config.gpu_memory_utilization
    more = f"a --gpu-memory-utilization above {share:g}" if share < LARGEST_SHARE else ""
    return Memory(
        free_bytes=capacity.gpu_budget_bytes(free, total, share),
        where=f"on the GPU (with --gpu-memory-utilization {share:g})",
        item_bytes=options.dtype.itemsize,
        more=more,
    )


def num_host_pages(config: EngineConfig, spec: KVSpec) -> int:
    """Number of pages of host memory for preempted sequences."""
    return int(config.swap_space_gib * 2**30) // spec.bytes_per_page


def _measured_bytes(config: EngineConfig, model: DecoderModel, step_tokens: int) -> int:
    """Bytes for the KV cache: the configured share of the GPU's memory, without the weights, the
    activations of a step of maximum size, the graphs, and the tables for penalties and masks, which
    are allocated when a request first needs them.
    """
    device = model.options.device
    activations = _peak_activations(config, model, step_tokens)
    free, total = torch.cuda.mem_get_info(device)
    return capacity.gpu_cache_bytes(
        capacity.gpu_budget_bytes(free, total, config.gpu_memory_utilization),
        total,
        activations=activations,
        tables=capacity.table_bytes(config.max_num_seqs or 1, model.vocab_size),
    )


@torch.inference_mode()
def _peak_activations(config: EngineConfig, model: DecoderModel, step_tokens: int) -> int:
    """Run one prefill of `step_tokens` on a one-page cache and measure its peak, in bytes."""
    device = model.options.device
    kv = KVTensors(model.caches, 1, config.page_size, model.options)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    ids = torch.zeros(step_tokens, dtype=torch.int64, device=device)
    step = _one_row(step_tokens, config.page_size, kv, model.options)
    hidden = model.shortened().forward(ids, step)
    rows = min(config.max_num_seqs or 1, step_tokens)
    logits = model.logits(hidden[:rows])
    logits.float().max(dim=-1)
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    del kv, ids, hidden, logits
    torch.cuda.empty_cache()
    return peak


def _one_row(tokens: int, page_size: int, kv: KVTensors, options: TensorOptions) -> StepInput:
    """Inputs of a step with one sequence of `tokens` tokens, with only the scratch page."""
    device, pages = options.device, -(-tokens // page_size)
    positions = torch.arange(tokens, device=device)
    segment = Segment(
        first=0,
        last=tokens,
        block_tables=torch.zeros((1, pages), dtype=torch.int32, device=device),
        seq_lens=torch.tensor([tokens], dtype=torch.int32, device=device),
        query_start=torch.tensor([0, tokens], dtype=torch.int32, device=device),
        max_query_len=tokens,
        max_seq_len=tokens,
    )
    return StepInput(positions, positions % page_size, (segment,), kv.caches)
