"""POST /v1/chat/completions."""

from typing import Any, Final

from engine.server.fields.generation import GENERATION
from engine.server.fields.verdicts import (
    Effect,
    NoEffect,
    Refused,
    Verdicts,
    at,
    grammar,
    prompt,
    sampling,
)

USER: Final = {"role": "user", "content": "hello"}
BASE: Final[dict[str, Any]] = {"messages": [USER], "max_tokens": 40}
_ADD: Final = {"name": "add", "parameters": {"type": "object", "properties": {}}}
TOOLS: Final = {"tools": [{"type": "function", "function": _ADD}]}
BEGUN: Final = {"messages": [USER, {"role": "assistant", "content": "So"}]}
LOGPROBS: Final = {"logprobs": True}
_MEDIA: Final = "of images, audio and video, which are refused"

VERDICTS: Final[Verdicts] = GENERATION | {
    # the prompt
    "messages": Effect([{"role": "user", "content": "bye"}], prompt),
    "tools": Effect(TOOLS["tools"], prompt),
    "documents": Effect([{"title": "t", "text": "x"}], prompt),
    "reasoning_effort": Effect("low", prompt),
    "verbosity": Effect("low", prompt),
    "chat_template_kwargs": Effect({"mark": "here"}, prompt),
    "add_generation_prompt": Effect(value=False, where=prompt),
    "continue_final_message": Effect(value=True, where=prompt, beside=BEGUN),
    "add_special_tokens": Refused(value=True, nothing=(False,)),
    "chat_template": Refused("{{ messages }}"),
    "functions": Refused([_ADD]),
    "web_search_options": Refused({}),
    "media_io_kwargs": NoEffect({"image": {}}, _MEDIA),
    "mm_processor_kwargs": NoEffect({"x": 1}, _MEDIA),
    # how long, and how many
    "best_of": Refused(2, nothing=(1,)),
    "max_completion_tokens": Effect(5, sampling("max_tokens"), 5),
    # what is told
    "logprobs": Effect(value=True, where=at("choices.0.logprobs.content.0.logprob"), expected=-0.5),
    "top_logprobs": Effect(3, sampling("logprobs"), 3, beside=LOGPROBS),
    "return_tokens_as_token_ids": Effect(
        value=True, where=at("choices.0.logprobs.content.0.token"), beside=LOGPROBS
    ),
    "include_reasoning": Effect(
        value=False, where=at("choices.0.message.reasoning"), expected=None
    ),
    "echo": Effect(value=True, where=at("choices.0.message.content"), beside=BEGUN),
    "include_stop_str_in_output": Effect(
        value=True,
        where=at("choices.0.message.content"),
        expected="one two",
        beside={"stop": "two"},
    ),
    "skip_special_tokens": Effect(
        value=False, where=at("choices.0.message.content"), expected="one two<|im_end|> three"
    ),
    "return_prompt_text": Effect(value=True, where=at("prompt_text")),
    "request_id": Effect("mine-1", at("id"), "chatcmpl-mine-1"),
    "modalities": Refused(["audio"], nothing=(["text"],)),
    "audio": Refused({"voice": "x", "format": "mp3"}),
    "moderation": Refused({"model": "m"}),
    "prediction": Refused({"type": "content", "content": "x"}),
    # which calls
    "tool_choice": Effect("required", grammar, beside=TOOLS),
    "parallel_tool_calls": Effect(
        value=False, where=grammar, beside=TOOLS | {"tool_choice": "required"}
    ),
    "function_call": Refused("auto", nothing=("none",)),
    # for whom
    "metadata": NoEffect({"a": "b"}, "tags of a stored chat; chats are not stored here"),
    "store": NoEffect(value=True, reason="whether it can be read later: that is answered with 404"),
    "service_tier": NoEffect("flex", "which of OpenAI's tariffs"),
    "safety_identifier": NoEffect("s", "for OpenAI's own checks of its users"),
    "prompt_cache_key": NoEffect("k", "a hint for OpenAI's cache; prefixes are found by content"),
    "prompt_cache_options": NoEffect({"mode": "x"}, "as prompt_cache_key"),
    "prompt_cache_retention": NoEffect("24h", "as prompt_cache_key"),
}
