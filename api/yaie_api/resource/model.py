"""The InferenceModel: one model, served by some engines, reachable by name through the router.

This is the single definition of the type. `crd.py` renders it for the API server, including
defaults, limits, CEL rules and descriptions; the operator, the local adapter and the command line
parse objects with it. All types are frozen. Only fields that are implemented are included.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field

from yaie_api.engine_config import DType
from yaie_api.resource.autoscaling import Autoscaling, ScalingStatus
from yaie_api.resource.cache import SOURCE_RULES as CACHE_RULES
from yaie_api.resource.cache import Cache, CacheStatus
from yaie_api.resource.pod_template import PodTemplate
from yaie_api.resource.schema import (
    DNS_SUBDOMAIN,
    ENV_NAME,
    IMAGE,
    LABEL_KEY,
    LABEL_VALUE,
    MAX_LABEL_KEY,
    REVISION,
    TEXT,
    Bytes,
    CPUs,
    Part,
    Rule,
    SecretKey,
    SecretName,
    ServedName,
    rules,
    setting,
)

SOURCE_RULES: Final = (
    Rule(
        "!self.startsWith('file:') && !self.startsWith('/')",
        "a path on disk works under `yaie up` only; in a cluster put the model on a volume and "
        "write pvc://CLAIM/PATH",
        cluster_only=True,
    ),
    Rule(
        "!self.startsWith('oci:')",
        "oci:// is an image that the nodes of a cluster mount; under `yaie up` write hf://ORG/NAME "
        "or file:///PATH of the unpacked image",
        local_only=True,
    ),
    Rule(
        "!self.startsWith('oci:') || self.matches('^oci://[A-Za-z0-9][-A-Za-z0-9._:/]*"
        "(@sha256:[0-9a-f]+)?(//[-A-Za-z0-9._]+(/[-A-Za-z0-9._]+)*)?$')",
        "write oci://IMAGE, for example oci://example.com/org/model:v1, or oci://IMAGE//FOLDER "
        "where the weights are in a folder of the image",
    ),
    Rule(
        "!self.startsWith('s3:') || "
        "self.matches('^s3://[a-z0-9][-a-z0-9.]*[a-z0-9](/[-A-Za-z0-9._=+]+)*/?$')",
        "write s3://BUCKET/PATH, where the files of one model are directly below PATH",
    ),
    Rule(
        "self.startsWith('builtin:') || self.startsWith('hf:') || self.startsWith('pvc:')"
        " || self.startsWith('file:') || self.startsWith('/') || self.startsWith('.')"
        " || self.startsWith('oci:') || self.startsWith('s3:')",
        "a source begins with its kind; write hf://ORG/NAME for a Hugging Face model, "
        "s3://BUCKET/PATH for a bucket, pvc://CLAIM/PATH for a volume, builtin://yaie-demo for the "
        "demo model",
    ),
    Rule(
        "!self.startsWith('builtin:') || self.matches('^builtin://[a-z0-9][-a-z0-9.]*$')",
        "write builtin://NAME, for example builtin://yaie-demo",
    ),
    Rule(
        "!self.startsWith('hf:') || "
        "self.matches('^hf://[A-Za-z0-9][-A-Za-z0-9._]*/[A-Za-z0-9][-A-Za-z0-9._]*"
        "(@[A-Za-z0-9][-A-Za-z0-9._/]*)?$')",
        "write hf://ORG/NAME or hf://ORG/NAME@REVISION, for example hf://Qwen/Qwen3-0.6B",
    ),
    Rule(
        "!self.startsWith('pvc:') || "
        "self.matches('^pvc://[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
        "(/[-A-Za-z0-9._]+)*/?$')",
        "write pvc://CLAIM/PATH, where CLAIM is a PersistentVolumeClaim of this namespace",
    ),
    Rule(
        "!self.contains('/../') && !self.endsWith('/..')",
        "a source does not contain '..'; write the path from the root of the volume",
    ),
    Rule(
        "!self.startsWith('.')",
        "a relative path means another folder to each process; write file:///ABSOLUTE/PATH under "
        "`yaie up`, pvc://CLAIM/PATH in a cluster",
    ),
    Rule(
        "!self.startsWith('file:') || self.startsWith('file:///')",
        "write file:///ABSOLUTE/PATH with three slashes",
    ),
)


class SecretRef(Part):
    """A key of a Secret in the model's namespace."""

    name: SecretName = Field(description="Name of a Secret in the model's namespace.")
    key: SecretKey = Field(default="token", description="Key in the Secret that holds the value.")


