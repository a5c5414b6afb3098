"""Wire types of requests whose result is numbers: embeddings, scores, ranks, classes.

The forms are those of OpenAI (embeddings), vLLM (score, classify), and Jina and Cohere (rerank).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai.refused import NEVER, Harmless, only, refuse_all_but
from yaie_api.http.wire import CacheSalt, NamedRequest, Priority, TokenIds, Truncation, Wire

MAX_INPUTS: Final = 2048

_Texts = Annotated[list[str], Field(fail_fast=True)]
Input = str | TokenIds | _Texts | Annotated[list[TokenIds], Field(fail_fast=True)]
"""A text or token ids, or a list of either."""

NOT_SERVED: Final[Mapping[str, Harmless]] = {
    "activation": only(True),
    "add_generation_prompt": only(False),
    "add_special_tokens": only(True),
    "apply_softmax": only(False),
    "chat_template": NEVER,
    "chat_template_kwargs": only({}),
    "continue_final_message": only(False),
    "dimensions": NEVER,
    "embed_dtype": only("float32"),
    "embedding_types": only(["float"]),
    "encoding_format": only("float"),
    "endianness": only("native", "little"),
    "input_type": NEVER,
    "instruction": only(""),
    "item_first": only(False),
    "label_token_ids": NEVER,
    "max_chunks_per_doc": NEVER,
    "max_tokens_per_doc": only(0),
    "max_tokens_per_query": only(0),
    "messages": NEVER,
    "normalize": only(True),
    "padding": only("do_not_pad"),
    "rank_fields": only(["text"]),
    "softmax": only(True),
    "truncate": only("NONE", False),
}
"""Fields of vLLM, SGLang and Cohere that would change the result → predicate of values that request
nothing. A field that a type of request implements is accepted.
"""

INSTEAD: Final = {
    "activation": "use use_activation",
    "embed_dtype": "numbers are float32",
    "embedding_types": "use encoding_format",
    "endianness": "numbers are little-endian",
    "input_type": "write the model's own prefix into the text",
    "instruction": "write it into the text",
    "max_tokens_per_doc": "use truncate_prompt_tokens",
    "messages": "give their text as input",
    "softmax": "use use_activation",
    "truncate": "use truncate_prompt_tokens",
}


class PoolingRequest(NamedRequest):
    """The fields that these requests share.

    `truncate_prompt_tokens`: number of tokens to keep of a longer input; -1: as many as the model
    accepts; None: an input that is too long is an error. `use_activation`: classifiers return
    probabilities instead of logits, and embeddings are normalised to unit length.
    """

    truncate_prompt_tokens: Truncation | None = None
    truncation_side: Literal["left", "right"] = "right"
    cache_salt: CacheSalt | None = None
    priority: Priority = 0
    use_activation: bool = True

    @classmethod
    def refuse(cls, given: Mapping[str, Any]) -> None:
        refuse_all_but(NOT_SERVED, INSTEAD, given, frozenset(cls.model_fields))


class InputRequest(PoolingRequest):
    """A request with a list of inputs."""

    input: Input
    add_special_tokens: bool = True

    def inputs(self) -> list[str | list[int]]:
        """The list of inputs: 1 to MAX_INPUTS, none empty.

        Raises:
            InvalidRequestError: there are none or too many, or one is empty.

        """
        found = _one_by_one(self.input)
        _check_count(len(found), "input")
        if any(not one for one in found):
            raise InvalidRequestError("input must not be empty.", param="input")
        return found


class EmbeddingRequest(InputRequest):
    """POST /v1/embeddings.

    `dimensions`: length to which vectors are cut (Matryoshka embeddings, arXiv:2205.13147).
    """

    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(strict=True, ge=1)] | None = None
    normalize: bool = True
    user: str | None = None

    @property
    def normalized(self) -> bool:
        """Whether vectors are normalised to unit length, the activation of embeddings."""
        return self.normalize and self.use_activation


class ClassifyRequest(InputRequest):
    """POST /classify."""


LEFT: Final = ("text_1", "queries", "data_1")
RIGHT: Final = ("text_2", "documents", "items", "data_2")
"""What the two sides of pairs are called, by us and by other servers."""


class ScoreRequest(PoolingRequest):
    """POST /score: pairs of texts, with the field names of several servers for the two sides."""

    text_1: str | _Texts | None = None
    text_2: str | _Texts | None = None
    queries: str | _Texts | None = None
    documents: str | _Texts | None = None
    items: str | _Texts | None = None
    data_1: str | _Texts | None = None
    data_2: str | _Texts | None = None

    def pairs(self) -> list[tuple[str, str]]:
        """The pairs (left, right): a single left text is paired with every right text, otherwise
        the two lists are paired by index.

        Raises:
            InvalidRequestError: the numbers of texts differ, or are zero or too large.

        """
        first, second = self.fields()
        left, right = self._texts(first), self._texts(second)
        if len(left) == 1:
            left = left * len(right)
        if len(left) != len(right):
            raise InvalidRequestError(
                f"{first} has {len(left)} texts and {second} has {len(right)}: give one or as "
                "many.",
                param=first,
            )
        _check_count(len(right), second)
        return list(zip(left, right, strict=True))

    def fields(self) -> tuple[str, str]:
        """The names of the two fields that the client has used.

        Raises:
            InvalidRequestError: a side is missing, or given twice.

        """
        return self._one_of(*LEFT), self._one_of(*RIGHT)

    def _one_of(self, *names: str) -> str:
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            twice = f", not as {' and '.join(given)}" if given else ""
            raise InvalidRequestError(
                f"{names[0]} is required, once{twice}.", param=given[-1] if given else names[0]
            )
        return given[0]

    def _texts(self, name: str) -> list[str]:
        given: str | list[str] = getattr(self, name)
        texts = [given] if isinstance(given, str) else given
        if not texts or not all(texts):
            raise InvalidRequestError(f"{name} must not be empty.", param=name)
        return texts


class Document(Wire):
    """A document to rank, as an object."""

    text: str


class RerankRequest(PoolingRequest):
    """POST /rerank. `top_n`: number of best documents to return; 0 or None: all."""

    query: str
    documents: Annotated[list[str | Document], Field(fail_fast=True)]
    top_n: Annotated[int, Field(strict=True, ge=0)] | None = None
    return_documents: bool = True

    def texts(self) -> list[str]:
        """The documents' texts: 1 to MAX_INPUTS, none empty.

        Raises:
            InvalidRequestError: the query or a document is empty, or there are no documents or too
                many.

        """
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
