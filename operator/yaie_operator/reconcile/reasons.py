"""Every reason that a condition of an InferenceModel may give, and what it means.

A `ConditionState` is a reason with the message that tells what is awaited or what to do; it becomes
the condition, the Event and the log line alike.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Status = Literal["True", "False", "Unknown"]


class ConditionType(StrEnum):
    """Types of a model's conditions, in the order of `status.conditions`."""

    ACCEPTED = "Accepted"  # the spec is understood and its children's names are free
    ENGINES_READY = "EnginesReady"  # all desired engines run the current spec and answer
    ROUTER_READY = "RouterReady"  # the namespace's router answers
    PROGRESSING = "Progressing"  # engines are being started or replaced
    AVAILABLE = "Available"  # at least one engine can be reached through the router
    READY = "Ready"  # everything that was asked for is there


class Reason(StrEnum):
    """Why a condition has its status."""

    # Accepted
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"  # the stored spec is not one of this operator's version
    NAME_CONFLICT = "NameConflict"  # an object of somebody else holds a child's name
    REFUSED = "Refused"  # the API server refused a child (quota, policy)

    # EnginesReady, RouterReady
    ALL_READY = "AllReady"
    IDLE = "Idle"  # scaled to zero
    SUSPENDED = "Suspended"  # spec.suspend
    CREATING = "Creating"  # the Deployment was just written
    STARTING = "Starting"  # a pod runs and is not ready yet
    DRAINING = "Draining"  # engines of the previous spec finish their requests
    UNSCHEDULABLE = "Unschedulable"  # no node takes a pod
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CRASH_LOOP = "CrashLoop"  # a container keeps ending
    CONFIG_ERROR = "ConfigError"  # a Secret, volume or class that a pod names is missing

    # Progressing
    ROLLING_OUT = "RollingOut"
    COMPLETE = "Complete"
    DEADLINE_EXCEEDED = "DeadlineExceeded"  # rollout.progressDeadlineSeconds passed

    # Available
    REACHABLE = "Reachable"
    NO_ENGINE = "NoEngine"
    NO_ROUTER = "NoRouter"


@dataclass(frozen=True)
class ConditionState:
    """The status of one condition, and why."""

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
