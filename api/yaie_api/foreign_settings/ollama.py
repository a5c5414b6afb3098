"""Ollama's settings and how its users name models: flags of `ollama run`, parameters of a
Modelfile, environment variables of `ollama serve`, and names of models.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from yaie_api.foreign_settings.ollama_models import hub_name
from yaie_api.foreign_settings.verdict import SWITCH, Foreign, settings, table

PER_REQUEST: Final = "It belongs to each request: clients send it, with OpenAI's or vLLM's name."
HIDDEN: Final = "A terminal shows it in `yaie chat`, which talks to the server."
OFFLOADED: Final = "A model is on the GPU as a whole, or on the CPU: write --device."
LOADED: Final = "The model stays loaded while the server runs."

OLLAMA: Final = table(
    [
        Foreign("num_ctx", "Write --max-model-len.", ours="max_model_len"),
        Foreign("num_thread", "Write --cpu-threads.", ours="cpu_threads"),
        Foreign("ctx_size", "Write --max-model-len.", ours="max_model_len"),
    ],
    settings("Clients send max_tokens with each request.", num_predict=()),
    settings("Clients send repetition_penalty with each request.", repeat_penalty=(1,)),
    settings(
        PER_REQUEST, temperature=(), top_k=(), top_p=(), min_p=(), stop=(), format=(),
        think=(), presence_penalty=0, frequency_penalty=0,
    ),
    settings(
        "This way of sampling is not there: use temperature, top_p, top_k and min_p of requests.",
        mirostat=0, mirostat_eta=None, mirostat_tau=None, tfs_z=1, typical_p=1, repeat_last_n=(),
        penalize_newline=SWITCH,
    ),
    settings(OFFLOADED, num_gpu=(-1, 999), main_gpu=0, low_vram=False),
    settings("Write --max-num-batched-tokens.", num_batch=()),
    settings(
        "Where the prompt does not fit, a request is refused: nothing is cut off.", num_keep=None,
        truncate=False,
    ),
    settings("Weights are read into memory once.", use_mmap=SWITCH, use_mlock=SWITCH,
             f16_kv=SWITCH, numa=False),
    settings(LOADED, keepalive=(-1, "-1m"), keep_alive=(-1, "-1m")),
    settings(HIDDEN, verbose=False, nowordwrap=SWITCH, hidethinking=SWITCH),
    settings("The hub is asked over TLS only.", insecure=False),
    short={},
)  # fmt: skip
"""By name; `_` in it is `-` in a flag."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "OLLAMA_HOST": "write --host and --port",
    "OLLAMA_MODELS": "HF_HOME names the folder of downloaded models",
    "OLLAMA_CONTEXT_LENGTH": "write --max-model-len",
    "OLLAMA_NUM_PARALLEL": "write --max-num-seqs",
    "OLLAMA_MAX_QUEUE": "write --max-num-queued-reqs",
    "OLLAMA_KEEP_ALIVE": "the model stays loaded while the server runs",
    "OLLAMA_LOAD_TIMEOUT": "GET /readyz says when the model is loaded",
    "OLLAMA_MAX_LOADED_MODELS": "a server has one model; `yaie up` runs several",
    "OLLAMA_ORIGINS": "write --allowed-origins",
    "OLLAMA_KV_CACHE_TYPE": "the KV cache has the type of the weights, see --dtype",
    "OLLAMA_FLASH_ATTENTION": "kernels are chosen by YAIE_KERNELS",
    "OLLAMA_GPU_OVERHEAD": "write --gpu-memory-utilization",
    "OLLAMA_SCHED_SPREAD": "an engine runs on one GPU",
    "OLLAMA_DEBUG": "write --log-level debug",
}
"""What `yaie serve` has instead of each variable of `ollama serve`."""

_NAME: Final = re.compile(r"(?:[\w.-]+/){0,3}[\w.-]+:[\w.-]+")


def unread_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of Ollama that are set, with what to do instead."""
    return {name: why for name, why in ENVIRONMENT.items() if environment.get(name)}


def model_problem(model: str) -> str | None:
    """Why `model` names none: it is a name of Ollama's or a GGUF file. None: it may be one."""
    if "://" in model or Path(model).expanduser().is_dir():
        return None
    if model.lower().endswith(".gguf"):
        return (
            f"{model!r} is a GGUF file, and GGUF is not read. Name the model's folder with "
            "safetensors weights, or hf://org/name of the model it was made from."
        )
    if hub := hub_name(model):
        return (
            f"{model!r} is a name of Ollama's library, whose files are not read: write hf://{hub} "
            "for the model on the hub."
        )
    if _NAME.fullmatch(model):
        return (
            f"{model!r} is a name of Ollama's library. Write hf://org/name[@revision] for the "
            "same model on the hub, builtin://NAME, or a local folder with safetensors weights."
        )
    return None
