"""`spec.autoscaling` and `status.scaling` of an InferenceModel."""

from typing import Final

from pydantic import ConfigDict, Field

from yaie_api.resource.schema import Part, Rule, rules

MOST_DECISIONS: Final = 5


class ScalingTarget(Part):
    """What each engine should bear. The target that asks for most engines decides."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.activeRequests) || has(self.queueSeconds) || has(self.kvUtilization)"
                " || has(self.ttftP95Seconds)",
                "autoscaling.target names no target; write for example activeRequests: 32",
            )
        )
    )

    active_requests: float | None = Field(
        default=None,
        ge=0.1,
        le=100_000,
        description="Requests in flight per engine, those that wait for an engine included.",
    )
    queue_seconds: float | None = Field(
        default=None,
        ge=0.01,
        le=3600,
        description="Time that a new request waits inside an engine before its first step.",
    )
    kv_utilization: float | None = Field(
        default=None,
        ge=0.05,
        le=1,
        description="Share of an engine's KV pages that live requests hold, for example 0.8.",
    )
    ttft_p95_seconds: float | None = Field(
        default=None,
        ge=0.01,
        le=3600,
        description="95th percentile of the time to first token, over the last minute.",
    )


class ScaleUp(Part):
    """How fast engines are added."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.windowSeconds) || !has(self.panicWindowSeconds) || "
                "self.panicWindowSeconds <= self.windowSeconds",
                "scaleUp.panicWindowSeconds is longer than scaleUp.windowSeconds; make it shorter",
            )
        )
    )

    window_seconds: int = Field(
        default=30, ge=2, le=600, description="Load is averaged over this time."
    )
    panic_window_seconds: int = Field(
        default=6,
        ge=2,
        le=600,
        description="If load averaged over this shorter time asks for panicFactor times the ready "
        "engines, it counts instead.",
    )
    panic_factor: float = Field(
        default=2.0, ge=1.0, le=100.0, description="See panicWindowSeconds."
    )


class ScaleDown(Part):
    """How slowly engines are taken away."""

    stabilization_seconds: int = Field(
        default=180,
        ge=0,
        le=86_400,
        description="Engines are taken away down to the most that was asked for in this time.",
    )


class Autoscaling(Part):
    """The operator sets `replicas` by load. Leave `replicas` out of the manifest then."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.min) || self.min <= self.max",
                "autoscaling.min is larger than autoscaling.max; lower min or raise max",
            ),
            Rule(
                "!has(self.min) || self.min > 0 || has(self.idleSeconds)",
                "autoscaling.min is 0 without autoscaling.idleSeconds; write after how many "
                "seconds without a request the last engine stops, for example idleSeconds: 600",
            ),
            Rule(
                "!has(self.idleSeconds) || (has(self.min) && self.min == 0)",
                "autoscaling.idleSeconds has a meaning with min: 0 only; write min: 0, or remove "
                "idleSeconds",
            ),
        )
    )

    min: int = Field(
        default=1, ge=0, le=1000, description="Fewest engines. 0 stops all of them when idle."
    )
    max: int = Field(ge=1, le=1000, description="Most engines.")
    target: ScalingTarget = Field(
        description="What each engine should bear. The target that asks for most engines decides."
    )
    scale_up: ScaleUp = Field(default=ScaleUp(), description="How fast engines are added.")
    scale_down: ScaleDown = Field(
        default=ScaleDown(), description="How slowly engines are taken away."
    )
    idle_seconds: int | None = Field(
        default=None,
        ge=10,
        le=604_800,
        description="With min: 0, time without any request after which the last engine stops. The "
        "next request starts one, and waits for it.",
    )


class ScalingInputs(Part):
    """What the decision was made from, over all engines."""

    active_requests: float = Field(default=0, ge=0, description="Requests in flight.")
    pending: float = Field(default=0, ge=0, description="Requests that waited for a first engine.")
    queue_seconds: float = Field(default=0, ge=0, description="Wait of a new request.")
    kv_utilization: float = Field(default=0, ge=0, description="Mean share of KV pages held.")
    ttft_p95_seconds: float = Field(default=0, ge=0, description="Time to first token, p95.")
    ready: int = Field(default=0, ge=0, description="Engines that were ready.")


class ScalingDecision(Part):
    """One change of `replicas` by the operator."""

    time: str = Field(
        max_length=64,
        description="When it was made.",
        json_schema_extra={"format": "date-time"},
    )
    before: int = Field(alias="from", ge=0, description="`replicas` before.")
    after: int = Field(alias="to", ge=0, description="`replicas` after.")
    reason: str = Field(max_length=64, description="One word for programs.")
    target: str = Field(default="", max_length=64, description="The target that decided.")
    message: str = Field(default="", max_length=512, description="The reason in a sentence.")
    inputs: ScalingInputs = Field(
        default=ScalingInputs(), description="What the decision was made from."
    )


class ScalingStatus(Part):
    """What the autoscaler decided."""

    desired: int = Field(default=0, ge=0, description="`replicas` as the autoscaler wants it.")
    last_decisions: tuple[ScalingDecision, ...] = Field(
        default=(),
        max_length=MOST_DECISIONS,
        description="The last five changes, the newest first.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