class ModelSource(Part):
    """Which weights are served, and under which names."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.revision) || self.source.startsWith('hf://')",
                "model.revision belongs to hf:// sources only; remove it, or name the version in "
                "the path of the volume",
            ),
            Rule(
                "!has(self.revision) || !self.source.contains('@')",
                "the revision is given twice; write it after the @ of model.source or in "
                "model.revision",
            ),
            Rule(
                "!has(self.secretRef) || self.source.startsWith('hf://')"
                " || self.source.startsWith('s3://')",
                "model.secretRef holds a Hugging Face token, or the credentials of an s3:// "
                "source; remove it for other sources",
            ),
            Rule(
                "!self.source.startsWith('s3://') || !has(self.secretRef)"
                " || !has(self.secretRef.key) || self.secretRef.key == 'token'",
                "the Secret of an s3:// source has the keys AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY; remove model.secretRef.key",
            ),
            Rule(
                "!has(self.servedName) || !has(self.aliases) || !(self.servedName in self.aliases)",
                "model.aliases repeats model.servedName; remove it from the list",
            ),
            Rule(
                "(has(self.servedName) ? self.servedName : '') == "
                "(has(oldSelf.servedName) ? oldSelf.servedName : '')",
                "model.servedName cannot change, clients and running engines know the old one; "
                "add the new name to model.aliases",
            ),
        )
    )

    source: str = Field(
        min_length=1,
        max_length=512,
        description=(
            "Where the weights come from: hf://ORG/NAME[@REVISION] (Hugging Face), "
            "s3://BUCKET/PATH (object storage), pvc://CLAIM/PATH (a PersistentVolumeClaim of this "
            "namespace), oci://IMAGE[//FOLDER] (an image that nodes mount, with cache.mode: image) "
            "or builtin://NAME (part of the engine image, for example builtin://yaie-demo)."
        ),
        json_schema_extra=rules(*SOURCE_RULES),
    )
    revision: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        pattern=REVISION,
        description="Branch, tag or commit of an hf:// source. A commit makes pods reproducible.",
    )
    served_name: ServedName | None = Field(
        default=None,
        description="Name that clients send as `model`. Default: the name of this object.",
    )
    aliases: tuple[ServedName, ...] = Field(
        default=(),
        max_length=16,
        description="Further names that clients may send as `model`.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with a Hugging Face token, for gated or private models; for s3:// one "
        "with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and if needed AWS_SESSION_TOKEN, "
        "AWS_REGION and AWS_ENDPOINT_URL.",
    )


class EnvSource(Part):
    """Where the value of an environment variable comes from."""

    secret_key_ref: SecretRef = Field(description="Key of a Secret in the model's namespace.")


class EnvVar(Part):
    """An environment variable of the engine container."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.value) != has(self.valueFrom)",
                "give each variable exactly one of value and valueFrom",
            ),
            Rule(
                "!self.name.startsWith('YAIE_')",
                "variables that begin with YAIE_ are set by the operator; remove it",
            ),
        )
    )

    name: str = Field(
        min_length=1,
        max_length=128,
        pattern=ENV_NAME,
        description="Name of the variable.",
    )
    value: str | None = Field(default=None, max_length=4096, pattern=TEXT, description="Its value.")
    value_from: EnvSource | None = Field(default=None, description="Takes the value from a Secret.")


