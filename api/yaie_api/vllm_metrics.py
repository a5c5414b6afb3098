"""vLLM's metrics, 0.22: which of ours is shown under which of its names, and which are missing.

`yaie serve --enable-vllm-metrics` shows them beside ours, for dashboards, scalers and load tools
that know vLLM's. Types and labels are vLLM's; the buckets of histograms are ours.
"""

from typing import Final

from yaie_api import metrics
from yaie_api.metrics import Metric

LABELS: Final = ("model_name", "engine")
ENGINE: Final = "0"
"""Value of `engine`: vLLM numbers its data-parallel engines; here a server has one."""

SHOWN: Final[dict[str, Metric]] = {
    "vllm:num_requests_running": metrics.ENGINE_RUNNING,
    "vllm:num_requests_waiting": metrics.ENGINE_WAITING,
    "vllm:kv_cache_usage_perc": metrics.ENGINE_KV_UTILIZATION,
    "vllm:num_preemptions_total": metrics.ENGINE_PREEMPTIONS,
    "vllm:prefix_cache_queries_total": metrics.ENGINE_PROMPT_TOKENS,
    "vllm:prefix_cache_hits_total": metrics.ENGINE_CACHED_PROMPT_TOKENS,
    "vllm:prompt_tokens_total": metrics.ENGINE_PROMPT_TOKENS,
    "vllm:prompt_tokens_cached_total": metrics.ENGINE_CACHED_PROMPT_TOKENS,
    "vllm:generation_tokens_total": metrics.ENGINE_GENERATED_TOKENS,
    "vllm:request_success_total": metrics.ENGINE_GENERATIONS,
    "vllm:time_to_first_token_seconds": metrics.ENGINE_TTFT,
    "vllm:inter_token_latency_seconds": metrics.ENGINE_ITL,
    "vllm:e2e_request_latency_seconds": metrics.ENGINE_E2E,
    "vllm:request_queue_time_seconds": metrics.ENGINE_QUEUE,
    "vllm:request_prefill_time_seconds": metrics.ENGINE_PREFILL,
    "vllm:request_decode_time_seconds": metrics.ENGINE_DECODE,
    "vllm:request_prompt_tokens": metrics.ENGINE_PROMPT_LENGTH,
    "vllm:request_generation_tokens": metrics.ENGINE_OUTPUT_LENGTH,
}
"""Ours, by vLLM's name."""

CACHE_CONFIG: Final = Metric(
    "vllm:cache_config_info",
    "gauge",
    "1, with the size and the number of KV pages as labels.",
    ("engine", "block_size", "num_gpu_blocks"),
)

FINISHED: Final = ("finish_reason", "finished_reason")
"""The one label that both have: our name for it, and vLLM's."""
REASONS: Final = {"tool_calls": "stop"}
"""Reasons that vLLM counts under another one."""

MISSING: Final[dict[str, str]] = {
    "vllm:request_inference_time_seconds": "the sum of prefill and decode time",
    "vllm:request_time_per_output_token_seconds": "use vllm:inter_token_latency_seconds",
    "vllm:iteration_tokens_total": "steps are counted, not measured one by one",
    "vllm:request_params_n": "parameters of requests are not measured",
    "vllm:request_params_max_tokens": "parameters of requests are not measured",
    "vllm:request_max_num_generation_tokens": "parameters of requests are not measured",
    "vllm:request_prefill_kv_computed_tokens": "the prompt tokens less the cached ones",
    "vllm:prompt_tokens_by_source_total": "use prompt_tokens_total and prompt_tokens_cached_total",
    "vllm:num_requests_waiting_by_reason": "use vllm:num_requests_waiting",
    "vllm:corrupted_requests_total": 'use vllm:request_success_total{finished_reason="error"}',
    "vllm:lora_requests_info": "there are no adapters",
    "vllm:engine_sleep_state": "engines do not sleep",
    "vllm:spec_decode_*": "drafts have no metrics",
    "vllm:external_prefix_cache_*": "there is no external cache",
    "vllm:mm_cache_*": "models read text only",
    "vllm:kv_block_*": "the life of single pages is not measured",
}
"""What vLLM has and is not shown, and why, or what to use."""
