"""Turns texts and conversations into token ids, with the model's tokenizer where there is one."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from yaie.config import ModelInfo
from yaie.core.request import SamplingParams
from yaie.offline import inputs
from yaie.text import tools
from yaie.text.bad_words import bad_words_ids
from yaie.text.grammar.forms import grammar_of
from yaie.text.prompt.conversation import conversation_ids
from yaie.text.prompt.tokenizer import Tokenizer
from yaie.text.tools import ToolFormat
from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai import TokenizeRequest


class Reader:
    """Reads what callers give, as the server would. `found`: the tokenizer, or None."""

    def __init__(self, info: ModelInfo) -> None:
        folder = Path(info.tokenizer_path or info.path)
        there = (folder / "tokenizer.json").is_file()
        self.found = Tokenizer.load(folder) if there else None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            InvalidRequestError: the model has none.

        """
        if self.found is None:
            raise InvalidRequestError(
                "The model has no tokenizer.json: give token ids instead of text.", param="prompt"
            )
        return self.found

    def prompt_ids(self, prompt: inputs.BarePrompt) -> tuple[int, ...]:
        """Token ids of one prompt."""
        if isinstance(prompt, str):
            return tuple(self.tokenizer.encode(prompt))
        return inputs.token_ids(prompt)

    def chat_ids(self, conversation: TokenizeRequest) -> list[int]:
        """Token ids of one conversation."""
        return conversation_ids(self.tokenizer, self._tool_format, conversation)

    def complete(
        self, sampling: SamplingParams, structured_outputs: Mapping[str, Any] | None
    ) -> SamplingParams:
        """Fill in what needs the tokenizer, and the form of the output."""
        changes: dict[str, Any] = {}
        if sampling.bad_words and not sampling.bad_words_ids:
            changes["bad_words_ids"] = bad_words_ids(sampling.bad_words, self.tokenizer)
        if structured_outputs is not None:
            changes["grammar"] = grammar_of({"structured_outputs": structured_outputs})
        return msgspec.structs.replace(sampling, **changes) if changes else sampling

    @cached_property
    def _tool_format(self) -> ToolFormat:
        return tools.format_for(self.tokenizer.template_source)
