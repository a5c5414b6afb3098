"""Asks one engine of each model, once for each version of its pods, what it has loaded.

That is for `status.model` and `status.capacity`. No reconcile costs a request, and no look of the
autoscaler another one: these sizes do not change while an engine runs.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from yaie_api import names
from yaie_operator.autoscaling.exposition import EngineFigures
from yaie_operator.autoscaling.scrape import Place, places
from yaie_operator.cluster import Object, label
from yaie_operator.reconcile.observe import Store, model_key
from yaie_operator.reconcile.pods import is_ready
from yaie_operator.reconcile.sizes import Sizes

RETRY_S: Final = 30.0
"""Seconds until an engine that does not say its sizes is asked again."""


class EnginePages(Protocol):
    """Figures of engines by pod, None for a pod of which there are none."""

    async def engines(self, pods: Iterable[Place]) -> Mapping[str, EngineFigures | None]: ...


@dataclass(frozen=True)
class Known:
    """What a model's engine said.

    Attributes:
        about: uid of the model and template hash of the pod that was asked.
        sizes: None: it did not say them.
        asked_s: when.

    """

    about: tuple[str, str]
    sizes: Sizes | None
    asked_s: float


class SizeKeeper:
    """The sizes of every model's engines. `wake(key)` has a model's status written."""

    def __init__(
        self,
        store: Store,
        *,
        wake: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._wake = wake
        self._monotonic = monotonic
        self._known: dict[tuple[str, str], Known] = {}

    def sizes(self, namespace: str, name: str) -> Sizes | None:
        """What an engine of this model said last; None: none has, since this process leads."""
        known = self._known.get((namespace, name))
        return known.sizes if known is not None else None

    async def look(self, pages: EnginePages) -> None:
        """Ask an engine of every model whose pods have a version that has not said its sizes."""
        models = {_key(model): model for model in self._store.models()}
        for gone in self._known.keys() - models.keys():
            del self._known[gone]
        asked: dict[str, dict[str, Object]] = defaultdict(dict)
        for (namespace, name), model in models.items():
            if (pod := self._to_ask(namespace, name, model)) is not None:
                asked[namespace][name] = pod
        await asyncio.gather(*(self._ask(pages, *each, models) for each in asked.items()))

    def _to_ask(self, namespace: str, name: str, model: Object) -> Object | None:
        """The newest ready engine if it is to be asked, else None."""
        ready = [pod for pod in self._store.pods(namespace, name) if is_ready(pod)]
        newest = max(ready, key=_age, default=None)
        if newest is None:
            return None
        known = self._known.get((namespace, name))
        if known is None or known.about != _about(model, newest):
            return newest
        is_due = known.sizes is None and self._monotonic() - known.asked_s >= RETRY_S
        return newest if is_due else None

    async def _ask(
        self,
        pages: EnginePages,
        namespace: str,
        pods: Mapping[str, Object],
        models: Mapping[tuple[str, str], Object],
    ) -> None:
        figures = await pages.engines(places(pods.values()))
        for name, pod in pods.items():
            found = figures.get(pod["metadata"]["name"])
            said = found.sizes if found is not None and found.sizes.context_tokens else None
            key = (namespace, name)
            self._known[key] = Known(_about(models[key], pod), said, self._monotonic())
            if said is not None:
                self._wake(model_key(*key))


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _about(model: Object, pod: Object) -> tuple[str, str]:
    return str(model["metadata"]["uid"]), label(pod, names.LABEL_TEMPLATE_HASH)


def _age(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]
