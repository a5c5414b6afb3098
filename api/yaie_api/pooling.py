"""Wire types of requests whose answer is numbers, not text: embeddings, scores, ranks, classes.

Shapes follow OpenAI (embeddings), vLLM (score, classify), and Jina and Cohere (rerank).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from yaie_api.errors import InvalidRequestError
from yaie_api.wire import ModelRequest, TokenIds, Wire

MAX_INPUTS: Final = 2048
MAX_SALT_LENGTH: Final = 128

_Texts = Annotated[list[str], Field(fail_fast=True)]
Input = str | TokenIds | _Texts | Annotated[list[TokenIds], Field(fail_fast=True)]
"""A text or token ids, or a list of either."""


class PoolingRequest(ModelRequest):
    """What these requests share.

    `truncate_prompt_tokens`: keep this many tokens of an input that has more; -1: as many as the
    model takes. Without it an input that is too long is an error. `use_activation`: classifiers
    answer with probabilities, otherwise with logits.
    """

    truncate_prompt_tokens: Annotated[int, Field(strict=True, ge=-1)] | None = None
    truncation_side: Literal["left", "right"] = "right"
    cache_salt: Annotated[str, Field(max_length=MAX_SALT_LENGTH)] | None = None
    priority: Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)] = 0
    use_activation: bool = True

    @model_validator(mode="after")
    def _check_truncation(self) -> Self:
        if self.truncate_prompt_tokens == 0:
            raise InvalidRequestError(
                "truncate_prompt_tokens must be positive, or -1.", param="truncate_prompt_tokens"
            )
        return self


class InputRequest(PoolingRequest):
    """A request over a list of inputs of its own."""

    input: Input
    add_special_tokens: bool = True

    def inputs(self) -> list[str | list[int]]:
        """The inputs one by one. At least one, at most MAX_INPUTS, none empty."""
        found = _one_by_one(self.input)
        _check_count(len(found), "input")
        if any(not one for one in found):
            raise InvalidRequestError("input must not be empty.", param="input")
        return found


class EmbeddingRequest(InputRequest):
    """POST /v1/embeddings. `dimensions`: keep so many numbers of each vector (Matryoshka)."""

    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(strict=True, ge=1)] | None = None
    normalize: bool = True
    user: str | None = None

    @classmethod
    def refuse(cls, given: Mapping[str, Any]) -> None:
        """Conversations as inputs are vLLM's own and not understood here."""
        if "messages" in given:
            raise InvalidRequestError(
                "messages is not supported here; give their text as input.",
                param="messages",
                code="unsupported_parameter",
            )


class ClassifyRequest(InputRequest):
    """POST /classify."""


class ScoreRequest(PoolingRequest):
    """POST /score: pairs of texts, under any of the names that servers use for the two sides."""

    text_1: str | _Texts | None = None
    text_2: str | _Texts | None = None
    queries: str | _Texts | None = None
    documents: str | _Texts | None = None
    items: str | _Texts | None = None
    data_1: str | _Texts | None = None
    data_2: str | _Texts | None = None

    def pairs(self) -> list[tuple[str, str]]:
        """One left text goes with every right one; otherwise the two lists pair up."""
        left = self._side("text_1", self.text_1, self.queries, self.data_1)
        right = self._side("text_2", self.text_2, self.documents, self.items, self.data_2)
        if len(left) == 1:
            left = left * len(right)
        if len(left) != len(right):
            raise InvalidRequestError(
                f"text_1 has {len(left)} texts and text_2 has {len(right)}: give one or as many.",
                param="text_1",
            )
        _check_count(len(right), "text_2")
        return list(zip(left, right, strict=True))

    def _side(self, name: str, *spellings: str | list[str] | None) -> list[str]:
        given = [spelling for spelling in spellings if spelling is not None]
        if len(given) != 1:
            raise InvalidRequestError(f"{name} is required, once.", param=name)
        texts = [given[0]] if isinstance(given[0], str) else given[0]
        if not texts or not all(texts):
            raise InvalidRequestError(f"{name} must not be empty.", param=name)
        return texts


class Document(Wire):
    """A document to rank, as an object."""

    text: str


class RerankRequest(PoolingRequest):
    """POST /rerank. `top_n`: keep the best; 0 or none: all."""

    query: str
    documents: Annotated[list[str | Document], Field(fail_fast=True)]
    top_n: Annotated[int, Field(strict=True, ge=0)] | None = None
    return_documents: bool = True

    def texts(self) -> list[str]:
        """The documents' texts. At least one, at most MAX_INPUTS, none empty."""
        found = [one if isinstance(one, str) else one.text for one in self.documents]
        _check_count(len(found), "documents")
        if not self.query:
            raise InvalidRequestError("query must not be empty.", param="query")
        if not all(found):
            raise InvalidRequestError("documents must not be empty.", param="documents")
        return found


def _one_by_one(given: str | list[int] | list[str] | list[list[int]]) -> list[str | list[int]]:
    if isinstance(given, str):
        return [given]
    token_ids = [entry for entry in given if isinstance(entry, int)]
    if token_ids:
        return [token_ids]
    return [entry for entry in given if not isinstance(entry, int)]


def _check_count(count: int, name: str) -> None:
    if not 1 <= count <= MAX_INPUTS:
        raise InvalidRequestError(
            f"{name} has {count} entries; 1 to {MAX_INPUTS} are allowed.", param=name
        )
