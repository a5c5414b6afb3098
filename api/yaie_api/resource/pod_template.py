"""`spec.podTemplate` of an InferenceModel: what an engine's pod has beyond the typed fields.

It has the form of a Pod's template, so that what stands in another manifest can be copied. Only
what is harmless is taken, each field with the API server's own limits, so that the Deployment is
not refused later. Everything else that a Pod may have is refused by name, with what to write.
"""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from yaie_api import names
from yaie_api.resource.affinity import LabelSelector, PodAffinities
from yaie_api.resource.schema import (
    DATA_KEY,
    DATA_PATH,
    DNS_LABEL,
    DNS_SUBDOMAIN,
    IP,
    LABEL_KEY,
    LABEL_VALUE,
    MAX_LABEL_KEY,
    MEMORY,
    MOUNT_PATH,
    TEXT,
    Part,
    Rule,
    SecretName,
    keyed,
    refusing,
    rules,
)

CONTAINER: Final = "engine"
OWN_LABELS: Final = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "pod-template-hash",
)
OWN_VOLUMES: Final = ("tmp", "cache", "dshm", "model", "weights")
"""Names of the operator's own volumes."""

MOST_ANNOTATIONS: Final = 16_384
_KEYS: Final = Rule(
    f"self.all(key, key.size() <= {MAX_LABEL_KEY} && key.matches(r'{LABEL_KEY}'))",
    "a key has the form of a label's name, such as example.com/team",
)
_ENGINES: Final = "Default: the engines of this model."
_NODE: Final = "an engine does not see its node; leave it out"
_OPERATOR: Final = "the operator sets it; leave it out"
_ACCOUNT: Final = (
    "an engine has no credentials of the cluster; give it a Secret's value with engine.env"
)
_CONFINED: Final = (
    "the operator keeps pods within the Pod Security Standard `restricted`; leave it out"
)
_PREPARE: Final = (
    "an engine's pod has one container; prepare files in a Job that writes to a "
    "PersistentVolumeClaim"
)
_ROUTING: Final = "the router finds engines by address; leave it out"


def _instead(field: str) -> str:
    return f"write spec.{field} instead"