MOST_TEXT: Final = 16_384
"""Most characters of all arguments together, and of all variables: the operator records the whole
pod in an annotation, for which Kubernetes has 256 KiB."""

GPU_PRODUCT: Final = "nvidia.com/gpu.product"
"""Label of a node: the product name of its GPUs, as NVIDIA's GPU feature discovery writes it."""

RESERVED_ARGS: Final = {
    "--host": "nothing, the operator sets it",
    "--port": "nothing, the operator sets it",
    "--device": "resources.gpu.count (0: CPU)",
    "--model": "model.source",
    "--revision": "model.revision",
    "--served-model-name": "model.servedName and model.aliases",
    "--max-model-len": "engine.maxModelLen",
    "--dtype": "engine.dtype",
    "--max-num-seqs": "engine.maxNumSeqs",
    "--gpu-memory-utilization": "engine.kvCache.memoryFraction",
    "--page-size": "engine.kvCache.pageSize",
    "--block-size": "engine.kvCache.pageSize",
    "--shutdown-timeout": "rollout.drainSeconds",
}
"""Engine flags that a typed field (or the operator) sets, and what to write instead."""


def _reserved(flag: str, instead: str) -> Rule:
    return Rule(
        f"!self.exists(a, a == '{flag}' || a.startsWith('{flag}='))",
        f"engine.args does not take {flag}; write instead: {instead}",
    )


class KVCache(Part):
    """Paged KV cache of each engine."""

    memory_fraction: float = setting("gpu_memory_utilization", ge=0.05, le=0.98)
    page_size: Literal[8, 16, 32, 64, 128] = setting("page_size")


class EngineSpec(Part):
    """How each engine runs."""

    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        pattern=IMAGE,
        description=(
            "Container image of the engine. Default: the operator's engine image at the time this "
            "model was created or last changed; upgrading the operator restarts no engine."
        ),
    )
    args: tuple[Annotated[str, Field(max_length=1024, pattern=TEXT)], ...] = Field(
        default=(),
        max_length=64,
        description="Further flags of `yaie serve`, for example --max-num-batched-tokens=4096.",
        json_schema_extra=rules(
            *(_reserved(f, i) for f, i in RESERVED_ARGS.items()),
            Rule(
                f"self.map(a, a.size()).sum() <= {MOST_TEXT}",
                f"engine.args holds more than {MOST_TEXT} characters in all; write long text into "
                "a file beside the weights and give its path",
            ),
        ),
    )
    env: tuple[EnvVar, ...] = Field(
        default=(),
        max_length=64,
        description="Environment variables of the engine container.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            **rules(
                Rule(
                    f"self.map(v, has(v.value) ? v.value.size() : 0).sum() <= {MOST_TEXT}",
                    f"engine.env holds more than {MOST_TEXT} characters in all; put long values "
                    "into a Secret and take them from there with valueFrom",
                )
            ),
        },
    )
    max_model_len: int | None = setting("max_model_len", le=16_777_216)
    dtype: DType = setting("dtype", about="type of weights and activations; ")
    kv_cache: KVCache = Field(default=KVCache(), description="Paged KV cache of each engine.")
    max_num_seqs: int | None = setting("max_num_seqs", le=8192)


