"""The engine's configuration: one frozen object, filled by flags or keyword arguments.

Field names are vLLM's flag names where one exists. `runtime.factory` decides what is left open.
"""

from typing import Final, Literal

import msgspec

from yaie_api.errors import InvalidRequestError

Task = Literal["generate", "embed", "classify"]
ABILITIES: Final[dict[Task, str]] = {
    "generate": "generate text",
    "embed": "make embeddings",
    "classify": "classify texts",
}
"""What a model can be asked for, in words."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the engine process needs to know.

    Attributes:
        model: `builtin://NAME`, `hf://org/name[@revision]`, or a local folder.
        served_model_name: name that clients use; default derived from `model`.
        device: auto, cuda or cpu.
        dtype: auto, float32, bfloat16 or float16. auto: the checkpoint's own on a GPU, float32 on
            a CPU.
        max_model_len: longest sequence in tokens; None: the model's own limit.
        max_num_seqs: most sequences that run at once; None: chosen by device.
        max_num_batched_tokens: upper bound of the step budget; None: chosen by device.
        max_num_queued_reqs: requests that may wait; more are refused with 429.
        gpu_memory_utilization: share of the GPU's memory for weights, activations and KV cache.
        kv_cache_tokens: size of the KV cache in tokens; None: from memory (GPU) or a default (CPU).
        page_size: tokens in one KV page.
        swap_space_gib: host memory for the pages of preempted requests, in GiB; 0: they are
            computed again instead.
        scheduling_policy: order of the waiting queue: fcfs, priority, longest-prefix, or fair
            (tokens per tenant).
        request_timeout_s: a request that has not ended after this long ends with an error; None:
            no limit.
        enable_prefix_caching: keep finished sequences' pages for later prompts.
        load_format: auto (safetensors) or dummy (random weights, for benchmarks).
        model_impl: auto (native where there is one, otherwise transformers), yaie or transformers.
        mla_form: how DeepSeek's latent attention is computed: absorbed (auto), latent or naive.
        tokenizer: folder of the tokenizer, where it is not the model's.
        pooling: how embeddings are made of hidden states: last or mean; auto: as the checkpoint
            says, else last.
        max_logprobs: most log-probabilities that a request may ask for per token; -1: all.
        max_grammars: structured outputs compiled at the same time, each in a thread.
        enforce_eager: never capture CUDA graphs.
        seed: seed of dummy weights and of requests that bring none; None: random.
        step_time_target_s: prefill chunks are sized so that a step with decodes stays near this,
            unless prompts come in faster than that; None: chosen by device and model; inf: never.
        cpu_threads: torch threads on the CPU; None: cores - 1, at least 1.

    """

    model: str
    served_model_name: str | None = None
    revision: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_queued_reqs: int = 2048
    gpu_memory_utilization: float = 0.9
    kv_cache_tokens: int | None = None
    page_size: int = 16
    swap_space_gib: float = 0.0
    scheduling_policy: str = "fcfs"
    request_timeout_s: float | None = None
    enable_prefix_caching: bool = True
    load_format: str = "auto"
    model_impl: str = "auto"
    mla_form: str = "auto"
    tokenizer: str | None = None
    pooling: str = "auto"
    max_logprobs: int = 20
    max_grammars: int = 2
    enforce_eager: bool = False
    seed: int | None = None
    step_time_target_s: float | None = None
    cpu_threads: int | None = None


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine tells the HTTP process once the model is loaded. Sizes in bytes or tokens.

    `implementation`: native, paged transformers, or transformers. `tasks`: what it can be asked
    for. `tokenizer_path`: folder of the tokenizer. `pooling`: how
    embeddings are made. `num_labels`: classes of a sequence classifier.
    """

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
    implementation: str = "native"
    tasks: tuple[Task, ...] = ("generate", "embed")
    tokenizer_path: str = ""
    hidden_size: int = 0
    num_labels: int = 0
    pooling: str = "last"
    max_logprobs: int = 20

    def require(self, task: Task) -> None:
        """Raise InvalidRequestError for a task that the model has no head for; it says what the
        model can do.
        """
        if task not in self.tasks:
            able = " and ".join(ABILITIES[one] for one in self.tasks)
            raise InvalidRequestError(
                f"This model cannot {ABILITIES[task]}; it can {able}.",
                param="model",
                code="task_not_supported",
            )
