"""Reconciles one key: observe → desired → plan → apply → status.

The key `model/NAMESPACE/NAME` writes the children and the status of one model; the key
`namespace/NAMESPACE` writes the objects that a namespace's models share. The only state kept
between calls is what the API server refused or changed (`reconcile.refusals`), and what a model was
before a status write that got no answer: it may be stored all the same, and its Events are due.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from pydantic import ValidationError

from yaie_api.download.messages import Progress
from yaie_api.logs import fields
from yaie_operator.cluster import (
    Cluster,
    ConflictError,
    NotFoundError,
    Object,
    RefusedError,
    UnreachableError,
)
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ParsedModels, ServedModel, age_of, served_names
from yaie_operator.monitoring.metrics import Metrics
from yaie_operator.reconcile.cache.weights import Weights, decide, running_pod
from yaie_operator.reconcile.observe import (
    ModelView,
    Ref,
    SharedView,
    Store,
    model_key,
    namespace_key,
    observe_model,
    observe_shared,
)
from yaie_operator.reconcile.plan import (
    Apply,
    Remove,
    WritePlan,
    foreign_shared,
    is_our_shared,
    is_ours,
    plan,
)
from yaie_operator.reconcile.reasons import ConditionState, Reason, false, true
from yaie_operator.reconcile.refusals import (
    Changes,
    Refusal,
    Refusals,
    Streak,
    explain,
    tell,
)
from yaie_operator.reconcile.rollout.replicas import own_deployment
from yaie_operator.reconcile.rollout.strategy import Choice, choose
from yaie_operator.reconcile.sizes import Sizes, with_sizes
from yaie_operator.reconcile.status import (
    ScalingReport,
    Transition,
    flips,
    name_conflict,
    summarise,
)
from yaie_operator.resources import model_objects, router_objects
from yaie_operator.resources.overlay import TemplateTooLargeError
from yaie_operator.resources.shared import ANNOTATION_APPLIED, digest
from yaie_operator.watch import kinds

log = logging.getLogger(__name__)


async def _unknown(_pod: Object) -> Progress | None:
    return None


class Reconciler:
    """Makes one key's objects match the desired ones. `wake(key)` queues another key."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        config: OperatorConfig,
        clock: Callable[[], datetime],
        *,
        metrics: Metrics,
        wake: Callable[[str], None],
        scaling: Callable[[str, str], ScalingReport | None] = lambda _namespace, _name: None,
        progress: Callable[[Object], Awaitable[Progress | None]] = _unknown,
        sizes: Callable[[str, str], Sizes | None] = lambda _namespace, _name: None,
        new_key: Callable[[], bytes] = secrets.token_bytes,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._wake = wake
        self._scaling = scaling
        self._progress = progress
        self._sizes = sizes
        self._new_key = new_key
        self._refused = Refusals()
        self._refused_statuses: dict[str, Streak] = {}
        self._changed = Changes()
        self._models = ParsedModels()
        self._untold: dict[str, Object] = {}

    async def reconcile(self, key: str) -> float | None:
        """Reconcile a key; returns seconds until the next look, None: wait until an event wakes it.

        Raises:
            ConflictError: an object changed meanwhile; retry.
            NotFoundError: an object was deleted meanwhile; retry.
            UnreachableError: the API server does not answer; retry.

        """
        scope, namespace, *name = key.split("/")
        if scope == "namespace":
            return await self._namespace(namespace)
        return await self._model(namespace, name[0])

    async def _model(self, namespace: str, name: str) -> float | None:
        view = await self._observe(namespace, name)
        key = model_key(namespace, name)
        if view is None:
            self._refused.clear(key)
            self._changed.forget(namespace, name)
            self._models.forget(namespace, name)
            self._untold.pop(key, None)
            self._refused_statuses.pop(key, None)
            return None
        model, accepted = understand(view.model, self._models.parse)
        if model is not None:
            accepted = name_taken(view.model, view.namesakes) or accepted
        weights: Weights | None = None
        again_s = None
        if model is not None and accepted.is_true:
            weights = await self._weights(model, view)
            live = own_deployment(view)
            rollout = choose(model, live, view.pods, self._clock(), stored=weights.stored)
            again_s = self._config.progress_s if weights.held else rollout.again_s
            accepted = await self._write_model(key, model, view, weights, rollout)
            weights = without_image_volumes(weights, accepted)
            view = await self._observe(namespace, name)
        status_s = None
        if view is not None:
            status_s = await self._report(view, model, accepted, weights)
        return soonest(again_s if accepted.is_true else self._recheck_s(key), status_s)

    async def _weights(self, model: ServedModel, view: ModelView) -> Weights:
        """Decide about the weights; a download that runs is asked how far it is."""
        pod = running_pod(view)
        progress = await self._progress(pod) if pod is not None else None
        return decide(model, view, self._config, self._clock(), progress)

    async def _namespace(self, namespace: str) -> float | None:
        key = namespace_key(namespace)
        told = self._refused.message(key)
        view = await observe_shared(self._store, self._cluster, namespace)
        if not view.models:
            return await self._delete_shared(key, view)
        if foreign_shared(view, self._config):
            self._refused.clear(key)
            wait_s: float | None = self._config.recheck_s
            written = False
        else:
            decided = plan_router(view, self._config, self._new_key)
            outcome = await self._write_all(key, decided)
            wait_s = None if outcome.is_true else self._recheck_s(key)
            if not outcome.is_true:
                self._store.forget_lost(namespace)  # its address may be another's by now
            written = bool(decided.writes)
        if written or self._refused.message(key) != told:  # the models report a refusal
            self._wake_models(view)
        return wait_s

    def _recheck_s(self, key: str) -> float:
        """Seconds until the next look at a key whose writes did not all happen."""
        wait_s = self._refused.wait_s(key, self._clock())
        return self._config.recheck_s if wait_s is None else wait_s

    async def _delete_shared(self, key: str, view: SharedView) -> float | None:
        """Delete what the models of a namespace shared, if a live list has no model either; returns
        seconds until a refused delete is tried again.
        """
        ours = [obj for obj in view.objects.values() if is_our_shared(obj)]
        if not ours:
            self._refused.clear(key)
            self._store.forget_lost(view.namespace)
            return None
        models = await self._cluster.list(kinds.INFERENCE_MODEL, namespace=view.namespace)
        if models:  # their events are still to come
            for model in models:
                self._store.put(model)
            self._wake(key)
            return None
        outcome = await self._write_all(key, WritePlan(tuple(map(Remove, ours))))
        if not outcome.is_true:
            return self._recheck_s(key)
        self._store.forget_lost(view.namespace)
        return None

    async def _delete(self, ref: Ref, obj: Object) -> None:
        about = fields(kind=ref.kind, namespace=ref.namespace, object=ref.name)
        try:
            await self._cluster.delete(obj)
        except NotFoundError:
            log.info("already deleted", extra=about)
        except ConflictError:
            self._store.forget(ref)
            raise
        else:
            self._metrics.writes.labels(kind=ref.kind).inc()
            log.info("deleted", extra=about)
        self._store.remove(obj)

    async def _observe(self, namespace: str, name: str) -> ModelView | None:
        view = await observe_model(self._store, self._cluster, namespace, name)
        if view is None:
            return None
        refusal = self._refused.message(namespace_key(namespace))
        return replace(view, shared=replace(view.shared, refusal=refusal))

    async def _write_model(
        self, key: str, model: ServedModel, view: ModelView, weights: Weights, rollout: Choice
    ) -> ConditionState:
        """Write a model's children and return the Accepted condition."""
        try:
            decided = plan_model(model, view, self._config, weights, in_place=rollout.in_place)
        except TemplateTooLargeError as error:
            return false(Reason.INVALID_SPEC, f"spec: {error}.")
        return await self._write_all(key, decided)

    async def _write_all(self, key: str, decided: WritePlan) -> ConditionState:
        """Execute a plan and return the Accepted condition; a refusal ends the plan. The same
        writes wait after a refusal (`Refusals`), and those that a policy changes (`Changes`).
        """
        if decided.conflicts:
            return name_conflict(decided.conflicts)
        changes = [change for write in decided.writes if (change := self._changed.known(write))]
        writes = [write for write in decided.writes if self._changed.known(write) is None]
        left = identity_of(writes)
        if (refusal := self._refused.pending(key, left, self._clock())) is not None:
            return refused(refusal.message)
        for number, write in enumerate(writes):
            try:
                stored = await self._write(write)
            except RefusedError as error:
                left = identity_of(writes[number:])
                told = explain(write.ref, str(error))
                self._refused.add(key, left, told, self._clock())
                log.warning("write refused", extra=fields(key=key, error=told))
                return refused(told)
            if (change := self._changed.note(write, stored)) is not None:
                log.warning("a policy changed a write", extra=fields(key=key, told=tell([change])))
                changes.append(change)
        self._refused.clear(key)
        return true(Reason.VALID, f"The spec is valid. {tell(changes)}".strip())

    async def _write(self, write: Apply | Remove) -> Object | None:
        """Returns the object as it is stored now; None: it is deleted."""
        ref = write.ref
        if isinstance(write, Remove):
            await self._delete(ref, write.observed)
            return None
        try:
            applied = await self._send(write)
        except (ConflictError, NotFoundError):
            self._store.forget(ref)
            raise
        self._store.put(applied)
        self._metrics.writes.labels(kind=ref.kind).inc()
        about = fields(kind=ref.kind, namespace=ref.namespace, object=ref.name)
        log.info("applied", extra=about)
        return applied

    async def _send(self, write: Apply) -> Object:
        if write.replaces and write.observed is not None:
            return await self._cluster.replace(write.manifest, observed=write.observed)
        return await self._cluster.apply(write.manifest, observed=write.observed)

    async def _report(
        self,
        view: ModelView,
        model: ServedModel | None,
        accepted: ConditionState,
        weights: Weights | None,
    ) -> float | None:
        """Write the status and tell what has flipped; returns seconds until a refused status is
        tried again. Of a status that is not stored nothing is told.
        """
        spec = model.spec if model else None
        scaling = self._scaling(view.metadata["namespace"], view.metadata["name"])
        status = summarise(
            view, spec, accepted, self._config, self._clock(), scaling=scaling, weights=weights
        )
        sizes = self._sizes(view.metadata["namespace"], view.metadata["name"])
        status = with_sizes(status, view.model, sizes)
        key = model_key(view.metadata["namespace"], view.metadata["name"])
        is_new = status != view.model.get("status")
        if not is_new and key not in self._untold:
            return None
        refusal = await self._write_status(key, view.model, status) if is_new else None
        if refusal is not None:
            return (refusal.until - self._clock()).total_seconds()
        before = self._untold.pop(key, view.model)
        for transition in flips(before, status):
            await self._tell(view.model, transition)
        return None

    async def _write_status(self, key: str, model: Object, status: Object) -> Refusal | None:
        """Write a status; returns the refusal because of which it must wait, None: it is stored."""
        streak, content = self._refused_statuses.setdefault(key, Streak()), timeless(status)
        if (refusal := streak.pending(content, self._clock())) is not None:
            return refusal
        is_known = key in self._untold
        self._untold.setdefault(key, model)
        try:
            patched = await self._cluster.patch_status(model, status)
        except (ConflictError, NotFoundError):
            await self._read_again(model)
            raise
        except RefusedError as error:
            if not is_known:  # it has got its answer
                del self._untold[key]
            told = explain(Ref.of(model), str(error))
            log.warning("status refused", extra=fields(key=key, error=told))
            return streak.add(content, told, self._clock())
        streak.accept(content)
        self._store.put(patched)
        self._metrics.writes.labels(kind="InferenceModel/status").inc()
        return None

    async def _read_again(self, model: Object) -> None:
        """Store the live state of a model whose stored state is outdated. It stays in the store
        meanwhile: without it, the namespace would seem to have one model less.
        """
        ref = Ref.of(model)
        kind = kinds.INFERENCE_MODEL
        live = await self._cluster.get(kind, namespace=ref.namespace, name=ref.name)
        if live is None:
            self._store.remove(model)
        else:
            self._store.put(live)

    async def _tell(self, model: Object, transition: Transition) -> None:
        """Emit an Event for a transition. A failure is only logged: the condition is stored."""
        condition = transition.condition
        about = {
            "model": model["metadata"]["name"],
            "condition": transition.type.value,
            "status": condition.status,
            "reason": condition.reason.value,
        }
        log.info("condition flipped", extra=fields(**about))
        try:
            await self._cluster.emit(
                model,
                severity="Warning" if transition.is_warning else "Normal",
                reason=condition.reason.value,
                message=f"{transition.type}={condition.status}: {condition.message}",
            )
        except (RefusedError, UnreachableError, ConflictError, NotFoundError) as error:
            log.warning("event lost", extra=fields(**about, error=str(error)))

    def _wake_models(self, view: SharedView) -> None:
        for model in view.models:
            self._wake(model_key(view.namespace, model["metadata"]["name"]))


