"""The observed state of the cluster: a store, updated by events and replaced by full lists, and the
frozen views of it that one reconcile uses.

Watches may lose, repeat or reorder events. So the store compares resourceVersions, and a full list
of a kind decides which objects exist. A child that is not in the store is taken for absent: its
creation fails if an object without the operator's label has its name. From then on its name is
`uncertain`, and it is read from the API server.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from yaie_api import names
from yaie_operator.cluster import Cluster, Kind, Object, label
from yaie_operator.model import served_names
from yaie_operator.resources.mounts import object_name
from yaie_operator.watch import kinds
from yaie_operator.watch.slim import slim


class Ref(NamedTuple):
    """Identity of an object by name."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Object) -> "Ref":
        metadata = obj["metadata"]
        return cls(obj["kind"], metadata.get("namespace", ""), metadata["name"])


def version(obj: Object) -> int:
    """The resourceVersion as a number: larger is newer, across all objects of a cluster."""
    return int(obj["metadata"].get("resourceVersion") or 0)


class Store:
    """Last known state of every object that the operator watches. One event loop owns the store."""

    def __init__(self) -> None:
        self._objects: dict[Ref, Object] = {}
        self._buckets: dict[tuple[str, str, str], dict[Ref, Object]] = {}
        self._serving: dict[tuple[str, str], dict[Ref, Object]] = {}  # by namespace, served name
        self._touched: dict[Ref, int] = {}
        self._removed: dict[Ref, int] = {}  # version at deletion, kept until the next full list
        self._uncertain: set[Ref] = set()
        self._lost: dict[Ref, Object] = {}  # deleted, by somebody else; see `lost`
        self._tick = 0

    def get(self, ref: Ref) -> Object | None:
        return self._objects.get(ref)

    def models(self, namespace: str | None = None) -> list[Object]:
        """InferenceModels that are not being deleted, in one namespace or (None) in all."""
        buckets = (
            [bucket for key, bucket in self._buckets.items() if key[0] == names.KIND]
            if namespace is None
            else [self._buckets.get((names.KIND, namespace, ""), {})]
        )
        every = (obj for bucket in buckets for obj in bucket.values())
        return [obj for obj in every if not obj["metadata"].get("deletionTimestamp")]

    def namesakes(self, model: Object) -> list[Object]:
        """Other InferenceModels of its namespace that serve a name of this one, and are not being
        deleted. Looked up by name: with a thousand models in a namespace, to go through all of them
        was half of a look at one.
        """
        ref = Ref.of(model)
        found: dict[Ref, Object] = {}
        for name in served_names(model):
            found |= self._serving.get((ref.namespace, name), {})
        others = (obj for other, obj in found.items() if other != ref)
        return [obj for obj in others if not obj["metadata"].get("deletionTimestamp")]

    def namespaces(self) -> set[str]:
        """Namespaces with objects of ours, with or without models."""
        return {namespace for _, namespace, _ in self._buckets}

    def pods(self, namespace: str, model: str) -> list[Object]:
        """Pods of one model's engines; `model=""`: pods of the router."""
        return [pod for pod in self._pods(namespace, model) if not _is_download(pod)]

    def downloads(self, namespace: str, model: str) -> list[Object]:
        """Pods that download one model's weights, those that have ended included."""
        return [pod for pod in self._pods(namespace, model) if _is_download(pod)]

    def _pods(self, namespace: str, model: str) -> Iterable[Object]:
        return self._buckets.get(("Pod", namespace, model), {}).values()

    def slices(self, namespace: str, service: str) -> list[Object]:
        """EndpointSlices of one Service."""
        return list(self._buckets.get(("EndpointSlice", namespace, service), {}).values())

    def put(self, obj: Object) -> bool:
        """Store a newer state. False if this state or a newer one is already known."""
        ref = Ref.of(obj)
        known = self._objects.get(ref)
        newest = version(known) if known is not None else self._removed.get(ref, -1)
        if version(obj) <= newest:
            return False
        self._insert(ref, obj)
        return True

    def remove(self, obj: Object) -> bool:
        """Remove a deleted object. False if no object of its name and uid is known."""
        ref = Ref.of(obj)
        known = self._objects.get(ref)
        if known is None or known["metadata"]["uid"] != obj["metadata"]["uid"]:
            return False
        self._lose(ref)
        self._removed[ref] = max(version(known), version(obj))
        return True

    def lost(self, ref: Ref) -> Object | None:
        """The last state of a router's Service or Secret that is not there any more: what takes its
        place should have its address, or its key.
        """
        return self._lost.get(ref)

    def forget_lost(self, namespace: str) -> None:
        """Give up the addresses and keys of what a namespace has lost."""
        for ref in [ref for ref in self._lost if ref.namespace == namespace]:
            del self._lost[ref]

    def forget(self, ref: Ref) -> None:
        """Drop an object whose state is uncertain; the next view reads it from the API server."""
        self._uncertain.add(ref)
        if ref in self._objects:
            self._drop(ref)

    def is_uncertain(self, ref: Ref) -> bool:
        """Whether an object that is not in the store may exist: a write has met it."""
        return ref in self._uncertain

    def is_absent(self, ref: Ref) -> None:
        """Note that the API server has no object of this name."""
        self._uncertain.discard(ref)

    def mark(self) -> int:
        """A point in the store's history for `replace`; take it before requesting a list."""
        return self._tick

    def lags(self, kind: Kind, objects: Iterable[Object], *, namespace: str | None = None) -> int:
        """In how many objects the store is behind a full list (of one namespace)."""
        listed = {Ref.of(obj): obj for obj in objects}
        known = {ref: self._objects[ref] for ref in self._of(kind, namespace)}
        behind = sum(
            ref not in known or version(known[ref]) < version(obj) for ref, obj in listed.items()
        )
        newest = max(map(version, listed.values()), default=0)
        gone = (obj for ref, obj in known.items() if ref not in listed)
        return behind + sum(version(obj) < newest for obj in gone)

    def _of(self, kind: Kind, namespace: str | None) -> list[Ref]:
        return [
            ref
            for ref in self._objects
            if ref.kind == kind.kind and namespace in {None, ref.namespace}
        ]

    def replace(
        self, kind: Kind, objects: Iterable[Object], *, since: int, namespace: str | None = None
    ) -> None:
        """Take over a full list of a kind (in one namespace), requested after `mark()` returned
        `since`.

        Objects that changed in the store since then are kept. For all others the list is
        authoritative, even with smaller versions (after a restore from a backup).
        """
        listed = {Ref.of(obj): obj for obj in objects}
        settled = {ref for ref in self._of(kind, namespace) if self._touched[ref] <= since}
        for ref in settled - listed.keys():
            self._lose(ref)
        for ref, obj in listed.items():
            if ref not in settled:
                self.put(obj)
            elif version(obj) != version(self._objects[ref]):
                self._insert(ref, obj)
        self._removed = {
            ref: removed
            for ref, removed in self._removed.items()
            if ref.kind != kind.kind or namespace not in {None, ref.namespace}
        }

    def _insert(self, ref: Ref, obj: Object) -> None:
        if ref in self._objects:
            self._drop(ref)
        self._removed.pop(ref, None)
        self._uncertain.discard(ref)
        self._lost.pop(ref, None)
        self._tick += 1
        self._objects[ref] = slimmed = slim(obj)
        self._touched[ref] = self._tick
        self._buckets.setdefault(_bucket(ref, slimmed), {})[ref] = slimmed
        for key in _served(ref, slimmed):
            self._serving.setdefault(key, {})[ref] = slimmed

    def _lose(self, ref: Ref) -> None:
        if (ref.kind, ref.name) in _KEPT_IN_MIND:
            self._lost[ref] = self._objects[ref]
        self._drop(ref)

    def _drop(self, ref: Ref) -> None:
        obj = self._objects.pop(ref)
        del self._touched[ref]
        bucket = self._buckets[_bucket(ref, obj)]
        del bucket[ref]
        if not bucket:
            del self._buckets[_bucket(ref, obj)]
        for key in _served(ref, obj):
            del self._serving[key][ref]
            if not self._serving[key]:
                del self._serving[key]


