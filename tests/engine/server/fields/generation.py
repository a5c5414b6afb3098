"""The fields that chats and text completions share."""

from typing import Any, Final

from engine.server.fields.verdicts import (
    CHANGED,
    Effect,
    NoEffect,
    Refused,
    Seen,
    Verdicts,
    at,
    command,
    grammar,
    media,
    sampling,
)

SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}}
JSON: Final = {"structured_outputs": {"json_object": True}}
STREAM: Final = {"stream": True}
COUNTED: Final = {"stream": True, "stream_options": {"include_usage": True}}


def length(seen: Seen) -> int:
    return len(seen.commands[-1].prompt_token_ids)


def prompt_ids(seen: Seen) -> tuple[int, ...]:
    return tuple(seen.commands[-1].prompt_token_ids)


def forms(**kinds: Any) -> Verdicts:
    """`structured_outputs` as a whole, and each of its kinds."""
    return {f"structured_outputs.{kind}": Effect(value, grammar) for kind, value in kinds.items()}


GENERATION: Final[Verdicts] = {
    "model": Effect("nope", at("error.code"), "model_not_found"),
    # how tokens are chosen
    "temperature": Effect(0.5, sampling("temperature"), 0.5),
    "top_p": Effect(0.5, sampling("top_p"), 0.5),
    "top_k": Effect(5, sampling("top_k"), 5),
    "min_p": Effect(0.5, sampling("min_p"), 0.5),
    "repetition_penalty": Effect(1.5, sampling("repetition_penalty"), 1.5),
    "presence_penalty": Effect(0.5, sampling("presence_penalty"), 0.5),
    "frequency_penalty": Effect(0.5, sampling("frequency_penalty"), 0.5),
    "logit_bias": Effect({"50": 5}, sampling("logit_bias"), ((50, 5.0),)),
    "bad_words": Effect(["x"], sampling("bad_words"), ("x",)),
    "allowed_token_ids": Effect([50, 51], sampling("allowed_token_ids"), (50, 51)),
    "seed": Effect(7, sampling("seed"), 7),
    "n": Effect(2, at("choices.1.index"), 1),
    "use_beam_search": Refused(value=True, nothing=(False,)),
    "length_penalty": NoEffect(0.5, "of beam search, which is refused"),
    "watermarking": Refused(value=True, nothing=(False,)),
    # where it ends
    "max_tokens": Effect(7, sampling("max_tokens"), 7),
    "min_tokens": Effect(3, sampling("min_tokens"), 3),
    "stop": Effect("two", at("choices.0.stop_reason"), "two"),
    "stop_token_ids": Effect([50], sampling("stop_token_ids"), (50,)),
    "ignore_eos": Effect(value=True, where=sampling("ignore_eos"), expected=True),
    "repetition_detection": Refused({"max_pattern_size": 8, "min_count": 3}),
    "thinking_token_budget": Refused(16, nothing=(-1,)),
    # the prompt
    "truncate_prompt_tokens": Effect(3, length, 3),
    "truncation_side": Effect("right", prompt_ids, beside={"truncate_prompt_tokens": 3}),
    # what is told
    "stream": Effect(value=True, where=media, expected="text/event-stream"),
    "stream_options": Effect({"include_usage": True}, at("-1.choices"), [], beside=STREAM),
    "stream_options.include_usage": Effect(
        value=True, where=at("-1.choices"), expected=[], beside=STREAM
    ),
    "stream_options.continuous_usage_stats": Effect(
        value=True, where=at("1.usage.completion_tokens"), expected=CHANGED, beside=COUNTED
    ),
    "stream_options.include_obfuscation": Refused(value=True, nothing=(False,), beside=STREAM),
    "stream_interval": Refused(4, nothing=(1,)),
    "prompt_logprobs": Effect(2, sampling("prompt_logprobs"), 2),
    "logprob_token_ids": Refused([50]),
    "return_token_ids": Effect(value=True, where=at("choices.0.token_ids")),
    "routed_experts_prompt_start": Refused(2, nothing=(0,)),
    "return_token_offsets": NoEffect(
        value=True, reason="of vLLM's render endpoints; generating ones ignore it there too"
    ),
    "return_mm_kwargs": NoEffect(value=False, reason="of vLLM's render endpoints"),
    "spaces_between_special_tokens": NoEffect(
        value=False, reason="of tokenizers written in Python; those of this server are not"
    ),
    # its form
    "response_format": Effect({"type": "json_object"}, grammar),
    "structured_outputs": Effect({"regex": "a+"}, grammar, ("regex", "a+")),
    **forms(json=SCHEMA, regex="b+", choice=["a", "b"], grammar='root ::= "x"', json_object=True),
    "structured_outputs.disable_any_whitespace": Refused(value=True, nothing=(False,), beside=JSON),
    "structured_outputs.disable_additional_properties": Refused(
        value=True, nothing=(False,), beside=JSON
    ),
    "structured_outputs.whitespace_pattern": Refused(" ", beside=JSON),
    "structured_outputs.structural_tag": Refused("{}"),
    # for whom, when, and where else
    "priority": Effect(3, command("priority"), 3),
    "cache_salt": Effect("s", command("salt"), "s"),
    "kv_transfer_params": Refused({"do_remote_decode": True}),
    "ec_transfer_params": Refused({"x": 1}),
    "vllm_xargs": Refused({"x": 1}),
    "user": NoEffect("u", "whom the client serves; nothing here depends on it"),
    "session_id": NoEffect("s", "which requests belong together; prefixes are found by content"),
}
