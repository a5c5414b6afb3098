"""The native models: for each architecture in config.json its config reader and its model class."""

from collections.abc import Callable
from typing import NamedTuple

from yaie.model_config import dense, gemma, sparse
from yaie.model_config.decoder_config import Head, ModelConfig
from yaie.model_config.fields import Raw

Parse = Callable[[Raw], ModelConfig]


class Family(NamedTuple):
    """One architecture. `model`: "module:class", imported on use, so configs need no torch."""

    parse: Parse
    model: str
    head: Head = "lm"


def tops(stem: str, parse: Parse, model: str) -> dict[str, Family]:
    """Return a family's three architectures: language model, classifier, bare decoder."""
    return {
        f"{stem}ForCausalLM": Family(parse, model),
        f"{stem}ForSequenceClassification": Family(parse, model, "score"),
        f"{stem}Model": Family(parse, model, "none"),
    }


LLAMA = "yaie.models.llama:Llama"
GEMMA = "yaie.models.gemma:Gemma"
FAMILIES: dict[str, Family] = {
    **tops("Llama", dense.llama, LLAMA),
    **tops("Mistral", dense.mistral, LLAMA),
    **tops("Qwen2", dense.qwen2, LLAMA),
    **tops("Qwen3", dense.qwen3, LLAMA),
    **tops("Mixtral", sparse.mixtral, "yaie.models.mixtral:Mixtral"),
    **tops("Qwen2Moe", sparse.qwen2_moe, "yaie.models.sparse:SparseDecoder"),
    **tops("Qwen3Moe", sparse.qwen3_moe, "yaie.models.sparse:SparseDecoder"),
    **tops("DeepseekV2", sparse.deepseek_v2, "yaie.models.deepseek:DeepSeek"),
    **tops("DeepseekV3", sparse.deepseek_v3, "yaie.models.deepseek:DeepSeek"),
    **tops("Phi3", dense.phi3, "yaie.models.phi:Phi"),
    **tops("Gemma", gemma.gemma, LLAMA),
    **tops("Gemma2", gemma.gemma2, GEMMA),
    "Gemma3ForCausalLM": Family(gemma.gemma3, GEMMA),
    "Gemma3TextForSequenceClassification": Family(gemma.gemma3, GEMMA, "score"),
    "Gemma3TextModel": Family(gemma.gemma3, GEMMA, "none"),
    "Gemma3ForConditionalGeneration": Family(gemma.gemma3_text, GEMMA),
}