def refused(message: str) -> ConditionState:
    """The Accepted condition when the API server has refused a child. `message`: `explain`ed."""
    return false(Reason.REFUSED, f"The API server refused what the model needs: {message}")


def understand(
    obj: Object, parse: Callable[[Object], ServedModel] = ServedModel.parse
) -> tuple[ServedModel | None, ConditionState]:
    """Parse a stored object: (model, Accepted condition); the model is None if it is invalid."""
    try:
        return parse(obj), true(Reason.VALID, "The spec is valid.")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(step) for step in ("spec", *first["loc"]))
        return None, false(Reason.INVALID_SPEC, f"{path}: {first['msg']}; correct the spec.")


def name_taken(obj: Object, others: Iterable[Object]) -> ConditionState | None:
    """The Accepted condition of a model that serves a name of an older model; None: it does not.

    The router finds a model by its name, so the older one keeps it.
    """
    ours = served_names(obj)
    for other in others:
        if age_of(other) < age_of(obj) and (both := ours & served_names(other)):
            return false(
                Reason.NAME_TAKEN,
                f"The model name {min(both)} is served by InferenceModel "
                f"{other['metadata']['name']}, which is older; choose another "
                "spec.model.servedName or alias.",
            )
    return None


def soonest(*waits_s: float | None) -> float | None:
    """The shortest of these waits; None: wait until an event."""
    return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)


