"""The request fields of the APIs that this server speaks, as their authors publish them.

OpenAI's are those of the Python package openai 3.54.0, Anthropic's those of anthropic 2.12.0 with
its beta, vLLM's those of the `protocol.py` files of vLLM 0.22.0; "later": what vLLM 0.23 to 0.33
have added; "more": what this server takes for other servers' clients.
"""

from typing import Final

_VLLM_SAMPLING: Final = frozenset({
    "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "n", "presence_penalty", "seed",
    "stop", "stream", "stream_options", "temperature", "top_p", "user", "use_beam_search", "top_k",
    "min_p", "repetition_penalty", "length_penalty", "stop_token_ids",
    "include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens",
    "spaces_between_special_tokens", "truncate_prompt_tokens", "truncation_side",
    "prompt_logprobs", "allowed_token_ids", "echo", "add_special_tokens", "response_format",
    "structured_outputs", "priority", "request_id", "return_tokens_as_token_ids",
    "return_token_ids", "cache_salt", "kv_transfer_params", "vllm_xargs", "repetition_detection",
    "thinking_token_budget", "model",
})  # fmt: skip
_VLLM_LATER: Final = frozenset({
    "watermarking", "logprob_token_ids", "session_id", "routed_experts_prompt_start",
    "return_token_offsets", "return_mm_kwargs", "ec_transfer_params", "stream_interval",
    "bad_words",
})  # fmt: skip
STREAM_OPTIONS: Final = frozenset({
    "stream_options.include_usage", "stream_options.include_obfuscation",  # openai
    "stream_options.continuous_usage_stats",  # vllm
})  # fmt: skip
STRUCTURED_OUTPUTS: Final = frozenset({
    "structured_outputs.json", "structured_outputs.regex", "structured_outputs.choice",
    "structured_outputs.grammar", "structured_outputs.json_object",
    "structured_outputs.disable_any_whitespace",
    "structured_outputs.disable_additional_properties", "structured_outputs.whitespace_pattern",
    "structured_outputs.structural_tag",
})  # fmt: skip

OPENAI_CHAT: Final = frozenset({
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "messages", "metadata", "modalities", "model",
    "moderation", "n", "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "response_format",
    "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options",
    "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity",
    "web_search_options",
})  # fmt: skip
VLLM_CHAT: Final = _VLLM_SAMPLING | {
    "messages", "top_logprobs", "max_completion_tokens", "tools", "tool_choice",
    "reasoning_effort", "include_reasoning", "parallel_tool_calls", "bad_words",
    "add_generation_prompt", "continue_final_message", "documents", "chat_template",
    "chat_template_kwargs", "media_io_kwargs", "mm_processor_kwargs", "return_prompt_text",
}  # fmt: skip
_MORE_OF_CHAT: Final = frozenset({"best_of"})
CHAT: Final = (
    OPENAI_CHAT | VLLM_CHAT | _VLLM_LATER | STREAM_OPTIONS | STRUCTURED_OUTPUTS | _MORE_OF_CHAT
)

OPENAI_COMPLETIONS: Final = frozenset({
    "best_of", "echo", "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "model", "n",
    "presence_penalty", "prompt", "seed", "stop", "stream", "stream_options", "suffix",
    "temperature", "top_p", "user",
})  # fmt: skip
VLLM_COMPLETIONS: Final = _VLLM_SAMPLING | {"prompt", "suffix", "prompt_embeds"}
COMPLETIONS: Final = (
    OPENAI_COMPLETIONS | VLLM_COMPLETIONS | _VLLM_LATER | STREAM_OPTIONS | STRUCTURED_OUTPUTS
)

_VLLM_POOLING: Final = frozenset({
    "model", "user", "truncate_prompt_tokens", "truncation_side", "request_id", "priority",
    "mm_processor_kwargs", "cache_salt",
    "padding",  # later
})  # fmt: skip
_VLLM_INPUT: Final = frozenset({"input", "add_special_tokens"})
_VLLM_POOLED_CHAT: Final = frozenset({
    "messages", "add_generation_prompt", "continue_final_message", "chat_template",
    "chat_template_kwargs", "media_io_kwargs",
})  # fmt: skip
_VLLM_SCORING: Final = _VLLM_POOLING | {
    "max_tokens_per_query", "max_tokens_per_doc", "instruction", "chat_template_kwargs",
    "use_activation",
}  # fmt: skip