class Toleration(Part):
    """A taint of nodes that engines accept, as in a Pod."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.operator != 'Exists' || !has(self.value)",
                "a toleration with operator Exists has no value; leave it out, or write Equal",
            ),
            Rule(
                "has(self.key) || self.operator == 'Exists'",
                "a toleration without a key accepts every taint; write operator: Exists",
            ),
            Rule(
                "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                "tolerationSeconds is for effect: NoExecute only",
            ),
        )
    )

    key: str | None = Field(
        default=None,
        max_length=MAX_LABEL_KEY,
        pattern=LABEL_KEY,
        description="Key of the taint.",
    )
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="Exists: any value. Equal: exactly `value`."
    )
    value: str | None = Field(
        default=None, max_length=63, pattern=LABEL_VALUE, description="Value of the taint."
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint. Default: every effect."
    )
    toleration_seconds: int | None = Field(
        default=None, ge=0, le=2_147_483_647, description="Seconds to stay under a NoExecute taint."
    )


class GPU(Part):
    """GPUs of each engine."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.type) || self.count > 0",
                "resources.gpu.type chooses nodes for an engine with a GPU; write count: 1, or "
                "remove type",
            ),
            Rule(
                "!has(self.type)",
                "resources.gpu.type chooses among the nodes of a cluster, and this machine has the "
                "GPUs that it has; remove type",
                local_only=True,
            ),
        )
    )

    count: int = Field(
        default=0,
        ge=0,
        le=1,
        description="GPUs per engine (nvidia.com/gpu): 1, or 0 to run on the CPU.",
    )
    type: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        pattern=LABEL_VALUE,
        description="Product name of the GPU, for example NVIDIA-L4: engines run on nodes whose "
        f"label {GPU_PRODUCT} has this value. NVIDIA's GPU feature discovery sets that label; "
        f"`kubectl get nodes -L {GPU_PRODUCT}` lists the values.",
    )


class Resources(Part):
    """What each engine needs, and where it may run."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.gpu) || !has(self.gpu.type) || !has(self.nodeSelector) || "
                f"!('{GPU_PRODUCT}' in self.nodeSelector)",
                f"the GPU's type is given twice; remove {GPU_PRODUCT} from resources.nodeSelector, "
                "or resources.gpu.type",
            )
        )
    )

    gpu: GPU = Field(default=GPU(), description="GPUs of each engine.")
    cpu: CPUs | None = Field(
        default=None, description='CPU request of each engine, for example "4" or "500m".'
    )
    memory: Bytes | None = Field(
        default=None, description="Memory request and limit of each engine, for example 16Gi."
    )
    node_selector: dict[
        Annotated[str, Field(max_length=MAX_LABEL_KEY, pattern=LABEL_KEY)],
        Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)],
    ] = Field(
        default_factory=dict,
        max_length=32,
        json_schema_extra=rules(
            Rule(
                f"self.all(key, key.size() <= {MAX_LABEL_KEY} && key.matches(r'{LABEL_KEY}'))",
                "a key of nodeSelector is a label's name, such as nvidia.com/gpu.product",
            )
        ),
        description="Labels that a node must carry to run an engine, for example "
        "nvidia.com/gpu.product: NVIDIA-L4.",
    )
    tolerations: tuple[Toleration, ...] = Field(
        default=(), max_length=32, description="Taints of nodes that engines accept."
    )
    priority_class_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=DNS_SUBDOMAIN,
        description="PriorityClass of the engine pods.",
    )
    runtime_class_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=DNS_SUBDOMAIN,
        description="RuntimeClass of the engine pods, for example nvidia.",
    )


class Rollout(Part):
    """How engines are replaced when the model changes."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.maxSurge) || !has(self.maxUnavailable) || "
                "self.maxSurge > 0 || self.maxUnavailable > 0",
                "rollout.maxSurge and rollout.maxUnavailable are both 0, so no engine could ever "
                "be replaced; write maxUnavailable: 1 where no spare GPU exists, else maxSurge: 1",
            ),
            Rule(
                "self.strategy != 'Surge' || !has(self.maxSurge) || self.maxSurge > 0",
                "rollout.strategy Surge starts a new engine before it stops an old one, which "
                "maxSurge: 0 forbids; write maxSurge: 1, or strategy: Auto",
            ),
            Rule(
                "self.strategy != 'Recreate' || ((!has(self.maxSurge) || self.maxSurge == 1) && "
                "(!has(self.maxUnavailable) || self.maxUnavailable == 0))",
                "rollout.strategy Recreate stops every engine before it starts new ones; leave "
                "maxSurge and maxUnavailable out, or write strategy: Auto",
            ),
        )
    )

    strategy: Literal["Auto", "Surge", "Recreate"] = Field(
        default="Auto",
        description="Auto: as Surge; where no node has room for the additional engine for 30 s, "
        "engines are replaced one by one in their places. Surge: a new engine is ready before an "
        "old one stops, however long it waits for a node. Recreate: every engine stops before new "
        "ones start; nothing is served meanwhile.",
    )
    max_surge: int = Field(
        default=1,
        ge=0,
        le=100,
        description="Engines that may run above `replicas` during a rollout. With 0 (and "
        "maxUnavailable 1) Auto replaces engines in their places from the start.",
    )
    max_unavailable: int = Field(
        default=0, ge=0, le=100, description="Engines that may be missing during a rollout."
    )
    drain_seconds: int = Field(
        default=300,
        ge=0,
        le=86_400,
        description="Longest time that running requests get to finish when an engine is stopped. "
        "It ends as soon as none is left.",
    )
    progress_deadline_seconds: int = Field(
        default=1800,
        ge=30,
        le=86_400,
        description="Time for a new engine to become ready. After it, the container is restarted "
        "and the model says Progressing=False; engines of the earlier spec keep serving.",
    )


