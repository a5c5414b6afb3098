"""vLLM's settings that are not ours: `vllm serve --help` and `LLM(...)` of 0.22, and what earlier
versions had. Those that are ours have vLLM's names and stand in `engine_config` and `serve_flags`.
"""

import json
from typing import Any, Final

from yaie_api.foreign_settings.verdict import SWITCH, Foreign, settings, table

ONE_GPU: Final = (
    "An engine runs on one GPU: larger models do not run yet, and more GPUs are replicas of the "
    "model behind the router (spec.replicas)."
)
REPLICAS: Final = (
    "There are no ranks of an engine: write replicas of the model, which the router puts behind "
    "one address."
)
EXPERTS: Final = "All experts of a model are on its engine's one GPU, so nothing is spread."
LORA: Final = "LoRA adapters are not served yet: merge the adapter into its base model."
TEXT_ONLY: Final = "Models get text only: there is nothing to set for images, audio or video."
REMOTE_CODE: Final = (
    "Code of a checkpoint is never run: leave the flag out, and the model runs where yaie or "
    "transformers has its architecture."
)
QUANTIZED: Final = (
    "Weights are float32, bfloat16 or float16 safetensors and are neither read quantized nor "
    "quantized yet: name the unquantized model."
)
SPECULATION: Final = "There is no speculative decoding yet: leave it out, outputs are the same."
KERNELS: Final = (
    "Kernels are chosen by device and operation: set the environment variable YAIE_KERNELS."
)
GRAPHS: Final = (
    "CUDA graphs and compiled kernels size themselves: write --enforce-eager to have no graphs."
)
LOADING: Final = "Weights are read from safetensors, each tensor once: nothing is set about it."
TRUSTED: Final = "Nothing is imported into the server from outside its package."
MAMBA: Final = "Models with a state run as transformers runs them: nothing is set about the state."
OFFLOAD: Final = (
    "Weights and prefixes stay on the GPU; --swap-space-gib gives preempted requests' pages "
    "host memory."
)
CHUNKS: Final = "Prefill is always chunked: --step-time-target-s sets how long a step may take."
TRANSFER: Final = "KV caches do not move between engines: the router sends prompts where they are."
TELEMETRY: Final = "Traces have the times of all requests: write --otlp-traces-endpoint."
MEASURED: Final = "What is measured is fixed: see /metrics."
STATS: Final = "Statistics are metrics, never log lines."
TLS: Final = "The server speaks plain HTTP: end TLS in a proxy or an ingress in front of it."
LOG_LEVEL: Final = "One level holds for all that is logged: write --log-level."
TOKENIZER: Final = "The tokenizer is tokenizer.json of the model's folder, or of --tokenizer."
OVERRIDES: Final = "The checkpoint's config.json holds: change it in a copy of the folder."
POOLER: Final = 'Embeddings are made as the checkpoint says: write --pooling "last" or "mean".'
STRUCTURED: Final = "Structured outputs are always compiled by llguidance."
REMOVED: Final = "vLLM has removed this setting, and there is nothing like it here: leave it out."
TASKS: Final = "An engine answers every task that its model can do: nothing is chosen."
REQUESTS_LOG: Final = (
    "Requests are not logged; --log-prompts logs prompts and outputs, which may be private."
)


def _pooling(given: Any) -> str:
    """Our `pooling` from vLLM's pooler configuration, as JSON or as a mapping."""
    config = json.loads(given) if isinstance(given, str) else dict(given)
    kinds = [config.pop(name) for name in ("pooling_type", "seq_pooling_type") if name in config]
    if config or len(kinds) != 1 or kinds[0] not in ("LAST", "MEAN"):
        raise ValueError(given)
    return str(kinds[0]).lower()


def _eager(given: Any) -> bool:
    """Whether an optimization level has no CUDA graphs."""
    if str(given) != "0":
        raise ValueError(given)
    return True