def _served(ref: Ref, obj: Object) -> Iterator[tuple[str, str]]:
    """The names, with their namespace, that an object serves if it is an InferenceModel."""
    if ref.kind == names.KIND:
        yield from ((ref.namespace, name) for name in served_names(obj))


def _is_download(pod: Object) -> bool:
    return label(pod, names.LABEL_COMPONENT) == names.COMPONENT_WEIGHTS


def _bucket(ref: Ref, obj: Object) -> tuple[str, str, str]:
    """Key of the objects that are looked up together: a model's pods, a Service's slices, or a kind
    in a namespace.
    """
    by = _LOOKED_UP_BY.get(ref.kind)
    return (ref.kind, ref.namespace, label(obj, by) if by else "")


_LOOKED_UP_BY: Final = {"Pod": names.LABEL_MODEL, "EndpointSlice": names.LABEL_SERVICE_NAME}


_KEPT_IN_MIND: Final = frozenset(
    ((kinds.SERVICE.kind, names.ROUTER), (kinds.SECRET.kind, names.ROUTER_SECRET))
)


@dataclass(frozen=True)
class SharedView:
    """A namespace: its models, and the objects (ours or foreign) that have the shared names.

    `models`: all of them; in the view of one model, that one. `slices`: EndpointSlices of the
    router's Service. `lost`: the last state of a Service or Secret that somebody has deleted.
    """

    namespace: str
    models: tuple[Object, ...]
    objects: Mapping[Ref, Object]
    pods: tuple[Object, ...] = ()
    slices: tuple[Object, ...] = ()
    lost: Mapping[str, Object] = field(default_factory=dict)
    """By kind."""
    refusal: str = ""
    """The API server's message when it last refused one of the shared objects, or ""."""

    def get(self, kind: str, name: str) -> Object | None:
        return self.objects.get(Ref(kind, self.namespace, name))

    @property
    def router(self) -> Object | None:
        return self.get("Deployment", names.ROUTER)


