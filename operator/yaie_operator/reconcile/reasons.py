"""All condition types and reasons of an InferenceModel, with their meanings.

A `ConditionState` combines a status and a reason with a message, which names what the operator
waits for or what the user should do. The condition, the Event and the log line all come from it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Status = Literal["True", "False", "Unknown"]


class ConditionType(StrEnum):
    """Types of a model's conditions, in the order of `status.conditions`."""

    ACCEPTED = "Accepted"  # the spec is valid and its children's names are free
    CACHE_READY = "CacheReady"  # the weights are where the engines mount them; with spec.cache
    ENGINES_READY = "EnginesReady"  # all desired engines run the current spec and answer
    ROUTER_READY = "RouterReady"  # the namespace's router is available
    PROGRESSING = "Progressing"  # engines are being started or replaced
    AVAILABLE = "Available"  # at least one engine can be reached through the router
    SCALING_ACTIVE = "ScalingActive"  # the autoscaler decides; only with spec.autoscaling
    READY = "Ready"  # all that the spec asks for is running


class Reason(StrEnum):
    """Why a condition has its status."""

    # Accepted
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"  # the stored spec is not valid in this operator's version
    NAME_CONFLICT = "NameConflict"  # an object of another owner has a child's name
    NAME_TAKEN = "NameTaken"  # an older model of the namespace serves one of its names
    REFUSED = "Refused"  # the API server refused a child (quota, policy)

    # CacheReady
    STORED = "Stored"  # the weights are in the claim
    IMAGE_VOLUME = "ImageVolume"  # the nodes mount the weights as an image
    NO_IMAGE_VOLUMES = "NoImageVolumes"  # the cluster cannot mount an image as a volume
    DOWNLOADING = "Downloading"
    DOWNLOAD_FAILED = "DownloadFailed"  # it is tried again by itself
    CLAIM_MISSING = "ClaimMissing"  # there is no claim with the name in cache.claim
    CLAIM_PENDING = "ClaimPending"  # no volume has been found or made for the claim

    # EnginesReady, RouterReady
    ALL_READY = "AllReady"
    IDLE = "Idle"  # scaled to zero
    SUSPENDED = "Suspended"  # spec.suspend
    CREATING = "Creating"  # the Deployment was just written
    STARTING = "Starting"  # a pod is not ready yet
    DRAINING = "Draining"  # engines of the previous spec finish their requests
    UNSCHEDULABLE = "Unschedulable"  # a pod fits on no node
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CRASH_LOOP = "CrashLoop"  # a container ends repeatedly
    CONFIG_ERROR = "ConfigError"  # a Secret, volume or class that a pod refers to is missing

    # Progressing
    ROLLING_OUT = "RollingOut"
    COMPLETE = "Complete"
    DEADLINE_EXCEEDED = "DeadlineExceeded"  # rollout.progressDeadlineSeconds passed

    # Available
    REACHABLE = "Reachable"
    NO_ENGINE = "NoEngine"
    NO_ROUTER = "NoRouter"

    # ScalingActive (and Suspended)
    BY_LOAD = "ByLoad"
    AT_MAXIMUM = "AtMaximum"  # the load asks for more than spec.autoscaling.max
    NO_CAPACITY = "NoCapacity"  # more engines would not start either
    REPLICAS_OVERRIDDEN = "ReplicasOverridden"  # another writer set spec.replicas
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
