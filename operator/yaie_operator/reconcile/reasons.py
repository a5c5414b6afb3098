"""All condition types and reasons of an InferenceModel, with their meanings and remedies.

A `ConditionState` combines a status and a reason with a message, which names what the operator
waits for or what the user should do. The condition, the Event and the log line all come from it.
`docs/conditions.md` is written from the two tables at the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple

Status = Literal["True", "False", "Unknown"]


class ConditionType(StrEnum):
    """Types of a model's conditions, in the order of `status.conditions`."""

    ACCEPTED = "Accepted"
    CACHE_READY = "CacheReady"
    ENGINES_READY = "EnginesReady"
    ROUTER_READY = "RouterReady"
    PROGRESSING = "Progressing"
    AVAILABLE = "Available"
    SCALING_ACTIVE = "ScalingActive"
    READY = "Ready"


class Reason(StrEnum):
    """Why a condition has its status."""

    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    NAME_CONFLICT = "NameConflict"
    NAME_TAKEN = "NameTaken"
    REFUSED = "Refused"

    STORED = "Stored"
    IMAGE_VOLUME = "ImageVolume"
    NO_IMAGE_VOLUMES = "NoImageVolumes"
    DOWNLOADING = "Downloading"
    DOWNLOAD_FAILED = "DownloadFailed"
    CLAIM_MISSING = "ClaimMissing"
    CLAIM_PENDING = "ClaimPending"

    ALL_READY = "AllReady"
    IDLE = "Idle"
    SUSPENDED = "Suspended"
    CREATING = "Creating"
    STARTING = "Starting"
    DRAINING = "Draining"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CRASH_LOOP = "CrashLoop"
    CONFIG_ERROR = "ConfigError"

    ROLLING_OUT = "RollingOut"
    COMPLETE = "Complete"
    DEADLINE_EXCEEDED = "DeadlineExceeded"

    REACHABLE = "Reachable"
    NO_ENGINE = "NoEngine"
    NO_ROUTER = "NoRouter"
    NO_ENDPOINT = "NoEndpoint"

    BY_LOAD = "ByLoad"
    AT_MAXIMUM = "AtMaximum"
    NO_CAPACITY = "NoCapacity"
    REPLICAS_OVERRIDDEN = "ReplicasOverridden"
    METRICS_MISSING = "MetricsMissing"


@dataclass(frozen=True)
class ConditionState:
    """The status of one condition, with reason and message."""

    status: Status
    reason: Reason
    message: str

    @property
    def is_true(self) -> bool:
        return self.status == "True"


def true(reason: Reason, message: str) -> ConditionState:
    return ConditionState("True", reason, message)


def false(reason: Reason, message: str) -> ConditionState:
    return ConditionState("False", reason, message)


TYPES: Final[Mapping[ConditionType, str]] = {
    ConditionType.ACCEPTED: "The spec is valid, and the operator could write what it asks for.",
    ConditionType.CACHE_READY: "The weights are where the engines mount them. Only with "
    "`spec.cache`.",
    ConditionType.ENGINES_READY: "Every engine that should run has the current spec and answers.",
    ConditionType.ROUTER_READY: "The router of the namespace answers.",
    ConditionType.PROGRESSING: "Engines are being started or replaced. False when that is done.",
    ConditionType.AVAILABLE: "At least one engine can be reached through the router.",
    ConditionType.SCALING_ACTIVE: "The operator sets `replicas` by load. Only with "
    "`spec.autoscaling`.",
    ConditionType.READY: "Everything that the spec asks for runs. Otherwise it has the reason of "
    "the first of Accepted, CacheReady, EnginesReady and RouterReady that is not true.",
}
"""What each condition says when it is true."""


class Guide(NamedTuple):
    """What a reason means, and what the user does about it."""

    meaning: str
    remedy: str


_NOTHING: Final = "Nothing."
_WAIT: Final = "Wait."