def timeless(status: Object) -> str:
    """A hash of a status. While it is not stored, each look gives new times to what has flipped."""
    conditions = [{**one, "lastTransitionTime": ""} for one in status["conditions"]]
    return digest({**status, "conditions": conditions})


def identity_of(writes: Sequence[Apply | Remove]) -> str:
    """A hash of what is to be written. A Secret has a new random key in each plan."""
    return digest([[*write.ref, _applied(write)] for write in writes])


def _applied(write: Apply | Remove) -> str:
    if isinstance(write, Remove):
        return "remove"
    if write.ref.kind == "Secret":
        return ""
    return str(write.manifest["metadata"]["annotations"][ANNOTATION_APPLIED])


def plan_model(
    model: ServedModel,
    view: ModelView,
    config: OperatorConfig,
    weights: Weights,
    *,
    in_place: bool = False,
) -> WritePlan:
    """Plan a model's own objects. `in_place`: how its rollout goes on (`rollout.strategy`).

    Raises:
        TemplateTooLargeError: the pod of its engines cannot be recorded.

    """
    ours = partial(is_ours, owner_uid=model.uid)
    objects = model_objects(
        model,
        config,
        deployment=own_deployment(view),
        in_place=in_place,
        stored=weights.stored,
        held=weights.held,
    )
    observed = {ref: obj for ref, obj in view.objects.items() if ref not in weights.kept}
    return plan((*weights.desired, *objects), observed, ours)


