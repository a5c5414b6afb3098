"""The store of this machine's objects.

Each write gets the next resourceVersion, is in the journal before others see it, and is added to a
history that watches read. The store does not check contents: `api_verbs` and `admission` do. All
calls come from one event loop.
"""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from yaie_local.apiserver.journal import Journal, delete_entry, put_entry
from yaie_local.objects import Ref, matches, ref, timestamp, with_metadata
from yaie_operator.cluster import ConflictError, Kind, NotFoundError, Object, WatchEvent

HISTORY_EVENTS: Final = 4096


class ExpiredError(Exception):
    """The history no longer contains that resourceVersion (410); list again."""


@dataclass(frozen=True)
class Event:
    """One write in the history."""

    version: int
    change: WatchEvent


class Store:
    """Owner of all objects. Callers must not mutate the mappings that it returns."""

    def __init__(
        self,
        journal: Journal,
        *,
        clock: Callable[[], float] = time.time,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._new_uid = new_uid
        self._version, self._objects = journal.load()
        self._history: deque[Event] = deque(maxlen=HISTORY_EVENTS)
        self._oldest = self._version
        self._listeners: list[Callable[[], None]] = []
        journal.compact(self._version, self._objects.values())

    @property
    def version(self) -> int:
        """The resourceVersion of the last write."""
        return self._version

    def get(self, target: Ref) -> Object | None:
        return self._objects.get(target)

    def list(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Objects of a kind, sorted by namespace and name."""
        found = [
            obj
            for key, obj in self._objects.items()
            if (key.api_version, key.kind) == (kind.api_version, kind.kind)
            and namespace in (None, key.namespace)
            and matches(obj, labels)
        ]
        return sorted(found, key=lambda obj: ref(obj)[2:])

    def create(self, obj: Object) -> Object:
        """Store a new object, with uid, generation and creationTimestamp set.

        Raises:
            ConflictError: an object of this name exists.

        """
        target = ref(obj)
        if target in self._objects:
            raise ConflictError(f'{target.kind} "{target.name}" already exists')
        stamped = with_metadata(
            obj,
            uid=self._new_uid(),
            generation=1,
            creationTimestamp=timestamp(self._clock()),
        )
        return self._put("ADDED", stamped)

    def update(self, obj: Object) -> Object:
        """Replace an object. A changed spec increments the generation; an equal object is no write.

        Raises:
            ConflictError: `obj` has another resourceVersion or uid than the live object.
            NotFoundError: the object does not exist.

        """
        old = self.expect(obj)
        meta = old["metadata"]
        grown = meta["generation"] + (1 if _desired(obj) != _desired(old) else 0)
        new = with_metadata(
            obj,
            uid=meta["uid"],
            generation=grown,
            creationTimestamp=meta["creationTimestamp"],
            resourceVersion=meta["resourceVersion"],
        )
        return old if new == old else self._put("MODIFIED", new)

    def delete(self, obj: Object) -> None:
        """Remove an object immediately.

        Raises:
            ConflictError: `obj` has another resourceVersion or uid than the live object.
            NotFoundError: the object does not exist.

        """
        old = self.expect(obj)
        self._version += 1
        self._journal.append(delete_entry(self._version, ref(old)))
        del self._objects[ref(old)]
        last = with_metadata(old, resourceVersion=str(self._version))
        self._remember(Event(self._version, WatchEvent("DELETED", last)))

    def expect(self, observed: Object) -> Object:
        """The live object if it is still the observed one (by uid and resourceVersion, if given).

        Raises:
            ConflictError: the live object has another uid or resourceVersion.
            NotFoundError: the object does not exist.

        """
        target, meta = ref(observed), observed["metadata"]
        live = self._objects.get(target)
        if live is None:
            raise NotFoundError(f'{target.kind} "{target.name}" not found')
        for key in ("uid", "resourceVersion"):
            if meta.get(key) not in (None, live["metadata"][key]):
                raise ConflictError(
                    f'{target.kind} "{target.name}" changed since it was read; read it again'
                )
        return live

    def since(self, version: int) -> Iterable[Event]:
        """The writes after `version`, oldest first.

        Raises:
            ExpiredError: the history no longer contains them.

        """
        if version < self._oldest or version > self._version:
            raise ExpiredError(f"too old resource version: {version} ({self._oldest})")
        return [event for event in self._history if event.version > version]

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each write; returns a function that ends the subscription."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def follow(self, version: int) -> AsyncGenerator[Event]:
        """Every write after `version`, for ever.

        Raises:
            ExpiredError: the history is too short.

        """
        changed = asyncio.Event()
        unsubscribe = self.subscribe(changed.set)
        try:
            while True:
                changed.clear()
                for event in list(self.since(version)):
                    version = event.version
                    yield event
                await changed.wait()
        finally:
            unsubscribe()

    def close(self) -> None:
        self._journal.close()

    def _put(self, kind: Literal["ADDED", "MODIFIED"], obj: Mapping[str, Any]) -> Object:
        version = self._version + 1
        stored = with_metadata(obj, resourceVersion=str(version))
        self._journal.append(put_entry(stored))
        self._version = version
        self._objects[ref(stored)] = stored
        self._remember(Event(version, WatchEvent(kind, stored)))
        return stored

    def _remember(self, event: Event) -> None:
        if len(self._history) == HISTORY_EVENTS:
            self._oldest = self._history[0].version
        self._history.append(event)
        if self._journal.is_long:
            self._journal.compact(self._version, self._objects.values())
        for listener in list(self._listeners):
            listener()


def _desired(obj: Object) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}