@dataclass(frozen=True)
class ModelView:
    """One model, and the objects (ours or foreign) that have its children's names.

    `slices`: EndpointSlices of its Service; `downloads`: pods that download its weights;
    `namesakes`: other models that serve a name of this one.
    """

    model: Object
    objects: Mapping[Ref, Object]
    pods: tuple[Object, ...]
    shared: SharedView = field(repr=False)
    slices: tuple[Object, ...] = ()
    downloads: tuple[Object, ...] = ()
    namesakes: tuple[Object, ...] = ()

    @property
    def metadata(self) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = self.model["metadata"]
        return metadata

    @property
    def deployment(self) -> Object | None:
        return self.objects.get(
            Ref("Deployment", self.metadata["namespace"], self.metadata["name"])
        )

    @property
    def claim(self) -> Object | None:
        """The claim that the weights are kept in, whoever made it."""
        name = wanted_claim(self.model)
        return self.objects.get(Ref(kinds.CLAIM.kind, self.metadata["namespace"], name))

    @property
    def job(self) -> Object | None:
        """The download."""
        name = object_name(self.metadata["name"])
        return self.objects.get(Ref(kinds.JOB.kind, self.metadata["namespace"], name))


def wanted_claim(model: Object) -> str:
    """The name of the claim that a stored model's weights are kept in; "": in none."""
    cache = model.get("spec", {}).get("cache") or {}
    if cache.get("mode") != "pvc":
        return ""
    return str(cache.get("claim") or object_name(model["metadata"]["name"]))


def _owners(pod: Object) -> set[str]:
    """Uids of a pod's owners. A pod that somebody else has labelled like a download's tells us
    nothing.
    """
    return {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}


