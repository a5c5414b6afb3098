"""POST /v1/responses, /v1/messages and /v1/messages/count_tokens."""

from typing import Any, Final

from engine.server.fields.chat import USER
from engine.server.fields.generation import SCHEMA
from engine.server.fields.verdicts import (
    Effect,
    NoEffect,
    Refused,
    Seen,
    Verdicts,
    at,
    command,
    grammar,
    media,
    prompt,
    sampling,
)

OF_RESPONSES: Final[dict[str, Any]] = {"input": "hello", "store": False, "max_output_tokens": 40}
OF_MESSAGES: Final[dict[str, Any]] = {"messages": [USER], "max_tokens": 40}
OF_COUNT_TOKENS: Final[dict[str, Any]] = {"messages": [USER]}
_MEDIA: Final = "of images, audio and video, which are refused"
_LOGPROBS: Final = {"include": ["message.output_text.logprobs"]}
_FUNCTION: Final = {"type": "function", "name": "add", "parameters": SCHEMA}
_CALLED: Final = {"tools": [_FUNCTION]}
_TOOL: Final = {"tools": [{"name": "add", "input_schema": SCHEMA}]}


def text(seen: Seen) -> Any:
    """The text of the message among a response's items."""
    return seen.at("output.-1.content.0.text")


RESPONSES: Final[Verdicts] = {
    "model": Effect("nope", at("error.code"), "model_not_found"),
    # the prompt
    "input": Effect("bye", prompt),
    "instructions": Effect("Be brief.", prompt),
    "previous_response_id": Effect("resp_nope", at("error.code")),
    "previous_response": Refused({"id": "resp_1"}),
    "previous_input_messages": Refused([USER]),
    "conversation": Refused("conv_1"),
    "prompt": Refused({"id": "pmpt_1"}),
    "tools": Effect(_CALLED["tools"], prompt),
    "reasoning": Effect({"effort": "low"}, prompt),
    "chat_template_kwargs": Effect({"mark": "here"}, prompt),
    "truncation": Effect("auto", at("truncation"), "auto"),
    "context_management": Refused([{"type": "compaction"}], nothing=([],)),
    "media_io_kwargs": NoEffect({"image": {}}, _MEDIA),
    "mm_processor_kwargs": NoEffect({"x": 1}, _MEDIA),
    "image": NoEffect({"detail": "low"}, _MEDIA),
    # how tokens are chosen, and where they end
    "temperature": Effect(0.5, sampling("temperature"), 0.5),
    "top_p": Effect(0.5, sampling("top_p"), 0.5),
    "top_k": Effect(5, sampling("top_k"), 5),
    "min_p": Effect(0.5, sampling("min_p"), 0.5),
    "bad_words": Effect(["x"], sampling("bad_words"), ("x",)),
    "allowed_token_ids": Effect([50, 51], sampling("allowed_token_ids"), (50, 51)),
    "min_tokens": Effect(3, sampling("min_tokens"), 3),
    "stop_token_ids": Effect([50], sampling("stop_token_ids"), (50,)),
    "repetition_penalty": Effect(1.5, sampling("repetition_penalty"), 1.5),
    "presence_penalty": Effect(0.5, sampling("presence_penalty"), 0.5),
    "frequency_penalty": Effect(0.5, sampling("frequency_penalty"), 0.5),
    "logit_bias": Effect({"50": 5}, sampling("logit_bias"), ((50, 5.0),)),
    "seed": Effect(7, sampling("seed"), 7),
    "max_output_tokens": Effect(5, sampling("max_tokens"), 5),
    "stop": Effect("two", text, "one "),
    "ignore_eos": Effect(value=True, where=sampling("ignore_eos"), expected=True),
    "include_stop_str_in_output": Effect(
        value=True, where=text, expected="one two", beside={"stop": "two"}
    ),
    "skip_special_tokens": Effect(value=False, where=text, expected="one two<|im_end|> three"),
    # its form
    "text": Effect({"format": {"type": "json_object"}}, grammar),
    "structured_outputs": Refused({"regex": "a+"}),
    "tool_choice": Effect("required", grammar, beside=_CALLED),
    "parallel_tool_calls": Effect(
        value=False, where=grammar, beside=_CALLED | {"tool_choice": "required"}
    ),
    "max_tool_calls": Effect(1, at("max_tool_calls"), 1),
    # what is told
    "include": Effect(_LOGPROBS["include"], sampling("logprobs")),
    "top_logprobs": Effect(3, sampling("logprobs"), 3, beside=_LOGPROBS),
    "stream": Effect(value=True, where=media, expected="text/event-stream"),
    "stream_options": Refused({"include_obfuscation": True}, beside={"stream": True}),
    "store": Effect(value=True, where=at("store"), expected=True),
    "metadata": Effect({"a": "b"}, at("metadata"), {"a": "b"}),
    "enable_response_messages": Refused(value=True, nothing=(False,)),
    "request_id": Refused("resp_mine"),
    # for whom, when, and where else
    "priority": Effect(3, command("priority"), 3),
    "cache_salt": Effect("s", command("salt"), "s"),
    "background": Refused(value=True, nothing=(False,)),
    "background_options": NoEffect({"completion_window": "2h"}, "of background, which is refused"),
    "moderation": Refused({"model": "m"}),
    "kv_transfer_params": Refused({"do_remote_decode": True}),
    "vllm_xargs": Refused({"x": 1}, nothing=({},)),
    "client_metadata": NoEffect({"x": "y"}, "what the Codex CLI says of its session"),
    "access_programs": NoEffect({"cyber": {}}, "which of OpenAI's programmes the client is in"),
    "user": Effect("u", at("user"), "u"),
    "service_tier": NoEffect("flex", "which of OpenAI's tariffs"),
    "safety_identifier": Effect("s", at("safety_identifier"), "s"),
    "prompt_cache_key": Effect("k", at("prompt_cache_key"), "k"),
    "prompt_cache_options": NoEffect({"mode": "x"}, "for OpenAI's cache"),
    "prompt_cache_retention": NoEffect("24h", "for OpenAI's cache"),
}

