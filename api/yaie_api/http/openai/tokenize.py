"""POST /tokenize and /detokenize, in vLLM's form."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import model_validator

from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai.chat import TemplateVariables, check_turns, opens_turn
from yaie_api.http.openai.messages import Messages, conversation
from yaie_api.http.openai.refused import refuse_not_implemented
from yaie_api.http.openai.tools import Tools
from yaie_api.http.wire import ModelRequest, TokenIds


class TokenizeRequest(ModelRequest):
    """A prompt, or messages that the chat template renders."""

    prompt: str | None = None
    messages: Messages | None = None
    tools: Tools | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    return_token_strs: bool = False
    chat_template_kwargs: TemplateVariables | None = None

    @classmethod
    def refuse(cls, given: Mapping[str, Any]) -> None:
        refuse_not_implemented(given, frozenset(cls.model_fields))

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequestError("give either prompt or messages.", param="prompt")
        if (
            self.messages
            and self.add_special_tokens
            and "add_special_tokens" in self.model_fields_set
        ):
            raise InvalidRequestError(
                "add_special_tokens is not supported with messages: the chat template writes them; "
                "leave it out.",
                param="add_special_tokens",
                code="unsupported_parameter",
            )
        check_turns(
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
        )
        return self

    @property
    def opens_turn(self) -> bool:
        """Whether the prompt ends with the beginning of the assistant's turn."""
        return opens_turn(
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
        )

    @property
    def template_variables(self) -> dict[str, Any]:
        tools = [tool.for_template() for tool in self.tools or ()]
        return ({"tools": tools} if tools else {}) | (self.chat_template_kwargs or {})

    @property
    def num_characters(self) -> int:
        """Approximate size of the messages, which decides where they are rendered."""
        return sum(one.num_characters for one in (*(self.messages or ()), *(self.tools or ())))

    def conversation(self) -> list[dict[str, Any]]:
        return conversation(self.messages)


class DetokenizeRequest(ModelRequest):
    """Token ids to turn into text."""

    tokens: TokenIds
