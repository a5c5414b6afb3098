"""Guesses how many tokens a request will take, before an engine has counted them.

The router has no tokenizer. It learns how many bytes of a request make a token, for each model, and
how long the answers to each tenant are, from what engines report at the end.
"""

from typing import Final

_FIRST_BYTES: Final = 4.0
"""Of a request for each token of its prompt, before anything was reported."""
_LEAST_BYTES: Final = 0.25
_FIRST_ANSWER: Final = 128.0
_SMOOTHING: Final = 0.05


class TokenEstimate:
    """Moving means: bytes for each prompt token by model, tokens of an answer by tenant."""

    def __init__(self) -> None:
        self._bytes: dict[str, float] = {}
        self._answer: dict[str, float] = {}

    def of(self, model: str, tenant: str, size: int, most: int | None) -> int:
        """Tokens of prompt and answer. `size`: bytes of the request. `most`: its `max_tokens`."""
        answer = self._answer.get(tenant, _FIRST_ANSWER)
        return max(
            1, self.prompt(model, size) + round(answer if most is None else min(answer, most))
        )

    def prompt(self, model: str, size: int) -> int:
        """Tokens of the prompt alone."""
        return round(size / self._bytes.get(model, _FIRST_BYTES))

    def learn(self, model: str, tenant: str, size: int, prompt: int, answer: int) -> None:
        """Take in what an engine has reported: tokens of the prompt and of the answer."""
        if prompt > 0:
            found = max(_LEAST_BYTES, size / prompt)
            self._bytes[model] = _moved(self._bytes.get(model, found), found)
        self._answer[tenant] = _moved(self._answer.get(tenant, _FIRST_ANSWER), answer)

    def retain_tenants(self, tenants: frozenset[str]) -> None:
        """Forget tenants without a key."""
        for name in self._answer.keys() - tenants:
            del self._answer[name]

    def retain(self, models: set[str]) -> None:
        """Forget models that no longer exist."""
        for name in self._bytes.keys() - models:
            del self._bytes[name]


def _moved(mean: float, found: float) -> float:
    return mean + _SMOOTHING * (found - mean)
