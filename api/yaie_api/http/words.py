"""What each field of the API means, in a line: the words of docs/api.md and of `/openapi.json`.

A name means the same in every request, so it is told once; `Type.field` is for the exceptions.
`tools/render_api.py` fails on a field without words and on words without a field.
"""

from typing import Any, Final

WORDS: Final = {
    # what is asked, and of whom
    "model": "Name of the model. Left out: the one that is served. A router needs it.",
    "messages": "The conversation so far.",
    "prompt": "A text or token ids; a list of them is a batch of at most 128.",
    "TokenizeRequest.prompt": "A text. Exactly one of `prompt` and `messages` is given.",
    "input": "A text or token ids, or a list of at most 2,048 of them.",
    "ResponsesRequest.input": "A text, or items: messages, calls of tools and their outputs.",
    "InputTokensRequest.input": "A text, or items: messages, calls of tools and their outputs.",
    "instructions": "System message of this response; it is not kept for the next one.",
    "system": "System message.",
    "documents": "Passed on to the chat template.",
    "ScoreRequest.documents": "Another name of `text_2`.",
    "RerankRequest.documents": "What to rank: texts, or objects with `text`.",
    "text_1": "The left side of the pairs. One text goes with every right one.",
    "text_2": "The right side of the pairs.",
    "queries": "Another name of `text_1`.",
    "data_1": "Another name of `text_1`.",
    "data_2": "Another name of `text_2`.",
    "items": "Another name of `text_2`.",
    "query": "What the documents are ranked for.",
    "tokens": "The token ids.",
    # how long
    "max_tokens": "Most tokens to generate. Left out: what fits the context (completions: 16).",
    "MessagesRequest.max_tokens": "Most tokens to generate.",
    "max_completion_tokens": "The newer name of `max_tokens`; it wins.",
    "max_output_tokens": "Most tokens to generate. Left out: what fits the context.",
    "min_tokens": "No end before so many tokens.",
    "stop": "Texts at which the output ends. At most 128, or one.",
    "stop_sequences": "Texts at which the output ends.",
    "stop_token_ids": "Tokens at which the output ends.",
    "ignore_eos": "Go on after the model's own end, up to `max_tokens`.",
    "include_stop_str_in_output": "Keep the stop text in the output.",
    "truncate_prompt_tokens": "Keep so many tokens of a longer prompt; -1: as many as fit.",
    "truncation_side": "The side at which the input is cut.",
    "truncation": "`auto`: leave the oldest items out until prompt and output fit the context.",
    "InputTokensRequest.truncation": "No effect: all items are counted.",
    # how tokens are chosen
    "temperature": "0 to 2; 0 takes the likeliest token. Default: the checkpoint's, else 1.",
    "top_p": "Only the likeliest tokens whose probabilities add up to this.",
    "top_k": "Only so many of the likeliest tokens; 0 or -1: all.",
    "min_p": "Only tokens at least so likely, relative to the likeliest.",
    "repetition_penalty": "Above 1: what prompt or output hold already becomes less likely.",
    "presence_penalty": "-2 to 2, once for each token that the output holds already.",
    "frequency_penalty": "-2 to 2, for each time that the output holds a token already.",
    "logit_bias": "Token id → what to add to its logit.",
    "bad_words": "Texts that the output must not contain.",
    "allowed_token_ids": "Only these tokens.",
    "seed": "The same seed gives the same tokens from the same logits.",
    "n": "How many outputs. With temperature 0 only 1.",
    "best_of": "Only as many as `n`.",
    # what is told
    "stream": "Server-sent events instead of one answer.",
    "stream_options": "What a stream carries besides the text. Only with `stream`.",
    "logprobs": "Tell the log-probabilities of the output's tokens.",
    "CompletionRequest.logprobs": "How many of the likeliest tokens to tell beside each token.",
    "top_logprobs": "How many of the likeliest tokens to tell beside each. Needs `logprobs`.",
    "ResponsesRequest.top_logprobs": "How many of the likeliest tokens to tell beside each. Needs "
    "`include`.",
    "prompt_logprobs": "The same for the prompt's tokens. Not with `stream`.",
    "echo": "Begin the output with the prompt.",
    "ChatCompletionRequest.echo": "Begin the output with the last message, if the assistant's.",
    "return_token_ids": "Tell token ids beside the text.",
    "return_prompt_text": "Tell the prompt as the model got it, with its special tokens.",
    "return_tokens_as_token_ids": "Write tokens of log-probabilities as `token_id:N`.",
    "return_token_strs": "Tell the tokens as texts too.",
    "return_documents": "Tell each document beside its score.",
    "skip_special_tokens": "Leave special tokens out of the text.",
    "include_reasoning": "Tell the model's reasoning.",
    "include": "`message.output_text.logprobs`: log-probabilities. "
    "`reasoning.encrypted_content`: reasoning in a form that can be sent back. Others add nothing.",
    "store": "Keep the response in the engine's memory, for `previous_response_id` and `GET`.",
    "top_n": "Only the best; 0 or left out: all.",
    "encoding_format": "Numbers as JSON, or as base64 of little-endian float32.",
    "dimensions": "Keep so many numbers of each vector (Matryoshka).",
    "normalize": "Vectors of length one.",
    "use_activation": "Classifiers tell probabilities instead of logits; vectors get length one.",
    # which form
    "response_format": "The form that the output must have.",
    "structured_outputs": "The same in vLLM's words. Exactly one of its fields.",
    "text": "The form that the output must have. Its verbosity has no effect.",
    "output_config": "The form that the output must have, and how much to think.",
    "tools": "Functions that the model may call.",
    "ResponsesRequest.tools": "Functions, custom tools (free text, or under a grammar) and "
    "namespaces of them. The model is not offered others; the header `Warning` names them.",
    "InputTokensRequest.tools": "As in a response.",
    "tool_choice": "Whether and which: `none`, `auto`, `required`, or one function.",
    "MessagesRequest.tool_choice": "Whether and which.",
    "CountTokensRequest.tool_choice": "Whether and which.",
    "MessagesRequest.tools": "Functions that the model may call. It is not offered tools that "
    "Anthropic runs or knows; the header `Warning` names them.",
    "CountTokensRequest.tools": "As in a message.",
    "ResponsesRequest.tool_choice": "Whether and which: `none`, `auto`, `required`, one tool, or "
    "`allowed_tools`.",
    "InputTokensRequest.tool_choice": "As in a response.",
    "max_tool_calls": "No effect: it counts calls of tools that a server runs, and there are none.",
    "parallel_tool_calls": "Whether one answer may hold several calls.",
    # how the prompt is written
    "add_special_tokens": "Begin with the tokenizer's special tokens.",
    "add_generation_prompt": "End with the beginning of the assistant's turn.",
    "continue_final_message": "Go on with the last message instead of a new turn.",
    "chat_template_kwargs": "Variables of the chat template, such as `enable_thinking`.",
    "reasoning_effort": "Passed on to the chat template.",
    "verbosity": "Passed on to the chat template.",
    "reasoning": "How much to think.",
    "thinking": "Whether to think first.",
    "previous_response_id": "The stored response that this one goes on from.",
    "context_management": "What is taken out of a long conversation: old results of tools, old "
    "thinking. The answer tells what was.",
    "cache_control": "Prefixes are always cached; with such a mark anywhere, the usage tells how "
    "much of the prompt was new to the cache.",
    # for whom, and when
    "priority": "Lower goes first, under `--scheduling-policy priority`. Otherwise only 0.",
    "cache_salt": "Prefixes are shared only with requests of the same salt.",
    "request_id": "Told back in the answer's id. Left out: a random one.",
    "metadata": "Told back in the response; nothing else.",
    "MessagesRequest.metadata": "No effect.",
    "MessagesRequest.service_tier": "No effect.",
    "service_tier": "No effect; the response tells `default`.",
    "prompt_cache_key": "Told back in the response; nothing else.",
    "prompt_cache_retention": "No effect.",
    "safety_identifier": "Told back in the response; nothing else.",
    "client_metadata": "No effect.",
    "ResponsesRequest.stream_options": "No effect.",
    "user": "No effect.",
    "ResponsesRequest.user": "Told back in the response; nothing else.",
}
"""Fields of requests."""

_ASKED: Final = [{"role": "user", "content": "What is Kubernetes?"}]
EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "ChatCompletionRequest": {"messages": _ASKED},
    "CompletionRequest": {"prompt": "A dog is", "max_tokens": 50},
    "ResponsesRequest": {"input": "What is Kubernetes?"},
    "InputTokensRequest": {"input": "What is Kubernetes?"},
    "MessagesRequest": {"messages": _ASKED, "max_tokens": 50},
    "CountTokensRequest": {"messages": _ASKED},
    "EmbeddingRequest": {"input": ["a dog", "a cat"]},
    "ScoreRequest": {"text_1": "a dog", "text_2": ["a cat", "a stone"]},
    "RerankRequest": {"query": "a dog", "documents": ["a cat", "a stone"]},
    "ClassifyRequest": {"input": ["a dog", "a cat"]},
    "TokenizeRequest": {"prompt": "A dog is"},
    "DetokenizeRequest": {"tokens": [1, 2, 3]},
}
"""A body for each kind of request, without the name of a model."""
