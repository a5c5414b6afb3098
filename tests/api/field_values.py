"""Values that a field may be given by mistake or on purpose, from the field's own schema, and specs
with one such value each.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from yaie_api.resource import crd

FULL: Final[dict[str, Any]] = {
    "model": {
        "source": "hf://a/b", "revision": "main", "servedName": "a", "aliases": ["b"],
        "secretRef": {"name": "s", "key": "k"},
    },
    "engine": {
        "image": "a/b:c", "args": ["--seed=1"], "maxModelLen": 512, "dtype": "auto",
        "env": [{"name": "A", "value": "b"}], "maxNumSeqs": 4,
        "kvCache": {"memoryFraction": 0.5, "pageSize": 16},
    },
    "resources": {
        "gpu": {"count": 1, "type": "NVIDIA-L4"}, "cpu": "2", "memory": "1Gi",
        "nodeSelector": {"a": "b"},
        "tolerations": [
            {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute",
             "tolerationSeconds": 5},
        ],
        "priorityClassName": "a", "runtimeClassName": "b",
    },
    "replicas": 2,
    "autoscaling": {
        "min": 1, "max": 3,
        "target": {
            "activeRequests": 4, "queueSeconds": 1, "kvUtilization": 0.5, "ttftP95Seconds": 1,
        },
        "scaleUp": {"windowSeconds": 30, "panicWindowSeconds": 6, "panicFactor": 2},
        "scaleDown": {"stabilizationSeconds": 60},
    },
    "rollout": {
        "maxSurge": 1, "maxUnavailable": 1, "drainSeconds": 5, "progressDeadlineSeconds": 60,
    },
    "routing": {"policy": "RoundRobin", "loadFactor": 1.5, "timeoutSeconds": 60},
    "suspend": False,
}  # fmt: skip
"""A valid spec that sets nearly every field."""

_SELECTOR: Final = {
    "matchLabels": {"a": "b"},
    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
}
_POD_TERM: Final = {"topologyKey": "a", "labelSelector": _SELECTOR}
_PODS: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_POD_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "a"}},
    ],
}  # fmt: skip
_NODE_TERM: Final = {
    "matchExpressions": [
        {"key": "a", "operator": "NotIn", "values": ["b"]},
        {"key": "a", "operator": "Gt", "values": ["5"]},
    ],
}  # fmt: skip
POD: Final[dict[str, Any]] = {
    "model": {"source": "builtin://yaie-demo"},
    "podTemplate": {
        "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [_NODE_TERM],
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": _NODE_TERM},
                    ],
                },
                "podAffinity": _PODS,
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": {"topologyKey": "a"}},
                    ],
                },
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule",
                    "minDomains": 2, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor",
                },
                {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"},
            ],
            "volumes": [
                {"name": "a", "configMap": {
                    "name": "a", "items": [{"key": "a", "path": "b"}], "optional": True,
                }},
                {"name": "b", "secret": {
                    "secretName": "a", "items": [{"key": "a", "path": "b"}], "optional": True,
                }},
                {"name": "c", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "a", "readOnly": True}},
                {"name": "e"},
            ],
            "containers": [
                {"name": "engine", "volumeMounts": [
                    {"name": "a", "mountPath": "/a", "subPath": "b", "readOnly": True},
                    {"name": "d", "mountPath": "/cache/huggingface"},
                ]},
            ],
            "imagePullSecrets": [{"name": "a"}],
            "schedulerName": "a",
            "dnsPolicy": "None",
            "dnsConfig": {
                "nameservers": ["10.0.0.1", "fd00::1"], "searches": ["a.b"],
                "options": [{"name": "ndots", "value": "2"}],
            },
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a.b"]}],
        },
    },
}  # fmt: skip
"""A valid spec with every field of podTemplate."""

TEXTS: Final = (
    "", " ", "a", "A", "0", "-", ".", "..", "a.", ".a", "a..b", "a.-b", "-a", "a-", "a_b", "_",
    "a/b",
    "a/", "/a", "a/b/c", "A.b/c", "a b", "a\n", "\na", "a\tb", "a\0b", "\u00e9", "\uff41", "\u0430",
    "\u202ea", "$(HOSTNAME)", "`id`", "; id", "../a", "a" * 63, "a" * 64,
    f"{'a' * 63}.b/{'c' * 63}",
    f"{'a' * 64}/b", f"{'a' * 250}/bcdef", "1Gi", "0.5", "1.0001", "1m", "100m", "0m", "1e3", "1Ei",
    "-1", "999999Ti", "1000000Ti", "Equal", "Exists", "In", "true", "null",
)  # fmt: skip
POD_TEXTS: Final = (
    "", "a", "A", "..", "a..b", "a.b", "-a", "a_b", "a/b", "/a", "/a/../b", "a/../b", "a/..b",
    "a\n",
    "\u0430", "/", "/tmp", "/cache", "/cachet", "/dev/shm", "/models/x", "a" * 64, "tmp",
    "10.0.0.1",
    "010.0.0.1", "256.0.0.1", "::", "::1", "1::2::3", "1:2:3:4:5:6:7:8", "fe80::1%eth0", "In", "Lt",
    "Exists", "DoNotSchedule", "5", "-5", "1Gi", "0.5",
)  # fmt: skip
NUMBERS: Final = (-1, 0, 1, 2, 7, 2**31 - 1, 2**31, 2**63 - 1, 0.5, 1e18)
OTHERS: Final[tuple[Any, ...]] = ({}, [], True, {"a": "b"}, ["a"])


def specs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Full specs in which one value is another one, with a title each."""
    schema = crd.root_schema()["properties"]["spec"]
    for full, texts in ((FULL, TEXTS), (POD, POD_TEXTS)):
        for path, node in _fields(schema, full, ()):
            for value in _values(node, texts):
                title = f"{'.'.join(map(str, path))} = {value!r:.60}"
                yield title, _with(full, path, value)


def _fields(
    schema: Mapping[str, Any], value: Any, path: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    """The leaves that FULL sets, with their schemas."""
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.get("properties", {}).get(key) or schema["additionalProperties"]
            yield from _fields(child, item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _fields(schema["items"], item, (*path, index))
    else:
        yield path, schema


def _values(node: Mapping[str, Any], texts: tuple[str, ...]) -> Iterator[Any]:
    if node.get("x-kubernetes-int-or-string") or node["type"] == "string":
        yield from texts
        longest = node.get("maxLength")
        if longest is not None:
            yield from ("a" * longest, "a" * (longest + 1))
    if node.get("type") in {"integer", "number"} or node.get("x-kubernetes-int-or-string"):
        yield from NUMBERS
        for bound in (node.get("minimum"), node.get("maximum")):
            if bound is not None:
                yield from (bound - 1, bound, bound + 1)
    yield from OTHERS


def _with(full: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    spec = copy.deepcopy(full)
    at: Any = spec
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return spec
