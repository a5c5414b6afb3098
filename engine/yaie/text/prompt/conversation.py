"""Converts a checked conversation to token ids, for the server and `LLM`."""

from yaie.text.prompt.template import RENDER_S
from yaie.text.prompt.tokenizer import Tokenizer
from yaie.text.prompt.tool_prompt import spelled_out
from yaie.text.tools import ToolFormat
from yaie_api.http.openai import ChatCompletionRequest, TokenizeRequest


def conversation_ids(
    tokenizer: Tokenizer,
    tool_format: ToolFormat,
    body: ChatCompletionRequest | TokenizeRequest,
    *,
    limit_s: float = RENDER_S,
    limit_tokens: int | None = None,
) -> list[int]:
    """Render and tokenize a conversation. For the limits see `Tokenizer.encode_chat`.

    Raises:
        InvalidRequestError: there is no chat template, or it refuses the messages.
        TemplateTimeoutError: the template takes too long.

    """
    messages, variables = body.conversation(), body.template_variables
    if "tools" in variables and not tool_format.in_template:
        messages = spelled_out(messages, variables.pop("tools"), tool_format)
    return tokenizer.encode_chat(
        messages,
        add_generation_prompt=body.opens_turn,
        continue_final_message=body.continue_final_message,
        variables=variables,
        limit_s=limit_s,
        limit_tokens=limit_tokens,
    )
