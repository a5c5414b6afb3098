"""Holds requests for a model that is scaled to zero until an engine is ready.

The autoscaler sees how many wait (`yaie_router_pending_requests`) and starts an engine. A model
sleeps only where `spec.autoscaling.min` is 0; a request for any other model without an engine gets
its 503 at once, and so does one for a suspended model, which no request wakes.
"""

import asyncio
import time
from collections import Counter

from yaie_api.errors import OverloadedError, UnavailableError
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Model

SUSPENDED_RETRY_S = 60.0
FULL_RETRY_S = 10.0


class Holding:
    """The requests that wait, by model: at most `most` for each, each for `timeout_s`.

    Callers may only read `pending`. `changed` has to be called after each change of the directory.
    """

    def __init__(self, directory: Directory, *, most: int, timeout_s: float) -> None:
        self.pending: Counter[str] = Counter()
        self._directory = directory
        self._most = most
        self._timeout_s = timeout_s
        self._change = asyncio.Event()

    def changed(self) -> None:
        """Have those that wait look at the directory again."""
        self._change.set()
        self._change = asyncio.Event()

    async def engine_of(self, model: Model) -> float:
        """Return when the model has a ready engine, or at once if no request is held for it.

        Returns the seconds that the request was held.

        Raises:
            OverloadedError: `most` requests wait already.
            UnavailableError: the model is suspended or deleted, or no engine was ready in time.

        """
        if not _sleeps(model):
            return 0.0
        started_s = time.perf_counter()
        if self.pending[model.name] >= self._most:
            raise OverloadedError(
                f"{self._most} requests wait for model {model.served!r} to start already.",
                retry_after_s=FULL_RETRY_S,
            )
        self.pending[model.name] += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._until_ready(model)
        except TimeoutError:
            awaiting = (self._directory.find(model.served) or model).awaiting
            raise UnavailableError(
                f"Model {model.served!r} did not start within {self._timeout_s:g} s: {awaiting}.",
                retry_after_s=FULL_RETRY_S,
            ) from None
        finally:
            self.pending[model.name] -= 1
            if not self.pending[model.name]:
                del self.pending[model.name]
        return time.perf_counter() - started_s

    async def _until_ready(self, model: Model) -> None:
        now: Model | None = model
        while now is not None and _sleeps(now):
            change = self._change  # taken before the look: a change in between is not lost
            now = self._directory.find(model.served)
            if now is not None and _sleeps(now):
                await change.wait()
        if now is None or now.name != model.name:
            raise UnavailableError(f"Model {model.served!r} was deleted while it started.")


def _sleeps(model: Model) -> bool:
    """Whether a request for this model waits for an engine.

    Raises:
        UnavailableError: it has none and is suspended.

    """
    if model.endpoints:
        return False
    if model.suspended:
        raise UnavailableError(
            f"Model {model.served!r} is suspended: spec.suspend is true. No request starts it.",
            code="model_suspended",
            retry_after_s=SUSPENDED_RETRY_S,
        )
    return model.wakes
