"""Description of a loaded model, which the engine sends to the HTTP process."""

from typing import Final, Literal

import msgspec

from yaie_api.errors import InvalidRequestError

Task = Literal["generate", "embed", "classify"]
ABILITIES: Final[dict[Task, str]] = {
    "generate": "generate text",
    "embed": "make embeddings",
    "classify": "classify texts",
}
"""The tasks, as text for messages."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded model's properties. Sizes are in bytes or tokens.

    `implementation`: native, paged transformers, or transformers. `tasks`: the tasks that it
    supports. `tokenizer_path`: folder of the tokenizer. `pooling`: how hidden states become an
    embedding. `num_labels`: number of classes of a sequence classifier.
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
        """Refuse a task that the model does not support.

        Raises:
            InvalidRequestError: the model does not support it; the message names its tasks.

        """
        if task not in self.tasks:
            able = " and ".join(ABILITIES[one] for one in self.tasks)
            raise InvalidRequestError(
                f"This model cannot {ABILITIES[task]}; it can {able}.",
                param="model",
                code="task_not_supported",
            )