async def _cache(store: Store, cluster: Cluster, model: Object) -> dict[Ref, Object]:
    """The claim and the Job of a model with a cache; of another, a Job that is left. A claim of the
    user is in no watch and is read.
    """
    namespace, name = model["metadata"]["namespace"], object_name(model["metadata"]["name"])
    job = await _objects(store, cluster, [Ref(kinds.JOB.kind, namespace, name)])
    if not (wanted := wanted_claim(model)):
        return job
    claim = Ref(kinds.CLAIM.kind, namespace, wanted)
    return job | await _objects(store, cluster, [claim], live=wanted != name)


async def observe_model(
    store: Store, cluster: Cluster, namespace: str, name: str
) -> ModelView | None:
    """The view of one model; None if it does not exist or is being deleted."""
    model = store.get(Ref(names.KIND, namespace, name))
    if model is None or model["metadata"].get("deletionTimestamp"):
        return None
    refs = [Ref(child.kind.kind, namespace, name) for child in kinds.OF_MODEL]
    own = await _objects(store, cluster, refs)
    cache = await _cache(store, cluster, model)
    jobs = {obj["metadata"]["uid"] for ref, obj in cache.items() if ref.kind == kinds.JOB.kind}
    return ModelView(
        model=model,
        objects=own | cache,
        pods=tuple(store.pods(namespace, name)),
        slices=tuple(store.slices(namespace, name)),
        downloads=tuple(
            pod for pod in store.downloads(namespace, name) if not jobs.isdisjoint(_owners(pod))
        ),
        namesakes=tuple(store.namesakes(model)),
        shared=await _shared(store, cluster, namespace, (model,)),
    )


async def observe_shared(store: Store, cluster: Cluster, namespace: str) -> SharedView:
    """The view of a namespace. Without a model, all that it shares is read: what lost its label and
    is in no watch would stay for ever.
    """
    return await _shared(store, cluster, namespace, tuple(store.models(namespace)))


async def _shared(
    store: Store, cluster: Cluster, namespace: str, models: tuple[Object, ...]
) -> SharedView:
    refs = [Ref(child.kind.kind, namespace, child.name) for child in kinds.OF_NAMESPACE]
    return SharedView(
        namespace=namespace,
        models=models,
        objects=await _objects(store, cluster, refs, live=not models),
        pods=tuple(store.pods(namespace, "")),
        slices=tuple(store.slices(namespace, names.ROUTER)),
        lost={ref.kind: obj for ref in refs if (obj := store.lost(ref)) is not None},
    )


async def _objects(
    store: Store, cluster: Cluster, refs: Iterable[Ref], *, live: bool = False
) -> dict[Ref, Object]:
    """The objects of these names. `live`: those that are not in the store are read as well."""
    found: dict[Ref, Object] = {}
    for ref in refs:
        obj = store.get(ref)
        if obj is None and (live or store.is_uncertain(ref)):
            kind = kinds.BY_NAME[ref.kind]
            obj = await cluster.get(kind, namespace=ref.namespace, name=ref.name)
            if obj is None:
                store.is_absent(ref)
        if obj is not None:
            found[ref] = obj
    return found


_OWN: Final = frozenset(child.kind.kind for child in kinds.OF_MODEL)


def keys_of(obj: Object, models: Callable[[str], Iterable[Object]]) -> Iterator[str]:
    """Keys that a change of `obj` wakes. `models(namespace)` returns a namespace's models."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    if obj["kind"] == names.KIND:
        yield model_key(namespace, metadata["name"])
        yield namespace_key(namespace)
    elif model := label(obj, names.LABEL_MODEL):
        yield model_key(namespace, model)
        if obj["kind"] in _OWN and metadata["name"] != model:  # somebody has edited the label
            yield model_key(namespace, metadata["name"])
    else:
        yield namespace_key(namespace)
        for other in models(namespace):
            yield model_key(namespace, other["metadata"]["name"])


def model_key(namespace: str, name: str) -> str:
    return f"model/{namespace}/{name}"


def namespace_key(namespace: str) -> str:
    return f"namespace/{namespace}"