REFUSED_IN_SPEC: Final = {
    "serviceAccountName": ("string", _ACCOUNT),
    "serviceAccount": ("string", _ACCOUNT),
    "automountServiceAccountToken": ("boolean", "an engine has no credentials; leave it out"),
    "hostNetwork": ("boolean", _NODE),
    "hostPID": ("boolean", _NODE),
    "hostIPC": ("boolean", _NODE),
    "hostUsers": ("boolean", _NODE),
    "shareProcessNamespace": ("boolean", "an engine's pod has one container; leave it out"),
    "securityContext": ("object", _CONFINED),
    "initContainers": ("objects", _PREPARE),
    "ephemeralContainers": ("objects", "use `kubectl debug` on a pod"),
    "nodeSelector": ("object", _instead("resources.nodeSelector")),
    "tolerations": ("objects", _instead("resources.tolerations")),
    "priorityClassName": ("string", _instead("resources.priorityClassName")),
    "priority": ("integer", _instead("resources.priorityClassName")),
    "preemptionPolicy": ("string", _instead("resources.priorityClassName")),
    "runtimeClassName": ("string", _instead("resources.runtimeClassName")),
    "overhead": ("object", _instead("resources.runtimeClassName")),
    "resources": ("object", _instead("resources")),
    "resourceClaims": ("objects", _instead("resources.gpu")),
    "terminationGracePeriodSeconds": ("integer", _instead("rollout.drainSeconds")),
    "activeDeadlineSeconds": ("integer", "engines run until they are stopped; leave it out"),
    "restartPolicy": ("string", _OPERATOR),
    "enableServiceLinks": ("boolean", _OPERATOR),
    "readinessGates": ("objects", _OPERATOR),
    "schedulingGates": ("objects", "write suspend: true to hold engines back"),
    "nodeName": ("string", _instead("resources.nodeSelector")),
    "hostname": ("string", _ROUTING),
    "subdomain": ("string", _ROUTING),
    "setHostnameAsFQDN": ("boolean", _ROUTING),
    "os": ("object", "engines run on Linux; leave it out"),
}
REFUSED_IN_CONTAINER: Final = {
    "image": ("string", _instead("engine.image")),
    "imagePullPolicy": ("string", _OPERATOR),
    "command": ("strings", _instead("engine.args")),
    "args": ("strings", _instead("engine.args")),
    "env": ("objects", _instead("engine.env")),
    "envFrom": ("objects", "write spec.engine.env with valueFrom instead"),
    "resources": ("object", _instead("resources")),
    "ports": ("objects", _OPERATOR),
    "livenessProbe": ("object", _OPERATOR),
    "readinessProbe": ("object", _OPERATOR),
    "startupProbe": ("object", _instead("rollout.progressDeadlineSeconds")),
    "lifecycle": ("object", _OPERATOR),
    "securityContext": ("object", _CONFINED),
    "workingDir": ("string", _OPERATOR),
    "volumeDevices": ("objects", "engines read files; write volumeMounts instead"),
    "restartPolicy": ("string", _OPERATOR),
    "terminationMessagePath": ("string", _OPERATOR),
    "terminationMessagePolicy": ("string", _OPERATOR),
    "stdin": ("boolean", _OPERATOR),
    "tty": ("boolean", _OPERATOR),
}
_BY_CLAIM: Final = (
    "write a configMap, a secret, an emptyDir or a persistentVolumeClaim, behind which a "
    "StorageClass may have such a disk"
)
_OTHER_VOLUMES: Final = (
    "nfs", "csi", "ephemeral", "iscsi", "fc", "cephfs", "rbd", "glusterfs", "local",
    "awsElasticBlockStore", "azureDisk", "azureFile", "gcePersistentDisk", "gitRepo",
)  # fmt: skip
REFUSED_VOLUMES: Final = {
    "hostPath": (
        "object",
        "a hostPath opens the node's disk to the engine; put the files on a persistentVolumeClaim",
    ),
    "projected": ("object", "write a configMap and a secret as two volumes"),
    "downwardAPI": ("object", "the engine does not read it; leave it out"),
    "image": ("object", "put the files on a persistentVolumeClaim"),
    **dict.fromkeys(_OTHER_VOLUMES, ("object", _BY_CLAIM)),
}


class TemplateMetadata(Part):
    """Labels and annotations of the engines' pods, beside the operator's own."""

    labels: dict[
        Annotated[str, Field(max_length=MAX_LABEL_KEY, pattern=LABEL_KEY)],
        Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)],
    ] = Field(
        default_factory=dict,
        max_length=32,
        description="Labels of the pods, for example kueue.x-k8s.io/queue-name: gpus.",
        json_schema_extra=rules(
            _KEYS,
            Rule(
                f"self.all(key, !key.startsWith('{names.GROUP}/') && !(key in {list(OWN_LABELS)}))",
                f"the operator sets the labels {', '.join(OWN_LABELS)} and those of {names.GROUP}/ "
                "itself; choose another key",
            ),
        ),
    )
    annotations: dict[
        Annotated[str, Field(max_length=MAX_LABEL_KEY, pattern=LABEL_KEY)],
        Annotated[str, Field(max_length=4096, pattern=TEXT)],
    ] = Field(
        default_factory=dict,
        max_length=32,
        description='Annotations of the pods, for example sidecar.istio.io/inject: "false".',
        json_schema_extra=rules(
            _KEYS,
            Rule(
                f"self.all(key, !key.startsWith('{names.GROUP}/') && "
                "!key.startsWith('kubectl.kubernetes.io/'))",
                f"annotations of {names.GROUP}/ and kubectl.kubernetes.io/ are set by the operator "
                "and kubectl; choose another key",
            ),
            Rule(
                "self.all(key, !key.matches('security[.a-z]*[.]kubernetes[.]io/'))",
                "annotations of AppArmor and seccomp would loosen the pod's confinement; leave "
                "them out",
            ),
            Rule(
                f"self.map(key, self[key].size()).sum() <= {MOST_ANNOTATIONS}",
                f"the annotations hold more than {MOST_ANNOTATIONS} characters in all; put the "
                "text into a ConfigMap and mount it",
            ),
        ),
    )