_PROMPT: Final[Verdicts] = {
    "model": Effect("nope", at("error.type"), "not_found_error"),
    "messages": Effect([{"role": "user", "content": "bye bye"}], prompt),
    "system": Effect("Be brief.", prompt),
    "tools": Effect(_TOOL["tools"], prompt),
    "tool_choice": Effect({"type": "none"}, prompt, beside=_TOOL),
    "thinking": Effect({"type": "disabled"}, prompt),
    "output_config": Effect({"effort": "low"}, prompt),
    "chat_template_kwargs": Effect({"mark": "here"}, prompt),
    "cache_control": NoEffect({"type": "ephemeral"}, "only what was written to the cache is told"),
    "speed": NoEffect("fast", "which of Anthropic's tariffs"),
    "user_profile_id": NoEffect("u", "whom the client serves"),
    "workspace_id": NoEffect("w", "whom the client serves"),
}


def _counted(prompts: Verdicts) -> Verdicts:
    """The same fields where only the tokens are counted."""
    return {
        name: Effect(one.value, at("input_tokens"), beside=one.beside)
        if isinstance(one, Effect) and one.where is prompt
        else one
        for name, one in prompts.items()
    }


_USES: Final = [
    USER,
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "add", "input": {}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "3" * 9}]},
]
_CLEARING: Final = {
    "edits": [
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": 0},
            "keep": {"type": "tool_uses", "value": 0},
        }
    ]
}
COUNT_TOKENS: Final[Verdicts] = _counted(_PROMPT) | {
    "context_management": Effect(_CLEARING, at("input_tokens"), beside=_TOOL | {"messages": _USES}),
}
MESSAGES: Final[Verdicts] = _PROMPT | {
    "max_tokens": Effect(5, sampling("max_tokens"), 5),
    "priority": Effect(3, command("priority"), 3),
    "cache_salt": Effect("s", command("salt"), "s"),
    "temperature": Effect(0.5, sampling("temperature"), 0.5),
    "top_p": Effect(0.5, sampling("top_p"), 0.5),
    "top_k": Effect(5, sampling("top_k"), 5),
    "stop_sequences": Effect(["two"], at("stop_sequence"), "two"),
    "stream": Effect(value=True, where=media, expected="text/event-stream"),
    "output_format": Refused({"type": "json_schema", "schema": SCHEMA}),
    "container": Refused("c"),
    "context_management": Effect(_CLEARING, prompt, beside=_TOOL | {"messages": _USES}),
    "cache_control": Effect({"type": "ephemeral"}, at("usage.cache_creation_input_tokens")),
    "compaction": Refused({"x": 1}),
    "mcp_servers": Refused([{"type": "url", "url": "http://x", "name": "x"}]),
    "thread": Refused({"id": "t"}),
    "fallbacks": NoEffect([{"model": "x"}], "whom to ask where a model declines; one is here"),
    "fallback_credit_token": NoEffect("t", "what Anthropic charges"),
    "kv_transfer_params": Refused({"do_remote_decode": True}),
    "betas": NoEffect(["x"], "names of Anthropic's betas; each of their fields has its own entry"),
    "billing_policy": NoEffect({"x": 1}, "what Anthropic charges"),
    "diagnostics": NoEffect({"x": 1}, "why Anthropic's cache missed; the answer is the same"),
    "inference_geo": NoEffect("us", "where Anthropic computes"),
    "metadata": NoEffect({"user_id": "u"}, "whom the client serves"),
    "service_tier": NoEffect("auto", "which of Anthropic's tariffs"),
}