def without_image_volumes(weights: Weights, accepted: ConditionState) -> Weights:
    """What is said of the weights if the API server refuses to mount an image."""
    is_image = weights.condition is not None and weights.condition.reason == Reason.IMAGE_VOLUME
    if not is_image or accepted.is_true or "volumes[" not in accepted.message:
        return weights
    refused = false(
        Reason.NO_IMAGE_VOLUMES,
        "This cluster cannot mount an image as a volume: that takes Kubernetes 1.31 or newer with "
        "the feature gate ImageVolume; change that, or copy the weights to a volume and write "
        "pvc://CLAIM/PATH without cache.",
    )
    return replace(weights, condition=refused)


def plan_router(
    view: SharedView, config: OperatorConfig, new_key: Callable[[], bytes]
) -> WritePlan:
    """Plan the objects that the models of a namespace share."""
    desired: Sequence[Object] = router_objects(
        view.namespace,
        config,
        secret=_secret(view) or view.lost.get(kinds.SECRET.kind),
        lost_service=view.lost.get(kinds.SERVICE.kind),
        new_key=new_key,
    )
    return plan(desired, view.objects, is_our_shared)


def _secret(view: SharedView) -> Object | None:
    return next((obj for ref, obj in view.objects.items() if ref.kind == "Secret"), None)
