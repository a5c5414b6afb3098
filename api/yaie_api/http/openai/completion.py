"""POST /v1/completions."""

from typing import Annotated, Final, Literal

from pydantic import Field

from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai.generation import GenerationRequest
from yaie_api.http.wire import Integer, TokenIds

MAX_PROMPTS: Final = 128
MAX_OUTPUTS: Final = 1024


class CompletionRequest(GenerationRequest):
    """Prompts to continue. A prompt is a text or token ids; a list of prompts is a batch.

    `logprobs`: number of most likely tokens to return for each token.
    """

    prompt: (
        str
        | TokenIds
        | Annotated[list[str], Field(fail_fast=True)]
        | Annotated[list[TokenIds], Field(fail_fast=True)]
    )
    logprobs: Annotated[Integer, Field(ge=-1)] | Literal[False] | None = None
    add_special_tokens: bool = True

    @property
    def num_logprobs(self) -> int | None:
        return None if self.logprobs is False else self.logprobs

    def prompts(self) -> list[str | list[int]]:
        """The list of prompts, each a text or token ids.

        Raises:
            InvalidRequestError: there is no prompt, a prompt has no tokens, or there are too many
                prompts or outputs.

        """
        found = _as_prompts(self.prompt)
        if not found or any(prompt == [] for prompt in found):
            raise InvalidRequestError("prompt must not be empty.", param="prompt")
        if len(found) > MAX_PROMPTS:
            raise InvalidRequestError(
                f"prompt has {len(found)} entries; at most {MAX_PROMPTS} are allowed.",
                param="prompt",
            )
        if len(found) * self.n > MAX_OUTPUTS:
            raise InvalidRequestError(
                f"{len(found)} prompts with {self.n} outputs each are more than {MAX_OUTPUTS}.",
                param="n",
            )
        return found


def _as_prompts(
    prompt: str | list[int] | list[str] | list[list[int]],
) -> list[str | list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    token_ids = [entry for entry in prompt if isinstance(entry, int)]
    if token_ids:
        return [token_ids]
    return [entry for entry in prompt if not isinstance(entry, int)]