OPENAI_EMBEDDINGS: Final = frozenset({"dimensions", "encoding_format", "input", "model", "user"})
EMBEDDINGS: Final = (
    OPENAI_EMBEDDINGS
    | _VLLM_POOLING
    | _VLLM_INPUT
    | _VLLM_POOLED_CHAT
    | {"encoding_format", "embed_dtype", "endianness", "dimensions", "use_activation"}
    | {"normalize"}  # more
)
CLASSIFY: Final = _VLLM_POOLING | _VLLM_INPUT | _VLLM_POOLED_CHAT | {"use_activation"}
SCORE: Final = _VLLM_SCORING | {
    "text_1", "text_2", "queries", "documents", "items", "data_1", "data_2",
}  # fmt: skip
RERANK: Final = _VLLM_SCORING | {
    "query", "documents", "top_n",
    "return_documents",  # more: Cohere's and Jina's
}  # fmt: skip

TOKENIZE: Final = frozenset({
    "model", "prompt", "add_special_tokens", "return_token_strs", "messages",
    "add_generation_prompt", "continue_final_message", "chat_template", "chat_template_kwargs",
    "media_io_kwargs", "mm_processor_kwargs", "tools",
})  # fmt: skip
DETOKENIZE: Final = frozenset({"model", "tokens"})

OPENAI_RESPONSES: Final = frozenset({
    "access_programs", "background", "background_options", "context_management", "conversation",
    "image", "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata",
    "model", "moderation", "parallel_tool_calls", "previous_response_id", "prompt",
    "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning",
    "safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature",
    "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
})  # fmt: skip
VLLM_RESPONSES: Final = frozenset({
    "background", "include", "input", "instructions", "max_output_tokens", "max_tool_calls",
    "metadata", "model", "logit_bias", "parallel_tool_calls", "previous_response_id", "prompt",
    "reasoning", "service_tier", "store", "stream", "temperature", "text", "tool_choice", "tools",
    "top_logprobs", "top_p", "top_k", "truncation", "user", "skip_special_tokens",
    "include_stop_str_in_output", "presence_penalty", "frequency_penalty", "prompt_cache_key",
    "request_id", "media_io_kwargs", "mm_processor_kwargs", "priority", "cache_salt",
    "enable_response_messages", "previous_input_messages", "structured_outputs",
    "repetition_penalty", "seed", "stop", "ignore_eos", "vllm_xargs", "kv_transfer_params",
    "chat_template_kwargs",
    "previous_response",  # later
})  # fmt: skip
_MORE_OF_RESPONSES: Final = frozenset({
    "allowed_token_ids", "bad_words", "min_p", "min_tokens", "stop_token_ids",
    "client_metadata",  # of the Codex CLI
})  # fmt: skip
RESPONSES: Final = OPENAI_RESPONSES | VLLM_RESPONSES | _MORE_OF_RESPONSES

MESSAGES: Final = frozenset({
    "max_tokens", "messages", "model", "billing_policy", "cache_control", "compaction",
    "container", "context_management", "diagnostics", "fallback_credit_token", "fallbacks",
    "inference_geo", "mcp_servers", "metadata", "output_config", "service_tier", "speed",
    "stop_sequences", "stream", "system", "temperature", "thinking", "thread", "tool_choice",
    "tools", "top_k", "top_p", "user_profile_id", "workspace_id", "betas", "output_format",
    "kv_transfer_params", "chat_template_kwargs",  # vllm
    "cache_salt", "priority",  # more
})  # fmt: skip
COUNT_TOKENS: Final = frozenset({
    "messages", "model", "cache_control", "output_config", "speed", "system", "thinking",
    "tool_choice", "tools", "user_profile_id", "workspace_id",
    "chat_template_kwargs",  # vllm
    "context_management",  # the beta's
})  # fmt: skip
