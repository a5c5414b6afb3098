"""Which nodes of a cluster have room for an engine's pod, and whether a rollout has a spare place.

Pure: from nodes and pods as the API server lists them. A part of what the scheduler decides:
selector, required node affinity, taints, cordons, and the requests for GPUs, CPU and memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from yaie_operator.reconcile.quantity import amount

Object = Mapping[str, Any]
GPU: Final = "nvidia.com/gpu"
GPU_MEMORY: Final = "nvidia.com/gpu.memory"
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
"""Labels of GPU feature discovery: memory in MiB of a node's GPUs, and their product name."""
ASKED: Final = (GPU, "cpu", "memory")
_NAMES: Final = {GPU: "GPUs", "cpu": "CPU", "memory": "memory"}
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_MANY: Final = 1000
"""Places on a node where the pod asks for nothing that is counted."""


@dataclass(frozen=True, slots=True)
class Seat:
    """How many pods of a model a node has room for now, and why not more."""

    node: str
    gpus: int
    free_gpus: int | None
    product: str
    gpu_memory_bytes: int | None
    places: int
    why: str

    @property
    def matches(self) -> bool:
        """Whether the node could run the pod if it were empty."""
        return self.why == "" or self.why.startswith("no room")


def seats(nodes: Iterable[Object], pods: Sequence[Object] | None, pod: Object) -> list[Seat]:
    """A seat for each node, in the order of names. `pods`: of the whole cluster; None: they could
    not be listed, so what they take is not known. `pod`: the spec of the pod to place.
    """
    taken = None if pods is None else _taken(pods)
    ordered = sorted(nodes, key=lambda node: str(node["metadata"]["name"]))
    return [_seat(node, taken, pod) for node in ordered]


def _seat(node: Object, taken: Mapping[str, Mapping[str, Decimal]] | None, pod: Object) -> Seat:
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    allocatable = _amounts(node.get("status", {}).get("allocatable") or {})
    used = (taken or {}).get(name, {})
    free = {key: allocatable.get(key, Decimal(0)) - used.get(key, Decimal(0)) for key in ASKED}
    why = _mismatch(node, pod) or _too_small(allocatable, pod)
    places, short = _places(free, _requests(pod))
    memory = labels.get(GPU_MEMORY, "")
    return Seat(
        node=name,
        gpus=int(allocatable.get(GPU, 0)),
        free_gpus=None if taken is None else max(0, int(free[GPU])),
        product=labels.get(GPU_PRODUCT, ""),
        gpu_memory_bytes=int(memory) * 2**20 if memory.isdecimal() else None,
        places=0 if why else places,
        why=why or (f"no room: {_NAMES[short]} in use" if not places else ""),
    )


