"""POST /v1/completions."""

from typing import Any, Final

from engine.server.fields.generation import GENERATION, length
from engine.server.fields.verdicts import Effect, Refused, Verdicts, at, prompt, sampling

BASE: Final[dict[str, Any]] = {"prompt": "hello there you", "max_tokens": 40}
_TEXT: Final = "choices.0.text"

VERDICTS: Final[Verdicts] = GENERATION | {
    "prompt": Effect("bye", prompt),
    "add_special_tokens": Effect(value=False, where=length),
    "best_of": Refused(2, nothing=(1,)),
    "suffix": Refused("x", nothing=("",)),
    "prompt_embeds": Refused("AAAA"),
    "echo": Effect(value=True, where=lambda seen: seen.at(_TEXT)[:5], expected="hello"),
    "logprobs": Effect(2, sampling("logprobs"), 2),
    "return_tokens_as_token_ids": Effect(
        value=True, where=at("choices.0.logprobs.tokens.0"), beside={"logprobs": 0}
    ),
    "include_stop_str_in_output": Effect(
        value=True,
        where=at(_TEXT),
        expected="<think>why</think>one two",
        beside={"stop": "two"},
    ),
    "skip_special_tokens": Effect(
        value=False,
        where=at(_TEXT),
        expected="<think>why</think>one two<|im_end|> three",
    ),
    "request_id": Effect("mine-1", at("id"), "cmpl-mine-1"),
}