class Routing(Part):
    """How the router chooses an engine for a request."""

    policy: Literal["PrefixAffinity", "LeastLoaded", "RoundRobin"] = Field(
        default="PrefixAffinity",
        description="PrefixAffinity: the engine that already holds the prompt's prefix, unless it "
        "is overloaded. LeastLoaded: fewest running requests. RoundRobin: each in turn.",
    )
    load_factor: float = Field(
        default=1.25,
        ge=1.0,
        le=10.0,
        description="PrefixAffinity leaves an engine that holds more than this multiple of the "
        "mean number of requests.",
    )
    timeout_seconds: int = Field(
        default=600,
        ge=1,
        le=86_400,
        description="Longest silence of an engine before the router gives the answer up. It bounds "
        "answers that do not stream; streams have shorter deadlines of the router's own.",
    )


class InferenceModelSpec(Part):
    """What the user asks for."""

    model_config = ConfigDict(json_schema_extra=rules(*CACHE_RULES))

    model: ModelSource = Field(
        description="Which weights are served, and under which names.",
    )
    engine: EngineSpec = Field(default=EngineSpec(), description="How each engine runs.")
    resources: Resources = Field(
        default=Resources(), description="What each engine needs, and where it may run."
    )
    cache: Cache = Field(default=Cache(), description="Where the weights are kept for all engines.")
    replicas: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Number of engines. `kubectl scale` changes it; with `autoscaling`, the "
        "operator does.",
    )
    autoscaling: Autoscaling | None = Field(
        default=None,
        description="The operator sets `replicas` by load. Leave `replicas` out of the manifest "
        "then.",
    )
    rollout: Rollout = Field(
        default=Rollout(), description="How engines are replaced when the model changes."
    )
    routing: Routing = Field(
        default=Routing(), description="How the router chooses an engine for a request."
    )
    pod_template: PodTemplate | None = Field(
        default=None,
        description="What an engine's pod has beyond the fields above, in the form of a Pod's "
        "template: labels, affinity, volumes, pull secrets. What could harm the node or the "
        "cluster is refused by name.",
    )
    suspend: bool = Field(
        default=False,
        description="true stops every engine and keeps this object and its `replicas`.",
    )

    @property
    def desired_replicas(self) -> int:
        """Engines that should run now."""
        return 0 if self.suspend else self.replicas

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> Self:
        """Validate a stored spec.

        Raises:
            ValidationError: (pydantic) the spec is not valid.

        """
        return cls.model_validate(spec)