GUIDE: Final[Mapping[Reason, Guide]] = {
    Reason.VALID: Guide("The spec is valid and was written down as it is.", _NOTHING),
    Reason.INVALID_SPEC: Guide(
        "This operator does not understand the stored spec. The message names the field.",
        "Correct the field. A spec that the CRD accepted and the operator refuses comes from a CRD "
        "of another version: apply the CRD of the operator's release.",
    ),
    Reason.NAME_CONFLICT: Guide(
        "An object of somebody else has a name that a child of the model needs. It is not touched.",
        "Delete that object, or give the model another name.",
    ),
    Reason.NAME_TAKEN: Guide(
        "An older model of the namespace serves one of this model's names.",
        "Choose another `spec.model.servedName` or alias.",
    ),
    Reason.REFUSED: Guide(
        "The API server refused a child, or with ScalingActive a change of `replicas`: a quota, an "
        "admission policy, a missing right.",
        "Raise the quota, change the policy or the spec, as the message says. The operator tries "
        "again after 10 s, and then less and less often, at least every half hour; a changed spec "
        "is tried at once.",
    ),
    Reason.STORED: Guide("The weights are in the claim, and no engine needs the hub.", _NOTHING),
    Reason.IMAGE_VOLUME: Guide("The nodes mount the weights as an image.", _NOTHING),
    Reason.NO_IMAGE_VOLUMES: Guide(
        "This cluster cannot mount an image as a volume.",
        "Use Kubernetes 1.31 or newer with the feature gate ImageVolume, or copy the weights to a "
        "volume and write `pvc://CLAIM/PATH` without `spec.cache`.",
    ),
    Reason.DOWNLOADING: Guide(
        "The weights are being downloaded into the claim. The message and `status.cache` say how "
        "far it is.",
        _WAIT,
    ),
    Reason.DOWNLOAD_FAILED: Guide(
        "The last try of the download failed. The message is its own.",
        "Do as the message says. It is tried again by itself after 10 s, then less and less often, "
        "at least every five minutes, and goes on where it was.",
    ),
    Reason.CLAIM_MISSING: Guide(
        "There is no PersistentVolumeClaim with the name in `spec.cache.claim`.",
        "Create it, or write `spec.cache.size` instead, and the operator makes one.",
    ),
    Reason.CLAIM_PENDING: Guide(
        "The cluster has found or made no volume for the claim. The message is the scheduler's.",
        "Name a storage class that exists in `spec.cache.storageClass` (`kubectl get "
        "storageclass` lists them), or a claim of your own in `spec.cache.claim`.",
    ),
    Reason.ALL_READY: Guide("All that should run, runs.", _NOTHING),
    Reason.IDLE: Guide(
        "The model is scaled to zero.",
        "With `spec.autoscaling` nothing: the next request starts an engine, and waits for it. "
        "Otherwise `kubectl scale ym NAME --replicas=1`.",
    ),
    Reason.SUSPENDED: Guide(
        "`spec.suspend` is true: no engine runs, and nothing scales.",
        "Set `spec.suspend` to false.",
    ),
    Reason.CREATING: Guide("The operator has just written the Deployment.", _WAIT),
    Reason.STARTING: Guide(
        "A pod is not ready yet: it waits for its node, or loads the model.",
        "Wait. If it takes longer than the weights' size explains: `kubectl logs POD`.",
    ),
    Reason.DRAINING: Guide(
        "Engines of the previous spec finish their requests.",
        "Wait: at most `spec.rollout.drainSeconds`.",
    ),
    Reason.UNSCHEDULABLE: Guide(
        "No node has what the pod asks for: GPUs, memory, labels. The message is the scheduler's.",
        "Free or add a node, or ask for less in `spec.resources`. "
        "`kubectl get nodes -L nvidia.com/gpu.product` lists the types of GPUs.",
    ),
    Reason.IMAGE_PULL_FAILED: Guide(
        "A node cannot get the image.",
        "Correct `spec.engine.image`, load the image on the node, or name a pull secret in "
        "`spec.podTemplate.spec.imagePullSecrets`.",
    ),
    Reason.CRASH_LOOP: Guide(
        "A container ends again and again. The message is what it wrote when it ended.",
        "Do as the message says; `kubectl logs POD -c engine --previous` has the rest.",
    ),
    Reason.CONFIG_ERROR: Guide(
        "Something that a pod refers to does not exist: a Secret, a key in it, a claim, a class. "
        "Or the namespace's quota or policy refuses pods.",
        "Create what the message names, or correct the spec.",
    ),
    Reason.ROLLING_OUT: Guide("Engines are being started or replaced.", _WAIT),
    Reason.COMPLETE: Guide("All engines run the current spec.", _NOTHING),
    Reason.DEADLINE_EXCEEDED: Guide(
        "No new engine became ready within `spec.rollout.progressDeadlineSeconds`. Engines of the "
        "previous spec go on serving.",
        "The condition EnginesReady has the cause. To go back, apply the previous spec.",
    ),
    Reason.REACHABLE: Guide("Requests are answered.", _NOTHING),
    Reason.NO_ENGINE: Guide("No engine is ready.", "The condition EnginesReady has the cause."),
    Reason.NO_ROUTER: Guide(
        "Engines are ready, the router is not.", "The condition RouterReady has the cause."
    ),
    Reason.NO_ENDPOINT: Guide(
        "Pods are ready, but their Service does not lead to them.",
        "Nothing: the operator restores the Service's selector and ports. If it lasts, compare the "
        "Service with its EndpointSlices.",
    ),
    Reason.BY_LOAD: Guide("The load decides about `replicas`.", _NOTHING),
    Reason.AT_MAXIMUM: Guide(
        "The load asks for more than `spec.autoscaling.max` engines.",
        "Raise `max`, if there is room for more engines.",
    ),
    Reason.NO_CAPACITY: Guide(
        "The load asks for more engines, and some of those that were asked for do not start.",
        "The condition EnginesReady has the cause; most often no node has a free GPU.",
    ),
    Reason.REPLICAS_OVERRIDDEN: Guide(
        "Somebody else set `spec.replicas` within the last minutes. The load decides again.",
        "Leave `replicas` out of manifests that are applied, or remove `spec.autoscaling`.",
    ),
    Reason.METRICS_MISSING: Guide(
        "Not every router and ready engine answers the operator on `/metrics`. `replicas` does "
        "not fall meanwhile.",
        "The operator's log names the pods. Look for a NetworkPolicy between it and them, and "
        "whether they want an API key that it lacks.",
    ),
}
"""Every reason, in the order of `Reason`."""
