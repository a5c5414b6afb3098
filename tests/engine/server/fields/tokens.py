"""POST /tokenize and /detokenize."""

from typing import Any, Final

from engine.server.fields.chat import TOOLS, USER
from engine.server.fields.verdicts import Effect, NoEffect, Refused, Verdicts, at

OF_PROMPT: Final[dict[str, Any]] = {"prompt": "hello"}
OF_MESSAGES: Final[dict[str, Any]] = {"messages": [USER]}
OF_TOKENS: Final[dict[str, Any]] = {"tokens": [50, 51]}
_IDS: Final = at("tokens")
_MODEL: Final = Effect("nope", at("error.code"), "model_not_found")
_MEDIA: Final = "of images, audio and video, which are refused"
_TURNS: Final = {"messages": [USER, {"role": "assistant", "content": "So"}], "prompt": None}

TOKENIZE: Final[Verdicts] = {
    "model": _MODEL,
    "prompt": Effect("bye", _IDS),
    "messages": Effect([USER], _IDS, beside={"prompt": None}, instead={"prompt": "x"}),
    "add_special_tokens": Effect(value=False, where=_IDS),
    "return_token_strs": Effect(value=True, where=at("token_strs")),
    "add_generation_prompt": Effect(value=False, where=_IDS, beside=_TURNS),
    "continue_final_message": Effect(value=True, where=_IDS, beside=_TURNS),
    "chat_template": Refused("{{ messages }}"),
    "chat_template_kwargs": Effect({"mark": "x"}, _IDS, beside=_TURNS),
    "tools": Effect(TOOLS["tools"], _IDS, beside=_TURNS),
    "media_io_kwargs": NoEffect({"image": {}}, _MEDIA),
    "mm_processor_kwargs": NoEffect({"x": 1}, _MEDIA),
}
TOKENIZE_MESSAGES: Final[Verdicts] = {
    "add_special_tokens": Refused(value=True, nothing=(False,)),
}
"""What is otherwise where messages are given."""
DETOKENIZE: Final[Verdicts] = {"model": _MODEL, "tokens": Effect([52], at("prompt"))}
