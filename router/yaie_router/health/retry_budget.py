"""How many requests may be sent again: a share of a model's requests, so that retries cannot pile
up on engines that fail under load.
"""

from collections.abc import Collection


class RetryBudget:
    """Retries are at most `ratio` of requests, with a small reserve for quiet times."""

    def __init__(self, ratio: float = 0.2, reserve: float = 10.0, most: float = 100.0) -> None:
        self._ratio = ratio
        self._most = most
        self._tokens = reserve

    def deposit(self) -> None:
        """Add what one request contributes to the budget."""
        self._tokens = min(self._most, self._tokens + self._ratio)

    def withdraw(self) -> bool:
        """Take one retry. Return False if the budget is spent."""
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class RetryBudgets:
    """One budget for each model, so that a failing model takes no retries from another."""

    def __init__(self) -> None:
        self._by_model: dict[str, RetryBudget] = {}

    def of(self, model: str) -> RetryBudget:
        budget = self._by_model.get(model)
        if budget is None:
            budget = self._by_model[model] = RetryBudget()
        return budget

    def retain(self, models: Collection[str]) -> None:
        """Forget models that no longer exist."""
        for name in self._by_model.keys() - set(models):
            del self._by_model[name]