class TopologySpread(Part):
    """How evenly the engines spread over zones or nodes."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
                "minDomains has a meaning with whenUnsatisfiable: DoNotSchedule only; write that, "
                "or remove minDomains",
            )
        )
    )

    max_skew: int = Field(
        ge=1, le=1000, description="Most engines that one domain may have above another."
    )
    topology_key: str = Field(
        max_length=MAX_LABEL_KEY,
        pattern=LABEL_KEY,
        description="Label of nodes that names their domain: topology.kubernetes.io/zone.",
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        description="DoNotSchedule: the pod waits. ScheduleAnyway: it goes where skew is least."
    )
    label_selector: LabelSelector | None = Field(
        default=None, description=f"Pods that are counted. {_ENGINES}"
    )
    min_domains: int | None = Field(
        default=None, ge=1, le=1000, description="Fewest domains that must exist."
    )
    node_affinity_policy: Literal["Honor", "Ignore"] | None = Field(
        default=None,
        description="Whether nodes that the pod does not select count. Default: Honor.",
    )
    node_taints_policy: Literal["Honor", "Ignore"] | None = Field(
        default=None,
        description="Whether nodes with taints that the pod does not tolerate are left out. "
        "Default: Ignore.",
    )


class KeyToPath(Part):
    """A key of a ConfigMap or Secret as a file."""

    key: Annotated[str, Field(pattern=DATA_KEY, min_length=1, max_length=253)] = Field(
        description="The key."
    )
    path: str = Field(
        max_length=512, pattern=DATA_PATH, description="Path of the file inside the volume."
    )


_ITEMS: Final = "Keys that become files. Default: every key, as a file of its name."
_OPTIONAL: Final = "true: the pod starts without it."


class ConfigMapVolume(Part):
    """Files from a ConfigMap of the model's namespace."""

    name: SecretName = Field(description="Name of the ConfigMap.")
    items: tuple[KeyToPath, ...] = Field(default=(), max_length=32, description=_ITEMS)
    optional: bool | None = Field(default=None, description=_OPTIONAL)


class SecretVolume(Part):
    """Files from a Secret of the model's namespace."""

    secret_name: SecretName = Field(description="Name of the Secret.")
    items: tuple[KeyToPath, ...] = Field(default=(), max_length=32, description=_ITEMS)
    optional: bool | None = Field(default=None, description=_OPTIONAL)


class EmptyDirVolume(Part):
    """An empty folder that goes with the pod."""

    medium: Literal["Memory"] | None = Field(
        default=None, description="Memory: the node's memory. Default: the node's disk."
    )
    size_limit: str | None = Field(
        default=None,
        max_length=32,
        pattern=MEMORY,
        description="Most bytes in it, for example 10Gi; above, the pod is evicted.",
    )


class ClaimVolume(Part):
    """A PersistentVolumeClaim of the model's namespace."""

    claim_name: str = Field(
        min_length=1, max_length=253, pattern=DNS_SUBDOMAIN, description="Name of the claim."
    )
    read_only: bool | None = Field(default=None, description="true: nothing can be written.")