SHORT: Final = {
    "quantization": "-q", "pipeline_parallel_size": "-pp", "nnodes": "-n", "node_rank": "-r",
    "tensor_parallel_size": "-tp", "decode_context_parallel_size": "-dcp",
    "prefill_context_parallel_size": "-pcp", "data_parallel_size": "-dp",
    "data_parallel_rank": "-dpn", "data_parallel_start_rank": "-dpr",
    "data_parallel_size_local": "-dpl", "data_parallel_address": "-dpa",
    "data_parallel_rpc_port": "-dpp", "data_parallel_backend": "-dpb",
    "data_parallel_hybrid_lb": "-dph", "data_parallel_external_lb": "-dpe",
    "data_parallel_multi_port_external_lb": "-dpm", "enable_expert_parallel": "-ep",
    "speculative_config": "-sc", "compilation_config": "-cc", "attention_config": "-ac",
    "optimization_level": "-O",
}  # fmt: skip
SEVERAL: Final = frozenset({
    "allowed_media_domains", "logits_processors", "numa_bind_nodes", "numa_bind_cpus",
    "kv_cache_dtype_skip_layers", "cpu_offload_params", "offload_params", "lora_target_modules",
    "collect_detailed_traces", "cudagraph_capture_sizes", "lora_modules", "ignore_patterns",
    "prompt_adapters", "long_lora_scaling_factors",
})  # fmt: skip

