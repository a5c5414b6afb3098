"""Where the weights of one model stand: which claim and Job should exist, whether engines may use
them, and what the status says. Pure.

    claim ──▶ Job ──▶ pod downloads ──▶ its termination message ──▶ status (the lasting memory)
                       └── fails: the kubelet starts it again, what has come is kept

`status.cache.key` names the source and the claim that the stored weights are of. While it is that
of the spec, nothing is downloaded; a new claim or another source begins a new Job.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from yaie_api import names
from yaie_api.download.amounts import in_bytes
from yaie_api.download.messages import Progress, Result
from yaie_operator.cluster import Object, label
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.reconcile.cache.download import containers, phase, why_awaited
from yaie_operator.reconcile.observe import ModelView, Ref
from yaie_operator.reconcile.pods import condition_of
from yaie_operator.reconcile.reasons import ConditionState, Reason, false, true
from yaie_operator.resources import weights
from yaie_operator.resources.mounts import Stored, claim_name

MESSAGE_LAG: Final = timedelta(seconds=30)
"""After the end of a Job: how much later its pod's own end may be seen. A Job without its pod has
no result and is repeated, which finds the files and only checks them."""


@dataclass(frozen=True)
class Weights:
    """What is decided about one model's weights.

    Attributes:
        condition: CacheReady; None for a model without a cache.
        stored: where they are; None while they are awaited, and for a model without a claim.
        held: whether engines wait for them.
        desired: the claim and the Job that should exist.
        kept: children that stay as they are.
        status: `status.cache`; None without a claim.
        revision: `status.model.resolvedRevision`; "" while it is not known.

    """

    condition: ConditionState | None = None
    stored: Stored | None = None
    held: bool = False
    desired: tuple[Object, ...] = ()
    kept: frozenset[Ref] = frozenset()
    status: Mapping[str, Any] | None = None
    revision: str = ""

    @property
    def is_downloading(self) -> bool:
        return self.condition is not None and self.condition.reason == Reason.DOWNLOADING


def decide(
    model: ServedModel,
    view: ModelView,
    config: OperatorConfig,
    now: datetime,
    progress: Progress | None = None,
) -> Weights:
    """Decide about a model's weights. `progress`: what the download's pod says, if it answers."""
    match model.spec.cache.mode:
        case "pvc":
            return _in_claim(model, view, config, now, progress)
        case "image":
            mounted = true(Reason.IMAGE_VOLUME, "The nodes mount the weights as an image.")
            return Weights(condition=mounted)
        case "none":
            return Weights(revision=weights.named_commit(model))


def running_pod(view: ModelView) -> Object | None:
    """The pod of the download that runs now."""
    return next((pod for pod in view.downloads if phase(pod) == "Running"), None)


def _in_claim(
    model: ServedModel,
    view: ModelView,
    config: OperatorConfig,
    now: datetime,
    progress: Progress | None,
) -> Weights:
    own = weights.claim(model)
    claims = (own,) if own is not None else ()
    claim = view.claim
    if claim is None:  # the status keeps what it says, for the key and the revision in it
        last = (view.model.get("status") or {}).get("cache") or {"key": "", "bytes": 0}
        pinned = _pinned(view.model, weights.key_of(model, ""))
        return Weights(_no_claim(model), held=True, desired=claims, status=last, revision=pinned)
    key = weights.key_of(model, claim["metadata"]["uid"])
    stored = _recorded(view.model, key) or _result(view, key)
    if stored is not None:
        done = true(
            Reason.STORED,
            f"{in_bytes(stored.n_bytes)} of revision {stored.revision} are in the claim "
            f"{claim_name(model)}.",
        )
        return Weights(
            done,
            stored,
            desired=claims,
            kept=_job_refs(view),
            status=_stored_status(key, stored),
            revision=stored.revision,
        )
    pinned = _pinned(view.model, key)
    wanted = weights.job(model, config, key, pinned=pinned)
    jobs = () if _must_go(view.job, wanted, now) else (wanted,)
    last = _last_status(view.model, key)
    status = last if progress is None else {"key": key, **_figures(progress)}
    condition = why_awaited(model, view, claim, progress)
    return Weights(condition, held=True, desired=(*claims, *jobs), status=status, revision=pinned)


def _no_claim(model: ServedModel) -> ConditionState:
    name = claim_name(model)
    if model.spec.cache.claim is None:
        return false(Reason.CREATING, f"The PersistentVolumeClaim {name} is being written; wait.")
    return false(
        Reason.CLAIM_MISSING,
        f"There is no PersistentVolumeClaim {name} in this namespace: create it, or write "
        "cache.size instead of cache.claim to have one made.",
    )


def _must_go(job: Object | None, wanted: Object, now: datetime) -> bool:
    """Whether a Job cannot become the wanted one, or has ended without a result."""
    if job is None:
        return False
    if label(job, names.LABEL_TEMPLATE_HASH) != label(wanted, names.LABEL_TEMPLATE_HASH):
        return True
    ended = _ended_at(job)
    return ended is not None and now - ended > MESSAGE_LAG


def _ended_at(job: Object) -> datetime | None:
    for end in (condition_of(job, "Complete"), condition_of(job, "Failed")):
        if end.get("status") == "True":
            return datetime.fromisoformat(end["lastTransitionTime"])
    return None


def _recorded(model: Object, key: str) -> Stored | None:
    """The weights that the status remembers, if they are the wanted ones."""
    status = model.get("status") or {}
    cache, served = status.get("cache") or {}, status.get("model") or {}
    if cache.get("key") != key or not cache.get("folder"):
        return None
    return Stored(cache["folder"], served.get("resolvedRevision", ""), cache.get("bytes", 0))


def _result(view: ModelView, key: str) -> Stored | None:
    """The weights that a finished pod has told of, if they are the wanted ones."""
    for pod in view.downloads:
        if label(pod, names.LABEL_WEIGHTS) != key:
            continue
        for status in containers(pod):
            ended = status.get("state", {}).get("terminated") or {}
            found = Result.parse(ended.get("message") or "")
            if ended.get("exitCode") == 0 and found is not None:
                return Stored(found.folder, found.revision, found.bytes)
    return None


def _pinned(model: Object, key: str) -> str:
    """The revision that this source had when it was first stored: another claim gets the same."""
    status = model.get("status") or {}
    last = (status.get("cache") or {}).get("key", "")
    if weights.source_of(last) != weights.source_of(key):
        return ""
    return str((status.get("model") or {}).get("resolvedRevision") or "")


def _job_refs(view: ModelView) -> frozenset[Ref]:
    return frozenset({Ref.of(view.job)} if view.job is not None else ())


def _stored_status(key: str, stored: Stored) -> dict[str, Any]:
    return {
        "key": key,
        "folder": stored.folder,
        "bytes": stored.n_bytes,
        "totalBytes": stored.n_bytes,
    }


def _last_status(model: Object, key: str) -> dict[str, Any]:
    """What was said last of this download, without a speed, which is not known any more."""
    cache = (model.get("status") or {}).get("cache") or {}
    if cache.get("key") != key:
        return {"key": key, "bytes": 0}
    kept = {name: cache[name] for name in ("bytes", "totalBytes") if name in cache}
    return {"key": key, "bytes": 0, **kept}


def _figures(progress: Progress) -> dict[str, Any]:
    figures = {
        "bytes": progress.bytes,
        "totalBytes": progress.total_bytes,
        "bytesPerSecond": progress.bytes_per_second,
        "etaSeconds": progress.eta_seconds,
    }
    return {name: value for name, value in figures.items() if value is not None}