class Volume(Part):
    """A volume that the engine's container may mount."""

    model_config = ConfigDict(
        json_schema_extra=refusing(
            REFUSED_VOLUMES,
            Rule(
                "[has(self.configMap), has(self.secret), has(self.emptyDir), "
                "has(self.persistentVolumeClaim)].filter(given, given).size() <= 1",
                "a volume comes from one place; write one of configMap, secret, emptyDir and "
                "persistentVolumeClaim",
            ),
            Rule(
                f"!(self.name in {list(OWN_VOLUMES)})",
                f"the operator has volumes named {', '.join(OWN_VOLUMES)} itself; choose another "
                "name",
            ),
        )
    )

    name: str = Field(
        min_length=1, max_length=63, pattern=DNS_LABEL, description="Name for volumeMounts."
    )
    config_map: ConfigMapVolume | None = Field(
        default=None, description="Files from a ConfigMap of the model's namespace."
    )
    secret: SecretVolume | None = Field(
        default=None, description="Files from a Secret of the model's namespace."
    )
    empty_dir: EmptyDirVolume | None = Field(
        default=None,
        description="An empty folder that goes with the pod. A volume without a source is one.",
    )
    persistent_volume_claim: ClaimVolume | None = Field(
        default=None, description="A PersistentVolumeClaim of the model's namespace."
    )


class VolumeMount(Part):
    """Where the engine sees a volume."""

    model_config = ConfigDict(
        json_schema_extra=refusing(
            {
                "mountPropagation": ("string", _NODE),
                "subPathExpr": ("string", "write subPath instead"),
                "recursiveReadOnly": ("string", "write readOnly: true instead"),
            },
            Rule(
                "!['/dev', '/proc', '/sys', '/models'].exists(own, self.mountPath == own || "
                "self.mountPath.startsWith(own + '/')) && !(self.mountPath in ['/tmp', '/cache'])",
                "/dev, /proc, /sys, /models, /tmp and /cache are the engine's own; write another "
                "mountPath, or one below /cache, where Hugging Face models go to "
                "/cache/huggingface",
            ),
        )
    )

    name: str = Field(
        min_length=1, max_length=63, pattern=DNS_LABEL, description="Name of a volume."
    )
    mount_path: str = Field(
        max_length=512,
        pattern=MOUNT_PATH,
        description="Path in the container. A claim at /cache/huggingface keeps downloads.",
    )
    sub_path: str | None = Field(
        default=None, max_length=512, pattern=DATA_PATH, description="Path inside the volume."
    )
    read_only: bool | None = Field(default=None, description="true: nothing can be written.")


class EngineContainer(Part):
    """What is added to the engine's container."""

    model_config = ConfigDict(json_schema_extra=refusing(REFUSED_IN_CONTAINER))

    name: str = Field(
        min_length=1, max_length=63, pattern=DNS_LABEL, description=f"Always {CONTAINER}."
    )
    volume_mounts: tuple[VolumeMount, ...] = Field(
        default=(),
        max_length=16,
        description="Volumes of podTemplate that the engine sees.",
        json_schema_extra=keyed("mountPath"),
    )


class PullSecret(Part):
    """A Secret with credentials of an image registry."""

    name: SecretName = Field(description="Name of a Secret in the model's namespace.")


class DNSOption(Part):
    """An option of the resolver."""

    name: str = Field(
        min_length=1, max_length=63, pattern=DNS_LABEL, description="Its name, for example ndots."
    )
    value: str | None = Field(
        default=None, max_length=63, pattern=LABEL_VALUE, description='Its value, for example "2".'
    )


class DNSConfig(Part):
    """The resolver of the pod, beside what dnsPolicy gives it."""

    nameservers: tuple[Annotated[str, Field(max_length=45, pattern=IP)], ...] = Field(
        default=(),
        max_length=3,
        description="Addresses of name servers.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    searches: tuple[Annotated[str, Field(max_length=253, pattern=DNS_SUBDOMAIN)], ...] = Field(
        default=(),
        max_length=8,
        description="Domains in which short names are looked up.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    options: tuple[DNSOption, ...] = Field(
        default=(), max_length=8, description="Options of the resolver."
    )


class HostAlias(Part):
    """Names of an address, as in /etc/hosts."""

    ip: str = Field(max_length=45, pattern=IP, description="The address.")
    hostnames: tuple[Annotated[str, Field(max_length=253, pattern=DNS_SUBDOMAIN)], ...] = Field(
        min_length=1, max_length=8, description="Its names."
    )