def _mismatch(node: Object, pod: Object) -> str:
    """Why a node would not take the pod even if it were empty, but for its size."""
    labels = node["metadata"].get("labels") or {}
    for key, value in (pod.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            has = f"is {labels[key]}" if key in labels else "is missing"
            return f"its label {key} {has}, the model asks for {value}"
    if not _affine(labels, pod):
        return "its labels do not match the model's node affinity"
    if node.get("spec", {}).get("unschedulable"):
        return "it is cordoned"
    for taint in node.get("spec", {}).get("taints") or ():
        if taint.get("effect") != "PreferNoSchedule" and not _tolerated(taint, pod):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"its taint {taint['key']}{value}:{taint['effect']} is not tolerated"
    if not _is_ready(node):
        return "it is not ready"
    return ""


def _tolerated(taint: Object, pod: Object) -> bool:
    return any(
        (one.get("key") or taint["key"]) == taint["key"]
        and one.get("effect") in (None, "", taint["effect"])
        and (one.get("operator") == "Exists" or (one.get("value") or "") == taint.get("value", ""))
        for one in pod.get("tolerations") or ()
    )


def _affine(labels: Mapping[str, str], pod: Object) -> bool:
    """Whether required node affinity holds: one of the terms, all expressions of a term."""
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(
        all(_holds(labels, one) for one in term.get("matchExpressions") or ())
        for term in required["nodeSelectorTerms"]
    )


def _holds(labels: Mapping[str, str], expression: Object) -> bool:
    key: str = expression["key"]
    values: Sequence[str] = expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case operator:
            number = labels.get(key, "")
            if not number.isdecimal():
                return False
            above = int(number) > int(values[0])
            return above if operator == "Gt" else int(number) < int(values[0])


def _too_small(allocatable: Mapping[str, Decimal], pod: Object) -> str:
    """What a node lacks even if it is empty."""
    for key, asked in _requests(pod).items():
        has = allocatable.get(key, Decimal(0))
        if has < asked:
            if key == GPU and not has:
                return "it has no GPU"
            return f"it has too little: {_NAMES[key]} {_shown(key, has)} of {_shown(key, asked)}"
    return ""


def _shown(key: str, value: Decimal) -> str:
    return f"{value / 2**30:.1f}Gi" if key == "memory" else f"{value:f}"


def _places(free: Mapping[str, Decimal], asked: Mapping[str, Decimal]) -> tuple[int, str]:
    """How many pods fit into what is free, and what limits them."""
    counts = {key: max(0, int(free[key] // need)) for key, need in asked.items()}
    if not counts:
        return _MANY, ""
    scarce = min(counts, key=lambda key: counts[key])
    return counts[scarce], scarce


def _taken(pods: Iterable[Object]) -> dict[str, dict[str, Decimal]]:
    """What the pods of each node ask for."""
    taken: dict[str, dict[str, Decimal]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if not node or pod.get("status", {}).get("phase") in _ENDED:
            continue
        mine = taken.setdefault(node, {})
        for key, value in _requests(pod["spec"]).items():
            mine[key] = mine.get(key, Decimal(0)) + value
    return taken


def _requests(spec: Object) -> dict[str, Decimal]:
    """What a pod asks for: the sum of its containers, or its largest init container."""
    total: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        for key, value in _asked_by(container).items():
            total[key] = total.get(key, Decimal(0)) + value
    for container in spec.get("initContainers") or ():
        for key, value in _asked_by(container).items():
            total[key] = max(total.get(key, Decimal(0)), value)
    return {key: value for key, value in total.items() if value > 0}


def _asked_by(container: Object) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return _amounts(asked)


def _amounts(quantities: Mapping[str, Any]) -> dict[str, Decimal]:
    """The quantities that are counted here."""
    found = {key: amount(str(quantities[key])) for key in ASKED if key in quantities}
    return {key: value for key, value in found.items() if value is not None}


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return next((c["status"] == "True" for c in conditions if c["type"] == "Ready"), True)


def rollout(places: int, *, wanted: int, running: int, strategy: str, max_surge: int) -> str:
    """How a rollout would go, in a sentence.

    `places`: pods that fit now. `wanted`, `running`: engines of the model. `strategy`, `max_surge`:
    of spec.rollout.
    """
    missing = max(0, wanted - running)
    if places < missing:
        return (
            f"{missing} engine{'s' if missing > 1 else ''} to start, room for {places}: the rest "
            "waits (Unschedulable) until something is freed."
        )
    if strategy == "Recreate":
        return "A rollout stops every engine before it starts new ones (rollout.strategy Recreate)."
    meanwhile = "nothing is served" if wanted == 1 else "one engine less serves"
    if max_surge == 0:
        return f"A rollout replaces engines one by one in their places: {meanwhile} meanwhile."
    if places > missing:
        return "A rollout has a spare place: the new engine is ready before an old one stops."
    if strategy == "Auto":
        return (
            "A rollout has no spare place: engines are replaced one by one in their places "
            f"(rollout.strategy Auto), and {meanwhile} meanwhile."
        )
    return (
        "A rollout has no spare place: the new engine would wait for one. Write rollout.strategy: "
        "Auto to replace engines in their places."
    )