class Condition(Part):
    """A metav1 condition: one aspect of the model's state."""

    type: str = Field(max_length=64, description="Aspect, for example Ready.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    observed_generation: int = Field(default=0, ge=0, description="Generation this was said about.")
    last_transition_time: str = Field(
        max_length=64,
        description="When `status` last flipped.",
        json_schema_extra={"format": "date-time"},
    )
    reason: str = Field(max_length=64, description="One word for programs.")
    message: str = Field(max_length=2048, description="What is awaited, or what to do.")


class ReplicaCounts(Part):
    """Engines by state."""

    desired: int = Field(default=0, ge=0, description="Engines that should run.")
    current: int = Field(default=0, ge=0, description="Engines that exist.")
    updated: int = Field(default=0, ge=0, description="Engines that run the current spec.")
    ready: int = Field(default=0, ge=0, description="Engines that answer requests.")
    draining: int = Field(default=0, ge=0, description="Engines that finish their last requests.")


class RolloutStatus(Part):
    """The rollout in progress or last done."""

    hash: str = Field(default="", max_length=64, description="Hash of the engine's part of spec.")
    step: str = Field(
        default="",
        max_length=32,
        description="Complete. Starting: no engine of an earlier spec is left. Surging: new ones "
        "start before old ones stop. Replacing: one by one in their places. Recreating. Stopped: "
        "the deadline has passed.",
    )
    blocked_by: str = Field(
        default="", max_length=2048, description="What the rollout waits for; empty if nothing."
    )


class ModelStatus(Part):
    """The model as it is served."""

    parameters: int | None = Field(default=None, ge=0, description="Number of its parameters.")
    weight_bytes: int | None = Field(
        default=None, ge=0, description="Memory of its weights in each engine, in bytes."
    )
    context_length: int | None = Field(
        default=None, ge=0, description="Longest prompt and answer together, in tokens."
    )
    resolved_revision: str | None = Field(
        default=None,
        max_length=128,
        description="Commit of an hf:// source that is in the cache or named in the spec; of an "
        "s3:// source a hash of its files.",
    )


class CapacityStatus(Part):
    """What one engine has room for, as it measured when it started."""

    kv_tokens: int = Field(
        default=0, ge=0, description="Tokens that the KV cache of an engine holds."
    )
    max_concurrency: float = Field(
        default=0,
        ge=0,
        description="Requests of the whole context length that an engine holds at once; many more "
        "of the usual length.",
    )


class InferenceModelStatus(Part):
    """What the operator observed. Only the operator writes it."""

    observed_generation: int = Field(default=0, ge=0, description="Generation of spec reported on.")
    phase: str = Field(default="", max_length=32, description="One word for people. See Ready.")
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=16,
        description="Aspects of the state, each with a reason and a message.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    replicas: ReplicaCounts = Field(default=ReplicaCounts(), description="Engines by state.")
    ready: str = Field(default="", max_length=16, description="Ready and desired engines: 1/2.")
    selector: str = Field(default="", max_length=256, description="Label selector of the engines.")
    endpoint: str = Field(default="", max_length=512, description="Base URL of the OpenAI API.")
    model: ModelStatus | None = Field(
        default=None,
        description="The model as it is served, as far as it is known: what engines say once one "
        "was ready, and the revision.",
    )
    cache: CacheStatus | None = Field(
        default=None, description="The weights in the claim. Absent without cache.mode: pvc."
    )
    capacity: CapacityStatus | None = Field(
        default=None,
        description="What one engine has room for. Absent until an engine was ready.",
    )
    rollout: RolloutStatus = Field(
        default=RolloutStatus(), description="The rollout in progress or last done."
    )
    scaling: ScalingStatus | None = Field(
        default=None, description="What the autoscaler decided. Absent without spec.autoscaling."
    )


__all__ = [
    "GPU",
    "RESERVED_ARGS",
    "Cache",
    "Condition",
    "EngineSpec",
    "EnvSource",
    "EnvVar",
    "InferenceModelSpec",
    "InferenceModelStatus",
    "KVCache",
    "ModelSource",
    "ModelStatus",
    "ReplicaCounts",
    "Resources",
    "Rollout",
    "RolloutStatus",
    "Routing",
    "SecretRef",
    "Toleration",
]