def _local(field: str, told: str) -> Rule:
    return Rule(f"!has(self.{field})", f"podTemplate.spec.{field}: {told}", local_only=True)


_MACHINE: Final = "under `yaie up` an engine uses this machine's names and addresses; remove it"
_DISK: Final = (
    "under `yaie up` an engine sees this machine's disk; write the paths in engine.args and remove "
    "it"
)


class PodOverlay(Part):
    """The allowed part of a Pod's spec."""

    model_config = ConfigDict(
        json_schema_extra=refusing(
            REFUSED_IN_SPEC,
            Rule(
                "!has(self.containers) || self.containers.all(c, !has(c.volumeMounts) || "
                "c.volumeMounts.all(m, has(self.volumes) && "
                "self.volumes.exists(v, v.name == m.name)))",
                "a volumeMount names a volume that podTemplate.spec.volumes does not have; add the "
                "volume there",
            ),
            Rule(
                "!has(self.dnsPolicy) || self.dnsPolicy != 'None' || (has(self.dnsConfig) && "
                "has(self.dnsConfig.nameservers) && self.dnsConfig.nameservers.size() > 0)",
                "dnsPolicy: None leaves the pod without a name server; write "
                "dnsConfig.nameservers too",
            ),
            _local("volumes", _DISK),
            _local("containers", _DISK),
            _local("dnsPolicy", _MACHINE),
            _local("dnsConfig", _MACHINE),
            _local("hostAliases", _MACHINE),
        )
    )

    affinity: PodAffinities | None = Field(
        default=None, description="Near to, or far from, which nodes and pods engines run."
    )
    topology_spread_constraints: tuple[TopologySpread, ...] = Field(
        default=(),
        max_length=4,
        description="How evenly the engines spread over zones or nodes.",
        json_schema_extra=keyed("topologyKey", "whenUnsatisfiable"),
    )
    volumes: tuple[Volume, ...] = Field(
        default=(),
        max_length=16,
        description="Further volumes, for containers[].volumeMounts.",
        json_schema_extra=keyed("name"),
    )
    containers: tuple[EngineContainer, ...] = Field(
        default=(),
        max_length=8,
        description=f"What is added to the container {CONTAINER}, by its name.",
        json_schema_extra={
            **keyed("name"),
            **rules(
                Rule(
                    f"self.all(container, container.name == '{CONTAINER}')",
                    f"an engine's pod has the container {CONTAINER} only; run anything else in "
                    "pods of its own",
                )
            ),
        },
    )
    image_pull_secrets: tuple[PullSecret, ...] = Field(
        default=(),
        max_length=8,
        description="Secrets with credentials of image registries.",
        json_schema_extra=keyed("name"),
    )
    scheduler_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=DNS_SUBDOMAIN,
        description="The scheduler that places the pods. Default: the cluster's own.",
    )
    dns_policy: Literal["ClusterFirst", "Default", "None"] | None = Field(
        default=None,
        description="ClusterFirst: the cluster's names, then the node's. Default: the node's "
        "resolver. None: dnsConfig alone.",
    )
    dns_config: DNSConfig | None = Field(
        default=None, description="The resolver of the pod, beside what dnsPolicy gives it."
    )
    host_aliases: tuple[HostAlias, ...] = Field(
        default=(),
        max_length=8,
        description="Lines of the pods' /etc/hosts.",
        json_schema_extra=keyed("ip"),
    )


class PodTemplate(Part):
    """What an engine's pod has beyond the typed fields, in the form of a Pod's template."""

    metadata: TemplateMetadata | None = Field(
        default=None,
        description="Labels and annotations of the engines' pods, beside the operator's own.",
    )
    spec: PodOverlay | None = Field(
        default=None, description="The allowed part of a Pod's spec; the rest is refused by name."
    )