VLLM: Final = table(
    # -- where and on how many devices ------------------------------------------------------
    settings(
        ONE_GPU, tensor_parallel_size=1, pipeline_parallel_size=1, decode_context_parallel_size=1,
        prefill_context_parallel_size=1, distributed_executor_backend=("mp", "uni"), nnodes=1,
        node_rank=0, headless=False, ubatch_size=0, enable_dbo=False,
    ),
    settings(
        "It matters to engines on several GPUs, and an engine has one.", master_addr=None,
        master_port=None, distributed_timeout_seconds=None, cpu_distributed_timeout_seconds=None,
        dcp_comm_backend=None, dcp_kv_cache_interleave_size=None, cp_kv_cache_interleave_size=None,
        dbo_decode_token_threshold=None, dbo_prefill_token_threshold=None,
        disable_nccl_for_dp_synchronization=SWITCH, disable_custom_all_reduce=SWITCH,
        aggregate_engine_logging=SWITCH, data_parallel_backend=None,
        data_parallel_supervisor_port=None, dp_supervisor_probe_interval_s=None,
        dp_supervisor_probe_timeout_s=None, dp_supervisor_probe_failure_threshold=None,
    ),
    settings(
        REPLICAS, data_parallel_size=1, data_parallel_rank=(), data_parallel_start_rank=(),
        data_parallel_size_local=1, data_parallel_address=(), data_parallel_rpc_port=(),
        data_parallel_hybrid_lb=False, data_parallel_external_lb=False,
        data_parallel_multi_port_external_lb=False,
    ),
    settings(
        EXPERTS, enable_expert_parallel=False, enable_ep_weight_filter=False, all2all_backend=None,
        enable_elastic_ep=False, enable_eplb=False, eplb_config=None,
        expert_placement_strategy=None,
    ),
    settings(
        "Processes are placed by what starts them: use numactl, or Kubernetes' CPU manager.",
        numa_bind=False, numa_bind_nodes=(), numa_bind_cpus=(),
    ),
    # -- the model and its files ------------------------------------------------------------
    settings("The model is the argument itself: yaie serve MODEL.", model=()),
    settings(TASKS, runner=("auto", "generate", "pooling"), convert=("auto", "none", "embed")),
    settings(REMOTE_CODE, trust_remote_code=False, code_revision=()),
    settings(QUANTIZED, quantization=("none", ""), quantization_config=()),
    settings(QUANTIZED, allow_deprecated_quantization=SWITCH),
    settings(
        OVERRIDES, hf_overrides="{}", hf_config_path=(), config_format=("auto", "hf"),
        disable_sliding_window=False, override_attention_dtype=(),
    ),
    settings(
        TOKENIZER, tokenizer_mode=("auto", "hf"), tokenizer_revision=(), skip_tokenizer_init=False,
    ),
    settings("Set the environment variable HF_TOKEN to the hub's token.", hf_token=()),
    settings("Set HF_HOME to the folder that models are downloaded to.", download_dir=()),
    settings(
        LOADING, safetensors_load_strategy=None, safetensors_prefetch_num_threads=None,
        safetensors_prefetch_block_size=None, max_parallel_loading_workers=None,
        use_tqdm_on_load=SWITCH, pt_load_map_location=None, model_loader_extra_config="{}",
        ignore_patterns=None, model_weights="",
    ),
    settings(
        "Sampling defaults are the checkpoint's: write them into its generation_config.json, or "
        "into each request.",
        override_generation_config="{}",
    ),
    settings("Weights cannot be replaced while an engine runs.", weight_transfer_config=()),
    settings(
        "An engine keeps its memory while it runs: let the operator scale the model to zero.",
        enable_sleep_mode=False, enable_cumem_allocator=False,
    ),
    settings(
        TRUSTED, logits_processors=(), io_processor_plugin=(), reasoning_parser_plugin="",
        tool_parser_plugin="", worker_cls="auto", worker_extension_cls="", scheduler_cls=(),
        middleware=(), additional_config="{}",
    ),
    [Foreign("pooler_config", POOLER, ("{}",), ours="pooling", convert=_pooling)],
    # -- outputs ----------------------------------------------------------------------------
    settings(
        "Log-probabilities are the model's own, before anything of the request changes them.",
        logprobs_mode="raw_logprobs",
    ),
    settings(
        "Tokens are drawn on the device from float32, and a seed repeats them.",
        use_fp64_gumbel=False,
    ),
    settings(
        "Answers tell tokens and log-probabilities only.", enable_return_routed_experts=False,
    ),
    settings("Prompts are texts or token ids.", enable_prompt_embeds=False),
    settings(STRUCTURED, structured_outputs_config="{}"),
    settings(
        "Reasoning is as long as the model makes it: bound it by max_tokens of the request.",
        reasoning_config=(),
    ),
    settings(
        "Every token is sent as soon as it is there, together with those that waited.",
        stream_interval=1,
    ),
    # -- attention, kernels, graphs ---------------------------------------------------------
    settings(
        KERNELS, attention_backend=("auto",), attention_config="{}", kernel_config="{}",
        moe_backend="auto", linear_backend="auto", ir_op_priority="{}",
        enable_flashinfer_autotune=False, gdn_prefill_backend=(),
    ),
    settings("No kernel is a cascade over shared prefixes.", disable_cascade_attn=SWITCH),
    settings(
        GRAPHS, compilation_config="{}", cudagraph_capture_sizes=(), max_cudagraph_capture_size=(),
    ),
    [Foreign("optimization_level", GRAPHS, (1, 2, 3), ours="enforce_eager", convert=_eager)],
    settings(
        "What steps favour is set by --step-time-target-s and --max-num-batched-tokens.",
        performance_mode="balanced",
    ),
    settings(
        MAMBA, mamba_backend=None, mamba_cache_philox_rounds=0, mamba_block_size=None,
        enable_mamba_cache_stochastic_rounding=False, mamba_cache_dtype="auto",
        mamba_ssm_cache_dtype="auto", mamba_cache_mode="none", mamba_config="{}",
    ),
    # -- the KV cache and the memory --------------------------------------------------------
    settings(
        "The KV cache is counted in tokens: write --kv-cache-tokens.", kv_cache_memory_bytes=(),
    ),
    settings(
        "Write --kv-cache-tokens with the number of blocks times --page-size.",
        num_gpu_blocks_override=(),
    ),
    settings(
        "The KV cache has the type of the weights: choose it by --dtype.", kv_cache_dtype="auto",
        calculate_kv_scales=False, kv_cache_dtype_skip_layers=(),
    ),
    settings("Prefixes are found by their tokens, without a hash.", prefix_caching_hash_algo=None),
    settings(
        "Every layer of a model is computed for every token.", kv_sharing_fast_prefill=False,
    ),
    settings(
        OFFLOAD, kv_offloading_size=0, kv_offloading_backend=None, offload_backend="auto",
        cpu_offload_gb=0, cpu_offload_params=(), offload_group_size=0, offload_num_in_group=None,
        offload_prefetch_step=None, offload_params=(),
    ),
    settings(
        "Each kind of layer has the pages that it needs.", disable_hybrid_kv_cache_manager=SWITCH,
    ),
    settings(
        TRANSFER, kv_transfer_config=(), ec_transfer_config=(), tokens_only=False,
    ),
    settings("Engines publish no KV events: the router knows what it sent.", kv_events_config=()),
    # -- the scheduler ----------------------------------------------------------------------
    settings(
        CHUNKS, enable_chunked_prefill=True, max_num_partial_prefills=1,
        max_long_partial_prefills=1, long_prefill_token_threshold=0,
    ),
    settings(
        "A request is admitted when its pages are there.", scheduler_reserve_full_isl=SWITCH,
    ),
    settings("Steps always overlap with their preparation.", async_scheduling=True),
    settings(SPECULATION, speculative_config=(), spec_method=(), spec_model=(), spec_tokens=0),
    # -- adapters and media -----------------------------------------------------------------
    settings(LORA, enable_lora=False, lora_modules=()),
    settings(
        LORA, max_loras=None, max_lora_rank=None, lora_dtype=None, max_cpu_loras=None,
        fully_sharded_loras=SWITCH, lora_target_modules=None, enable_tower_connector_lora=SWITCH,
        specialize_active_lora=SWITCH, enable_mixed_moe_lora_format=SWITCH, default_mm_loras=(),
    ),
    settings(
        TEXT_ONLY, allowed_local_media_path="", allowed_media_domains=None,
        language_model_only=SWITCH, limit_mm_per_prompt=None, enable_mm_embeds=False,
        media_io_kwargs=None, mm_processor_kwargs=None, mm_processor_cache_gb=None,
        mm_processor_cache_type=None, mm_shm_cache_max_object_size_mb=None, mm_encoder_only=False,
        mm_encoder_tp_mode=None, mm_encoder_attn_backend=None, mm_encoder_attn_dtype=None,
        mm_encoder_fp8_scale_path=None, mm_encoder_fp8_scale_save_path=None,
        mm_encoder_fp8_scale_save_margin=None, interleave_mm_strings=SWITCH,
        skip_mm_profiling=SWITCH, video_pruning_rate=None, mm_tensor_ipc=None,
        disable_chunked_mm_input=SWITCH, enable_mm_processor_stats=False,
        enable_flash_late_interaction=SWITCH,
    ),
    # -- what is seen from outside ----------------------------------------------------------
    settings(STATS, disable_log_stats=True, enable_logging_iteration_details=False),
    settings(TELEMETRY, collect_detailed_traces=()),
    settings(
        MEASURED, show_hidden_metrics_for_version=(), kv_cache_metrics=False,
        kv_cache_metrics_sample=None, cudagraph_metrics=False, enable_mfu_metrics=False,
        enable_layerwise_nvtx_tracing=False,
    ),
    settings(
        "Profile the process from outside, for example with nsys.", profiler_config="{}",
        ray_workers_use_nsight=False,
    ),
    settings(
        "Environment variables of other programs are not read.", fail_on_environ_validation=SWITCH,
    ),
    settings(REQUESTS_LOG, enable_log_requests=False, enable_log_outputs=False),
    settings(REQUESTS_LOG, enable_log_deltas=SWITCH, max_log_len=None),
    settings(LOG_LEVEL, uvicorn_log_level="info", log_config_file=(), log_error_stack=False),
    settings(
        "There is no access log.", disable_uvicorn_access_log=True,
        disable_access_log_for_endpoints=None,
    ),
    # -- the HTTP server --------------------------------------------------------------------
    settings("Write the settings as flags: there is no file of them.", config=()),
    settings("The server speaks HTTP only.", grpc=False),
    settings("The server listens at an address: write --host and --port.", uds=()),
    settings(
        TLS, ssl_keyfile=(), ssl_certfile=(), ssl_ca_certs=(), enable_ssl_refresh=False,
        ssl_cert_reqs=0, ssl_ciphers=(),
    ),
    settings("Paths begin at /: let the proxy cut its prefix off.", root_path=("", "/")),
    settings("Every answer has the header x-request-id.", enable_request_id_headers=True),
    settings(
        "/docs and /openapi.json are static files of the server.", disable_fastapi_docs=False,
        enable_offline_docs=SWITCH,
    ),
    settings(
        "Sizes of requests and their headers are bounded.", h11_max_incomplete_event_size=None,
        h11_max_header_count=None,
    ),
    settings(
        "Usage always tells the cached tokens of the prompt.", enable_prompt_tokens_details=True,
    ),
    settings("GET /load is always there.", enable_server_load_tracking=SWITCH),
    settings("GET /tokenizer_info is always there.", enable_tokenizer_info_endpoint=True),
    settings(
        "A stream tells its usage where the request has stream_options.include_usage.",
        enable_force_include_usage=False,
    ),
    settings(
        "Write return_tokens_as_token_ids into the request.", return_tokens_as_token_ids=False,
    ),
    settings("Answers are the assistant's.", response_role="assistant"),
    settings(
        "The form of a message's content is read from the chat template.",
        chat_template_content_format="auto",
    ),
    settings(
        "A template comes from the model or from --chat-template, never from a request.",
        trust_request_chat_template=False,
    ),
    settings(
        "Write chat_template_kwargs into the request.", default_chat_template_kwargs="{}",
    ),
    settings(
        "With tool_choice none the prompt tells no tools.",
        exclude_tools_when_tool_choice_none=True,
    ),
    settings("The server calls no tools itself: its clients do.", tool_server=()),
    settings("Prompts are read in the HTTP processes: write --api-server-count.",
             renderer_num_workers=1),
    settings(
        "Answers have no system_fingerprint.", fingerprint_mode="none", fingerprint_value=(),
    ),
    # -- what earlier versions had ----------------------------------------------------------
    settings(TASKS, task=("auto", "generate", "embed", "embedding")),
    settings(GRAPHS, max_seq_len_to_capture=None),
    settings(
        STRUCTURED, guided_decoding_backend=("auto", "guidance"),
        guided_decoding_disable_fallback=SWITCH, guided_decoding_disable_any_whitespace=False,
        guided_decoding_disable_additional_properties=False,
    ),
    settings(REQUESTS_LOG, disable_log_requests=True),
    settings(
        REMOVED, use_v2_block_manager=SWITCH, num_scheduler_steps=1, preemption_mode=(),
        multi_step_stream_outputs=SWITCH, scheduler_delay_factor=0, num_lookahead_slots=0,
        disable_async_output_proc=SWITCH, tokenizer_pool_size=0, tokenizer_pool_type=None,
        tokenizer_pool_extra_config=(), disable_frontend_multiprocessing=SWITCH,
        enable_prompt_adapter=False, prompt_adapters=(), worker_use_ray=False,
    ),
    settings(
        "Reasoning is read as the chat template says, or by --reasoning-parser.",
        enable_reasoning=SWITCH,
    ),
    settings(OVERRIDES, rope_scaling=(), rope_theta=()),
    settings(
        SPECULATION, speculative_model=(), num_speculative_tokens=0, ngram_prompt_lookup_max=(),
        ngram_prompt_lookup_min=(),
    ),
    settings(
        LORA, lora_extra_vocab_size=None, long_lora_scaling_factors=None, enable_lora_bias=False,
    ),
    settings(TEXT_ONLY, disable_mm_preprocessor_cache=SWITCH),
    [Foreign("override_pooler_config", POOLER, ("{}",), ours="pooling", convert=_pooling)],
    short=SHORT,
    several=SEVERAL,
)  # fmt: skip
"""By name. What stands at a name is harmless there; see `settings`."""
