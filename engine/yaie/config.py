"""What a loaded model is and can do, as the engine tells the HTTP process."""

from typing import Final, Literal

import msgspec

from yaie_api.errors import InvalidRequestError

Task = Literal["generate", "embed", "classify"]
ABILITIES: Final[dict[Task, str]] = {
    "generate": "generate text",
    "embed": "make embeddings",
    "classify": "classify texts",
}
"""What a model can be asked for, in words."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine tells the HTTP process once the model is loaded. Sizes in bytes or tokens.

    `implementation`: native, paged transformers, or transformers. `tasks`: what it can be asked
    for. `tokenizer_path`: folder of the tokenizer. `pooling`: how
    embeddings are made. `num_labels`: classes of a sequence classifier.
    """

    served_model_name: str
    path: str
    architecture: str
    parameters: int
    weight_bytes: int
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    kv_pages: int
    page_size: int
    device: str
    dtype: str
    implementation: str = "native"
    tasks: tuple[Task, ...] = ("generate", "embed")
    tokenizer_path: str = ""
    hidden_size: int = 0
    num_labels: int = 0
    pooling: str = "last"
    max_logprobs: int = 20

    def require(self, task: Task) -> None:
        """Refuse a task that the model cannot do.

        Raises:
            InvalidRequestError: the model has no head for the task; the error says what it can do.

        """
        if task not in self.tasks:
            able = " and ".join(ABILITIES[one] for one in self.tasks)
            raise InvalidRequestError(
                f"This model cannot {ABILITIES[task]}; it can {able}.",
                param="model",
                code="task_not_supported",
            )
