"""POST /v1/embeddings, /classify, /score and /rerank."""

from typing import Any, Final

from engine.server.fields.generation import length, prompt_ids
from engine.server.fields.verdicts import (
    Effect,
    NoEffect,
    Refused,
    Seen,
    Verdicts,
    at,
    command,
    prompt,
)

TEXT: Final = "hello there you"
OF_INPUT: Final[dict[str, Any]] = {"input": TEXT}
OF_SCORE: Final[dict[str, Any]] = {"text_1": TEXT, "text_2": ["you there", "stop"]}
OF_RERANK: Final[dict[str, Any]] = {"query": TEXT, "documents": ["you there", "stop"]}
_MEDIA: Final = "of images, audio and video, which are refused"


def prompts(seen: Seen) -> list[tuple[int, ...]]:
    return [one.prompt_token_ids for one in seen.commands]


_SHARED: Final[Verdicts] = {
    "model": Effect("nope", at("error.code"), "model_not_found"),
    "truncate_prompt_tokens": Effect(3, length, 3),
    "truncation_side": Effect("left", prompt_ids, beside={"truncate_prompt_tokens": 3}),
    "padding": Refused("max_length", nothing=("do_not_pad",)),
    "priority": Effect(3, command("priority"), 3),
    "cache_salt": Effect("s", command("salt"), "s"),
    "user": NoEffect("u", "whom the client serves; nothing here depends on it"),
    "mm_processor_kwargs": NoEffect({"x": 1}, _MEDIA),
}
_INPUT: Final[Verdicts] = _SHARED | {
    "input": Effect("bye", prompt),
    "add_special_tokens": Effect(value=False, where=length),
    # of the requests that have messages instead
    "messages": Refused([{"role": "user", "content": "x"}]),
    "add_generation_prompt": Refused(value=True, nothing=(False,)),
    "continue_final_message": Refused(value=True, nothing=(False,)),
    "chat_template": Refused("{{ messages }}"),
    "chat_template_kwargs": Refused({"mark": "x"}, nothing=({},)),
    "media_io_kwargs": NoEffect({"image": {}}, _MEDIA),
}
_SCORING: Final[Verdicts] = _SHARED | {
    "max_tokens_per_query": Refused(3, nothing=(0,)),
    "max_tokens_per_doc": Refused(3, nothing=(0,)),
    "instruction": Refused("Find it.", nothing=("",)),
    "chat_template_kwargs": Refused({"mark": "x"}, nothing=({},)),
}

EMBEDDINGS: Final[Verdicts] = _INPUT | {
    "normalize": Effect(value=False, where=at("data.0.embedding")),
    "dimensions": Effect(3, lambda seen: len(seen.at("data.0.embedding")), 3),
    "encoding_format": Effect(
        "base64", lambda seen: type(seen.at("data.0.embedding")), expected=str
    ),
    "embed_dtype": Refused("float16", nothing=("float32",)),
    "endianness": Refused("big", nothing=("native", "little")),
    "use_activation": Effect(value=False, where=at("data.0.embedding")),
    "request_id": Effect("mine-1", at("id"), "embd-mine-1"),
}
CLASSIFY: Final[Verdicts] = _INPUT | {
    "use_activation": Effect(value=False, where=at("data.0.probs")),
    "request_id": Effect("mine-1", at("id"), "classify-mine-1"),
}


def _named(left: str, right: str) -> Verdicts:
    """Other names of the two sides. Each is told apart by another text."""
    without = {"text_1": None, "text_2": None}
    return {
        left: Effect("bye", prompts, beside=without | {right: "x"}, instead={left: "a"}),
        right: Effect("bye", prompts, beside=without | {left: "x"}, instead={right: "a"}),
    }


SCORE: Final[Verdicts] = (
    _SCORING
    | _named("data_1", "data_2")
    | _named("queries", "items")
    | _named("queries", "documents")
    | {
        "text_1": Effect("bye", prompts),
        "text_2": Effect("bye", prompts),
        "use_activation": Effect(value=False, where=at("data.0.score")),
        "request_id": Effect("mine-1", at("id"), "score-mine-1"),
    }
)
RERANK: Final[Verdicts] = _SCORING | {
    "query": Effect("bye", prompts),
    "documents": Effect(["bye"], prompts),
    "return_documents": Effect(value=False, where=at("results.0.document"), expected=None),
    "top_n": Effect(1, lambda seen: len(seen.at("results")), 1),
    "use_activation": Effect(value=False, where=at("results.0.relevance_score")),
    "request_id": Effect("mine-1", at("id"), "rerank-mine-1"),
}
