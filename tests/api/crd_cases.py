"""Specs that the CRD accepts or refuses: one table, run against `yaie_local.apiserver.admission`
and against a real API server.
"""

from dataclasses import dataclass, field
from typing import Any

from yaie_api import names


@dataclass(frozen=True)
class Case:
    """`refused`: a part of the message that the user must see; None when the object is accepted.

    `before` is the spec that is stored already, for transition rules.
    """

    title: str
    spec: dict[str, Any]
    refused: str | None = None
    name: str = "case"
    before: dict[str, Any] | None = field(default=None)

    def object(self, namespace: str, spec: dict[str, Any] | None = None) -> dict[str, Any]:
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": self.spec if spec is None else spec,
        }


def spec(source: str = "builtin://yaie-demo", **rest: Any) -> dict[str, Any]:
    model = {"source": source, **rest.pop("model", {})}
    return {"model": model, **rest}


def autoscaled(**autoscaling: Any) -> dict[str, Any]:
    return spec(autoscaling={"target": {"activeRequests": 8}, **autoscaling})


def source(title: str, value: str, refused: str | None = None) -> Case:
    return Case(title, spec(value), refused)


CASES = (
    Case("a negative cpu", spec(resources={"cpu": -4}), "spec.resources.cpu"),
    Case("a label with a space", spec(resources={"nodeSelector": {"a b": "c"}}), "label's name"),
    Case(
        "a label with a domain", spec(resources={"nodeSelector": {"nvidia.com/gpu.product": "L4"}})
    ),
    Case(
        "a toleration of any value with a value",
        spec(resources={"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}),
        "has no value",
    ),
    Case(
        "a toleration without a key",
        spec(resources={"tolerations": [{"operator": "Equal", "value": "b"}]}),
        "write operator: Exists",
    ),
    Case(
        "seconds of another effect",
        spec(
            resources={
                "tolerations": [
                    {
                        "key": "a",
                        "operator": "Exists",
                        "effect": "NoSchedule",
                        "tolerationSeconds": 5,
                    }
                ]
            }
        ),
        "NoExecute only",
    ),
    Case("the smallest spec", spec()),
    source("a Hugging Face model", "hf://Qwen/Qwen3-0.6B"),
    source("a Hugging Face model at a revision", "hf://Qwen/Qwen3-0.6B@main"),
    source("a volume", "pvc://models/llama/3.2"),
    source("the root of a volume", "pvc://models"),
    source("a bare repository name", "Qwen/Qwen3-0.6B", "write hf://ORG/NAME"),
    source("a file", "file:///models/a", "write pvc://CLAIM/PATH"),
    source("a path", "/models/a", "write pvc://CLAIM/PATH"),
    source(
        "an image without its cache",
        "oci://registry.example.com/a/b:v1",
        "cache.mode: image belong",
    ),
    Case(
        "an image that is none",
        spec("oci://registry.example.com/a b", cache={"mode": "image"}),
        "write oci://IMAGE, for example",
    ),
    Case(
        "an image's cache for another source",
        spec("hf://a/b", cache={"mode": "image"}),
        "cache.mode: image belong together",
    ),
    source("a relative path", "./llama", "write file:///ABSOLUTE/PATH"),
    source("a bucket", "s3://bucket/models/a"),
    source("a whole bucket", "s3://bucket"),
    source("a bucket in upper case", "s3://Bucket/a", "write s3://BUCKET/PATH"),
    Case("a bucket's credentials", spec("s3://b-1/a", model={"secretRef": {"name": "aws"}})),
    Case(
        "one key for a bucket",
        spec("s3://b-1/a", model={"secretRef": {"name": "aws", "key": "id"}}),
        "remove model.secretRef.key",
    ),
    Case("a cache", spec("hf://a/b", cache={"mode": "pvc", "size": "20Gi"})),
    Case("a cache for a bucket", spec("s3://b-1/a", cache={"mode": "pvc", "size": "20Gi"})),
    Case("a cache in a claim", spec("hf://a/b", cache={"mode": "pvc", "claim": "models"})),
    Case("no cache", spec(cache={"mode": "none"})),
    Case("an empty cache", spec(cache={})),
    Case(
        "a cache with all settings",
        spec(
            "hf://a/b",
            cache={
                "mode": "pvc",
                "size": "1Ti",
                "storageClass": "nfs",
                "accessMode": "ReadWriteMany",
            },
        ),
    ),
    Case(
        "a cache without a place",
        spec("hf://a/b", cache={"mode": "pvc"}),
        "cache.mode: pvc needs one of two",
    ),
    Case(
        "a cache with two places",
        spec("hf://a/b", cache={"mode": "pvc", "size": "1Gi", "claim": "models"}),
        "cache.mode: pvc needs one of two",
    ),
    Case(
        "a size without a mode",
        spec("hf://a/b", cache={"size": "1Gi"}),
        "belong to cache.mode: pvc",
    ),
    Case(
        "a class for a claim that exists",
        spec("hf://a/b", cache={"mode": "pvc", "claim": "models", "storageClass": "fast"}),
        "cache.claim has its own",
    ),
    Case(
        "a cache of what is not downloaded",
        spec(cache={"mode": "pvc", "size": "1Gi"}),
        "needs an hf:// or s3:// source",
    ),
    Case("an unknown cache", spec("hf://a/b", cache={"mode": "node"}), "spec.cache.mode"),
    Case(
        "a cache that grows",
        spec("hf://a/b", cache={"mode": "pvc", "size": "20Gi"}),
        before=spec("hf://a/b", cache={"mode": "pvc", "size": "10Gi"}),
    ),
    Case(
        "another class for a claim that is made",
        spec("hf://a/b", cache={"mode": "pvc", "size": "1Gi", "storageClass": "fast"}),
        "the storage class of a claim cannot change",
        before=spec("hf://a/b", cache={"mode": "pvc", "size": "1Gi"}),
    ),
    Case(
        "another access mode for a claim that is made",
        spec("hf://a/b", cache={"mode": "pvc", "size": "1Gi", "accessMode": "ReadWriteMany"}),
        "the access mode of a claim cannot change",
        before=spec("hf://a/b", cache={"mode": "pvc", "size": "1Gi"}),
    ),
    Case(
        "a claim that exists instead of one that is made",
        spec("hf://a/b", cache={"mode": "pvc", "claim": "models"}),
        before=spec("hf://a/b", cache={"mode": "pvc", "size": "1Gi"}),
    ),
    source("an unknown scheme", "http://example.org/a", "a source begins with its kind"),
    source("a Hugging Face name without organisation", "hf://gpt2", "write hf://ORG/NAME"),
    source("a climbing path", "pvc://models/../etc", "does not contain '..'"),
    source("a climbing end", "pvc://models/..", "does not contain '..'"),
    source("an upper-case claim", "pvc://Models/a", "write pvc://CLAIM/PATH"),
    source("an empty source", "", "spec.model.source"),
    source("a source of 600 characters", "hf://a/" + "b" * 600, "spec.model.source"),
    Case("no model", {}, "spec.model"),
    Case("a revision", spec("hf://a/b", model={"revision": "v1.0"})),
    Case(
        "a revision of a built-in model",
        spec(model={"revision": "v1.0"}),
        "model.revision belongs to hf:// sources only",
    ),
    Case(
        "a revision given twice",
        spec("hf://a/b@main", model={"revision": "v1.0"}),
        "the revision is given twice",
    ),
    Case("a token", spec("hf://a/b", model={"secretRef": {"name": "hf"}})),
    Case(
        "a token for a volume",
        spec("pvc://a/b", model={"secretRef": {"name": "hf"}}),
        "remove it for other sources",
    ),
    Case("names", spec(model={"servedName": "Qwen/Qwen3", "aliases": ["a", "b"]})),
    Case("an alias twice", spec(model={"aliases": ["a", "a"]}), "spec.model.aliases"),
    Case(
        "the served name among the aliases",
        spec(model={"servedName": "a", "aliases": ["b", "a"]}),
        "model.aliases repeats model.servedName",
    ),
    Case(
        "a changed served name",
        spec(model={"servedName": "b"}),
        "model.servedName cannot change",
        before=spec(model={"servedName": "a"}),
    ),
    Case(
        "a removed served name",
        spec(),
        "add the new name to model.aliases",
        before=spec(model={"servedName": "a"}),
    ),
    Case(
        "a changed source and a new alias",
        spec("hf://a/c", model={"servedName": "a", "aliases": ["c"]}),
        before=spec("hf://a/b", model={"servedName": "a"}),
    ),
    Case("a flag", spec(engine={"args": ["--max-num-batched-tokens=4096", "--enforce-eager"]})),
    Case(
        "a flag that a field owns",
        spec(engine={"args": ["--max-model-len=4096"]}),
        "write instead: engine.maxModelLen",
    ),
    Case(
        "a flag that the operator owns",
        spec(engine={"args": ["--port", "80"]}),
        "engine.args does not take --port",
    ),
    Case("65 flags", spec(engine={"args": ["--x"] * 65}), "spec.engine.args"),
    Case(
        "variables",
        spec(
            engine={
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ]
            }
        ),
    ),
    Case(
        "a variable without a value",
        spec(engine={"env": [{"name": "A"}]}),
        "exactly one of value and valueFrom",
    ),
    Case(
        "a variable of the operator",
        spec(engine={"env": [{"name": "YAIE_POD_NAME", "value": "x"}]}),
        "variables that begin with YAIE_ are set by the operator",
    ),
    Case(
        "a variable twice",
        spec(engine={"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
        "spec.engine.env",
    ),
    Case("an unknown dtype", spec(engine={"dtype": "int3"}), "spec.engine.dtype"),
    Case("an odd page size", spec(engine={"kvCache": {"pageSize": 17}}), "pageSize"),
    Case("all the memory", spec(engine={"kvCache": {"memoryFraction": 1.5}}), "memoryFraction"),
    Case("a context of nothing", spec(engine={"maxModelLen": 0}), "spec.engine.maxModelLen"),
    Case(
        "resources",
        spec(
            resources={
                "gpu": {"count": 1},
                "cpu": 2,
                "memory": "16Gi",
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "priorityClassName": "high",
                "runtimeClassName": "nvidia",
            }
        ),
    ),
    Case("a type of GPU", spec(resources={"gpu": {"count": 1, "type": "NVIDIA-H100-80GB-HBM3"}})),
    Case(
        "a type of GPU without a GPU",
        spec(resources={"gpu": {"type": "NVIDIA-L4"}}),
        "write count: 1, or remove type",
    ),
    Case(
        "a type of GPU twice",
        spec(
            resources={
                "gpu": {"count": 1, "type": "NVIDIA-L4"},
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"},
            }
        ),
        "given twice",
    ),
    Case(
        "a type of GPU with a space",
        spec(resources={"gpu": {"count": 1, "type": "NVIDIA L4"}}),
        "spec.resources.gpu.type",
    ),
    Case("no quantity", spec(resources={"memory": "lots"}), "spec.resources.memory"),
    Case("negative GPUs", spec(resources={"gpu": {"count": -1}}), "spec.resources.gpu.count"),
    Case("GPUs as a string", spec(resources={"gpu": {"count": "1"}}), "spec.resources.gpu.count"),
    Case("negative replicas", spec(replicas=-1), "spec.replicas"),
    Case("too many replicas", spec(replicas=1001), "spec.replicas"),
    Case(
        "a rollout that cannot move",
        spec(rollout={"maxSurge": 0}),
        "rollout.maxSurge and rollout.maxUnavailable are both 0",
    ),
    Case("a rollout without a spare GPU", spec(rollout={"maxSurge": 0, "maxUnavailable": 1})),
    Case("a rollout that stops everything first", spec(rollout={"strategy": "Recreate"})),
    Case("a rollout that waits", spec(rollout={"strategy": "Surge", "maxSurge": 2})),
    Case("an unknown strategy", spec(rollout={"strategy": "Canary"}), "spec.rollout.strategy"),
    Case(
        "a surge of none",
        spec(rollout={"strategy": "Surge", "maxSurge": 0, "maxUnavailable": 1}),
        "write maxSurge: 1, or strategy: Auto",
    ),
    *(
        Case(
            f"numbers for a recreation: {field}",
            spec(rollout={"strategy": "Recreate", field: 2}),
            "leave maxSurge and maxUnavailable out",
        )
        for field in ("maxSurge", "maxUnavailable")
    ),
    Case("an unknown policy", spec(routing={"policy": "Random"}), "spec.routing.policy"),
    Case("a load factor below one", spec(routing={"loadFactor": 0.5}), "spec.routing.loadFactor"),
    Case("a suspended model", spec(suspend=True)),
    Case("autoscaling by requests", autoscaled(max=4)),
    Case("autoscaling to zero", autoscaled(min=0, max=4, idleSeconds=600)),
    Case(
        "autoscaling by every target",
        autoscaled(
            max=4,
            target={
                "activeRequests": 8,
                "queueSeconds": 0.5,
                "kvUtilization": 0.8,
                "ttftP95Seconds": 2,
            },
            scaleUp={"windowSeconds": 60, "panicWindowSeconds": 4, "panicFactor": 1.5},
            scaleDown={"stabilizationSeconds": 60},
        ),
    ),
    Case("autoscaling without a maximum", autoscaled(min=1), "spec.autoscaling.max"),
    Case("autoscaling by nothing", autoscaled(max=4, target={}), "write for example"),
    Case("autoscaling by an unknown target", autoscaled(max=4, target={"cpu": 80}), "cpu"),
    Case("a minimum above the maximum", autoscaled(min=5, max=4), "lower min or raise max"),
    Case("zero engines for ever", autoscaled(min=0, max=4), "idleSeconds: 600"),
    Case("an idle time without zero", autoscaled(max=4, idleSeconds=600), "write min: 0"),
    Case(
        "a panic window above the window",
        autoscaled(max=4, scaleUp={"panicWindowSeconds": 60}),
        "make it shorter",
    ),
    Case("a name of 40 characters", spec(), name="a" * 40),
    Case("a name of 41 characters", spec(), "longer than 40 characters", name="a" * 41),
    Case("a name with a dot", spec(), "write qwen3-0-6b for qwen3-0.6b", name="qwen3-0.6b"),
    Case("a name that begins with a digit", spec(), "begins with a letter", name="3b"),
    Case("the router's name", spec(), "belong to the router", name="yaie-router"),
    Case("a name like the router's", spec(), "belong to the router", name="yaie-router-2"),
    Case("an unknown field", spec(modle={}), "modle"),
)
