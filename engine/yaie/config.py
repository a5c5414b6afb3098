"""The engine's configuration: one frozen object, filled by flags or keyword arguments.

Field names are vLLM's flag names where one exists. `runtime.factory` decides what is left open.
"""

import msgspec


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the engine process needs to know.

    Attributes:
        model: `builtin://NAME`, `hf://org/name[@revision]`, or a local folder.
        served_model_name: name that clients use; default derived from `model`.
        device: auto, cuda or cpu.
        dtype: auto, float32, bfloat16 or float16. auto: the checkpoint's own on a GPU, float32 on
            a CPU.
        max_model_len: longest sequence in tokens; None: the model's own limit.
        max_num_seqs: most sequences that run at once.
        max_num_batched_tokens: upper bound of the step budget; None: chosen by device.
        max_num_queued_reqs: requests that may wait; more are refused with 429.
        gpu_memory_utilization: share of the GPU's memory for weights, activations and KV cache.
        kv_cache_tokens: size of the KV cache in tokens; None: from memory (GPU) or a default (CPU).
        page_size: tokens in one KV page.
        enable_prefix_caching: keep finished sequences' pages for later prompts.
        load_format: auto (safetensors) or dummy (random weights, for benchmarks).
        enforce_eager: never capture CUDA graphs.
        seed: seed of dummy weights and of requests that bring none; None: random.
        step_time_target_s: prefill chunks are sized so that a step with decodes stays near this.
        cpu_threads: torch threads on the CPU; None: cores - 1, at least 1.

    """

    model: str
    served_model_name: str | None = None
    revision: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None
    max_num_queued_reqs: int = 2048
    gpu_memory_utilization: float = 0.9
    kv_cache_tokens: int | None = None
    page_size: int = 16
    enable_prefix_caching: bool = True
    load_format: str = "auto"
    enforce_eager: bool = False
    seed: int | None = None
    step_time_target_s: float = 0.05
    cpu_threads: int | None = None


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine tells the HTTP process once the model is loaded. Sizes in bytes or tokens."""

    served_model_name: str
    path: str
    architecture: str
    parameters: int
    weight_bytes: int
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    kv_pages: int
    page_size: int
    device: str
    dtype: str
