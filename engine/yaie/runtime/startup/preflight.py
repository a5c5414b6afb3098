"""What can be refused before any weight is read: a length that the model has not, a broken
tokenizer, and weights and KV cache that cannot fit into memory.

Pure but for reading headers, and without torch: the engine process asks before it imports that.
What is computed is at least what a model needs, so nothing that would run is refused.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from yaie.checkpoint import sizes, source, tokenizer_files
from yaie.model_config.decoder_config import ModelConfig, with_mla_form
from yaie.models import registry
from yaie.runtime import host
from yaie.runtime.startup import footprint
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import InvalidRequestError
from yaie_api.resource.capacity import DTYPE_BYTES

CUDA_DRIVER: Final = "libcuda.so.1"
_GIB: Final = 2**30


@dataclass(frozen=True)
class Memory:
    """Memory for a model: bytes that are free for it, where, and bytes of one weight."""

    free_bytes: int
    where: str
    item_bytes: int
    more: str = ""
    """A way to have more of it, as the end of a sentence; "": there is none."""


def host_memory(dtype: str) -> Memory:
    """The memory of this machine, for a model on its CPU. `dtype`: as configured."""
    item_bytes = DTYPE_BYTES.get("float32" if dtype == "auto" else dtype, 2)
    free_bytes = host.available_memory_bytes()
    more = "--dtype bfloat16, which halves both" if item_bytes > 2 else ""
    return Memory(free_bytes, "of this machine's memory", item_bytes, more)


def is_for_cpu(config: EngineConfig) -> bool:
    """Whether the model will surely run on the CPU: nothing has a GPU without its driver."""
    if config.device != "auto":
        return config.device == "cpu"
    try:
        ctypes.CDLL(CUDA_DRIVER)
    except OSError:
        return True
    return False


class Settings:
    """What a model's settings alone show, which are there before its weights. `shape`: that of a
    native model, None: it is not native.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self.shape: ModelConfig | None = None

    def check(self, folder: Path) -> None:
        """Read the settings in a folder.

        Raises:
            InvalidRequestError: they are refused, or `max_model_len` or the tokenizer is.

        """
        config = self._config
        self.shape = registry.native(source.read_config(folder), config.model_impl)
        if self.shape is not None:
            check_length(config.max_model_len, self.shape.position_limit)
        if config.tokenizer is None:
            check_tokenizer(folder)


def check_length(asked: int | None, position_limit: int) -> None:
    """Refuse a longest sequence that the model has no positions for.

    Raises:
        InvalidRequestError: `asked` is above `position_limit`.

    """
    if asked is not None and asked > position_limit:
        raise InvalidRequestError(
            f"max_model_len is {asked}, and this model has {position_limit} positions: write "
            f"--max-model-len {position_limit} or less, or leave it out.",
            param="max_model_len",
        )


def check_tokenizer(folder: Path) -> None:
    """Refuse a tokenizer.json that is not whole. A folder without one is for prompts of token ids.

    Raises:
        InvalidRequestError: it is no JSON object; a placeholder and a cut file are none.

    """
    path = folder / tokenizer_files.TOKENIZER
    if not path.is_file():
        return
    try:
        msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, ValueError) as error:
        raise InvalidRequestError(
            f"The model's {path.name} cannot be read: {error}. Download it again, or name a folder "
            "that has one with --tokenizer.",
            param="tokenizer",
        ) from error


def check_memory(
    config: EngineConfig, folder: Path, shape: ModelConfig | None, memory: Memory
) -> None:
    """Refuse a model whose weights, with the KV cache of one sequence of the length that was asked
    for, need more memory than is free. Without such a length, the cache is as long as fits.

    Raises:
        InvalidRequestError: they cannot fit; the message has the arithmetic.

    """
    if config.load_format == "dummy":
        return
    paths = [folder / name for name in source.weight_files(folder)]
    if shape is None:
        count = sizes.elements(paths)
    else:
        count = sizes.elements(paths, shape.num_layers, tied=shape.tie_word_embeddings)
    if count is None:
        return
    weights = count * memory.item_bytes
    tokens = config.max_model_len or 0
    if config.kv_cache_tokens is not None:
        tokens = min(tokens, config.kv_cache_tokens)
    cache = 0
    if shape is not None:
        taken = footprint.of(with_mla_form(shape, config.mla_form))
        cache = tokens * taken.kv_bytes_per_token(memory.item_bytes)
    if weights + cache > memory.free_bytes:
        raise InvalidRequestError(
            _does_not_fit(weights, cache, tokens, memory),
            param="max_model_len" if weights <= memory.free_bytes else "model",
        )


def _does_not_fit(weights: int, cache: int, tokens: int, memory: Memory) -> str:
    needed = f"weights of {weights / _GIB:.1f} GiB"
    ways = [memory.more] if memory.more else []
    if cache:
        needed += f" + a KV cache of {cache / _GIB:.1f} GiB for one sequence of {tokens} tokens"
    if weights < memory.free_bytes:
        fits = (memory.free_bytes - weights) * tokens // cache
        ways[:0] = [f"--max-model-len {fits} or less"] if fits else []
    ways.append("a smaller model")
    return (
        f"This model does not fit: {needed} > {memory.free_bytes / _GIB:.1f} GiB that are free "
        f"{memory.where}. Use {', or '.join(ways)}."
    )
